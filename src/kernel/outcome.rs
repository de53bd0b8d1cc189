//! How a request leaves the queue and how a lease ends: the words of the wire, and what follows from them.

use serde::{Deserialize, Serialize};

/// How a request left the queue. Exactly one per request, ever. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// Admitted: a lease begins.
    Dispatched,
    /// Never queued: a queue limit is reached.
    RejectedCapacity,
    /// Never queued: a limit is reached while nothing can serve (or nobody can tell).
    RejectedNoEndpoints,
    /// Never queued, for any other [`Cause`].
    RejectedOther,
    /// Queued, and its own budget ended while the pool was busy.
    EvictedTTL,
    /// Queued, and its budget for an empty or blind pool ended.
    EvictedNoEndpoints,
    /// Queued, and its caller gave up or the caller's deadline passed.
    EvictedContextCancelled,
    /// Queued, and ended for any other [`Cause`].
    EvictedOther,
}

/// Did capacity exist? 429 and 503 follow from this alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Availability {
    /// The request was admitted (200).
    Granted,
    /// Capacity exists but is contended (429).
    Contended,
    /// Nothing can serve it now (503).
    Unavailable,
    /// Our own fault (500).
    Fault,
}

/// Why, in one word: the value of `x-weir-dropped-reason`. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// A queue limit is reached while endpoints exist.
    Saturated,
    /// The queue-wait budget ended while the pool was busy.
    TtlExpired,
    /// No band can be provisioned for this priority: `maxDynamicBands` are in use.
    BandLimit,
    /// Revoked while running.
    Evicted,
    /// The pool has no endpoints.
    NoEndpoints,
    /// Endpoints exist, but none has fresh metrics.
    NoFreshMetrics,
    /// The pool has not been seen yet.
    NotReady,
    /// The caller gave up, or its deadline passed.
    ContextCancelled,
    /// The service is stopping.
    ShuttingDown,
    /// The service restarted while the request was queued.
    Restarted,
    /// The log cannot be written, so nothing may be decided.
    LogUnavailable,
    /// Our own fault.
    Internal,
    /// The same `Idempotency-Key` came with another body.
    IdempotencyMismatch,
    /// An operator removed it from the queue.
    Purged,
}

/// What ended a request, beyond its [`Outcome`]. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// The connection or stream of the caller ended.
    ClientDisconnect,
    /// The caller's own deadline passed.
    ClientDeadline,
    /// An operator purged it.
    Purged,
    /// The service is stopping.
    ShuttingDown,
    /// The service restarted and its caller did not come back.
    Restarted,
    /// A ticket whose holder stopped polling.
    TicketAbandoned,
    /// Observe mode: it ended in the real pool while the shadow still queued it.
    EndedInPool,
    /// Nobody said.
    Other,
}

/// How a lease ended. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LeaseEnd {
    /// Its stream ended, or its holder said so.
    Completed,
    /// It was revoked and its stream has ended.
    Revoked,
    /// Nobody can say any more: the holder let it lapse, or a restart cut its stream.
    Lost,
    /// The face cannot see ends: ended in the step that dispatched it.
    Untracked,
}

impl Outcome {
    /// Every outcome, in disk order.
    pub const ALL: [Outcome; 8] = [
        Outcome::Dispatched,
        Outcome::RejectedCapacity,
        Outcome::RejectedNoEndpoints,
        Outcome::RejectedOther,
        Outcome::EvictedTTL,
        Outcome::EvictedNoEndpoints,
        Outcome::EvictedContextCancelled,
        Outcome::EvictedOther,
    ];

    /// The word on the wire, in logs and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Outcome::Dispatched => "Dispatched",
            Outcome::RejectedCapacity => "RejectedCapacity",
            Outcome::RejectedNoEndpoints => "RejectedNoEndpoints",
            Outcome::RejectedOther => "RejectedOther",
            Outcome::EvictedTTL => "EvictedTTL",
            Outcome::EvictedNoEndpoints => "EvictedNoEndpoints",
            Outcome::EvictedContextCancelled => "EvictedContextCancelled",
            Outcome::EvictedOther => "EvictedOther",
        }
    }

    /// Was it ever in a queue before it ended there? (`Rejected…` was not; `Dispatched` counts as neither.)
    pub const fn was_queued(self) -> bool {
        match self {
            Outcome::Dispatched
            | Outcome::RejectedCapacity
            | Outcome::RejectedNoEndpoints
            | Outcome::RejectedOther => false,
            Outcome::EvictedTTL
            | Outcome::EvictedNoEndpoints
            | Outcome::EvictedContextCancelled
            | Outcome::EvictedOther => true,
        }
    }

    /// Position in [`Outcome::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl Reason {
    /// Every reason, in disk order.
    pub const ALL: [Reason; 14] = [
        Reason::Saturated,
        Reason::TtlExpired,
        Reason::BandLimit,
        Reason::Evicted,
        Reason::NoEndpoints,
        Reason::NoFreshMetrics,
        Reason::NotReady,
        Reason::ContextCancelled,
        Reason::ShuttingDown,
        Reason::Restarted,
        Reason::LogUnavailable,
        Reason::Internal,
        Reason::IdempotencyMismatch,
        Reason::Purged,
    ];

    /// The value of `x-weir-dropped-reason`.
    pub const fn word(self) -> &'static str {
        match self {
            Reason::Saturated => "rejected-saturated",
            Reason::TtlExpired => "rejected-ttl-expired",
            Reason::BandLimit => "rejected-band-limit",
            Reason::Evicted => "evicted",
            Reason::NoEndpoints => "rejected-no-endpoints",
            Reason::NoFreshMetrics => "rejected-no-fresh-metrics",
            Reason::NotReady => "rejected-not-ready",
            Reason::ContextCancelled => "rejected-context-cancelled",
            Reason::ShuttingDown => "rejected-shutting-down",
            Reason::Restarted => "rejected-restarted",
            Reason::LogUnavailable => "rejected-log-unavailable",
            Reason::Internal => "rejected-internal",
            Reason::IdempotencyMismatch => "rejected-idempotency-mismatch",
            Reason::Purged => "rejected-purged",
        }
    }

    /// The value of `x-llm-d-request-dropped-reason`: the nearest word that llm-d has.
    pub const fn llm_d_word(self) -> &'static str {
        match self {
            Reason::BandLimit => "rejected-saturated",
            Reason::NoFreshMetrics | Reason::NotReady => "rejected-no-endpoints",
            Reason::Restarted => "rejected-shutting-down",
            Reason::LogUnavailable => "rejected-internal",
            Reason::Purged => "rejected-context-cancelled",
            Reason::Saturated
            | Reason::TtlExpired
            | Reason::Evicted
            | Reason::NoEndpoints
            | Reason::ContextCancelled
            | Reason::ShuttingDown
            | Reason::Internal
            | Reason::IdempotencyMismatch => self.word(),
        }
    }

    /// 429 or 503 (or our fault): contract.md, *Names on the wire*.
    pub const fn availability(self) -> Availability {
        match self {
            Reason::Saturated | Reason::TtlExpired | Reason::BandLimit | Reason::Evicted => {
                Availability::Contended
            }
            Reason::NoEndpoints
            | Reason::NoFreshMetrics
            | Reason::NotReady
            | Reason::ContextCancelled
            | Reason::ShuttingDown
            | Reason::Restarted
            | Reason::LogUnavailable
            | Reason::Purged => Availability::Unavailable,
            Reason::Internal | Reason::IdempotencyMismatch => Availability::Fault,
        }
    }

    /// The HTTP status a caller gets: 429 contended, 503 nothing can serve, 422 mismatch, 500 our fault.
    pub const fn status(self) -> u16 {
        match self {
            Reason::IdempotencyMismatch => 422,
            _other => match self.availability() {
                Availability::Granted => 200,
                Availability::Contended => 429,
                Availability::Unavailable => 503,
                Availability::Fault => 500,
            },
        }
    }
}

impl Cause {
    /// The word on the wire and in logs.
    pub const fn word(self) -> &'static str {
        match self {
            Cause::ClientDisconnect => "client-disconnect",
            Cause::ClientDeadline => "client-deadline",
            Cause::Purged => "purged",
            Cause::ShuttingDown => "shutting-down",
            Cause::Restarted => "restarted",
            Cause::TicketAbandoned => "ticket-abandoned",
            Cause::EndedInPool => "ended-in-pool",
            Cause::Other => "other",
        }
    }

    /// The reason a caller hears when this ends its request.
    pub const fn reason(self) -> Reason {
        match self {
            Cause::ClientDisconnect | Cause::ClientDeadline | Cause::TicketAbandoned => {
                Reason::ContextCancelled
            }
            Cause::Purged => Reason::Purged,
            Cause::ShuttingDown => Reason::ShuttingDown,
            Cause::Restarted => Reason::Restarted,
            Cause::EndedInPool => Reason::ContextCancelled,
            Cause::Other => Reason::Internal,
        }
    }

    /// The outcome of a *queued* request that this cause ends.
    pub const fn outcome_when_queued(self) -> Outcome {
        match self {
            Cause::ClientDisconnect | Cause::ClientDeadline | Cause::TicketAbandoned => {
                Outcome::EvictedContextCancelled
            }
            Cause::Purged | Cause::ShuttingDown | Cause::Restarted | Cause::EndedInPool | Cause::Other => {
                Outcome::EvictedOther
            }
        }
    }
}

impl LeaseEnd {
    /// Every lease end, in disk order.
    pub const ALL: [LeaseEnd; 4] =
        [LeaseEnd::Completed, LeaseEnd::Revoked, LeaseEnd::Lost, LeaseEnd::Untracked];

    /// The word on the wire and in logs.
    pub const fn word(self) -> &'static str {
        match self {
            LeaseEnd::Completed => "Completed",
            LeaseEnd::Revoked => "Revoked",
            LeaseEnd::Lost => "Lost",
            LeaseEnd::Untracked => "Untracked",
        }
    }
}
