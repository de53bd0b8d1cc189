//! `weir-replay verify`: the logged inputs, at their logged times, must lead to the logged decisions.

mod compare;
mod look;
mod one;
mod pool;

use crate::range::Range;
use crate::report;
use std::process::ExitCode;
use weir_log::reader::{Bound, Logs};

pub use compare::Difference;
pub use pool::{PoolReport, Verdict};

/// Arguments of `weir-replay verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each step is decided again from its input at its time; the decisions, encoded, must be the logged bytes, and the state
that follows from the logged decisions must have the digest of the state that was derived. Steps that another version
of the kernel decided (kernel_behaviour in the log) are only folded; --across tells what this version decides otherwise.
A log whose beginning was trimmed is verified from its oldest usable snapshot on.

Exit code: 0 everything verified; 1 a difference, damage (the batch is named), or nothing that can be read.

Examples:
  weir-replay verify --data ./data                     a stopped server's log, every pool
  weir-replay verify --data ./data --pool chat --json  one pool, as a JSON object
  weir-replay verify export.wlog                       an export
  weir log export --data ./data -o - | weir-replay verify -
  weir-replay verify --data ./data --pool chat --step 4711
  weir-replay verify --data ./data --from 2026-11-30T01:00 --to 2026-11-30T02:00")]
pub struct Args {
    #[command(flatten)]
    range: Range,

    /// One JSON object on standard output.
    #[arg(long)]
    json: bool,

    /// Show this step, and the state before and after it; nothing is compared.
    #[arg(long, value_name = "SEQ", conflicts_with_all = ["from", "to", "across"])]
    step: Option<u64>,

    /// Decide steps of other kernel behaviours as well, each from the logged state before it, and list the differences.
    #[arg(long)]
    across: bool,
}

/// What is asked of each pool.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Compare from here on.
    pub from: Bound,
    /// Up to here.
    pub to: Bound,
    /// Steps of other behaviours too.
    pub across: bool,
}

/// Runs `weir-replay verify`.
pub fn run(args: &Args) -> ExitCode {
    verify(args).unwrap_or_else(|error| {
        eprintln!("weir-replay: {error}");
        ExitCode::FAILURE
    })
}

/// The exit code of what was found, unless it cannot be told.
fn verify(args: &Args) -> std::io::Result<ExitCode> {
    let range = &args.range;
    let opened = match range.open() {
        Ok(opened) => opened,
        Err(error) => return report::refused(&error, args.json),
    };
    let mut pools = opened.logs.pools();
    pools.retain(|pool| range.pool.as_ref().is_none_or(|only| only == pool));
    if pools.is_empty() {
        let what = range.pool.as_ref().map_or("no pool".to_owned(), |pool| format!("no pool {pool:?}"));
        return report::nothing(&what, args.json);
    }
    if let Some(seq) = args.step {
        return show(&opened.logs, &pools, seq, args.json);
    }
    let wanted = Wanted { from: range.from, to: range.to(), across: args.across };
    let mut reports = Vec::new();
    // A pool keeps a reader, decoders and a kernel busy; as many pools as there are cores go side by side.
    let side_by_side = std::thread::available_parallelism().map_or(1, usize::from);
    for some in pools.chunks(side_by_side) {
        let found: Vec<PoolReport> = std::thread::scope(|scope| {
            let logs = &opened.logs;
            let all: Vec<_> =
                some.iter().map(|name| scope.spawn(move || pool::verify(logs, name, wanted))).collect();
            all.into_iter().filter_map(|one| one.join().ok()).collect()
        });
        if found.len() < some.len() {
            return Err(std::io::Error::other("a pool's verification broke off"));
        }
        if !args.json {
            found.iter().try_for_each(report::print)?;
        }
        reports.extend(found);
    }
    if args.json {
        report::print_json(&reports)?;
    }
    let verified = reports.iter().all(|found| matches!(found.verdict, Verdict::Verified));
    Ok(if verified { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(logs: &Logs, pools: &[String], seq: u64, as_json: bool) -> std::io::Result<ExitCode> {
    let mut seen = false;
    for pool in pools {
        match one::print(logs, pool, seq, as_json)? {
            Ok(found) => seen |= found,
            Err(error) => return report::refused(&error, as_json),
        }
    }
    if seen { Ok(ExitCode::SUCCESS) } else { report::nothing(&format!("no step {seq}"), as_json) }
}

#[cfg(test)]
mod tests;
