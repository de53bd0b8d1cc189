//! `weir demo`: the whole way on this machine.

use crate::demo::{self, DemoError, Shown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use weir_log::{output, say};
use weir_telemetry::export::{Exporter, Settings as TraceSettings};

/// Arguments of `weir demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Keep the decision log in this directory. Without it a temporary one is used and removed.
    #[arg(long)]
    data: Option<PathBuf>,
    /// How long arrivals come, in seconds; what is queued then has 12 s more.
    #[arg(long, default_value_t = 28, value_parser = clap::value_parser!(u64).range(5..=80))]
    seconds: u64,
    /// Print the report as one JSON object, and no progress.
    #[arg(long)]
    json: bool,
}

/// Runs `weir demo`.
pub fn run(args: Args) -> ExitCode {
    match show(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("weir demo: {e}");
            ExitCode::FAILURE
        }
    }
}

fn show(args: &Args) -> Result<(), DemoError> {
    let temporary = if args.data.is_none() { Some(tempfile::tempdir()?) } else { None };
    let data = match (&args.data, &temporary) {
        (Some(dir), _) => dir.as_path(),
        (None, Some(dir)) => dir.path(),
        (None, None) => Path::new("weir-demo"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let shown = Shown::new(args.json);
    let (traces, warnings) = TraceSettings::from_env(weir_telemetry::environment)?;
    for warning in warnings {
        eprintln!("weir demo: {warning}");
    }
    let exporter = traces.map(Exporter::start).transpose()?;
    let seen = runtime.block_on(demo::run(data, args.seconds, &shown, exporter));
    shown.end();
    runtime.shutdown_timeout(Duration::from_secs(1));
    let seen = seen?;
    if args.json {
        say!("{}", seen.report.json())?;
        return Ok(());
    }
    say!(
        "\n{} arrivals of the Azure LLM inference trace 2023 (CC-BY 4.0; Patel et al., Splitwise, ISCA 2024), {} times as \
         fast;\ntimes are real ones, as callers measured them.\n",
        seen.report.all.offered,
        demo::SPEED
    )?;
    output::say(seen.report.table())?;
    say!("\n{} steps are in the decision log.", seen.steps)?;
    match &args.data {
        Some(dir) => next(&dir.display().to_string())?,
        None => say!(
            "It was in a temporary directory and is removed. To keep it and look into it:\n  weir demo --data weir-demo"
        )?,
    }
    Ok(())
}

/// What to look at next.
fn next(dir: &str) -> std::io::Result<()> {
    say!("It is in {dir}. What to look at next:")?;
    for (command, what) in [
        (format!("weir query what-went-wrong --data {dir}"), "and the other questions: weir query"),
        (format!("weir log info --data {dir}"), "what it holds"),
        (format!("weir log cat --data {dir} | less"), "every input and every decision"),
        (format!("weir log check --data {dir}"), "the chain, batch by batch"),
        (format!("weir-replay verify --data {dir}"), "each decision derived again from its input"),
    ] {
        say!("  {command:44} # {what}")?;
    }
    Ok(())
}
