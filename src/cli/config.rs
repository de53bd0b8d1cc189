//! `weir config`.

use std::process::ExitCode;

/// Arguments of `weir config`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `weir config`.
pub fn run(_args: Args) -> ExitCode {
    eprintln!("weir config: not in this build");
    ExitCode::FAILURE
}
