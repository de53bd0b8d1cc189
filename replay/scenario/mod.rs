//! `weir-replay scenario`: small tests of settings, in YAML, and one made out of an incident.
//!
//! A scenario has requests, a pool over time and expectations. Its kernel is the service's; its servers are what the file
//! says. Not here: how a pool answers load (`fidelity` and the fitted model).

mod file;
mod from_log;
mod judge;
mod run;

#[cfg(test)]
mod tests;

use crate::settings::{self, Candidate};
use crate::source::Source;
use crate::what_if::WhatIfError;
use std::path::PathBuf;
use std::process::ExitCode;
use weir_kernel::Policy;
use weir_log::say;

/// Arguments of `weir-replay scenario`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
A scenario (YAML):
  name: a burst is shed by the band's limit, not the caller's budget
  settings: {flowControl: {priorityBands: [{priority: 0, maxRequests: 2}]}}     # under --config and --set
  objectives: {interactive: 100}
  pool:                                   # each from its time on; endpoints that are not named again stay as they are
    - {at: 0s, endpoint: a, waiting: 9, running: 20, kv: 0.9}
    - {at: 5s, endpoint: a, waiting: 0, running: 20, kv: 0.4}
    - {at: 9s, endpoint: a, gone: true}   # or stale: true
  requests:
    - {at: 1s, id: r, flow: t1, objective: interactive, promptTokens: 800, runs: 2s, count: 3, every: 100ms}
  until: 60s                              # optional
  expect:
    - {request: r-3, outcome: RejectedCapacity, reason: rejected-saturated}
    - {request: r-1, outcome: Dispatched, waitAtLeast: 3s, waitAtMost: 5s}
    - {outcome: EvictedTTL, count: 0}     # or atLeast, atMost

Exit code: 0 every expectation of every file is met; 1 not, or a file is wrong.

Examples:
  weir-replay scenario tests/*.yaml --config weir.yaml
  weir-replay scenario from-log --data ./data --request chat-4711 -o incident.yaml"
)]
pub struct Args {
    #[command(subcommand)]
    from: Option<From>,

    /// Scenario files.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    candidate: settings::SettingsArgs,

    /// One JSON object on standard output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum From {
    /// Make a scenario out of what happened to a request.
    FromLog(Box<FromLog>),
}

/// Arguments of `weir-replay scenario from-log`.
#[derive(Debug, clap::Args)]
pub struct FromLog {
    #[command(flatten)]
    source: Source,

    /// Only this pool; needed where the log has several.
    #[arg(long)]
    pool: Option<String>,

    /// The request: `POOL-NUMBER` as answers have it, its number, or the caller's own id (the first with it).
    #[arg(long, value_name = "ID")]
    request: String,

    /// Where to write it; standard output without.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `weir-replay scenario`.
pub fn run(args: &Args) -> ExitCode {
    let done = match &args.from {
        Some(From::FromLog(of)) => from_log::run(of),
        None => all(args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weir-replay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn all(args: &Args) -> Result<bool, WhatIfError> {
    if args.files.is_empty() {
        return Err(WhatIfError::Nothing("no scenario: name at least one FILE".to_owned()));
    }
    let candidate = Candidate::read(&args.candidate)?;
    let (mut met, mut all, mut objects) = (0, 0, Vec::new());
    for path in &args.files {
        let scenario = file::read(path).map_err(WhatIfError::Nothing)?;
        let policy = settings(&scenario, &candidate)?;
        let courses = run::run(&scenario, &policy);
        let verdicts = judge::judge(&scenario, &courses);
        let failed = verdicts.iter().filter(|verdict| verdict.failed.is_some()).count();
        (met, all) = (met + usize::from(failed == 0), all + 1);
        if args.json {
            objects.push(judge::json(path, &scenario, &verdicts));
            continue;
        }
        say!("{} {}: {}", if failed == 0 { "ok  " } else { "FAIL" }, path.display(), scenario.name)?;
        for verdict in &verdicts {
            if let Some(failed) = &verdict.failed {
                say!("       {}: {failed}", verdict.expected)?;
            }
        }
    }
    if args.json {
        say!("{}", serde_json::json!({ "scenarios": objects, "met": met, "of": all }))?;
    } else {
        say!("scenarios: {met} of {all} hold")?;
    }
    Ok(met == all)
}

/// The settings a scenario runs under: its own, then the command's over them.
pub fn settings(scenario: &file::Scenario, candidate: &Candidate) -> Result<Policy, WhatIfError> {
    let own = match &scenario.settings {
        Some(document) => Candidate::of_document(document.clone()).resolve(&Policy::default(), "default")?,
        None => Policy::default(),
    };
    Ok(candidate.resolve(&own, "default")?)
}
