//! `weir log seal` and `weir log finalize-upgrade`.

use super::Done;
use super::error::Failed;
use super::info::size;
use std::path::PathBuf;
use std::process::ExitCode;
use weir_log::dir::LogDir;
use weir_log::reader::Logs;
use weir_log::retention::Retention;
use weir_log::say;
use weir_log::store::Store;
use weir_log::upkeep::{Upkeep, wall_clock};

/// Arguments of `weir log seal`.
#[derive(Debug, clap::Args)]
pub struct SealArgs {
    /// The data directory of a stopped server.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Arguments of `weir log finalize-upgrade`.
#[derive(Debug, clap::Args)]
pub struct FinalizeArgs {
    /// The data directory of a stopped server.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Runs `weir log seal`.
pub fn run_seal(args: &SealArgs) -> Done {
    let mut logs = Logs::open(&args.data)?;
    let hot_steps = logs.hot().is_some_and(|hot| hot.pools().iter().any(|pool| hot.oldest(pool).is_some()));
    let Some(store) = logs.store() else {
        return Err(Failed::Other("the hot window is not open".to_owned()));
    };
    if hot_steps {
        store.rotate_now()?;
    }
    let id = store.dir().description().log_id_bytes();
    let upkeep = Upkeep::new(&args.data, id, store.format(), store.window(), Retention::default());
    let round = upkeep.round(wall_clock())?;
    for segment in &round.sealed {
        say!(
            "{}: sequences {} to {}, {}",
            segment.path.display(),
            segment.first_seq,
            segment.last_seq,
            size(segment.bytes)
        )?;
    }
    for (pool, seq) in &round.snapshots {
        say!("snapshot of pool {pool} at sequence {seq}")?;
    }
    if round.sealed.is_empty() {
        say!("everything is sealed already")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir log finalize-upgrade`.
pub fn run_finalize(args: &FinalizeArgs) -> Done {
    let (before, after) = LogDir::finalize_upgrade(&args.data)?;
    if before.format == after.format {
        say!("format {} already: nothing to do", after.format)?;
    } else {
        say!("format raised from {} to {}", before.format, after.format)?;
        say!(
            "releases that do not know format {} can no longer read what is written from now on",
            after.format
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
