//! `weir bench`: measurements, each beside its reference from the same run.
//!
//! A *decision* is one request's whole way: arrival, dispatch, completion.

mod alloc;
mod credit;
mod table;

pub use table::{Case, Findings};

use std::time::Duration;

/// The benches there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Bench {
    /// In-flight credit against the raw gauge and against one dispatch per millisecond, in virtual time.
    Credit,
}

/// How long a bench may take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// In all.
    pub whole: Duration,
}

/// Why a bench gave no figures.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BenchError(pub String);

/// Runs one bench within its budget; it leaves nothing behind.
///
/// # Errors
/// Something outside failed, or what was measured was not what should have been.
pub fn run(bench: Bench, budget: Budget) -> Result<Findings, BenchError> {
    match bench {
        Bench::Credit => credit::run(budget),
    }
}
