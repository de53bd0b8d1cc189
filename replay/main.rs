//! `weir-replay`: re-runs decision logs.
//!
//! It imports the kernel and the log, never the service: what it finds does not depend on the gateway's code.

mod progress;
mod report;
mod source;
mod traces;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Re-runs decision logs of Weir.
#[derive(Debug, Parser)]
#[command(name = "weir-replay", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Feed the logged inputs at their logged times through the kernel and compare every decision, byte for byte.
    Verify(verify::Args),
    /// Make the spans of a log, whatever was sampled or lost when it was written.
    Traces(traces::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Verify(args) => verify::run(&args),
        Command::Traces(args) => traces::run(&args),
    }
}
