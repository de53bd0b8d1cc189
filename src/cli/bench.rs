//! `weir bench`.

use std::process::ExitCode;

/// Arguments of `weir bench`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `weir bench`.
pub fn run(_args: Args) -> ExitCode {
    eprintln!("weir bench: not in this build");
    ExitCode::FAILURE
}
