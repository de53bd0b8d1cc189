//! `weir-replay traces`: the spans of a log, whatever was sampled or lost when it was written.
//!
//! Ids and instants are functions of the log (`weir-telemetry`), so these are the spans that the service made, or would have.

use crate::progress::Progress;
use crate::range::Range;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use weir_log::reader::{Bound, Logs};
use weir_log::snapshot;
use weir_telemetry::export::{Exporter, Protocol, Settings, is_receiver};
use weir_telemetry::{Sampler, Span, Spans, document, environment, resource};

/// Spans of one document, or of one batch.
const TOGETHER: usize = 512;
/// How long a receiver may take for the last of them.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of `weir-replay traces`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The spans that ended within the range, of every request and every reclamation decision, sampled or not; for the beginnings of
those that were open then, the log is read from its oldest step on. The resource is that of OTEL_SERVICE_NAME and
OTEL_RESOURCE_ATTRIBUTES.

Exit code: 0 all spans are written or taken; 1 not, or the log cannot be read.

Examples:
  weir-replay traces --data ./data -o spans.jsonl          OTLP as JSON, a document per line
  weir-replay traces --data ./data --from 2026-11-30T01:00 --to 2026-11-30T02:00 --otlp http://127.0.0.1:4318
  weir-replay traces --data ./data --trace 0af7651916cd43dd8448eb211c80319c | jq .")]
pub struct Args {
    #[command(flatten)]
    range: Range,

    /// Only this trace, 32 hexadecimal digits.
    #[arg(long, value_name = "ID", value_parser = trace_id)]
    trace: Option<TraceId>,

    /// Where to write OTLP as JSON, a document per line; `-` is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-", conflicts_with = "otlp")]
    output: PathBuf,

    /// Send them to this receiver (http://HOST:PORT) instead.
    #[arg(long, value_name = "URL", value_parser = receiver)]
    otlp: Option<String>,

    /// How, with --otlp.
    #[arg(long, value_enum, default_value_t = Way::Http, requires = "otlp")]
    protocol: Way,
}

/// How spans travel.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Way {
    /// Protobuf over HTTP, to /v1/traces unless the URL has a path.
    Http,
    /// gRPC.
    Grpc,
}

/// A trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TraceId([u8; 16]);

fn trace_id(text: &str) -> Result<TraceId, String> {
    let number = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten();
    number
        .map(|number| TraceId(number.to_be_bytes()))
        .ok_or_else(|| "allowed: 32 hexadecimal digits".to_owned())
}

fn receiver(text: &str) -> Result<String, String> {
    match is_receiver(text) {
        true => Ok(text.to_owned()),
        false => {
            Err("allowed: a URL such as http://127.0.0.1:4318 (plain HTTP, a port from 1 to 65535)"
                .to_owned())
        }
    }
}

/// Runs `weir-replay traces`.
pub fn run(args: &Args) -> ExitCode {
    match traces(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-replay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn traces(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let opened = args.range.open()?;
    let pools = args.range.pools(&opened)?;
    let mut to = Output::open(args)?;
    for pool in pools {
        let mut walk = Walk { args, made: Vec::new(), given: 0 };
        let (missed, open) = walk.pool(&opened.logs, &pool, &mut to)?;
        eprintln!("pool {pool}: {} spans", walk.given);
        if missed > 0 {
            eprintln!(
                "pool {pool}: {missed} requests began before the oldest step that is kept, and have none"
            );
        }
        if open > 0 {
            eprintln!("pool {pool}: {open} requests had not ended");
        }
    }
    to.finish()
}

struct Walk<'a> {
    args: &'a Args,
    made: Vec<Span>,
    given: u64,
}

impl Walk<'_> {
    /// Requests without a beginning, and without an end.
    fn pool(
        &mut self,
        logs: &Logs,
        pool: &str,
        to: &mut Output,
    ) -> Result<(u64, usize), Box<dyn std::error::Error>> {
        let mut spans = Spans::new(pool, Sampler::EVERYTHING);
        let upper = self.args.range.to();
        let reader = logs.reader(pool, Bound::Open, upper);
        let head = logs.head(pool)?.map_or(0, |head| head.seq);
        let progress = Progress::new(pool, Some(head));
        let (mut first, mut steps) = (true, 0_u64);
        for step in reader.steps() {
            let step = step?;
            if std::mem::take(&mut first) && step.seq > 1 {
                restate(&mut spans, logs, pool, step.seq);
            }
            if upper.excludes_after(step.seq, step.at) {
                break;
            }
            let begun = self.made.len();
            spans.apply(&step, &mut self.made);
            if self.args.range.from.excludes_before(step.seq, step.at) {
                self.made.truncate(begun);
            }
            if let Some(TraceId(only)) = self.args.trace {
                self.made.retain(|span| span.trace_id == only);
            }
            if self.made.len() >= TOGETHER {
                self.give(to)?;
            }
            steps += 1;
            if steps.is_multiple_of(1_024) {
                progress.add(1_024);
            }
        }
        self.give(to)?;
        Ok((spans.missed(), spans.open()))
    }

    fn give(&mut self, to: &mut Output) -> Result<(), Box<dyn std::error::Error>> {
        self.given += self.made.len() as u64;
        to.take(std::mem::take(&mut self.made))
    }
}

/// What a log whose beginning was trimmed knew by then of the pool: names of endpoints, and whether it observed.
fn restate(spans: &mut Spans, logs: &Logs, pool: &str, first: u64) {
    let before = logs.snapshots(pool).iter().filter(|at| at.seq + 1 >= first).min_by_key(|at| at.seq);
    if let Some(Ok((state, _))) = before.map(|at| snapshot::usable(at, u64::MAX)) {
        spans.restate(&state.restate());
    }
}

/// Where the spans go.
enum Output {
    Json { resource: Vec<(String, String)>, to: Box<dyn Write> },
    Otlp(Arc<Exporter>),
}

impl Output {
    fn open(args: &Args) -> Result<Output, Box<dyn std::error::Error>> {
        let (resource, warnings) = resource(environment);
        for warning in warnings {
            eprintln!("weir-replay: {warning}");
        }
        if let Some(url) = &args.otlp {
            let (protocol, endpoint) = match args.protocol {
                Way::Grpc => (Protocol::Grpc, url.clone()),
                Way::Http => (Protocol::Http, with_path(url)),
            };
            let mut settings = Settings::to(endpoint, protocol);
            (settings.resource, settings.queue_max) = (resource, 4 * TOGETHER);
            settings.batch_max = TOGETHER;
            return Ok(Output::Otlp(Exporter::start(settings)?));
        }
        let to: Box<dyn Write> = if args.output.as_os_str() == "-" {
            if std::io::stdout().is_terminal() {
                eprintln!("note: OTLP as JSON; -o FILE writes it to a file");
            }
            Box::new(std::io::stdout().lock())
        } else {
            let failed = |error| format!("{}: {error}", args.output.display());
            Box::new(File::create(&args.output).map_err(failed)?)
        };
        Ok(Output::Json { resource, to: Box::new(BufWriter::new(to)) })
    }

    fn take(&mut self, spans: Vec<Span>) -> Result<(), Box<dyn std::error::Error>> {
        match self {
            Output::Json { resource, to } => {
                for together in spans.chunks(TOGETHER) {
                    serde_json::to_writer(&mut *to, &document(resource, together))?;
                    to.write_all(b"\n")?;
                }
                Ok(())
            }
            Output::Otlp(exporter) => {
                let mut rest = spans.into_iter().peekable();
                while rest.peek().is_some() {
                    let together: Vec<Span> = rest.by_ref().take(TOGETHER).collect();
                    // Here there is time: nothing is dropped.
                    while exporter.room() < together.len() {
                        taken(exporter.counters().counts().failed)?;
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    exporter.take(together);
                }
                Ok(())
            }
        }
    }

    fn finish(self) -> Result<(), Box<dyn std::error::Error>> {
        match self {
            Output::Json { mut to, .. } => Ok(to.flush()?),
            Output::Otlp(exporter) => {
                let counts = exporter.finish(PATIENCE)?;
                eprintln!("{} spans were taken by the receiver", counts.exported);
                taken(counts.failed + counts.full)
            }
        }
    }
}

fn taken(lost: u64) -> Result<(), Box<dyn std::error::Error>> {
    if lost == 0 { Ok(()) } else { Err(format!("the receiver did not take {lost} spans").into()) }
}

/// The path of the standard, unless there is one.
fn with_path(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    match rest.split_once('/') {
        Some((_, path)) if !path.is_empty() => url.to_owned(),
        _ => format!("{}/v1/traces", url.trim_end_matches('/')),
    }
}
