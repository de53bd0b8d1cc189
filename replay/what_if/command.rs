//! The command: opens the log, fits or reads the model, runs the candidate beside the log, and says what came out.

use super::lockstep::{Answer, Question, run as lockstep};
use super::look::Look;
use super::options::{Options, PatienceRule};
use super::page::page;
use super::report_file::ReportFile;
use super::{json, print};
use crate::decode::Batches;
use crate::fitting;
use crate::model::PoolModel;
use crate::progress::Progress;
use crate::range::Range;
use crate::settings::{self, Candidate, CandidateError};
use crate::source::Opened;
use crate::start::start;
use crate::usage;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use weir_kernel::{Micros, Step};
use weir_log::SegmentError;
use weir_log::reader::Bound;

/// What stands for the pool where the candidate's run differs from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModelRule {
    /// The model that is fitted to this log.
    Fitted,
    /// Recorded load and recorded services, as if the candidate had not changed them: the naive baseline.
    OpenLoop,
}

/// Arguments of `weir-replay what-if`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The log and the candidate are run in lockstep. A request is exact if it came and went while both were equal, shifted if
its outcome is the same otherwise, flipped if it is not. While the runs differ, a pool model fitted from this log says
what the log cannot; lease time under loads that the log never visited is counted as unknown. Paths begin at the top of
a configuration or within flowControl, weir or the pool; bands count from 0, highest priority first.

The logged settings are decided again too, to find out whether this version decides as the log says; of a log beyond
100,000 steps only a part is, and nothing of what another version of the kernel decided. The answer says how many steps
were compared and how many were not; `weir-replay verify` decides every step.

Exit code: 0 answered; 1 refused settings, damage (the place is named), or nothing to read.

Examples:
  weir-replay what-if --data ./data --set defaultRequestTTL=15s
  weir-replay what-if --data ./data --set 'priorityBands[0].maxRequests=2000' --draws 20 --requests
  weir-replay what-if export.wlog --set 'usageLimitPolicy={type: priority-holdback-policy, parameters: {minCeiling: 0.6}}'
  weir-replay what-if --data ./data --config candidate.yaml --from 2026-11-30T01:00 --to 2026-11-30T02:00 --json")]
pub struct Args {
    #[command(flatten)]
    pub(crate) range: Range,

    #[command(flatten)]
    pub(crate) candidate: settings::SettingsArgs,

    /// What stands for the pool where the runs differ.
    #[arg(long, value_enum, default_value = "fitted")]
    pub(crate) model: ModelRule,

    /// A model that `weir-replay fit` saved, in place of one fitted to this log.
    #[arg(long, value_name = "FILE")]
    pub(crate) pool_model: Option<PathBuf>,

    /// Runs with other draws, for 90 % intervals.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=500))]
    pub(crate) draws: u32,

    /// Where the draws begin.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// How long callers wait that the log shows no longer.
    #[arg(long, value_enum, default_value = "observed")]
    pub(crate) patience: PatienceRule,

    /// Requests that only the candidate sheds come again, once, after this long (`none`, or a span such as 2s).
    #[arg(long, value_name = "none|SPAN", default_value = "none", value_parser = retry)]
    pub(crate) retry: Retry,

    /// List the requests whose fate changes.
    #[arg(long)]
    pub(crate) requests: bool,

    /// Write the answer as one self-contained HTML page too (one pool at a time).
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,

    /// One JSON object on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whether shed requests come again, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry(pub Option<Micros>);

/// `none` or a span.
pub fn retry(text: &str) -> Result<Retry, String> {
    if text == "none" {
        return Ok(Retry(None));
    }
    match weir_config::parse_duration(text) {
        Ok(span) if !span.is_zero() => Ok(Retry(Some(span))),
        _ => Err(format!("{text:?} is not allowed; allowed: none, or a span above zero such as 2s")),
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// The log.
    #[error(transparent)]
    Log(#[from] SegmentError),
    /// The settings.
    #[error(transparent)]
    Settings(#[from] CandidateError),
    /// The saved model.
    #[error("--pool-model: {0}")]
    Model(String),
    /// Nothing to read.
    #[error("{0}")]
    Nothing(String),
    /// The page.
    #[error("--report {}: {error}", .path.display())]
    Report {
        /// Its file.
        path: PathBuf,
        /// What became of it.
        error: std::io::Error,
    },
    /// Standard output.
    #[error(transparent)]
    Output(#[from] std::io::Error),
}

/// Runs `weir-replay what-if`.
pub fn run(args: &Args) -> ExitCode {
    what_if(args).unwrap_or_else(|error| {
        eprintln!("weir-replay: {error}");
        ExitCode::FAILURE
    })
}

fn what_if(args: &Args) -> Result<ExitCode, WhatIfError> {
    let candidate = Candidate::read(&args.candidate)?;
    let opened = args.range.open()?;
    let (mut objects, mut whole, mut made) = (Vec::new(), true, None);
    let asked = args.range.pools(&opened)?;
    if args.report.is_some() && asked.len() > 1 {
        let all = asked.join(", ");
        return Err(WhatIfError::Nothing(format!(
            "--report: one pool at a time (--pool); this log has {all}"
        )));
    }
    let failed = |error| WhatIfError::Report { path: args.report.clone().unwrap_or_default(), error };
    let report = args.report.as_deref().map(ReportFile::open).transpose().map_err(failed)?;
    for pool in asked {
        let began = Instant::now();
        let model = match &args.pool_model {
            Some(file) => PoolModel::read(file).map_err(WhatIfError::Model)?,
            None => fitting::of(&opened.logs, &pool, args.range.to())?,
        };
        let (fitted, spent) = (began.elapsed(), usage::thread_time());
        let answer = ask(args, &opened, &candidate, &pool, &model)?;
        if answer.steps == 0 {
            return Err(WhatIfError::Nothing(format!("pool {pool}: no steps in this range")));
        }
        whole &= answer.damaged.is_none();
        made = report.is_some().then(|| page(&pool, &candidate, &answer, &model));
        if args.json {
            let mut object = json::json(&pool, &candidate, &answer, &model);
            let ran = (began.elapsed() - fitted).as_secs_f64();
            let deciding = usage::thread_time().zip(spent).map(|(now, then)| (now - then).as_secs_f64());
            object["seconds"] =
                serde_json::json!({ "fit": fitted.as_secs_f64(), "run": ran, "deciding": deciding });
            objects.push(object);
        } else {
            print::text(&pool, &candidate, &answer, &model)?;
        }
    }
    if args.json {
        weir_log::say!("{}", serde_json::json!({ "pools": objects, "usage": usage::to_json() }))?;
    }
    if let (Some(report), Some(page)) = (report, made) {
        report.write(&page).map_err(failed)?;
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn ask(
    args: &Args,
    opened: &Opened,
    candidate: &Candidate,
    pool: &str,
    model: &PoolModel,
) -> Result<Answer, WhatIfError> {
    let options = Options {
        open_loop: args.model == ModelRule::OpenLoop,
        patience: args.patience,
        retry: args.retry.0,
        seed: args.seed,
        detached: false,
    };
    let to = args.range.to();
    let question = Question {
        pool,
        candidate,
        from: args.range.from,
        to,
        options,
        draws: args.draws,
        list: args.requests,
        series: args.report.is_some(),
    };
    answer(&opened.logs, &question, model, true)
}

/// Runs a question on a pool's log; `shown`: with a progress bar.
pub fn answer(
    logs: &weir_log::reader::Logs,
    question: &Question<'_>,
    model: &PoolModel,
    shown: bool,
) -> Result<Answer, WhatIfError> {
    let start = start(logs, question.pool, question.from)?;
    let end = logs.head(question.pool)?.map_or(0, |head| head.seq);
    let progress = shown.then(|| Progress::new(question.pool, Some(end.saturating_sub(start.head.seq))));
    let reader = logs.reader(question.pool, Bound::Seq(start.head.seq + 1), Bound::Open).after(start.head);
    std::thread::scope(|scope| {
        let mut look = Look::new(model, &start.state);
        let batches = Batches::with(scope, reader, move |steps: &[Step]| look.services(steps));
        Ok(lockstep(question, model, start.state, batches, |steps| {
            if let Some(progress) = &progress {
                progress.add(steps);
            }
        })?)
    })
}
