//! `weir bench eviction`: how fast, and at what cost, running requests are taken back for blocked demand.
//!
//! The closed loop in virtual time through the real kernel. What the conformance test runs is the same loop.

mod grid;
mod kernel;
mod params;
mod plant;
mod vectors;

pub use kernel::{Watch, restate_lease};
pub use params::{Params, minimum};
pub use plant::{Metrics, run as run_plant};

use super::{BenchError, Findings};

/// Runs the closed loops.
pub fn run() -> Result<Findings, BenchError> {
    grid::run()
}
