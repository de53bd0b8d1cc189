//! What can go wrong with the read models. None of it harms the log: they are thrown away and folded again.

use std::path::{Path, PathBuf};
use weir_kernel::Micros;
use weir_log::{LogError, SegmentError};

/// Why a read model cannot be kept, or a question not be answered.
#[derive(Debug, thiserror::Error)]
pub enum ProjectionError {
    /// The database does not open, or cannot be read or written.
    #[error("projections in {path}: {error}")]
    Store {
        /// The directory.
        path: PathBuf,
        /// What sled or the system said.
        error: String,
    },
    /// A record that is not what was written.
    #[error(
        "projections in {path}: {what} cannot be read ({error}); weir projections rebuild makes them anew"
    )]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// Which record.
        what: String,
        /// What the decoder said.
        error: String,
    },
    /// The log cannot be read there.
    #[error(transparent)]
    Log(#[from] SegmentError),
    /// What these projections hold is of another log, or of steps that the log does not have.
    #[error("pool {pool}: the projections are not of this log: {why}")]
    OtherLog {
        /// The pool.
        pool: String,
        /// What does not fit.
        why: String,
    },
    /// The time for a question is over, or whoever asked is gone.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// What is asked for lies before what is kept.
    #[error("pool {pool}: {wanted} is not kept any more; kept is from sequence {from} on")]
    Trimmed {
        /// The pool.
        pool: String,
        /// What was asked for.
        wanted: String,
        /// The first sequence that can be asked for.
        from: u64,
    },
    /// What is asked for lies after the end of the log.
    #[error("pool {pool}: sequence {wanted} is not there yet; the log ends at {head}")]
    Beyond {
        /// The pool.
        pool: String,
        /// What was asked for.
        wanted: u64,
        /// The last sequence.
        head: u64,
    },
}

/// Why work on a question ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// It took too long.
    #[error("stopped: the question took longer than allowed; ask for a shorter time or a narrower filter")]
    Timeout,
    /// Whoever asked is gone.
    #[error("stopped: whoever asked is gone")]
    Cancelled,
}

impl From<LogError> for ProjectionError {
    fn from(error: LogError) -> Self {
        ProjectionError::Log(error.into())
    }
}

impl ProjectionError {
    pub(crate) fn store(path: &Path, error: impl ToString) -> Self {
        ProjectionError::Store { path: path.to_owned(), error: error.to_string() }
    }

    /// Would folding the log again help? Also where the log has let go of what is needed to go on: a service that was
    /// down for longer than steps are kept, or killed often.
    pub fn calls_for_rebuild(&self) -> bool {
        matches!(
            self,
            ProjectionError::Damaged { .. }
                | ProjectionError::OtherLog { .. }
                | ProjectionError::Trimmed { .. }
                | ProjectionError::Log(
                    SegmentError::Trimmed { .. } | SegmentError::Log(LogError::Trimmed { .. })
                )
        )
    }
}

/// A step of a pool's log, where and when.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Spot {
    /// Its sequence.
    pub seq: u64,
    /// Its time.
    pub at: Micros,
}
