//! `weir serve`.

use std::process::ExitCode;

/// Arguments of `weir serve`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `weir serve`.
pub fn run(_args: Args) -> ExitCode {
    eprintln!("weir serve: not in this build");
    ExitCode::FAILURE
}
