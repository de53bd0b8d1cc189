//! What is on record of revocations: the bodies of their events and of their part of a snapshot.
//!
//! Not here: when one is issued and how it ends (`revoke.rs`).

use crate::{Micros, Ratio, RequestId, Slot};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Who ordered a revocation. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RevocationOrder {
    /// An operator; who and why is in the input.
    Operator,
    /// A reclamation decision, for the band of this priority.
    Reclamation {
        /// The decision's number.
        decision: u64,
        /// The priority of the demand band.
        demand: i32,
    },
}

impl RevocationOrder {
    /// The word in logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            RevocationOrder::Operator => "operator",
            RevocationOrder::Reclamation { .. } => "reclamation",
        }
    }
}

/// A lease is ordered to end early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationIssued {
    /// The number of this revocation in the pool's log, from 1.
    pub number: u64,
    /// Which lease.
    pub request: RequestId,
    /// Who ordered it.
    pub order: RevocationOrder,
    /// The lease's priority.
    pub priority: i32,
    /// How long the lease had run.
    pub age: Micros,
    /// What its end is expected to take off the gauge: saturation / leases in flight, rounded up.
    pub debit: Ratio,
    /// Its end must be seen before this, or it counts as timed out.
    pub due: Micros,
}

/// How a revocation ended. Each ends once. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RevocationEnd {
    /// The lease's stream has ended.
    Confirmed,
    /// It had not ended in time, or nobody can tell any more (the lease was lost).
    TimedOut,
    /// The holder could not be told.
    Undeliverable,
}

impl RevocationEnd {
    /// Every end, in disk order.
    pub const ALL: [RevocationEnd; 3] =
        [RevocationEnd::Confirmed, RevocationEnd::TimedOut, RevocationEnd::Undeliverable];

    /// The word in logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            RevocationEnd::Confirmed => "confirmed",
            RevocationEnd::TimedOut => "timed_out",
            RevocationEnd::Undeliverable => "undeliverable",
        }
    }
}

/// A revocation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationEnded {
    /// Its number.
    pub number: u64,
    /// Which lease.
    pub request: RequestId,
    /// How.
    pub end: RevocationEnd,
    /// Since it was issued.
    pub took: Micros,
    /// Until when the gauge may still show the lease; absent where nothing was revoked.
    pub cooling_until: Option<Micros>,
}

/// The endpoint's own metrics show that a revoked lease is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaimed {
    /// The revocation's number.
    pub number: u64,
    /// Which lease it was.
    pub request: RequestId,
    /// From the confirmation to when the samples that show it were asked for.
    pub after: Micros,
    /// From the order to the same.
    pub took: Micros,
}

/// The revocation of a lease that still runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedRevocation {
    /// Its number.
    pub number: u64,
    /// Which lease.
    pub request: RequestId,
    /// Who ordered it.
    pub order: RevocationOrder,
    /// When it was issued.
    pub issued_at: Micros,
    /// Its debit.
    pub debit: Ratio,
    /// When it times out.
    pub due: Micros,
    /// What the lease's place showed beyond our own leases when it was issued.
    pub beyond: Option<i64>,
    /// How it ended, if it has (the lease then runs on).
    pub end: Option<RevocationEnd>,
}

/// A revocation that has ended and that the gauge may still show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedCooling {
    /// Until when.
    pub until: Micros,
    /// Its number.
    pub number: u64,
    /// Its debit.
    pub debit: Ratio,
}

/// A confirmed revocation whose release no sample has shown yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedRelease {
    /// Its number.
    pub number: u64,
    /// Which lease it was.
    pub request: RequestId,
    /// Where that ran; absent where that is not known.
    pub slot: Option<Slot>,
    /// When it was issued.
    pub issued_at: Micros,
    /// When it was confirmed.
    pub confirmed_at: Micros,
    /// What that place showed beyond our own leases when it was issued.
    pub beyond: i64,
}

/// What belongs to no single lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedRevocations {
    /// Counters and cursors: see `revoke_restated.rs`, which alone knows the order.
    pub numbers: Vec<u64>,
    /// Ended, and perhaps still in the gauge.
    pub cooling: Vec<RestatedCooling>,
    /// Confirmed, and not yet seen to be free.
    pub releases: Vec<RestatedRelease>,
    /// Requests whose holders wait on them just now (long polls).
    pub watched: Vec<RequestId>,
}

/// Leases are taken back for blocked demand of a higher priority: every number that the decision rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclamationDecided {
    /// The number of this decision in the pool's log, from 1.
    pub number: u64,
    /// The priority of the demand band.
    pub demand: i32,
    /// Requests that wait in it.
    pub depth: u64,
    /// The pool's gauge as sampled.
    pub raw: Ratio,
    /// The same with what the sensor cannot have seen yet; this one blocks the band.
    pub effective: Ratio,
    /// What it is over the endpoints that are fresh: the decision is sized by this.
    pub saturation: Ratio,
    /// Endpoints that are left out because their metrics are stale.
    pub stale: u16,
    /// Endpoints of the pool.
    pub endpoints: u16,
    /// The demand band's ceiling.
    pub ceiling: Ratio,
    /// `saturation - ceiling`.
    pub target: Ratio,
    /// By how much the gauge is expected to fall because of earlier revocations (those of [`DemandSized::hidden`] with
    /// it).
    pub pending: Ratio,
    /// Leases on those endpoints, revoked ones whose stream has not ended included (and those of
    /// [`DemandSized::hidden`]).
    pub in_flight: u64,
    /// `saturation / in_flight`, rounded up: what each victim is expected to take off the gauge. Where [`DemandSized`]
    /// comes before: the larger of its two shares.
    pub credit: Ratio,
    /// `ceil((target - pending) x in_flight / saturation)`, at least 1; where [`DemandSized`] comes before, that one's.
    pub wanted: u64,
    /// The most victims of one decision.
    pub cap: u32,
    /// Sheddable leases that could be told.
    pub evictable: u64,
    /// Those who are revoked, in order: at most `wanted` and `cap`, all below the demand band.
    pub victims: Vec<Victim>,
}

/// How many victims a decision takes that looks at the whole demand: what [`ReclamationDecided`] does not say. Shares of
/// the gauge are in steps of 1e-12.
///
/// `wanted = floor((saturation + (demand - 1) x charge - ceiling - pending - natural x c + 5e-7) / c) + 1` with `c` the
/// larger of `mean` and `slot` (5e-7 is what rounding the gauge to millionths may have taken from it).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemandSized {
    /// The number of the decision.
    pub number: u64,
    /// Requests of the demand band whose budget and deadline outlast the round trip; counted up to 1,024.
    pub demand: u64,
    /// What one dispatch adds to the gauge, rounded down.
    pub charge: u64,
    /// `saturation / in_flight`, rounded up.
    pub mean: u64,
    /// `1 / (endpoints x queueDepthThreshold)`, rounded up, while engine queues make the gauge.
    pub slot: Option<u64>,
    /// How long the last confirmation took; zero where none has come since such decisions are made.
    pub took: Micros,
    /// That and the grace.
    pub round_trip: Micros,
    /// Over how long natural ends were counted: since the last such decision; zero where this is the first.
    pub since: Micros,
    /// Leases that ended by themselves in that time.
    pub ended: u64,
    /// Of those that run, as many are expected to end by themselves within the round trip: `ended x round_trip / since`,
    /// rounded down.
    pub natural: u64,
    /// Leases whose end is confirmed and over its grace, and that the samples still show: each counts as pending with
    /// the larger share.
    pub hidden: u64,
    /// Leases to take back, before any cap; at least 1.
    pub wanted: u64,
}

/// A lease that is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// Which one.
    pub request: RequestId,
    /// Its priority.
    pub priority: i32,
    /// How long it had run.
    pub age: Micros,
}

/// What reclamation remembers, beside revocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedReclamation {
    /// Decisions so far, when the next may come at the earliest, the last one's target, and what demand-aware sizing
    /// measures: see `revoke_restated.rs`.
    pub numbers: Vec<u64>,
    /// The last decision, while its victims can still turn out to be out of reach: number, demand band, victims tried.
    pub last: Option<(u64, i32, Vec<RequestId>)>,
    /// Victims that could not be told, and when they may be tried again.
    pub resting: Vec<(RequestId, Micros)>,
}
