//! `weir-replay bench`: how fast, and in how much memory, a long log is verified and decided again.
//!
//! Each figure is that of a process of its own, which runs the command that a person would run.

mod maker;
mod show;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Arguments of `weir-replay bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Makes a log of that many steps in sealed segments (virtual time: eight simulated servers, 60 s of calm and 20 s of
burst in turn), then runs `verify`, and `what-if` three times: with equal settings, with a budget that sheds in each
burst, and with a change that keeps both runs apart. Bars: 500,000 steps/s, 100,000 requests/s decided on one
thread while others read and decode, 200 MiB.

Exit code: 0 where every bar holds; else 1.

Examples:
  weir-replay bench                                   ten million steps in a temporary directory (about 1 GB)
  weir-replay bench --steps 1000000 --data ./bench    the log is kept there, and used again when it is there")]
pub struct Args {
    /// Steps of the log.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(10_000..=1_000_000_000))]
    steps: u64,

    /// Where the log is made and kept; without it, in a temporary directory that goes away.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// One JSON object on standard output.
    #[arg(long)]
    json: bool,
}

/// A figure, and the bar it is held against.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What was run.
    pub what: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// Measured.
    pub value: f64,
    /// At least (or, for memory, at most) so much; none: told only.
    pub bar: Option<f64>,
    /// The bar is a ceiling.
    pub at_most: bool,
}

impl Figure {
    /// Within its bar.
    pub fn holds(&self) -> bool {
        self.bar.is_none_or(|bar| if self.at_most { self.value <= bar } else { self.value >= bar })
    }
}

/// What the log is.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// Steps of it.
    pub steps: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Segment files.
    pub segments: usize,
    /// How long it took to make; none: it was there.
    pub took: Option<Duration>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The log.
    #[error(transparent)]
    Maker(#[from] maker::MakerError),
    /// The log.
    #[error(transparent)]
    Log(#[from] weir_log::SegmentError),
    /// Files and processes.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A command that was measured failed.
    #[error("{command} failed: {said}")]
    Failed {
        /// Which.
        command: String,
        /// Its last words.
        said: String,
    },
    /// There is another log.
    #[error("--data: {dir} has a log of {found} steps; allowed: none, or one of at least {wanted}")]
    Other {
        /// The directory.
        dir: String,
        /// Steps found.
        found: u64,
        /// Steps asked for.
        wanted: u64,
    },
}

const MIB: f64 = 1_048_576.0;
/// Name, settings.
const CANDIDATES: [(&str, &[&str]); 3] = [
    ("what-if, equal settings", &["defaultRequestTTL=60s"]),
    ("what-if, sheds in bursts", &["defaultRequestTTL=2s"]),
    (
        "what-if, apart throughout",
        &["detector={type: utilization-detector, parameters: {queueDepthThreshold: 3}}"],
    ),
];

/// Runs `weir-replay bench`.
pub fn run(args: &Args) -> ExitCode {
    let own = std::env::temp_dir().join(format!("weir-replay-bench-{}", std::process::id()));
    let done = bench(args, args.data.as_deref().unwrap_or(&own));
    if args.data.is_none() {
        let _ = std::fs::remove_dir_all(&own);
    }
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weir-replay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args, data: &Path) -> Result<bool, BenchError> {
    let made = log(data, args.steps)?;
    if !args.json {
        show::made(&made)?;
    }
    let mut figures = Vec::new();
    let mut take = |some: Vec<Figure>| -> std::io::Result<()> {
        if !args.json {
            some.iter().try_for_each(show::figure)?;
        }
        figures.extend(some);
        Ok(())
    };
    take(verify(data)?)?;
    for (name, words) in CANDIDATES {
        take(what_if(data, name, words)?)?;
    }
    show::end(&made, &figures, args.json)?;
    Ok(figures.iter().all(Figure::holds))
}

/// The log in this directory, made where there is none.
fn log(data: &Path, wanted: u64) -> Result<Made, BenchError> {
    let began = Instant::now();
    let there = |took| -> Result<Made, BenchError> {
        let files = weir_log::segment::list(data, maker::POOL)?;
        let mut bytes = 0;
        for file in &files {
            bytes += std::fs::metadata(&file.path)?.len();
        }
        let steps = files.last().map_or(0, |file| file.last_seq);
        Ok(Made { steps, bytes, segments: files.len(), took })
    };
    let found = there(None)?;
    match found.steps {
        0 => {
            std::fs::create_dir_all(data)?;
            maker::make(data, wanted)?;
            there(Some(began.elapsed()))
        }
        steps if steps >= wanted => Ok(found),
        steps => Err(BenchError::Other { dir: data.display().to_string(), found: steps, wanted }),
    }
}

/// Runs a command of this program and gives its JSON.
fn measured(words: &[&str], data: &Path) -> Result<Value, BenchError> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).arg("--json").arg("--sealed").arg("--data").arg(data);
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output()?;
    let answer = serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.success());
    answer.ok_or_else(|| BenchError::Failed {
        command: format!("weir-replay {}", words.join(" ")),
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn memory(what: &'static str, answer: &Value) -> Option<Figure> {
    let bytes = answer["usage"]["peakMemoryBytes"].as_f64()?;
    Some(Figure { what, unit: "MiB at most", value: bytes / MIB, bar: Some(200.0), at_most: true })
}

fn verify(data: &Path) -> Result<Vec<Figure>, BenchError> {
    let answer = measured(&["verify"], data)?;
    let rate = answer["pools"][0]["stepsPerSecond"].as_f64().unwrap_or(0.0);
    let mut all =
        vec![Figure { what: "verify", unit: "steps/s", value: rate, bar: Some(500_000.0), at_most: false }];
    all.extend(memory("verify", &answer));
    Ok(all)
}

fn what_if(data: &Path, what: &'static str, settings: &[&str]) -> Result<Vec<Figure>, BenchError> {
    let mut words = vec!["what-if"];
    settings.iter().for_each(|word| words.extend(["--set", word]));
    let answer = measured(&words, data)?;
    let pool = &answer["pools"][0];
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let requests = number(&pool["arrivals"]);
    let (fit, run) = (number(&pool["seconds"]["fit"]), number(&pool["seconds"]["run"]));
    let deciding = number(&pool["seconds"]["deciding"]);
    let processor = number(&answer["usage"]["processorSeconds"]);
    let shares = &pool["requests"];
    let apart = number(&shares["shifted"]) + number(&shares["flipped"]);
    let all = apart + number(&shares["exact"]);
    let told = |unit, value| Figure { what, unit, value, bar: None, at_most: false };
    let per = |seconds: f64| requests / seconds.max(1e-9);
    let mut figures = vec![
        Figure { what, unit: "requests/s", value: per(run), bar: Some(100_000.0), at_most: false },
        told("requests per processor second of the thread that decides", per(deciding)),
        told("requests/s with the fit before it", per(fit + run)),
        told("requests per processor second, fit and decoding too", per(processor)),
        told("% of the requests modelled", 100.0 * apart / all.max(1.0)),
    ];
    figures.extend(memory(what, &answer));
    Ok(figures)
}
