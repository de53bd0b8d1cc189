//! What can be wrong with a question, each with the `code` under which programs know it.

use async_graphql::{Error, ErrorExtensions};
use weir_projection::{ProjectionError, Stopped};

/// Why there is no answer, or not the whole one.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// An argument that cannot be.
    #[error("{argument}: {found} is not allowed: {allowed}")]
    Argument {
        /// Which argument.
        argument: &'static str,
        /// What was found.
        found: String,
        /// What is allowed.
        allowed: String,
    },
    /// A pool that is not there.
    #[error("there is no pool {pool:?}; there is: {known}")]
    NoPool {
        /// What was asked for.
        pool: String,
        /// The pools that the caller may see.
        known: String,
    },
    /// A pool that the token is not for.
    #[error("this token is not for pool {pool:?}")]
    Forbidden {
        /// The pool.
        pool: String,
    },
    /// A limit on questions.
    #[error("{what} of this question: {found}, allowed: {limit}")]
    Limit {
        /// The code.
        code: &'static str,
        /// Of what there is too much.
        what: &'static str,
        /// How much there is.
        found: String,
        /// How much is allowed.
        limit: usize,
    },
    /// The read models say no.
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    /// A request that is no question.
    #[error("{0}")]
    Request(String),
    /// A question that does not parse.
    #[error("{0}")]
    Parse(String),
    /// As many questions as are answered at once are being answered.
    #[error("as many questions as are answered at once ({limit}) are being answered; ask again")]
    Busy {
        /// How many.
        limit: usize,
    },
    /// As many as there may be of what lasts: subscriptions, or operations of one connection.
    #[error("there are as many {what} as there may be ({limit}); end one, or ask again later")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many.
        limit: usize,
    },
    /// A subscriber that does not keep up.
    #[error("this subscriber fell behind by more than {limit} messages and is ended; subscribe again")]
    FellBehind {
        /// How many may wait.
        limit: usize,
    },
    /// A fault of ours.
    #[error("a fault of ours: {0}")]
    Internal(String),
}

impl Fault {
    /// The name of what is wrong, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Fault::Argument { .. } => "BAD_USER_INPUT",
            Fault::NoPool { .. } => "NO_SUCH_POOL",
            Fault::Forbidden { .. } => "FORBIDDEN",
            Fault::Limit { code, .. } => code,
            Fault::Request(_) => "BAD_REQUEST",
            Fault::Parse(_) => "GRAPHQL_PARSE_FAILED",
            Fault::Busy { .. } | Fault::Full { .. } => "BUSY",
            Fault::FellBehind { .. } => "FELL_BEHIND",
            Fault::Internal(_) => "INTERNAL",
            Fault::Projection(error) => match error {
                ProjectionError::Stopped(Stopped::Timeout) => "TIMEOUT",
                ProjectionError::Stopped(Stopped::Cancelled) => "CANCELLED",
                ProjectionError::Trimmed { .. } => "NOT_KEPT",
                ProjectionError::Beyond { .. } => "NOT_YET",
                ProjectionError::Log(weir_log::SegmentError::Trimmed { .. }) => "NOT_KEPT",
                ProjectionError::Log(_) => "LOG_UNREADABLE",
                ProjectionError::Store { .. }
                | ProjectionError::Damaged { .. }
                | ProjectionError::OtherLog { .. } => "PROJECTIONS_UNREADABLE",
            },
        }
    }
}

impl From<Stopped> for Fault {
    fn from(stopped: Stopped) -> Self {
        Fault::Projection(stopped.into())
    }
}

impl From<weir_log::SegmentError> for Fault {
    fn from(error: weir_log::SegmentError) -> Self {
        Fault::Projection(error.into())
    }
}

impl Fault {
    /// As an error of an answer, with its code.
    pub fn error(self) -> Error {
        let code = self.code();
        Error::new(self.to_string()).extend_with(|_, extensions| extensions.set("code", code))
    }
}
