//! `weir-replay fidelity`: predictions beside what then happened, in virtual time.
//!
//! For each row: the base runs against the truth pool and leaves a log; the candidate is predicted from that log alone;
//! then it is run on the same arrivals. The truth shares no code with the model that is fitted.

pub mod driver;
mod matrix;
pub mod plan;
mod run;
mod score;
mod show;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `weir-replay fidelity`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Holds: shed rate within 2 percentage points and wait p50 and p95 within 10 %, 50 ms or the noise floor (the same
candidate run with other stalls) of the actual run. Rows a-a-… try the base against itself and must be exactly equal.
All in virtual time, on all cores.

Exit code: 0 where all but one of the rows hold and every a-a row is exact; else 1.

Example:
  weir-replay fidelity --trace azure-llm-inference-2023-code.csv")]
pub struct Args {
    /// Arrivals: CSV with TIMESTAMP,ContextTokens,GeneratedTokens.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,

    /// Only so much of the trace, from its beginning.
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<u64>,

    /// Only rows whose name contains this.
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,

    /// Runs with other draws, for the intervals.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=200))]
    draws: u32,

    /// Keep the logs of the bases here, one directory each, for a look with the other commands.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// One JSON object on standard output.
    #[arg(long)]
    json: bool,
}

/// Runs `weir-replay fidelity`.
pub fn run(args: &Args) -> ExitCode {
    let found = run::run(args).map_err(|error| error.to_string());
    match found.and_then(|rows| show::print(&rows, args.json).map_err(|error| error.to_string())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weir-replay: {error}");
            ExitCode::FAILURE
        }
    }
}
