//! What is rare and kept one by one: regimes, settings, reclamation decisions, revocations.

use crate::error::Spot;
use serde::{Deserialize, Serialize};
use weir_kernel::{Micros, Ratio, ReclamationDecided, Regime, RevocationEnd, RevocationOrder};

/// A regime came into force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegimeBegan {
    /// The step.
    pub spot: Spot,
    /// Which one.
    pub regime: Regime,
    /// The one before.
    pub from: Regime,
    /// Endpoints then.
    pub endpoints: u16,
    /// Those with fresh metrics.
    pub fresh: u16,
    /// A run of the service began (nothing is known of the pool then).
    pub by_start: bool,
}

/// Settings came into force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyBegan {
    /// The step.
    pub spot: Spot,
    /// SHA-256 of the canonical JSON.
    pub digest: [u8; 32],
    /// The canonical JSON.
    pub json: String,
}

/// A reclamation decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The step.
    pub spot: Spot,
    /// Every number of it.
    pub decision: ReclamationDecided,
}

/// A revocation, from its order to what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// Its number.
    pub number: u64,
    /// The request.
    pub request: u64,
    /// Who ordered it.
    pub order: RevocationOrder,
    /// The operator and the reason, where one ordered it.
    pub by: Option<(String, String)>,
    /// The step that issued it.
    pub issued: Spot,
    /// The lease's priority.
    pub priority: i32,
    /// How long the lease had run.
    pub age: Micros,
    /// What its end was expected to take off the gauge.
    pub debit: Ratio,
    /// When it times out.
    pub due: Micros,
    /// How it ended, and in which step.
    pub ended: Option<(RevocationEnd, Spot)>,
    /// By how much its stream ended after the time-out.
    pub late: Option<Micros>,
    /// When the samples were asked for that show the release.
    pub reclaimed_at: Option<Micros>,
}
