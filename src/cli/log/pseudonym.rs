//! `weir log pseudonym`: under which name a log with `weir.log.pseudonymise` has a caller or a flow.

use super::Done;
use super::error::Failed;
use crate::engine::Pseudonyms;
use std::path::PathBuf;
use std::process::ExitCode;
use weir_log::output;

/// Arguments of `weir log pseudonym`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file of the key.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,

    /// A caller's own id (`x-request-id`).
    #[arg(long, value_name = "ID", required_unless_present = "flow")]
    caller: Vec<String>,

    /// A fairness id.
    #[arg(long, value_name = "ID")]
    flow: Vec<String>,
}

/// Runs `weir log pseudonym`.
pub fn run(args: &Args) -> Done {
    let keys = Pseudonyms::load(&args.key_file).map_err(|error| Failed::Usage(error.to_string()))?;
    let callers = args.caller.iter().map(|id| ("caller", id, keys.caller(id)));
    let flows = args.flow.iter().map(|id| ("flow", id, keys.flow(id)));
    let mut text = String::new();
    for (kind, id, pseudonym) in callers.chain(flows) {
        text.push_str(&format!("{kind} {id}: {pseudonym}\n"));
    }
    output::say(text)?;
    Ok(ExitCode::SUCCESS)
}
