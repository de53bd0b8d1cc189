//! Why a `weir log` command failed.

use crate::load::Failure;
use std::io;
use weir_log::{LogError, SegmentError};

/// A failure, to be printed.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// Of the log.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Of its hot window or directory.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Of what is printed or written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    /// A value with no JSON form.
    #[error("cannot be shown as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Of a running server.
    #[error("{url}: {failure}")]
    Server {
        /// What was asked for.
        url: String,
        /// What went wrong.
        failure: Failure,
    },
    /// A running server said no.
    #[error("{url}: {status}: {said}")]
    Refused {
        /// What was asked for.
        url: String,
        /// The status.
        status: u16,
        /// Its words.
        said: String,
    },
    /// Arguments that contradict each other.
    #[error("{0}")]
    Usage(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Failed {
    /// The reader of our output went away.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Failed::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// What can be done about it, where the error does not say it itself.
    pub fn hint(&self) -> Option<&'static str> {
        let (Failed::Log(error) | Failed::Segment(SegmentError::Log(error))) = self else { return None };
        match error {
            LogError::Damaged { .. } | LogError::TailMissing { .. } | LogError::HeadDiffers { .. } => {
                Some("What is sealed can still be read: add --sealed.")
            }
            LogError::Locked { .. } => Some(
                "Of a running server's log: weir log cat|tail --server http://HOST:PORT, or --sealed for what is sealed.",
            ),
            _ => None,
        }
    }
}
