//! `weir-replay export`: steps, events, requests and arrivals, as JSON Lines or CSV.
//!
//! Not here: the log's own form (`weir log export`), spans (`traces`), Parquet.

mod arrivals;
mod csv;
mod requests;

#[cfg(test)]
mod tests;

use crate::source::Source;
use crate::start::start;
use crate::what_if::{WhatIfError, pools};
use serde_json::{Value, json};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use weir_kernel::Step;
use weir_log::describe::{
    event_kind, event_request, event_text, input_kind, input_text, show_time, step_json,
};
use weir_log::reader::{Bound, Logs};

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// A row for each step.
    Steps,
    /// A row for each event.
    Events,
    /// A row for each request, once it is over (or the range is).
    Requests,
    /// A trace for `weir load`: t_ms,input_tokens,output_tokens; always CSV.
    Arrivals,
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated values (RFC 4180) with a header.
    Csv,
}

/// Arguments of `weir-replay export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weir-replay export --data ./data --what requests --format csv -o requests.csv
  weir-replay export --data ./data --what arrivals -o tuesday.csv     then: weir load --trace tuesday.csv --target …")]
pub struct Args {
    #[command(flatten)]
    source: Source,

    /// What.
    #[arg(long, value_enum)]
    what: What,

    /// In which form.
    #[arg(long = "format", value_enum, default_value = "jsonl")]
    form: Form,

    /// Only this pool; needed where the log has several and arrivals are written.
    #[arg(long)]
    pool: Option<String>,

    /// From this sequence or time on.
    #[arg(long, value_name = "SEQ|TIME", default_value = "1")]
    from: Bound,

    /// Up to this sequence or time.
    #[arg(long, value_name = "SEQ|TIME")]
    to: Option<Bound>,

    /// Tokens made by requests of which the log does not say it, in arrivals.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    unknown_output: u32,

    /// Where to; `-` is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
}

/// Runs `weir-replay export`.
pub fn run(args: &Args) -> ExitCode {
    match export(args) {
        Ok(()) => ExitCode::SUCCESS,
        // A closed pipe is a reader that has had enough.
        Err(WhatIfError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("weir-replay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn export(args: &Args) -> Result<(), WhatIfError> {
    let opened = args.source.open()?;
    let pools = pools(&opened, args.pool.as_ref())?;
    if args.what == What::Arrivals && pools.len() > 1 {
        let all = pools.join(", ");
        return Err(WhatIfError::Nothing(format!(
            "--pool: arrivals of one pool at a time; this log has {all}"
        )));
    }
    let mut out: Box<dyn Write> = if args.output.as_os_str() == "-" {
        Box::new(std::io::stdout().lock())
    } else {
        Box::new(std::fs::File::create(&args.output)?)
    };
    let mut out = BufWriter::new(&mut out);
    write(args, &opened.logs, &pools, &mut out)?;
    out.flush()?;
    Ok(())
}

fn write(args: &Args, logs: &Logs, pools: &[String], out: &mut dyn Write) -> Result<(), WhatIfError> {
    let rows = std::cell::Cell::new(0_u64);
    let mut header = args.form == Form::Csv && args.what != What::Arrivals;
    let mut put = |out: &mut dyn Write, row: &Value| -> std::io::Result<()> {
        rows.set(rows.get() + 1);
        if std::mem::take(&mut header) {
            csv::header(out, row)?;
        }
        if args.form == Form::Csv { csv::row(out, row) } else { writeln!(out, "{row}") }
    };
    for pool in pools {
        let to = args.to.unwrap_or_default();
        match args.what {
            What::Steps => {
                each(logs, pool, args.from, to, |step| put(out, &step_row(pool, step, args.form)))?
            }
            What::Events => each(logs, pool, args.from, to, |step| {
                let rows = step.events.iter().enumerate();
                rows.map(|(n, event)| event_row(pool, step, n, event)).try_for_each(|row| put(out, &row))
            })?,
            What::Requests => {
                let mut table = requests::Requests::new(pool, args.from);
                let begun = start(logs, pool, args.from)?;
                each_after(logs, pool, begun.head, to, |step| {
                    table.take(step).into_iter().try_for_each(|row| put(out, &row))
                })?;
                table.rest().into_iter().try_for_each(|row| put(out, &row))?;
            }
            What::Arrivals => {
                let mut trace = arrivals::Arrivals::new(args.unknown_output);
                writeln!(out, "t_ms,input_tokens,output_tokens")?;
                each(logs, pool, args.from, to, |step| {
                    rows.set(rows.get() + 1);
                    trace.take(step, out)
                })?;
                trace.rest(out)?;
                let (all, unknown) = trace.counts();
                eprintln!("{all} arrivals, of {unknown} the log does not say how many tokens they made");
            }
        }
    }
    if rows.get() == 0 {
        return Err(WhatIfError::Nothing("nothing in this range".to_owned()));
    }
    Ok(())
}

fn each(
    logs: &Logs,
    pool: &str,
    from: Bound,
    to: Bound,
    mut f: impl FnMut(&Step) -> std::io::Result<()>,
) -> Result<(), WhatIfError> {
    for step in logs.reader(pool, from, to).steps() {
        f(&step?)?;
    }
    Ok(())
}

fn each_after(
    logs: &Logs,
    pool: &str,
    head: weir_log::Head,
    to: Bound,
    mut f: impl FnMut(&Step) -> std::io::Result<()>,
) -> Result<(), WhatIfError> {
    for step in logs.reader(pool, Bound::Seq(head.seq + 1), to).after(head).steps() {
        f(&step?)?;
    }
    Ok(())
}

fn step_row(pool: &str, step: &Step, form: Form) -> Value {
    if form == Form::Jsonl
        && let Ok(Value::Object(mut fields)) = step_json(step)
    {
        fields.insert("pool".to_owned(), json!(pool));
        return Value::Object(fields);
    }
    let texts: Vec<String> = step.events.iter().map(event_text).collect();
    json!({
        "pool": pool,
        "seq": step.seq,
        "at_us": step.at.0,
        "time": show_time(step.at),
        "input": input_kind(&step.input),
        "input_text": input_text(&step.input),
        "events": texts.join("; "),
    })
}

fn event_row(pool: &str, step: &Step, n: usize, event: &weir_kernel::Event) -> Value {
    json!({
        "pool": pool,
        "seq": step.seq,
        "event": n,
        "at_us": step.at.0,
        "time": show_time(step.at),
        "kind": event_kind(event),
        "request": event_request(event).map(|request| request.0),
        "text": event_text(event),
    })
}
