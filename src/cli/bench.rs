//! `weir bench`: measurements, each beside its reference from the same run.

use crate::bench::{self, Bench, Budget, Face};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use weir_log::output::say;

/// Arguments of `weir bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to measure.
    name: Bench,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// How long it may take, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Of the gateway, measure this face alone.
    #[arg(long)]
    only: Option<Face>,
    /// Of eviction: the service in front of simulated servers, through its proxy and through Envoy (`WEIR_ENVOY`, or on
    /// the path), in place of the closed loop.
    #[arg(long)]
    live: bool,
    /// With --live: keep the decision logs below this directory.
    #[arg(long, requires = "live")]
    keep: Option<PathBuf>,
    /// Of the bench query, the data directory of a stopped server in place of a log that is made; its projections are
    /// folded anew.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Runs `weir bench`.
pub fn run(args: Args) -> ExitCode {
    if cfg!(debug_assertions) {
        eprintln!("weir bench: this is a debug build; its figures say little");
    }
    if args.only.is_some() && args.name != Bench::Gateway {
        return failed(&"--only is for the bench gateway");
    }
    let budget = Budget { whole: Duration::from_secs(args.seconds), only: args.only };
    if args.live && args.name != Bench::Eviction {
        return failed(&"--live is for the bench eviction");
    }
    if args.data.is_some() && args.name != Bench::Query {
        return failed(&"--data is for the bench query");
    }
    let found = match (&args.data, args.live) {
        (Some(data), _) => bench::query::run(Some(data), budget),
        (None, true) => bench::eviction::run_live(budget, args.keep.as_deref()),
        (None, false) => bench::run(args.name, budget),
    };
    let findings = match found {
        Ok(findings) => findings,
        Err(e) => return failed(&e),
    };
    let said = if args.json { say(format!("{}\n", findings.json())) } else { say(findings.table()) };
    said.map_or_else(|e| failed(&e), |()| ExitCode::SUCCESS)
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("weir bench: {error}");
    ExitCode::FAILURE
}
