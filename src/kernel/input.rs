//! What comes into the kernel: facts from the world, each with the step's own time beside it.

use crate::{Cause, Micros, Policy, Ratio, policy};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Our own name of a request: the sequence of the step in which it arrived. Unique within one pool's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The place of an endpoint in the pool's table, given out by the observer and reused after the endpoint left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u16);

/// One fact. Numbers are on disk: append, never renumber, never reuse; a changed meaning is a new kind.
///
/// Input is checked before it becomes one of these; still, no value of these types makes the kernel panic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "arrivals are the common case and must not cost a box each")]
pub enum Input {
    /// The service started on this log (the first step of each run).
    Started(Started),
    /// A request arrived.
    Arrived(Arrival),
    /// A caller or an operator ends a request early: queued, it leaves the queue; running, its lease ends.
    Cancelled(Cancelled),
    /// A round of pool observation that changed something (or must be counted).
    Observed(Observation),
    /// The stream of a running request ended.
    Ended(Ended),
    /// The first byte of a running request's response was seen.
    FirstByte { request: RequestId },
    /// The holder of a lease or of a ticket showed that it is alive.
    Renewed { request: RequestId },
    /// A deadline came; nothing else happened.
    TimePassed,
    /// Other settings are in force from here on.
    PolicyChanged(PolicyChange),
    /// The table of objectives changed.
    ObjectivesChanged(ObjectivesChange),
    /// No new requests; what is queued may be served until `drain_until`.
    Stopping { drain_until: Micros },
    /// The run ends; everything that can be ended has been.
    Stopped,
    /// The log could not be written for a while; this many arrivals were refused outside the kernel.
    LogResumed { since: Micros, refused: u64 },
    /// An operator's hand on the pool.
    Admin(Admin),
    /// More arrivals at this instant than are worth a step each, all refused alike.
    ArrivedMany(ArrivedMany),
    /// An operator orders a lease to end early; both texts at most 256 bytes.
    Revoke { request: RequestId, by: String, why: String },
    /// The face of a revoked lease could not tell its holder.
    Undeliverable { request: RequestId },
    /// The holder of a held lease or of a ticket waits on it just now (a long poll), or does no longer.
    Watched { request: RequestId, watching: bool },
}

/// A run begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Version of what the kernel decides (see [`crate::KERNEL_BEHAVIOUR`]).
    pub kernel_behaviour: u32,
    /// The version of Weir, as text.
    pub version: String,
    /// The wall clock at start, which may differ from the step's time (never behind the log).
    pub wall: Micros,
}

/// A request, checked and stripped of everything that decides nothing and answers no question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The caller's own id (`x-request-id`), a label; at most 256 bytes, may be empty.
    pub caller_id: String,
    /// The name that the objective table maps to a priority.
    pub objective: Option<String>,
    /// The fairness id; empty means the default flow.
    pub fairness_id: String,
    /// A raw priority, present only where the pool trusts it.
    pub priority: Option<i32>,
    /// The model asked for.
    pub model: Option<String>,
    /// Size for the queue's byte limits.
    pub bytes: u64,
    /// Prompt size in tokens, where known.
    pub prompt_tokens: Option<u32>,
    /// The caller's own shorter queue-wait budget; zero is never passed on.
    pub ttl: Option<Micros>,
    /// The header for it was there but could not be read.
    pub ttl_unreadable: bool,
    /// Time to first token that the caller aims at, for the SLO ordering.
    pub slo_ttft: Option<Micros>,
    /// When the face first saw it.
    pub received_at: Micros,
    /// The caller's own deadline.
    pub deadline: Option<Micros>,
    /// How it came in, which says what can be known of its end.
    pub face: Face,
    /// Shall the kernel choose the endpoint?
    pub choose_endpoint: bool,
    /// Makes two calls one (only `/v1/admissions`).
    pub idempotency: Option<Idempotency>,
    /// The caller's trace context.
    pub trace: Option<Trace>,
}

/// How a request came in. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Face {
    /// A held `POST /v1/admissions`; the lease is completed or renewed by its holder.
    #[default]
    Held,
    /// The event stream: its end is the end of the lease.
    Stream,
    /// A ticket, polled.
    Ticket,
    /// The reverse proxy.
    Proxy,
    /// Envoy's ext_proc where Envoy fails closed (running streams die with us).
    ExtProcClosed,
    /// Envoy's ext_proc where Envoy fails open (running streams survive us).
    ExtProcOpen,
    /// A face that cannot see the end of a request (ext_proc over HTTP, ext_authz).
    Untracked,
}

impl Face {
    /// Can the end of the request be seen?
    pub const fn sees_end(self) -> bool {
        !matches!(self, Face::Untracked)
    }

    /// Does a running request outlive our process?
    pub const fn survives_restart(self) -> bool {
        matches!(self, Face::Held | Face::Ticket | Face::ExtProcOpen)
    }

    /// The word in logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Face::Held => "held",
            Face::Stream => "stream",
            Face::Ticket => "ticket",
            Face::Proxy => "proxy",
            Face::ExtProcClosed => "ext-proc",
            Face::ExtProcOpen => "ext-proc-fail-open",
            Face::Untracked => "untracked",
        }
    }
}

/// An idempotency key within its scope (token and pool), as hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Idempotency {
    /// Of scope and key.
    pub key: [u8; 16],
    /// Of the request's body: the same key with another body is a mistake of the caller.
    pub body: [u8; 8],
}

/// W3C trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Trace id, not all zero.
    pub trace_id: [u8; 16],
    /// The caller's span.
    pub parent_id: [u8; 8],
    /// Trace flags; bit 0 = sampled.
    pub flags: u8,
}

/// A request is given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// Which one.
    pub request: RequestId,
    /// Who or what ended it.
    pub cause: Cause,
}

/// A running request has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Which one.
    pub request: RequestId,
    /// How, as the transport saw it.
    pub termination: Termination,
    /// What it used, where known.
    pub usage: Option<Usage>,
}

/// How a stream ended. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Termination {
    /// By itself.
    #[default]
    Natural,
    /// The caller went away.
    ClientDisconnect,
    /// It was revoked.
    Evicted,
    /// The model server or the way to it failed.
    Error,
}

/// Tokens of a completed request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt: u32,
    /// Completion tokens.
    pub completion: u32,
}

/// One round of looking at the pool, as changes to what was logged last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// When the round's samples were asked for (not when they came).
    pub requested_at: Micros,
    /// Joins, leaves, samples and edges, in slot order, at most one sample per slot.
    pub changes: Vec<EndpointChange>,
    /// A saturation figure of the pusher's own.
    pub pushed: Pushed,
}

/// A saturation figure that somebody else computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pushed {
    /// As before.
    #[default]
    Keep,
    /// No longer there.
    Clear,
    /// For the whole pool.
    Pool(Ratio),
    /// By stage.
    Stages { prefill: Ratio, decode: Ratio },
}

/// One change of one endpoint. Unknown slots and repeated joins are ignored. Numbers are on disk: append only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndpointChange {
    /// It is in the pool from now on, not yet sampled.
    Joined { slot: Slot, name: String, role: Role },
    /// It is gone.
    Left { slot: Slot },
    /// Fresh metrics, as differences to its last sample in the log (to zeros for the first one).
    Sampled {
        slot: Slot,
        /// Requests waiting in the engine.
        waiting: i32,
        /// Requests running in the engine.
        running: i32,
        /// KV cache share in ten-thousandths.
        kv: i32,
    },
    /// Its metrics are too old now.
    Stale { slot: Slot },
}

/// What an endpoint does. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    /// `decode`, or no label.
    #[default]
    Decode,
    /// `prefill` and `encode-prefill`.
    Prefill,
    /// `prefill-decode`, `both` and `encode-prefill-decode`.
    Both,
    /// `encode` and words that are not known: counted in no stage.
    Other,
}

impl Role {
    /// From the label `llm-d.ai/role`; empty means decode.
    pub fn from_label(label: &str) -> Role {
        match label {
            "" | "decode" => Role::Decode,
            "prefill" | "encode-prefill" => Role::Prefill,
            "prefill-decode" | "both" | "encode-prefill-decode" => Role::Both,
            _ => Role::Other,
        }
    }

    /// Counts in the prefill stage.
    pub const fn prefills(self) -> bool {
        matches!(self, Role::Prefill | Role::Both)
    }

    /// Counts in the decode stage.
    pub const fn decodes(self) -> bool {
        matches!(self, Role::Decode | Role::Both)
    }
}

/// New settings, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChange {
    /// The settings; on disk one canonical JSON string.
    #[serde(with = "policy::as_json")]
    pub policy: Box<Policy>,
    /// SHA-256 of the canonical JSON.
    pub digest: [u8; 32],
}

/// What an operator does by hand, who that is, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admin {
    /// What.
    pub action: AdminAction,
    /// Who: the name of the token, or what the operator said; at most 256 bytes.
    pub by: String,
    /// The operator's reason; at most 256 bytes.
    pub why: String,
}

/// What can be done by hand. Numbers are on disk: append, never renumber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminAction {
    /// Nothing is dispatched until it is resumed; requests are queued and expire as before.
    Pause,
    /// The end of a pause.
    Resume,
    /// A queued request is removed.
    Purge { request: RequestId },
    /// All that a flow has queued at this instant is removed.
    PurgeFlow { fairness_id: String, priority: i32 },
    /// As [`Input::Stopping`].
    Drain { until: Micros },
}

/// Arrivals that are decided together. What the kernel needs to refuse them is that of the one that is hardest to
/// refuse; everything else about them is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivedMany {
    /// Their band.
    pub priority: i32,
    /// How many.
    pub count: u64,
    /// How many of them named an objective that is not in the table.
    pub objective_unknown: u64,
    /// How many of them had a budget header that could not be read.
    pub ttl_unreadable: u64,
    /// The smallest size.
    pub bytes: u64,
    /// The longest own budget; none if one of them had none.
    pub ttl: Option<Micros>,
    /// The latest deadline; none if one of them had none.
    pub deadline: Option<Micros>,
    /// When a face saw the first of them.
    pub since: Micros,
    /// When a face saw the last of them.
    pub received_at: Micros,
    /// How long they took from their face to this step, added up.
    pub took: Micros,
}

/// Objectives that came, changed or went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectivesChange {
    /// Name and priority.
    pub set: Vec<(String, i32)>,
    /// Names.
    pub removed: Vec<String>,
}
