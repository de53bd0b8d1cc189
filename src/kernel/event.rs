//! What the kernel decides: facts in the past tense, with the numbers they rest on.

use crate::input::{RequestId, Slot};
use crate::policy::{self, BandBounds, BandSettings};
use crate::queueing::{BoundReached, Hopeless, OrderTurned, RestatedLine};
use crate::restated::{
    RestatedBand, RestatedCore, RestatedEndpoint, RestatedFlow, RestatedKey, RestatedLease, RestatedPause,
    RestatedProgram, RestatedQueued,
};
use crate::revocation::{
    DemandSized, Reclaimed, ReclamationDecided, RestatedReclamation, RestatedRevocation, RestatedRevocations,
    RevocationEnded, RevocationIssued,
};
use crate::{Cause, LeaseEnd, Micros, Outcome, Policy, Ratio, Reason};
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The number of a flow within the pool's state; its name is in the arrival that opened it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlowId(pub u32);

/// What the pool can do. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Regime {
    /// Before the first view of the pool.
    #[default]
    Unknown,
    /// Nothing can serve: a waiting room.
    NoEndpoints,
    /// Endpoints exist, but the sensor is blind.
    NoFreshMetrics,
    /// A saturated pool means backpressure.
    HasEndpoints,
}

impl Regime {
    /// Every regime, in disk order.
    pub const ALL: [Regime; 4] =
        [Regime::Unknown, Regime::NoEndpoints, Regime::NoFreshMetrics, Regime::HasEndpoints];

    /// The word in logs, metrics and answers.
    pub const fn word(self) -> &'static str {
        match self {
            Regime::Unknown => "Unknown",
            Regime::NoEndpoints => "NoEndpoints",
            Regime::NoFreshMetrics => "NoFreshMetrics",
            Regime::HasEndpoints => "HasEndpoints",
        }
    }
}

impl fmt::Display for Regime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One decision. Numbers are on disk: append, never renumber, never reuse; a changed meaning is a new kind.
///
/// `Restated…` kinds occur only in snapshots: their fold from an empty state is the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The run's first step is taken: the regime is `Unknown` again, and no budget ran while we were down.
    StartNoted { queued: u64, leases: u64, resumable_until: Micros },
    /// The settings of the input are in force.
    PolicyAdopted,
    /// The objectives of the input are in force.
    ObjectivesAdopted,
    /// A band exists now.
    BandOpened { priority: i32, origin: BandOrigin, settings: Box<BandSettings> },
    /// A band has other settings or another origin.
    BandChanged { priority: i32, origin: BandOrigin, settings: Box<BandSettings> },
    /// A band is gone.
    BandClosed { priority: i32 },
    /// The arrival's flow exists now.
    FlowOpened { flow: FlowId, priority: i32 },
    /// An idle flow is gone.
    FlowClosed { flow: FlowId },
    /// The request of the input is queued.
    Enqueued(Enqueued),
    /// The request of the input is refused.
    Rejected(Rejected),
    /// The arrival repeats an earlier one (idempotency key): it shares that one's fate.
    Repeated { of: RequestId, resumed: bool },
    /// A request is admitted; its lease begins.
    Dispatched(Dispatched),
    /// A queued request ended without being admitted.
    Evicted(Evicted),
    /// A lease ended.
    LeaseEnded(LeaseEnded),
    /// The lease or ticket lives on.
    RenewalNoted { request: RequestId },
    /// The first byte of the lease's response was seen.
    FirstByteNoted { request: RequestId },
    /// The observation of the input is taken over.
    Viewed,
    /// What follows from the view is another figure than before.
    GaugeMoved { endpoints: u16, fresh: u16, saturation: Ratio },
    /// The pool's regime changed.
    RegimeChanged { from: Regime, to: Regime, endpoints: u16, fresh: u16 },
    /// Queued work is held, and by what. Written when that changes.
    Held { by: Hold },
    /// Nothing is held any more.
    HoldLifted,
    /// Round-robin fairness served this flow last (none: start over).
    TurnTaken { priority: i32, last: Option<FlowId> },
    /// Attained service of the request's program rose; the value is scaled (see `service.rs`).
    ServiceCharged { request: RequestId, service: u128 },
    /// The scale of attained service moved on: every value is shifted right by so many bits.
    ServiceRescaled { epoch: Micros, shift: u32 },
    /// A program that has been idle for long is forgotten.
    ProgramForgotten { program: String },
    /// Other settings give a class of queued requests other budgets, measured from the same instants.
    ClassRebudgeted {
        priority: i32,
        header_class: Option<Micros>,
        saturation_budget: Micros,
        no_endpoint_budget: Micros,
    },
    /// The alternation of soft-reflective ceilings moved on.
    CeilingTicked { tick: u64 },
    /// New requests are refused from here on.
    DrainBegun { until: Micros },
    /// The run is over.
    StopNoted,
    /// Arrivals were refused outside the kernel while the log could not be written.
    RefusalsNoted { refused: u64 },
    /// An input that matched nothing: noted, so that every step says what came of it.
    Ignored { what: Ignored },
    /// The oldest idempotency key was forgotten to make room.
    KeyForgotten { key: [u8; 16] },
    /// Recovery is over: every caller that could not come back has its outcome.
    RecoveryEnded,
    /// The first fresh samples after a restart are in; orphans beyond what they show have been ended.
    OrphansSettled { kept: u64, lost: u64 },

    /// Snapshot: sequence, time, clocks and counters.
    RestatedCore(Box<RestatedCore>),
    /// Snapshot: the settings in force, as one canonical JSON string.
    RestatedPolicy {
        #[serde(with = "policy::as_json")]
        policy: Box<Policy>,
    },
    /// Snapshot: an objective.
    RestatedObjective { name: String, priority: i32 },
    /// Snapshot: a band.
    RestatedBand(Box<RestatedBand>),
    /// Snapshot: a flow.
    RestatedFlow(Box<RestatedFlow>),
    /// Snapshot: an endpoint.
    RestatedEndpoint(Box<RestatedEndpoint>),
    /// Snapshot: a queued request.
    RestatedQueued(Box<RestatedQueued>),
    /// Snapshot: a lease.
    RestatedLease(Box<RestatedLease>),
    /// Snapshot: a remembered idempotency key.
    RestatedKey(Box<RestatedKey>),
    /// Snapshot: a program of least-attained-service fairness.
    RestatedProgram(Box<RestatedProgram>),

    /// The pool is paused: nothing is dispatched.
    Paused,
    /// The pause is over.
    Resumed,
    /// So many queued requests are to be removed, in this step and those right after it.
    PurgeBegun { requests: u64 },
    /// All arrivals of the input are refused without having been queued.
    RejectedMany(RejectedMany),
    /// Snapshot: the pause in force.
    RestatedPause(Box<RestatedPause>),
    /// Snapshot: a queued request that a purge has still to remove.
    RestatedPurge { request: RequestId },
    /// A lease is ordered to end early.
    RevocationIssued(RevocationIssued),
    /// A revocation ended: confirmed, timed out or undeliverable.
    RevocationEnded(RevocationEnded),
    /// The stream of a lease ended after its revocation had timed out.
    ConfirmedLate { number: u64, request: RequestId, late: Micros },
    /// The endpoint's own metrics show that a revoked lease is gone.
    Reclaimed(Reclaimed),
    /// The holder of a lease or of a ticket waits on it just now, or does no longer.
    WatchNoted { request: RequestId, watching: bool },
    /// Snapshot: the revocation of a lease that still runs.
    RestatedRevocation(Box<RestatedRevocation>),
    /// Snapshot: revocations that have ended, counters, and who waits on what.
    RestatedRevocations(Box<RestatedRevocations>),
    /// Leases are taken back for blocked demand of a higher priority; the revocations follow.
    ReclamationDecided(Box<ReclamationDecided>),
    /// No such decision before then (the end of time: until the view is back after a restart).
    ReclamationShut { until: Micros },
    /// Snapshot: what reclamation remembers.
    RestatedReclamation(Box<RestatedReclamation>),
    /// How many victims the decision that follows takes, where it looks at the whole demand.
    DemandSized(Box<DemandSized>),
    /// A band has other bounds.
    BandBounded { priority: i32, bounds: BandBounds },
    /// A band turned its order, or turned it back.
    OrderTurned(OrderTurned),
    /// A request is served next because it has waited as long as its band's starvation bound; the dispatch follows.
    BoundReached(BoundReached),
    /// The arrival would wait longer than it may; the refusal follows.
    FoundHopeless(Hopeless),
    /// Snapshot: what a band's line remembers, and its bounds.
    RestatedLine(Box<RestatedLine>),
}

/// Why a band exists. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BandOrigin {
    /// Listed in the configuration (or priority 0): never collected.
    Configured,
    /// Wanted by an objective: kept while wanted.
    Desired,
    /// Made by a request: collected when idle.
    Provisioned,
}

/// A request is queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enqueued {
    /// Its flow.
    pub flow: FlowId,
    /// The band it waits in.
    pub priority: i32,
    /// The objective was named but is not in the table (priority 0).
    pub objective_unknown: bool,
    /// Its queue-wait budget in `HasEndpoints` (zero = none).
    pub saturation_budget: Micros,
    /// Its budget in `NoEndpoints` and `NoFreshMetrics` (zero = none).
    pub no_endpoint_budget: Micros,
    /// Where the first of them came from.
    pub budget_source: BudgetSource,
    /// The caller's budget as it counts (header, rounded down to a class), if it counts.
    pub header_class: Option<Micros>,
    /// Its place in the flow.
    pub order: OrderKey,
    /// Requests in the band with this one.
    pub depth: u64,
}

/// Place inside a flow, smallest first; arrival sequence decides ties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OrderKey {
    /// 0 for FCFS; the deadline for EDF and SLO, `u64::MAX` without one.
    pub primary: u64,
    /// Receive time for SLO, else 0.
    pub secondary: u64,
}

/// Which scope set the queue-wait budget. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BudgetSource {
    /// `defaultRequestTTL`.
    Global,
    /// The band's own.
    Band,
    /// The caller's, which was shorter.
    Header,
}

/// A request is refused without having been queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// How it is counted.
    pub outcome: Outcome,
    /// What its caller hears.
    pub reason: Reason,
    /// The regime that decided (429 or 503).
    pub regime: Regime,
    /// The band it would have waited in.
    pub priority: i32,
    /// The objective was named but is not in the table.
    pub objective_unknown: bool,
    /// Which limit, with the figures.
    pub limit: Option<Limit>,
    /// A cause, where it was not a limit.
    pub cause: Option<Cause>,
    /// Whole seconds for `Retry-After`, 1 to 30, where a figure can be given honestly.
    pub retry_after: Option<u8>,
    /// The raw gauge.
    pub saturation: Ratio,
}

/// Arrivals that are refused together; how many, and of which band, is in the input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedMany {
    /// How each is counted.
    pub outcome: Outcome,
    /// What each caller hears.
    pub reason: Reason,
    /// The regime that decided.
    pub regime: Regime,
    /// The limit that refused the smallest.
    pub limit: Option<Limit>,
    /// A cause, where it was not a limit.
    pub cause: Option<Cause>,
    /// `Retry-After` of the first and of the last of them; those between lie between.
    pub retry_after: [Option<u8>; 2],
    /// The raw gauge.
    pub saturation: Ratio,
}

/// A queue limit that refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Which one.
    pub which: LimitKind,
    /// What was held before.
    pub held: u64,
    /// The limit.
    pub limit: u64,
}

/// The four limits. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LimitKind {
    /// All bands, bytes.
    GlobalBytes,
    /// All bands, requests.
    GlobalRequests,
    /// The band, bytes.
    BandBytes,
    /// The band, requests.
    BandRequests,
}

impl LimitKind {
    /// The setting's name.
    pub const fn word(self) -> &'static str {
        match self {
            LimitKind::GlobalBytes => "maxBytes",
            LimitKind::GlobalRequests => "maxRequests",
            LimitKind::BandBytes => "band maxBytes",
            LimitKind::BandRequests => "band maxRequests",
        }
    }
}

/// A request is admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatched {
    /// Which one.
    pub request: RequestId,
    /// The chosen endpoint, where the kernel chose.
    pub endpoint: Option<Slot>,
    /// How long it was queued.
    pub waited: Micros,
    /// The gauge as sampled.
    pub raw: Ratio,
    /// The gauge with what the sensor cannot have seen yet; this one decided.
    pub effective: Ratio,
    /// The band's ceiling.
    pub ceiling: Ratio,
    /// The step of the observation that the gauge rests on.
    pub observed: u64,
    /// Output tokens that it is expected to hold, where the detector estimates them (else 0).
    pub output_estimate: u64,
}

/// A queued request ended without being admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// Which one.
    pub request: RequestId,
    /// How it is counted.
    pub outcome: Outcome,
    /// What its caller hears.
    pub reason: Reason,
    /// The regime in force.
    pub regime: Regime,
    /// How long it was queued, by the clock of the log.
    pub waited: Micros,
    /// The budget that ended it, where one did.
    pub budget: Option<SpentBudget>,
    /// The cause, where no budget did.
    pub cause: Option<Cause>,
    /// The caller's own deadline, where it had one.
    pub deadline: Option<Micros>,
    /// What it was held by at the end.
    pub held_by: Option<Hold>,
}

/// A budget that ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentBudget {
    /// Which one.
    pub which: BudgetKind,
    /// Its size.
    pub budget: Micros,
    /// The instant it was charged from: of the last (re)start for the saturation budget, else of the enqueue.
    pub charged_from: Micros,
}

/// The three bounds on a wait (contract.md row 3). Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BudgetKind {
    /// (a) Runs in `HasEndpoints`.
    Saturation,
    /// (b) Adds up over `NoEndpoints` and `NoFreshMetrics`.
    NoEndpoint,
    /// (c) The sum of both, over the whole wait.
    Whole,
}

/// What holds queued work back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// The regime allows no dispatch.
    Regime(Regime),
    /// A band with queued work is at its ceiling; it and all below it wait.
    Band {
        /// Its priority.
        priority: i32,
        /// The effective gauge when the hold began.
        saturation: Ratio,
        /// Its ceiling then.
        ceiling: Ratio,
        /// Endpoints whose metrics were stale, so that each counted as full.
        stale: u16,
        /// Endpoints in the pool.
        endpoints: u16,
    },
    /// Recovery after a restart is still under way.
    Recovery,
    /// An operator paused the pool.
    Paused,
}

/// A lease ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseEnded {
    /// Which one.
    pub request: RequestId,
    /// How.
    pub end: LeaseEnd,
    /// How long it ran.
    pub ran: Micros,
    /// Why, where it did not simply complete.
    pub cause: Option<LeaseEndCause>,
}

/// Why a lease ended otherwise than by itself. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LeaseEndCause {
    /// Our process died, and its stream with it.
    Restart,
    /// Nobody renewed it.
    Timeout,
    /// After a restart the endpoints' own metrics do not show it.
    NotAtEngine,
    /// It was cancelled by its caller or an operator.
    Cancelled(Cause),
}

/// An input that changed nothing. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ignored {
    /// No queued request and no lease has that number.
    UnknownRequest,
    /// The request had ended before.
    AlreadyEnded,
    /// An endpoint change that fits no endpoint.
    UnknownSlot,
    /// Nothing differs.
    NoChange,
    /// The request runs already, so that it cannot be removed from the queue.
    NotQueued,
    /// The flow has nothing queued.
    EmptyFlow,
    /// A revocation of the lease is outstanding already.
    AlreadyRevoked,
    /// The request is queued: there is no lease to revoke.
    NotRunning,
}
