//! `weir projections`: how far the read models of a stopped data directory are, and folding them anew.

use super::query::{of_logs, open};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use weir_log::describe::show_time;
use weir_log::reader::Logs;
use weir_log::say;
use weir_projection::{Position, Projections};

/// Arguments of `weir projections`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Projections are caches of the log (DATA/projections): they can be deleted at any time while the server is stopped.

Examples:
  weir projections info --data ./data
  weir projections rebuild --data ./data")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// How far they are, pool by pool.
    Info(Data),
    /// Throw them away and fold them from the log.
    Rebuild(Data),
}

#[derive(Debug, clap::Args)]
struct Data {
    /// The data directory of a stopped server.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Runs `weir projections`.
pub fn run(args: &Args) -> ExitCode {
    let done = match &args.command {
        Command::Info(data) => info(data),
        Command::Rebuild(data) => rebuild(data),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir projections: {error}");
            ExitCode::FAILURE
        }
    }
}

fn info(at: &Data) -> Result<(), String> {
    let (_logs, projections) = open(&at.data)?;
    for pool in projections.pools() {
        line(pool.name(), &pool.position().map_err(|error| error.to_string())?)?;
    }
    say!("{} bytes in {}", projections.size(), Projections::dir(&at.data).display())
        .map_err(|error| error.to_string())
}

fn line(pool: &str, position: &Position) -> Result<(), String> {
    say!(
        "{pool}: sequence {} of {} ({}), {} requests, {} open, from {}",
        position.at.seq,
        position.head,
        show_time(position.at.at),
        position.rows,
        position.open,
        position.begun.seq
    )
    .map_err(|error| error.to_string())
}

fn rebuild(at: &Data) -> Result<(), String> {
    // Nobody else has the directory while its log is open here.
    let logs = Logs::open(&at.data).map_err(|error| error.to_string())?;
    Projections::throw_away(&at.data).map_err(|error| error.to_string())?;
    let projections = of_logs(&at.data, &logs)?;
    let heads = projections.pools().map(|pool| pool.head());
    let steps: u64 = heads.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?.iter().sum();
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} steps, {per_sec}, {eta} left") {
        bar.set_style(style);
    }
    let begun = Instant::now();
    let (mut done, mut last) = (0, (String::new(), 0));
    let folded = projections.catch_up(|pool, position| {
        if last.0 != pool {
            done += last.1;
        }
        last = (pool.to_owned(), position.at.seq);
        bar.set_position(done + position.at.seq);
    });
    bar.finish_and_clear();
    folded.map_err(|error| error.to_string())?;
    for pool in projections.pools() {
        line(pool.name(), &pool.position().map_err(|error| error.to_string())?)?;
    }
    let rows: u64 =
        projections.pools().filter_map(|pool| pool.position().ok()).map(|position| position.rows).sum();
    let seconds = begun.elapsed().as_secs_f64();
    let bytes = projections.size();
    say!(
        "{steps} steps in {seconds:.1} s ({:.0} steps/s); {bytes} bytes, {:.0} a request",
        steps as f64 / seconds.max(1e-9),
        bytes as f64 / rows.max(1) as f64
    )
    .map_err(|error| error.to_string())
}
