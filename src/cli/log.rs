//! `weir log`.

use std::process::ExitCode;

/// Arguments of `weir log`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `weir log`.
pub fn run(_args: Args) -> ExitCode {
    eprintln!("weir log: not in this build");
    ExitCode::FAILURE
}
