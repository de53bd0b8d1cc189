//! `weir bench`: measurements, each beside its reference from the same run.

use crate::bench::query::maker::{self, Wanted};
use crate::bench::{self, Bench, Budget, Face};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
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
    /// folded anew. Of make, the directory to be made.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Of make: how many requests, about.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    requests: u64,
    /// Of make: over how many hours of virtual time, about.
    #[arg(long, default_value_t = 36.0)]
    hours: f64,
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
    if args.data.is_some() && !matches!(args.name, Bench::Query | Bench::Make) {
        return failed(&"--data is for the bench query and for make");
    }
    let found = match (&args.data, args.live) {
        (Some(data), _) if args.name == Bench::Make => return make(data, &args),
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

/// Makes a log, with its progress shown.
fn make(data: &Path, args: &Args) -> ExitCode {
    if !(args.hours.is_finite() && args.hours > 0.0) {
        return failed(&format!("--hours {}: a number above 0", args.hours));
    }
    let style =
        ProgressStyle::with_template("{bar:30} {human_pos} of {human_len} requests, {elapsed}, eta {eta}");
    let bar =
        ProgressBar::new(args.requests).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let wanted = Wanted { requests: args.requests, rate: args.requests as f64 / args.hours / 3_600.0 };
    let made = maker::make(data, wanted, |requests| bar.set_position(requests));
    bar.finish_and_clear();
    match made {
        Ok(made) => {
            let hours = made.seconds / 3_600.0;
            let line = format!(
                "{} requests, {} steps, {hours:.1} h in {}\n",
                made.requests,
                made.steps,
                data.display()
            );
            say(line).map_or_else(|e| failed(&e), |()| ExitCode::SUCCESS)
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("weir bench: {error}");
    ExitCode::FAILURE
}
