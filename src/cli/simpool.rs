//! `weir simpool`.

use std::process::ExitCode;

/// Arguments of `weir simpool`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `weir simpool`.
pub fn run(_args: Args) -> ExitCode {
    eprintln!("weir simpool: not in this build");
    ExitCode::FAILURE
}
