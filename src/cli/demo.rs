//! `weir demo`.

use std::process::ExitCode;

/// Arguments of `weir demo`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `weir demo`.
pub fn run(_args: Args) -> ExitCode {
    eprintln!("weir demo: not in this build");
    ExitCode::FAILURE
}
