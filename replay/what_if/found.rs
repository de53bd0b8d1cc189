//! What a candidate's run has found: where it parted from the log, whose fate changes, and what can be said of whom.
//!
//! Not here: finding it (`world.rs`).

use super::facts::Course;
use super::tally::Group;
use weir_kernel::Micros;

/// Where the runs first part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The logged step, or the one before.
    pub seq: u64,
    /// When.
    pub at: Micros,
    /// What came in.
    pub input: String,
    /// What the log says was decided.
    pub logged: Vec<String>,
    /// What the candidate decides.
    pub candidate: Vec<String>,
}

/// Requests and lease time by what can be said of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Requests that came and went while both runs were equal.
    pub exact: u64,
    /// Others with the same outcome.
    pub shifted: u64,
    /// Others.
    pub flipped: u64,
    /// Requests that the candidate admitted and whose service no log shows: their token counts are drawn.
    pub unobserved: u64,
    /// Lease time in µs while both runs were equal.
    pub lease_exact: u64,
    /// By the model.
    pub lease_modelled: u64,
    /// By the model, under loads that the log never visited.
    pub lease_unknown: u64,
}

/// A request whose fate changes.
#[derive(Clone, Debug)]
pub struct Changed {
    /// Its number in the log.
    pub id: u64,
    /// The caller's own id.
    pub caller_id: String,
    /// Its rows.
    pub group: Group,
    /// As logged.
    pub logged: Course,
    /// Under the candidate.
    pub candidate: Course,
}
