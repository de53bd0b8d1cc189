//! What callers are told: each value here rests on steps that are durable.

use thiserror::Error;
use weir_kernel::{Cause, Face, LeaseEnd, LeaseEndCause, Limit, Micros, Outcome, Reason, Regime, RequestId};

/// What became of an arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may go to the pool; its lease runs.
    Admitted(Admitted),
    /// It may not, and the log says why.
    Refused(Refused),
    /// It never reached the kernel (or the pool's thread is gone): nothing was decided about it.
    Unavailable(Unavailable),
}

/// A request that may go to the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Our own name of it.
    pub id: RequestId,
    /// The step that decided.
    pub seq: u64,
    /// How long it was queued.
    pub waited: Micros,
    /// The band it came from.
    pub priority: i32,
    /// Its flow's name.
    pub flow: String,
    /// The chosen endpoint's name, where the kernel chose.
    pub endpoint: Option<String>,
    /// The regime at the decision.
    pub regime: Regime,
    /// How it came in, which says what its lease needs to live.
    pub face: Face,
    /// Observe mode: nobody is held, and this is not what the log decided.
    pub shadow: bool,
    /// The answer to an earlier call with the same idempotency key.
    pub repeated: bool,
}

/// A request that may not go to the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Our own name of it.
    pub id: RequestId,
    /// The step that decided.
    pub seq: u64,
    /// How it is counted.
    pub outcome: Outcome,
    /// What its caller hears.
    pub reason: Reason,
    /// The regime at the decision.
    pub regime: Regime,
    /// How long it was queued; zero if it never was.
    pub waited: Micros,
    /// The band.
    pub priority: i32,
    /// Whole seconds for `Retry-After`.
    pub retry_after: Option<u8>,
    /// The limit that refused it.
    pub limit: Option<Limit>,
    /// The cause, where no limit and no budget of ours was.
    pub cause: Option<Cause>,
    /// The answer to an earlier call with the same idempotency key.
    pub repeated: bool,
}

/// Why an input was not taken. Such arrivals are counted into one `LogResumed` input later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unavailable {
    /// The log cannot be written, so nothing may be decided.
    #[error("the log cannot be written")]
    Log,
    /// More arrivals wait for their first look than the inbox holds: the log does not keep up.
    #[error("the pool's inbox is full")]
    InboxFull,
    /// The pool has stopped.
    #[error("the service has stopped")]
    Stopped,
    /// The input, or one like it, made the kernel fail: it is kept aside.
    #[error("an input like this one made the service fail")]
    Poisoned,
    /// The pool's thread ended because of a fault of ours.
    #[error("the pool's thread has failed")]
    Failed,
}

impl Unavailable {
    /// The word for the caller.
    pub const fn reason(self) -> Reason {
        match self {
            Unavailable::Log | Unavailable::InboxFull => Reason::LogUnavailable,
            Unavailable::Stopped => Reason::ShuttingDown,
            Unavailable::Poisoned | Unavailable::Failed => Reason::Internal,
        }
    }
}

/// What became of a cancellation, an end, a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It counted, in this step.
    Done {
        /// The step's sequence.
        seq: u64,
    },
    /// No request has that number.
    Unknown,
    /// The request had ended before.
    AlreadyEnded,
    /// Nothing could be recorded.
    Unavailable(Unavailable),
}

/// What became of a change of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// In force since this step.
    Adopted {
        /// The step's sequence.
        seq: u64,
    },
    /// Nothing differs from what is in force.
    Same,
}

/// The end of a lease that somebody watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseNotice {
    /// The step that ended it.
    pub seq: u64,
    /// How.
    pub end: LeaseEnd,
    /// Why, where it did not simply complete.
    pub cause: Option<LeaseEndCause>,
    /// How long it ran.
    pub ran: Micros,
}
