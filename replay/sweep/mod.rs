//! `weir-replay sweep`: many candidates on one log, on all cores, the best by an objective first.

mod objective;
mod state;
mod table;
mod vary;

#[cfg(test)]
mod tests;

use crate::fitting;
use crate::model::PoolModel;
use crate::range::Range;
use crate::settings::{self, Candidate};
use crate::what_if::{self, Options, PatienceRule, Question, WhatIfError};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use objective::Objective;
use sha2::{Digest, Sha256};
use state::{Header, State};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_log::reader::Logs;

pub use objective::Figures;

/// Arguments of `weir-replay sweep`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Figures of an objective: shed_rate (0 to 1), wait_p50_s, wait_p95_s, wait_p99_s, admitted, completed, tokens, evictions.
A row of the Pareto front is marked: no other row is better in one of the objective's figures without being worse in another.

Examples:
  weir-replay sweep --data ./data --vary defaultRequestTTL=5s,10s,15s,30s,60s --vary 'priorityBands[0].maxRequests=50,200,1000'
  weir-replay sweep --data ./data --vary … --random 40 --objective 'shed_rate + 0.1*wait_p95_s' --state sweep.jsonl")]
pub struct Args {
    #[command(flatten)]
    range: Range,

    #[command(flatten)]
    candidate: settings::SettingsArgs,

    /// A setting and its values; several are combined.
    #[arg(long, value_name = "PATH=V1,V2,…", required = true)]
    vary: Vec<String>,

    /// So many combinations, drawn by the seed, in place of all.
    #[arg(long, value_name = "N")]
    random: Option<usize>,

    /// Where the draws begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// What is to be small.
    #[arg(long, default_value = "shed_rate + 0.1*wait_p95_s")]
    objective: Objective,

    /// A model that `weir-replay fit` saved.
    #[arg(long, value_name = "FILE")]
    pool_model: Option<PathBuf>,

    /// Rows that are done are kept here; a sweep that was interrupted goes on from it.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Threads; else one a core.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: Option<u16>,

    /// One JSON object on standard output.
    #[arg(long)]
    json: bool,
}

/// A row that is done.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Words of `--set`.
    pub words: Vec<String>,
    /// What came out.
    pub figures: Figures,
    /// Shares of requests that are exact and flipped.
    pub exact: f64,
    /// See `exact`.
    pub flipped: f64,
    /// Why the row cannot be trusted as far as it seems, if there is a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// Runs `weir-replay sweep`.
pub fn run(args: &Args) -> ExitCode {
    match sweep(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-replay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn sweep(args: &Args) -> Result<(), WhatIfError> {
    let nothing = WhatIfError::Nothing;
    let base = Candidate::read(&args.candidate)?;
    let axes =
        args.vary.iter().map(|word| vary::parse(word)).collect::<Result<Vec<_>, _>>().map_err(nothing)?;
    let combinations = vary::combinations(&axes, args.random, args.seed).map_err(nothing)?;
    let opened = args.range.open()?;
    let pool = args.range.pool(&opened)?;
    let model = args.pool_model.as_ref().map(|file| PoolModel::read(file)).transpose();
    let model = model.map_err(WhatIfError::Model)?;
    let header = Header {
        pool: pool.clone(),
        head: opened.logs.head(&pool)?.map_or(0, |head| head.seq),
        range: format!("{:?} to {:?}", args.range.from, args.range.to()),
        base: base.shown(),
        how: how(args, model.as_ref()),
    };
    let kept = State::open(args.state.as_deref(), &header).map_err(nothing)?;
    let left: Vec<Vec<String>> = combinations.iter().filter(|words| !kept.has(words)).cloned().collect();
    let mut rows = Vec::new();
    if !left.is_empty() {
        let model = match model {
            Some(model) => model,
            None => fitting::of(&opened.logs, &pool, args.range.to())?,
        };
        rows = all(args, &opened.logs, &pool, &base, &model, &left, &kept)?;
    }
    rows.extend(kept.rows(&combinations));
    rows.sort_by(|a, b| args.objective.of(&a.figures).total_cmp(&args.objective.of(&b.figures)));
    Ok(table::print(&rows, &args.objective, args.json)?)
}

/// What a row depends on besides log, range and settings.
fn how(args: &Args, model: Option<&PoolModel>) -> String {
    let digest = model.map(|model| {
        let text = serde_json::to_string(model).unwrap_or_default();
        Sha256::digest(text.as_bytes())
            .iter()
            .take(8)
            .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    });
    format!("seed {}, model {}", args.seed, digest.as_deref().unwrap_or("fitted"))
}

fn bar(rows: usize) -> ProgressBar {
    let shown = std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(rows as u64), target);
    if let Ok(style) = ProgressStyle::with_template("sweep {wide_bar} {pos}/{len} rows, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Runs these candidates on all cores; each is kept as soon as it is done.
fn all(
    args: &Args,
    logs: &Logs,
    pool: &str,
    base: &Candidate,
    model: &PoolModel,
    left: &[Vec<String>],
    kept: &State,
) -> Result<Vec<Row>, WhatIfError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from).min(left.len());
    let (next, done, bar) = (AtomicUsize::new(0), Mutex::new(Vec::new()), bar(left.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(words) = left.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let row = one(args, logs, pool, base, model, words);
                    let failed = row.is_err();
                    let row = row.and_then(|row| kept.keep(&row).map(|()| row).map_err(WhatIfError::Output));
                    bar.inc(1);
                    if let Ok(mut done) = done.lock() {
                        done.push(row);
                    }
                    if failed {
                        // The others would fail in the same way, or the log is damaged.
                        next.store(left.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    done.into_inner().unwrap_or_default().into_iter().collect()
}

fn one(
    args: &Args,
    logs: &Logs,
    pool: &str,
    base: &Candidate,
    model: &PoolModel,
    words: &[String],
) -> Result<Row, WhatIfError> {
    let candidate = base.with(words)?;
    let options = Options {
        open_loop: false,
        patience: PatienceRule::Observed,
        retry: None,
        seed: args.seed,
        detached: false,
    };
    let to = args.range.to();
    let question = Question {
        pool,
        candidate: &candidate,
        from: args.range.from,
        to,
        options,
        draws: 0,
        list: false,
        series: false,
    };
    let mut answer = what_if::answer(logs, &question, model, false)?;
    if let Some(error) = answer.damaged.take() {
        return Err(error.into());
    }
    let world =
        answer.worlds.first().ok_or_else(|| WhatIfError::Nothing("no steps in this range".to_owned()))?;
    let shares = &world.shares;
    let all = (shares.exact + shares.shifted + shares.flipped).max(1) as f64;
    Ok(Row {
        words: words.to_vec(),
        figures: Figures::of(&world.tallies.all),
        exact: shares.exact as f64 / all,
        flipped: shares.flipped as f64 / all,
        doubt: what_if::doubt(&answer.baseline),
    })
}
