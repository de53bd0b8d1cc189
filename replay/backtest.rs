//! `weir-replay backtest`: every reload in a log is an experiment that has been made: fit before it, predict after it, score.
//!
//! After the reload only the arrivals (and the token counts of those that ran), the servers and the new settings are taken
//! from the log; services and samples are the model's alone. So a site learns how good the model is on its own pool.

use crate::fitting;
use crate::range::pools;
use crate::settings::Candidate;
use crate::source::Source;
use crate::what_if::{self, Options, PatienceRule, Question, Tally, WhatIfError, changes};
use serde_json::{Value, json};
use std::process::ExitCode;
use weir_kernel::{Input, Micros, Policy};
use weir_log::describe::show_time;
use weir_log::reader::{Bound, Logs};
use weir_log::say;

/// Arguments of `weir-replay backtest`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A reload that changes nothing, or that has too few arrivals before or after it, is left out and counted.

Example:
  weir-replay backtest --data ./data --pool chat")]
pub struct Args {
    #[command(flatten)]
    source: Source,

    /// Only this pool.
    #[arg(long)]
    pool: Option<String>,

    /// Arrivals that a reload must have after it (until the next one) to count.
    #[arg(long, default_value_t = 200)]
    at_least: u64,

    /// One JSON object on standard output.
    #[arg(long)]
    json: bool,
}

/// A reload, and what was predicted after it.
#[derive(Clone, Debug)]
pub struct Scored {
    /// Its sequence.
    pub seq: u64,
    /// Its time.
    pub at: Micros,
    /// What it changed.
    pub changes: Vec<(String, String, String)>,
    /// Arrivals after it, until the next one.
    pub arrivals: u64,
    /// As logged after it.
    pub logged: Tally,
    /// As predicted.
    pub predicted: Tally,
    /// Why the prediction cannot be trusted as far as it seems, if there is a reason.
    pub doubt: Option<String>,
}

/// Runs `weir-replay backtest`.
pub fn run(args: &Args) -> ExitCode {
    match backtest(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-replay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn backtest(args: &Args) -> Result<(), WhatIfError> {
    let opened = args.source.open()?;
    opened.notes.iter().for_each(|note| eprintln!("note: {note}"));
    let mut objects = serde_json::Map::new();
    for pool in pools(&opened, args.pool.as_ref())? {
        let (scored, left_out) = score(&opened.logs, &pool, args.at_least)?;
        if args.json {
            let list: Vec<Value> = scored.iter().map(to_json).collect();
            objects.insert(pool, json!({ "reloads": list, "leftOut": left_out }));
        } else {
            print(&pool, &scored, left_out)?;
        }
    }
    if args.json {
        say!("{}", Value::Object(objects))?;
    }
    Ok(())
}

/// A change of settings: sequence, time, before, after.
type Reload = (u64, Micros, Policy, Policy);

/// Changes of settings but the first, and the last sequence of the log.
fn reloads(logs: &Logs, pool: &str) -> Result<(Vec<Reload>, u64), WhatIfError> {
    let (mut before, mut all, mut last) = (None::<Policy>, Vec::new(), 0);
    for step in logs.reader(pool, Bound::Open, Bound::Open).steps() {
        let step = step?;
        last = step.seq;
        if let Input::PolicyChanged(change) = step.input {
            if let Some(before) = before.filter(|before| *before != *change.policy) {
                all.push((step.seq, step.at, before, (*change.policy).clone()));
            }
            before = Some(*change.policy);
        }
    }
    Ok((all, last))
}

/// Scores each reload that has enough after it; and how many have not.
pub fn score(logs: &Logs, pool: &str, at_least: u64) -> Result<(Vec<Scored>, usize), WhatIfError> {
    let (reloads, last) = reloads(logs, pool)?;
    let (mut scored, mut left_out) = (Vec::new(), 0);
    let candidate = Candidate::default();
    for (n, (seq, at, before, after)) in reloads.iter().enumerate() {
        let to = reloads.get(n + 1).map_or(last, |next| next.0 - 1);
        let model = fitting::of(logs, pool, Bound::Seq(seq - 1))?;
        let options = Options {
            open_loop: false,
            patience: PatienceRule::Observed,
            retry: None,
            seed: 1,
            detached: true,
        };
        let (from, to) = (Bound::Seq(*seq), Bound::Seq(to));
        let question =
            Question { pool, candidate: &candidate, from, to, options, draws: 0, list: false, series: false };
        let mut answer = what_if::answer(logs, &question, &model, false)?;
        if let Some(error) = answer.damaged.take() {
            return Err(error.into());
        }
        let predicted = answer.worlds.first().map(|world| world.tallies.all.clone()).unwrap_or_default();
        if answer.arrivals < at_least || model.quality.requests < at_least {
            left_out += 1;
            continue;
        }
        scored.push(Scored {
            seq: *seq,
            at: *at,
            changes: changes(before, after),
            arrivals: answer.arrivals,
            logged: answer.logged.all,
            predicted,
            doubt: what_if::doubt(&answer.baseline),
        });
    }
    Ok((scored, left_out))
}

type Figure = (&'static str, fn(&Tally) -> f64);

const FIGURES: [Figure; 4] = [
    ("shed rate %", |t| t.shed_rate() * 100.0),
    ("wait p50 ms", |t| wait(t, 0.5)),
    ("wait p95 ms", |t| wait(t, 0.95)),
    ("completed", |t| t.completed() as f64),
];

fn wait(tally: &Tally, q: f64) -> f64 {
    tally.waits.quantile(q).map_or(0.0, |wait| wait.0 as f64 / 1e3)
}

fn print(pool: &str, scored: &[Scored], left_out: usize) -> std::io::Result<()> {
    say!("pool {pool}: {} reloads scored, {left_out} with too little before or after", scored.len())?;
    for one in scored {
        say!("sequence {} at {}, {} arrivals after it", one.seq, show_time(one.at), one.arrivals)?;
        for (path, before, after) in &one.changes {
            say!("  {path}: {before} -> {after}")?;
        }
        for (name, figure) in FIGURES {
            let (logged, predicted) = (figure(&one.logged), figure(&one.predicted));
            say!(
                "  {name:<12} logged {logged:>10.1}  predicted {predicted:>10.1}  off {:>+10.1}",
                predicted - logged
            )?;
        }
        one.doubt.iter().try_for_each(|doubt| say!("  {doubt}"))?;
    }
    if scored.is_empty() {
        return Ok(());
    }
    for (name, figure) in FIGURES {
        let off: f64 = scored.iter().map(|one| (figure(&one.predicted) - figure(&one.logged)).abs()).sum();
        say!("mean absolute error of {name}: {:.1}", off / scored.len() as f64)?;
    }
    Ok(())
}

fn to_json(one: &Scored) -> Value {
    let figures = |tally: &Tally| -> serde_json::Map<String, Value> {
        FIGURES.iter().map(|(name, figure)| ((*name).to_owned(), json!(figure(tally)))).collect()
    };
    json!({
        "sequence": one.seq, "at": one.at, "changes": one.changes, "arrivals": one.arrivals,
        "logged": figures(&one.logged), "predicted": figures(&one.predicted),
        "doubt": one.doubt,
    })
}

#[cfg(test)]
#[path = "backtest_tests.rs"]
mod tests;
