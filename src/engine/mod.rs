//! Runs one kernel per pool and makes each decision durable before anyone sees it.
//!
//! A pool has one OS thread that owns its state: it takes inputs from a bounded inbox, stamps them, lets the
//! kernel decide, hands the steps to the log, and answers callers once those steps are durable. Only this
//! module reads the clock for the kernel. How faces hear that a lease is taken back: `revocation.rs`. Not here: HTTP, scraping, configuration files, the log's own format.

mod about;
mod admin;
mod clock;
mod comeback;
mod decision;
mod flood;
mod handle;
mod ids;
mod inbox;
mod journal;
mod keeping;
mod launch;
mod pace;
mod pending;
mod place;
mod poison;
mod pool;
mod pseudonym;
mod release;
mod revocation;
mod service;
mod tickets;
mod timings;
mod turn;

pub use about::{About, News, Queued, Running, Seen};
pub use admin::Obeyed;
pub use clock::Clock;
pub use decision::{Admitted, Change, Decision, Fate, LeaseNotice, Refused, Unavailable};
pub use handle::{Answer, PoolHandle, PoolStatus, RegimeNote, Watched};
pub use ids::{ExternalId, IdError};
pub use pending::Pending;
pub use place::{LogOptions, Place};
pub use pool::Decide;
pub use pseudonym::{PseudonymError, Pseudonyms};
pub use revocation::{Revocation, Revoked, Revoking, Watching};
pub use service::{Engine, EngineError, EngineOptions, INBOX_ARRIVALS_MAX, PoolOptions};
pub use timings::{STEP_BOUNDS_NS, Spread, Timings};

#[cfg(test)]
mod tests;
