//! `weir-replay fit`: the pool model of a log, how well it explains it, and saved for later.

use crate::decode::Batches;
use crate::model::{Collector, PoolModel, fit};
use crate::progress::Progress;
use crate::range::pools;
use crate::source::Source;
use crate::what_if::WhatIfError;
use std::path::PathBuf;
use std::process::ExitCode;
use weir_log::reader::{Bound, Logs};
use weir_log::{SegmentError, say};

/// Arguments of `weir-replay fit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Servers are taken to work in batches of token steps; how long a step takes, how many tokens it works on and how many fit
are fitted to the services in the log. Where the log has no token counts or first tokens, that is said.

Examples:
  weir-replay fit --data ./data
  weir-replay fit --data ./data --pool chat --save chat.model.json
  weir-replay what-if --data ./other --pool-model chat.model.json --set defaultRequestTTL=15s")]
pub struct Args {
    #[command(flatten)]
    source: Source,

    /// Only this pool.
    #[arg(long)]
    pool: Option<String>,

    /// Up to this sequence or time.
    #[arg(long, value_name = "SEQ|TIME")]
    to: Option<Bound>,

    /// Save the model of the only pool (or of `--pool`) here.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// One JSON object on standard output.
    #[arg(long)]
    json: bool,
}

/// The model of a pool's log up to `to`, or up to where it cannot be read on: whoever reads it next will name the place.
///
/// # Errors
/// A log that cannot be read at all.
pub fn of(logs: &Logs, pool: &str, to: Bound) -> Result<PoolModel, SegmentError> {
    seen(logs, pool, to).map(|(model, _)| model)
}

/// The same, and why the log could not be read on.
fn seen(logs: &Logs, pool: &str, to: Bound) -> Result<(PoolModel, Option<SegmentError>), SegmentError> {
    let end = logs.head(pool)?.map_or(0, |head| head.seq);
    let progress = Progress::new(&format!("fit {pool}"), Some(end));
    let reader = logs.reader(pool, Bound::Open, to);
    let (mut seen, mut damaged) = (Collector::default(), None);
    std::thread::scope(|scope| {
        for batch in Batches::start(scope, reader, 1) {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) if seen.steps > 0 => {
                    damaged = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            };
            progress.add(batch.len() as u64);
            for step in batch.iter().filter(|step| !to.excludes_after(step.seq, step.at)) {
                seen.take(step);
            }
        }
        Ok(())
    })?;
    Ok((fit(&seen).unwrap_or_else(PoolModel::of_nothing), damaged))
}

/// Runs `weir-replay fit`.
pub fn run(args: &Args) -> ExitCode {
    fitted(args).unwrap_or_else(|error| {
        eprintln!("weir-replay: {error}");
        ExitCode::FAILURE
    })
}

fn fitted(args: &Args) -> Result<ExitCode, WhatIfError> {
    let opened = args.source.open()?;
    opened.notes.iter().for_each(|note| eprintln!("note: {note}"));
    let pools = pools(&opened, args.pool.as_ref())?;
    if args.save.is_some() && pools.len() > 1 {
        return Err(WhatIfError::Nothing(format!(
            "--save: one pool at a time; this log has {}",
            pools.join(", ")
        )));
    }
    let (mut objects, mut whole) = (serde_json::Map::new(), true);
    for pool in pools {
        let (model, damaged) = seen(&opened.logs, &pool, args.to.unwrap_or_default())?;
        if let Some(error) = &damaged {
            eprintln!("weir-replay: DAMAGED: {error}; the model of {pool} is of what comes before");
            whole = false;
        }
        if let Some(file) = &args.save {
            let text = serde_json::to_string_pretty(&model).map_err(std::io::Error::from)?;
            std::fs::write(file, text + "\n")?;
        }
        if args.json {
            objects.insert(pool, serde_json::to_value(&model).map_err(std::io::Error::from)?);
        } else {
            print(&pool, &model)?;
        }
    }
    if args.json {
        say!("{}", serde_json::Value::Object(objects))?;
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(pool: &str, model: &PoolModel) -> std::io::Result<()> {
    let (speeds, quality) = (&model.speeds, &model.quality);
    say!("pool {pool}")?;
    if quality.requests == 0 {
        return say!("  no service with a known end and token count: nothing could be fitted");
    }
    say!("  a step takes {:.2} ms", speeds.base / 1e3)?;
    say!("    + {:.1} µs a prompt token, at most {} tokens a step", speeds.prompt_token, speeds.budget)?;
    say!(
        "    + {:.1} µs a request that makes a token + {:.3} µs a token of its context",
        speeds.request,
        speeds.context_token
    )?;
    say!(
        "  a server works on {} requests, its KV cache holds {} tokens",
        speeds.max_requests,
        speeds.kv_tokens
    )?;
    say!(
        "  sampled each {} ms, {:.1} ms late",
        model.sensor.interval.as_millis(),
        model.sensor.lag.0 as f64 / 1e3
    )?;
    let confirm = model.confirm.map_or("none seen".to_owned(), |took| format!("{} ms", took.as_millis()));
    say!(
        "  from the order to end a lease to its end: {confirm}; callers that gave up: {}",
        model.patience.gave_up()
    )?;
    say!(
        "  {} services: median error {:.1} %, bias {:+.1} %",
        quality.requests,
        quality.median_error * 100.0,
        quality.bias.exp_m1() * 100.0
    )?;
    match quality.first_token_error {
        Some(error) => say!("  times to first token: median error {:.1} %", error * 100.0)?,
        None => say!("  no first tokens in the log")?,
    }
    if !model.usage {
        say!("  no token counts in the log: services are taken as they were logged")?;
    }
    let (low, high) = quality.residuals;
    say!(
        "  90 % of the services within {:+.1} % and {:+.1} % of the model; in stretches held back {:.1} %",
        (-high).exp_m1() * 100.0,
        (-low).exp_m1() * 100.0,
        quality.coverage * 100.0
    )
}
