//! What a snapshot consists of: one struct per kind of thing that a state holds (`Event::Restated…`).
//!
//! Not here: how a state becomes such a list and comes back from it (`restate.rs`).

use crate::{
    BandOrigin, BandSettings, Face, FlowId, Hold, Idempotency, Micros, OrderKey, Outcome, Ratio, Reason,
    Regime, RequestId, Role, Slot,
};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Clocks, counters and cursors that belong to no band, flow or request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedCore {
    /// Last step.
    pub seq: u64,
    /// Its time.
    pub now: Micros,
    /// The regime and the three budget clocks, see `clocks.rs`.
    pub regime: Regime,
    /// When each clock was last set: (regime entered, saturation clock, no-endpoint clock, whole clock).
    pub clocks: [Micros; 4],
    /// The saturation clock's reading when `NoEndpoints` was last left.
    pub fresh_from: Micros,
    /// The same instant on the log's own clock.
    pub fresh_at: Micros,
    /// Counters: arrivals, repeated, then one per [`Outcome`], then one per [`LeaseEnd`].
    pub counters: Vec<u64>,
    /// Everything else that is a number: see `restate.rs`, which alone knows the order.
    pub numbers: Vec<u64>,
    /// The hold in force.
    pub hold: Option<Hold>,
    /// A pushed saturation figure by stage (prefill, decode), or twice the pool's.
    pub pushed: Option<(Ratio, Ratio)>,
}

/// One band.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedBand {
    /// Its priority.
    pub priority: i32,
    /// Why it exists.
    pub origin: BandOrigin,
    /// Its settings.
    pub settings: BandSettings,
    /// Round-robin cursor.
    pub last: Option<FlowId>,
    /// When it last became idle (no flow), if it is.
    pub idle_since: Option<Micros>,
    /// Refusals since it last freed a slot.
    pub refusals: u64,
    /// When it first queued something.
    pub active_since: Option<Micros>,
    /// Dispatches by second: (second, count), oldest first.
    pub drained: Vec<(u64, u64)>,
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedFlow {
    /// Its number.
    pub flow: FlowId,
    /// Its name.
    pub name: String,
    /// Its band.
    pub priority: i32,
    /// When its last request left the queue, if none is queued.
    pub idle_since: Option<Micros>,
}

/// One program of least-attained-service fairness (a fairness id, over all bands).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedProgram {
    /// Its name.
    pub name: String,
    /// Attained service, scaled.
    pub service: u128,
    /// Requests of it that are queued or run.
    pub active: u64,
    /// When the last of them ended, if none is left.
    pub idle_since: Option<Micros>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedEndpoint {
    /// Its place.
    pub slot: Slot,
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Its last sample: waiting, running, KV in ten-thousandths; none = never sampled.
    pub sample: Option<(u32, u32, u32)>,
    /// When that sample was asked for.
    pub requested_at: Micros,
    /// Since when it is stale, if it is.
    pub stale_since: Option<Micros>,
    /// Numbers of the in-flight credit: see `restate.rs`, which alone knows the order.
    pub numbers: Vec<u64>,
}

/// One queued request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedQueued {
    /// Which one.
    pub request: RequestId,
    /// Its flow.
    pub flow: FlowId,
    /// Its place in the flow.
    pub order: OrderKey,
    /// When it was queued.
    pub enqueued_at: Micros,
    /// The three budget clocks at that instant.
    pub marks: [Micros; 3],
    /// Its size.
    pub bytes: u64,
    /// Prompt tokens (0 = unknown).
    pub prompt_tokens: u32,
    /// Its class, where the caller shortened the budget.
    pub header_class: Option<Micros>,
    /// The caller's deadline.
    pub deadline: Option<Micros>,
    /// How it came in.
    pub face: Face,
    /// Shall the kernel choose the endpoint?
    pub choose_endpoint: bool,
    /// Its idempotency key.
    pub key: Option<Idempotency>,
    /// Its caller is gone since a restart and may come back until then.
    pub resumable_until: Option<Micros>,
    /// When its holder was last heard of (tickets).
    pub heard_at: Micros,
    /// The budgets of its class: saturation, no endpoint.
    pub budgets: [Micros; 2],
    /// Recovery has still to end it.
    pub doomed: bool,
    /// The program whose account it is on.
    pub program: Option<String>,
}

/// Where a lease runs. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Whereabouts {
    /// Somewhere in the pool.
    #[default]
    Unknown,
    /// On this endpoint.
    At(Slot),
    /// On an endpoint that left the pool: it loads none of the others.
    Gone,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedLease {
    /// Which one.
    pub request: RequestId,
    /// Its priority.
    pub priority: i32,
    /// Where it runs.
    pub at: Whereabouts,
    /// When it was admitted.
    pub dispatched_at: Micros,
    /// When its holder was last heard of (held leases).
    pub heard_at: Micros,
    /// Prompt tokens it was charged with.
    pub prompt_tokens: u32,
    /// Output tokens it was charged with.
    pub output_estimate: u64,
    /// The program that its service is charged to.
    pub program: Option<String>,
    /// Has its first byte been seen?
    pub first_byte: bool,
    /// How it came in.
    pub face: Face,
    /// It ran before the last restart and is not settled yet.
    pub orphan: bool,
    /// Recovery has still to end it.
    pub doomed: bool,
    /// Its idempotency key.
    pub key: Option<Idempotency>,
}

/// The pause in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedPause {
    /// Since when.
    pub since: Micros,
    /// Who paused it.
    pub by: String,
    /// Why.
    pub why: String,
}

/// A remembered idempotency key and what became of its request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedKey {
    /// The key.
    pub key: Idempotency,
    /// Its request.
    pub request: RequestId,
    /// How that ended, if it has.
    pub answer: Option<KeyAnswer>,
}

/// What a repeated call is answered once the first has been decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyAnswer {
    /// The queue outcome.
    pub outcome: Outcome,
    /// The reason, unless admitted.
    pub reason: Option<Reason>,
    /// The step that decided.
    pub seq: u64,
    /// How long it was queued.
    pub waited: Micros,
    /// The chosen endpoint.
    pub endpoint: Option<Slot>,
}
