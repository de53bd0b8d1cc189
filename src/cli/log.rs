//! `weir log`: look into, check, export, import or seal a decision log.
//!
//! Arguments and the choice of the subcommand; each has a file of its own below.

mod cat;
mod check;
mod error;
mod filter;
mod info;
mod live;
mod pseudonym;
mod source;
mod table;
mod transfer;
mod upkeep;

use clap::Subcommand;
use error::Failed;
use std::process::ExitCode;

/// Arguments of `weir log`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A log is read from a stopped server's data directory (--data DIR), from segment files and exports (FILE…, `-` is standard
input), or from a running server (cat and tail: --server URL). While a server runs, its data directory can be read as far
as it is sealed: the database of the newest steps has one opener.

Exit code: 0; 1 if something is damaged, missing or cannot be done; 2 for wrong arguments.

Examples:
  weir log info --data ./data
  weir log cat --data ./data --kind Rejected,Evicted --from 2026-11-30T01:00
  weir log cat --data ./data --request 1234          everything about one request, by our number or the caller's id
  weir log tail --server http://127.0.0.1:8080 --pool chat --follow
  weir log check --data ./data && weir log export --data ./data -o backup.wlog
  weir log import backup.wlog --data ./new-data      the way back, also: weir log import ./broken-data backup.wlog …")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What the log holds: pools, sequences, times, bytes, snapshots, format.
    Info(info::Args),
    /// Its steps, as a table or as JSON lines.
    Cat(cat::CatArgs),
    /// Its last steps; of a running server also those to come.
    Tail(cat::TailArgs),
    /// Verify every byte and the chain; each damaged place is named.
    Check(check::Args),
    /// Seal all there is into segment files, and make a snapshot at their end (of a stopped server's log).
    Seal(upkeep::SealArgs),
    /// Write a log, or a part of it, to one file.
    Export(transfer::ExportArgs),
    /// Make a new data directory of exports, segment files and what is sealed in other data directories.
    Import(transfer::ImportArgs),
    /// Under which name a log with pseudonyms has a caller or a flow.
    Pseudonym(pseudonym::Args),
    /// Raise the format that is written to that of this version: earlier ones can then no longer read what follows.
    FinalizeUpgrade(upkeep::FinalizeArgs),
}

/// Runs `weir log`.
pub fn run(args: Args) -> ExitCode {
    let done = match args.command {
        Command::Info(args) => info::run(&args),
        Command::Cat(args) => cat::run_cat(&args),
        Command::Tail(args) => cat::run_tail(&args),
        Command::Check(args) => check::run(&args),
        Command::Seal(args) => upkeep::run_seal(&args),
        Command::Export(args) => transfer::run_export(&args),
        Command::Import(args) => transfer::run_import(&args),
        Command::Pseudonym(args) => pseudonym::run(&args),
        Command::FinalizeUpgrade(args) => upkeep::run_finalize(&args),
    };
    match done {
        Ok(code) => code,
        // Whoever read our output has enough of it.
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir log: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("{hint}");
            }
            if matches!(error, Failed::Usage(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

type Done = Result<ExitCode, Failed>;
