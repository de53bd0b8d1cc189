//! What can go wrong with a log, each with the place and, where there is one, the way back.

use crate::fault::FrameError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_migrations::MigrationError;

/// A log that cannot be opened, read or written. Cheap to clone: one failure answers many waiting batches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A batch is damaged or does not fit.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The operating system said no.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        error: String,
        /// Its kind.
        kind: std::io::ErrorKind,
    },
    /// Another process has it.
    #[error(
        "the log directory {} is in use by another process{}: stop that one, or give this one a directory of its own",
        dir.display(),
        holder.as_ref().map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// Who holds it, as far as its lock file tells.
        holder: Option<u32>,
    },
    /// The database of the hot window does not open or read.
    #[error(
        "the database {} is damaged: {error}. The way back: `weir log import` from the sealed \
         segments or an export, into a new directory",
        path.display()
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What was found.
        error: String,
    },
    /// The database opened, but the end of a pool's log is missing.
    #[error(
        "the log of pool {pool} in {} ends at sequence {found}, but sequence {expected} was durable: {} steps are \
         missing. The way back: `weir log import` from the sealed segments or an export, into \
         a new directory",
        dir.display(),
        expected.saturating_sub(*found)
    )]
    TailMissing {
        /// The directory.
        dir: PathBuf,
        /// The pool.
        pool: Arc<str>,
        /// Last sequence found.
        found: u64,
        /// Last sequence known to be durable.
        expected: u64,
    },
    /// The batch at the high-water mark is another one.
    #[error(
        "the log of pool {pool} in {} holds another batch at sequence {seq} than the one that was durable. \
         The way back: `weir log import` from the sealed segments or an export, into a new directory",
        dir.display()
    )]
    HeadDiffers {
        /// The directory.
        dir: PathBuf,
        /// The pool.
        pool: Arc<str>,
        /// The sequence.
        seq: u64,
    },
    /// The high-water mark itself cannot be read.
    #[error(
        "the high-water mark {} cannot be read: {error}. The way back: `weir log import` from the sealed segments or an \
         export, into a new directory (what is not sealed yet is not in there)",
        path.display()
    )]
    Mark {
        /// The file.
        path: PathBuf,
        /// What was found.
        error: String,
    },
    /// The log's own description cannot be read.
    #[error("{} is not the description of a log: {error}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What was found.
        error: String,
    },
    /// Written in a format that this version does not know or cannot write.
    #[error(transparent)]
    Migration(#[from] MigrationError),
    /// The batches before that point were trimmed.
    #[error("pool {pool}: sequence {wanted} was trimmed; the log starts at {oldest}")]
    Trimmed {
        /// The pool.
        pool: Arc<str>,
        /// What was asked for.
        wanted: u64,
        /// The oldest there is.
        oldest: u64,
    },
    /// The log cannot be written for now; it recovers by itself when it can.
    #[error("the log cannot be written: {error}")]
    Unavailable {
        /// Why.
        error: String,
    },
    /// The writer has stopped.
    #[error("the log's writer has stopped")]
    Closed,
}

impl LogError {
    /// From an error of the operating system.
    pub fn io(doing: &'static str, path: &Path, error: &std::io::Error) -> LogError {
        LogError::Io { doing, path: path.to_owned(), error: error.to_string(), kind: error.kind() }
    }
}
