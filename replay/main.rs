//! `weir-replay`: re-runs decision logs.
//!
//! It imports the kernel and the log, never the service: what it finds does not depend on the gateway's code.

mod decode;
mod fidelity;
mod fitting;
mod model;
mod progress;
mod report;
mod settings;
mod source;
mod start;
mod traces;
mod verify;
mod what_if;

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
    /// Decide the logged inputs under other settings: what would have changed, and how that is known.
    WhatIf(Box<what_if::Args>),
    /// Fit a pool model to a log, and say how well it explains it.
    Fit(fitting::Args),
    /// Measure how well predictions hold: predict from a log, then actually run it, against a truth pool in virtual time.
    Fidelity(fidelity::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Verify(args) => verify::run(&args),
        Command::Traces(args) => traces::run(&args),
        Command::WhatIf(args) => what_if::command(&args),
        Command::Fit(args) => fitting::run(&args),
        Command::Fidelity(args) => fidelity::run(&args),
    }
}
