//! `weir bench eviction`: how fast, and at what cost, running requests are taken back for blocked demand.
//!
//! The closed loop in virtual time through the real kernel (what the conformance test runs is the same loop), and
//! `--live`: the service in front of simulated servers, through its proxy and through the real Envoy.

mod grid;
mod kernel;
mod live;
mod params;
mod plant;
mod vectors;

pub use kernel::{Watch, restate_lease};
pub use params::{Params, minimum};
pub use plant::{Metrics, run as run_plant};

use super::{BenchError, Budget, Findings};
use std::path::Path;

/// Runs the closed loops.
pub fn run() -> Result<Findings, BenchError> {
    grid::run()
}

/// The same with the real service, in real time; each face's log is kept below `keep`, where that is given.
///
/// # Errors
/// Something outside failed, or what was measured was not what should have been.
pub fn run_live(budget: Budget, keep: Option<&Path>) -> Result<Findings, BenchError> {
    live::run(budget, keep)
}
