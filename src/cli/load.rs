//! `weir load`.

use std::process::ExitCode;

/// Arguments of `weir load`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs `weir load`.
pub fn run(_args: Args) -> ExitCode {
    eprintln!("weir load: not in this build");
    ExitCode::FAILURE
}
