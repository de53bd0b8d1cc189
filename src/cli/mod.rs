//! The command line: one file per subcommand, each with its arguments and its `run`.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

pub mod admin;
pub mod bench;
pub mod config;
pub mod demo;
mod limits;
pub mod load;
pub mod log;
mod objectives;
pub mod projections;
pub mod query;
pub mod serve;
pub mod simpool;
pub mod token;
pub mod units;
mod watch;

/// Flow control for LLM inference pools: admits, queues and sheds by priority, fairness and time budgets.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one per process")]
pub enum Command {
    /// Run the service.
    Serve(serve::Args),
    /// Show the whole way on this machine: simulated servers, the service and real trace arrivals.
    Demo(demo::Args),
    /// Pause, resume, purge, drain a running service by hand.
    Admin(admin::Args),
    /// Look into, check, export, import or seal a decision log.
    Log(log::Args),
    /// Ask the decision log a question of the playbook, or one of your own, in GraphQL.
    Query(query::Args),
    /// How far the read models of the log are; fold them anew.
    Projections(projections::Args),
    /// Check or explain a configuration file.
    Config(config::Args),
    /// Make a token for a caller, or check a tokens file.
    Token(token::Args),
    /// Run simulated model servers.
    Simpool(simpool::Args),
    /// Drive a target with arrivals from a trace or a rate.
    Load(load::Args),
    /// Measure, each figure beside its reference from the same run.
    Bench(bench::Args),
}

/// Runs the command that was asked for.
pub fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Admin(args) => admin::run(&args),
        Command::Log(args) => log::run(args),
        Command::Query(args) => query::run(&args),
        Command::Projections(args) => projections::run(&args),
        Command::Config(args) => config::run(args),
        Command::Token(args) => token::run(args),
        Command::Simpool(args) => simpool::run(args),
        Command::Load(args) => load::run(args),
        Command::Bench(args) => bench::run(args),
    }
}
