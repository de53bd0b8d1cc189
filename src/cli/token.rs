//! `weir token`: make a token for a caller, check a tokens file.
//!
//! The token itself is printed once and kept nowhere: its file has the digest alone.

use crate::gateway::auth::{self, Digest, Scope};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;
use weir_log::say;

/// Arguments of `weir token`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print a new token, once, and its entry for the tokens file (weir.auth.tokensFile).
    New(NewArgs),
    /// Check a tokens file. Exit code 1 if it would not be taken.
    Check {
        /// The file.
        file: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct NewArgs {
    /// Whose it is: the name by which the log and the operator know the caller.
    #[arg(long)]
    name: String,
    /// What it may do: admit, pool, read, admin.
    #[arg(long, required = true, value_delimiter = ',')]
    scope: Vec<Scope>,
    /// The highest priority that it may ask for; a higher one is lowered to it.
    #[arg(long, allow_negative_numbers = true)]
    max_priority: Option<i32>,
    /// The only pool that it may concern itself with; may be given more than once.
    #[arg(long)]
    pool: Vec<String>,
}

/// Runs `weir token`.
pub fn run(args: Args) -> ExitCode {
    let done = match args.command {
        Command::New(args) => new(&args),
        Command::Check { file } => check(&file),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir token: {error}");
            ExitCode::FAILURE
        }
    }
}

fn new(args: &NewArgs) -> std::io::Result<()> {
    let token = auth::token(&random()?);
    let digest = Digest::of(token.as_bytes());
    let entry = auth::file_entry(&args.name, &digest, &args.scope, args.max_priority, &args.pool);
    // What cannot be read back is not handed out.
    auth::read(&format!("tokens:\n{entry}")).map_err(|error| Error::new(ErrorKind::InvalidInput, error))?;
    say!(
        "{token}\n\n# the line above is the token, shown only now; below is its entry under `tokens:` in the tokens file"
    )?;
    say!("{}", entry.trim_end())
}

fn random() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

fn check(file: &std::path::Path) -> std::io::Result<()> {
    let access = auth::load(file).map_err(|error| Error::new(ErrorKind::InvalidInput, error))?;
    let (tokens, certificates) = access.len();
    say!("{}: ok, tokens: {tokens}, names of certificates: {certificates}", file.display())
}
