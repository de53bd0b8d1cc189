//! `weir load`: drives a target with arrivals from a trace or a rate.

use super::units;
use crate::load::{self, Classes, Drive, Mode, Planned, Progress, Report, Target};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_log::output::say;

/// Arguments of `weir load`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("arrivals").required(true).args(["trace", "rate"]))]
pub struct Args {
    /// What to drive: http://HOST:PORT of Weir, or of a model server with --direct.
    #[arg(long)]
    target: String,
    /// A trace: CSV with TIMESTAMP,ContextTokens,GeneratedTokens or t_ms,input_tokens,output_tokens.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Arrivals per second (Poisson) in place of a trace.
    #[arg(long, value_parser = units::positive, requires = "duration")]
    rate: Option<f64>,
    /// How long: of the load with --rate, of the trace's own time with --trace.
    #[arg(long, value_parser = units::duration)]
    duration: Option<Duration>,
    /// Where in the trace to begin.
    #[arg(long, default_value = "0s", value_parser = units::duration, requires = "trace")]
    from: Duration,
    /// How many times as fast as the trace.
    #[arg(long, default_value_t = 1.0, value_parser = units::positive, requires = "trace")]
    speed: f64,
    /// Prompt tokens of each request with --rate.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    input_tokens: u32,
    /// Generated tokens of each request with --rate.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    output_tokens: u32,
    /// A class and its share of the arrivals, as in interactive=0.3; what is left of 1 names no objective.
    #[arg(long = "objective", value_name = "NAME=SHARE")]
    objectives: Vec<String>,
    /// Flows (fairness ids) per class.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flows: u32,
    /// The pool to name.
    #[arg(long)]
    pool: Option<String>,
    /// The model to name.
    #[arg(long, default_value = "sim")]
    model: String,
    /// The queue-wait budget that callers ask for, as in 500ms.
    #[arg(long)]
    ttl: Option<String>,
    /// Admission only: hold each lease this many milliseconds, then complete it.
    #[arg(long, value_name = "MS", conflicts_with = "direct")]
    hold: Option<u64>,
    /// No admission: send the requests themselves, to a model server or a proxy.
    #[arg(long)]
    direct: bool,
    /// Requests under way at once; those due beyond it are not sent, and counted.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    in_flight_max: u32,
    /// How long after the last arrival those under way are waited for.
    #[arg(long, default_value = "70s", value_parser = units::duration)]
    grace: Duration,
    /// Draws gaps, classes and flows.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

/// More arrivals than this in one load are a slip.
const ARRIVALS_MAX: f64 = 20_000_000.0;

/// Runs `weir load`.
pub fn run(args: Args) -> ExitCode {
    let report = match drive(&args) {
        Ok(report) => report,
        Err(e) => {
            eprintln!("weir load: {e}");
            return ExitCode::FAILURE;
        }
    };
    let said = if args.json { say(format!("{}\n", report.json())) } else { say(report.table()) };
    if let Err(e) = said {
        eprintln!("weir load: {e}");
        return ExitCode::FAILURE;
    }
    // Refusals are answers; a target that gives none is a failure.
    if report.all.answered() == 0 {
        eprintln!("weir load: {} gave no answer", args.target);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn drive(args: &Args) -> Result<Report, Box<dyn std::error::Error>> {
    let classes = Classes::parse(&args.objectives, args.flows)?;
    let plan = plan(args, &classes)?;
    let mode = match args.hold {
        Some(ms) => Mode::Hold(Duration::from_millis(ms)),
        None if args.direct => Mode::Direct,
        None => Mode::Endpoint,
    };
    let mut target = Target::new(&args.target, mode, classes)?;
    target.pool.clone_from(&args.pool);
    target.model.clone_from(&args.model);
    target.ttl.clone_from(&args.ttl);
    let bounds = Drive { in_flight_max: args.in_flight_max as usize, grace: args.grace };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let progress = Arc::new(Progress::default());
    let bar = progress_bar(plan.len() as u64, Arc::clone(&progress), &runtime);
    let stop = async {
        if let Err(e) = tokio::signal::ctrl_c().await {
            tracing::warn!(error = %e, "Ctrl-C is not heard");
            std::future::pending::<()>().await;
        }
    };
    let report = runtime.block_on(load::drive(Arc::new(target), plan, bounds, progress, stop));
    bar.finish_and_clear();
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(report)
}

fn plan(args: &Args, classes: &Classes) -> Result<Vec<Planned>, Box<dyn std::error::Error>> {
    let plan = match (&args.trace, args.rate, args.duration) {
        (Some(trace), ..) => {
            let rows = load::read(trace)?;
            load::from_trace(&rows, args.from, args.duration, args.speed, classes, args.seed)
        }
        (None, Some(rate), Some(lasting)) => {
            if rate * lasting.as_secs_f64() > ARRIVALS_MAX {
                let arrivals = rate * lasting.as_secs_f64();
                return Err(
                    format!("--rate, --duration: {arrivals:.0} arrivals; allowed: {ARRIVALS_MAX}").into()
                );
            }
            load::from_rate(rate, lasting, (args.input_tokens, args.output_tokens), classes, args.seed)
        }
        _ => return Err("--trace, or --rate with --duration: one of them must be given".into()),
    };
    if plan.is_empty() {
        return Err("--from, --duration: no arrivals in that window; allowed: at least one".into());
    }
    Ok(plan)
}

/// A bar on a terminal, else nothing.
fn progress_bar(arrivals: u64, progress: Arc<Progress>, runtime: &tokio::runtime::Runtime) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(arrivals);
    if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} [{bar:40}] {pos}/{len} offered, {msg}") {
        bar.set_style(style);
    }
    let shown = bar.clone();
    runtime.spawn(async move {
        loop {
            let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
            let offered = read(&progress.offered);
            let (admitted, refused, ended) =
                (read(&progress.admitted), read(&progress.refused), read(&progress.ended));
            shown.set_position(offered);
            shown.set_message(format!(
                "{admitted} admitted, {refused} refused, {} waiting, {} running",
                offered.saturating_sub(admitted + refused),
                (admitted + refused).saturating_sub(ended)
            ));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    bar
}
