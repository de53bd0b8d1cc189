//! `weir config`: check a file, explain what holds and why, print the manual.
//!
//! Not here: any rule about a setting; those are in the package `weir-config`.

use std::path::PathBuf;
use std::process::ExitCode;
use weir_config::{Effective, Mistakes, ObjectivesFolder};
use weir_log::output;

/// Arguments of `weir config`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Tell every mistake and warning of a file. Exit code 1 if there is a mistake.
    Check {
        /// The file; else ./weir.yaml, else the built-in defaults.
        file: Option<PathBuf>,
        /// Exit code 1 on a warning too.
        #[arg(long)]
        strict: bool,
    },
    /// Print each effective value and where it came from: default, file and line, or environment variable.
    Explain {
        /// The file; else ./weir.yaml, else the built-in defaults.
        file: Option<PathBuf>,
        /// As JSON, with plain numbers: spans in microseconds.
        #[arg(long)]
        json: bool,
    },
    /// Print the manual of every setting (docs/configuration.md).
    Reference,
}

/// Runs `weir config`.
pub fn run(args: Args) -> ExitCode {
    match args.command {
        Command::Check { file, strict } => check(file, strict),
        Command::Explain { file, json } => match load(file) {
            Ok(effective) if json => say(&format!("{:#}\n", effective.explain_json())),
            Ok(effective) => say(&effective.explain()),
            Err(mistakes) => refused(&mistakes),
        },
        Command::Reference => say(&weir_config::reference()),
    }
}

fn check(file: Option<PathBuf>, strict: bool) -> ExitCode {
    match load(file) {
        Err(mistakes) => refused(&mistakes),
        Ok(effective) => {
            for warning in &effective.warnings {
                eprintln!("warning: {warning}");
            }
            for notice in &effective.notices {
                eprintln!("notice: {notice}");
            }
            let name =
                effective.file.as_ref().map_or("built-in defaults".to_owned(), |f| f.display().to_string());
            let (pools, warnings) = (effective.pools.len(), effective.warnings.len());
            let told = say(&format!("{name}: ok, pools: {pools}, warnings: {warnings}\n"));
            if strict && warnings > 0 { ExitCode::FAILURE } else { told }
        }
    }
}

fn load(file: Option<PathBuf>) -> Result<Effective, Mistakes> {
    let mut effective = weir_config::load(file.as_deref(), environment())?;
    if let Some(dir) = effective.settings.objectives_dir.clone() {
        ObjectivesFolder::open(&dir).explain(&mut effective);
    }
    Ok(effective)
}

/// The variables of the process that are text.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn refused(mistakes: &Mistakes) -> ExitCode {
    eprintln!("{mistakes}");
    ExitCode::FAILURE
}

fn say(text: &str) -> ExitCode {
    match output::say(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir config: {error}");
            ExitCode::FAILURE
        }
    }
}
