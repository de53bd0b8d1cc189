//! The one binary of the service.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::run(weir::cli::Cli::parse())
}
