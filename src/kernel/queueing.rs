//! What is decided about the line of a band beyond who is in it: records of the log and of snapshots.
//!
//! Not here: the rules (`line.rs`, `hopeless.rs`).

use crate::{BandBounds, Micros, RequestId};
use serde::{Deserialize, Serialize};

/// A band under `newest-first-when-standing` turned its order, or turned it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderTurned {
    /// The band.
    pub priority: i32,
    /// Newest first from here on; else by arrival.
    pub newest_first: bool,
    /// Its oldest request.
    pub oldest: RequestId,
    /// How long that one has waited while the pool could serve.
    pub waited: Micros,
    /// How long the oldest one of the band, whoever it was, has waited past the target without a break.
    pub standing: Micros,
}

/// A request has waited as long as its band's starvation bound, and is served next for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundReached {
    /// Which one.
    pub request: RequestId,
    /// Its band.
    pub priority: i32,
    /// How long it has waited while the pool could serve.
    pub waited: Micros,
    /// The bound.
    pub bound: Micros,
}

/// The wait that is predicted for an arrival, longer than what it may wait: `ahead x window / drained`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hopeless {
    /// The band it would have waited in.
    pub priority: i32,
    /// The prediction.
    pub predicted: Micros,
    /// What is left of its budget, or until its caller's deadline, whichever is less.
    pub left: Micros,
    /// Requests that would be served before it.
    pub ahead: u64,
    /// Requests of the band that were dispatched in the window.
    pub drained: u64,
    /// The time for which the band has had queued work and could be served, in whole seconds up to 30, and what has
    /// passed of the current one.
    pub window: Micros,
}

/// Snapshot: what a band's line remembers, and the bounds of the band.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestatedLine {
    /// The band.
    pub priority: i32,
    /// Its bounds.
    pub bounds: BandBounds,
    /// The reading of the saturation clock from which on its oldest request has waited past the target.
    pub above_from: Micros,
    /// Its order is turned.
    pub newest_first: bool,
    /// Since when it has had requests that could be dispatched.
    pub backlog_since: Option<Micros>,
}
