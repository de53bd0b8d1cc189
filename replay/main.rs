//! `weir-replay`: re-runs decision logs.
//!
//! It imports the kernel and the log, never the service: what it finds does not depend on the gateway's code.

mod backtest;
mod bench;
mod decode;
mod export;
mod fidelity;
mod fitting;
mod model;
mod numbers;
mod progress;
mod range;
mod report;
mod scenario;
mod settings;
mod source;
mod start;
mod sweep;
mod traces;
mod usage;
mod verify;
mod what_if;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Batches are decoded on one thread and given back on another, which is hard on the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Try many candidates on one log, on all cores, the best first.
    Sweep(Box<sweep::Args>),
    /// Fit a pool model to a log, and say how well it explains it.
    Fit(fitting::Args),
    /// Run small tests of settings, in YAML; or make one out of an incident.
    Scenario(Box<scenario::Args>),
    /// Write steps, events, requests or arrivals as JSON Lines, CSV or Parquet.
    Export(export::Args),
    /// Fit before each reload of a log, predict after it, and score the prediction.
    Backtest(backtest::Args),
    /// Measure how well predictions hold: predict from a log, then actually run it, against a truth pool in virtual time.
    Fidelity(fidelity::Args),
    /// Measure speed and memory on a long log that is made for it.
    Bench(bench::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Verify(args) => verify::run(&args),
        Command::Traces(args) => traces::run(&args),
        Command::WhatIf(args) => what_if::command(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Fit(args) => fitting::run(&args),
        Command::Scenario(args) => scenario::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Backtest(args) => backtest::run(&args),
        Command::Fidelity(args) => fidelity::run(&args),
        Command::Bench(args) => bench::run(&args),
    }
}
