//! `weir-replay export`: steps, events, requests and arrivals, as JSON Lines, CSV or Parquet.
//!
//! Not here: the log's own form (`weir log export`), spans (`traces`).

mod arrivals;
mod csv;
mod parquet;
mod requests;
mod rows;
mod thrift;

#[cfg(test)]
mod tests;

use crate::range::Range;
use crate::start::start;
use crate::what_if::WhatIfError;
use parquet::Parquet;
use serde_json::Value;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use weir_kernel::Step;
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
    /// Apache Parquet, compressed with zstd.
    Parquet,
}

/// Arguments of `weir-replay export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weir-replay export --data ./data --what requests --format csv -o requests.csv
  weir-replay export --data ./data --what requests --format parquet -o requests.parquet
  weir-replay export --data ./data --what arrivals -o tuesday.csv     then: weir load --trace tuesday.csv --target …")]
pub struct Args {
    #[command(flatten)]
    range: Range,

    /// What.
    #[arg(long, value_enum)]
    what: What,

    /// In which form.
    #[arg(long = "format", value_enum, default_value = "jsonl")]
    form: Form,

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
    if args.what == What::Arrivals && args.form == Form::Parquet {
        return Err(WhatIfError::Nothing(
            "--format: arrivals are written as csv, which `weir load` takes".to_owned(),
        ));
    }
    let opened = args.range.open()?;
    let pools = match args.what {
        What::Arrivals => vec![args.range.pool(&opened)?],
        _ => args.range.pools(&opened)?,
    };
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

/// Rows on their way out.
enum Rows {
    Jsonl,
    /// The header is written.
    Csv(bool),
    Parquet(Box<Parquet>),
}

impl Rows {
    fn put(&mut self, row: &Value, out: &mut dyn Write) -> std::io::Result<()> {
        match self {
            Rows::Jsonl => writeln!(out, "{row}"),
            Rows::Csv(begun) => {
                if !std::mem::replace(begun, true) {
                    csv::header(out, row)?;
                }
                csv::row(out, row)
            }
            Rows::Parquet(file) => file.row(row, out),
        }
    }
}

fn write(args: &Args, logs: &Logs, pools: &[String], out: &mut dyn Write) -> Result<(), WhatIfError> {
    let mut rows = match args.form {
        Form::Jsonl => Rows::Jsonl,
        Form::Csv => Rows::Csv(false),
        Form::Parquet => Rows::Parquet(Box::new(Parquet::start(rows::columns(args.what), out)?)),
    };
    let count = std::cell::Cell::new(0_u64);
    let mut put = |out: &mut dyn Write, row: &Value| -> std::io::Result<()> {
        count.set(count.get() + 1);
        rows.put(row, out)
    };
    let (from, to) = (args.range.from, args.range.to());
    for pool in pools {
        match args.what {
            What::Steps => each(logs, pool, from, to, |step| put(out, &rows::step(pool, step, args.form)))?,
            What::Events => each(logs, pool, from, to, |step| {
                let all = step.events.iter().enumerate();
                all.map(|(n, event)| rows::event(pool, step, n, event)).try_for_each(|row| put(out, &row))
            })?,
            What::Requests => {
                let mut table = requests::Requests::new(pool, from);
                let begun = start(logs, pool, from)?;
                each_after(logs, pool, begun.head, to, |step| {
                    table.take(step).into_iter().try_for_each(|row| put(out, &row))
                })?;
                table.rest().into_iter().try_for_each(|row| put(out, &row))?;
            }
            What::Arrivals => {
                let mut trace = arrivals::Arrivals::new(args.unknown_output);
                writeln!(out, "t_ms,input_tokens,output_tokens")?;
                each(logs, pool, from, to, |step| {
                    count.set(count.get() + 1);
                    trace.take(step, out)
                })?;
                trace.rest(out)?;
                let (all, unknown) = trace.counts();
                eprintln!("{all} arrivals, of {unknown} the log does not say how many tokens they made");
            }
        }
    }
    if let Rows::Parquet(file) = rows {
        file.end(out)?;
    }
    if count.get() == 0 {
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
