//! `weir bench`: measurements, each beside its reference from the same run.
//!
//! A *decision* is one request's whole way: arrival, dispatch, completion.

mod alloc;
mod credit;
mod drain;
mod drain_http;
pub mod eviction;
mod expiry;
mod gateway;
mod kernel;
mod log;
mod pool;
mod qos;
pub mod query;
mod rig;
mod table;
mod traces;
mod volume;

pub use table::{Case, Findings};

use std::time::Duration;

/// The benches there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Bench {
    /// The kernel alone: decisions per second on one core, memory per queued request.
    Kernel,
    /// Durable decisions per second beside a plain append and fdatasync of the same bytes.
    Log,
    /// 5,000 queued when the pool opens: until the last is admitted.
    Drain,
    /// How late budgets end, spread out and all at once.
    Expiry,
    /// In-flight credit against the raw gauge and against one dispatch per millisecond, in virtual time.
    Credit,
    /// The closed loop of taking running requests back, in virtual time: sensors, graces, caps, bursts.
    Eviction,
    /// Interactive and batch tenants on one pool under each way to run it, in virtual time.
    Qos,
    /// Each face over loopback (held, event streams, the proxy, ext_proc), beside a bare twin on the same libraries; at
    /// full pace, and at half of it what it adds to the wait. Serving threads are pinned, for both.
    Gateway,
    /// Held admissions, each of them traced, with a receiver of spans that takes them, is gone, stalls or refuses; beside none.
    Traces,
    /// Questions to the log over GraphQL: each of the playbook, states of the past; how fast projections are folded.
    Query,
    /// Bytes of the log per request and per hour of observation: encoded, hot, sealed.
    Volume,
    /// No measurement: makes a long log in virtual time, for `query --data` and for weir-replay.
    Make,
}

/// How long a bench may take, and of what.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// In all.
    pub whole: Duration,
    /// Of [`Bench::Gateway`], this face alone.
    pub only: Option<Face>,
}

/// The faces that [`Bench::Gateway`] measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Face {
    /// Held admissions with their completions.
    Held,
    /// Event streams.
    Stream,
    /// The reverse proxy.
    Proxy,
    /// Envoy's ext_proc over gRPC.
    ExtProc,
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
        Bench::Kernel => kernel::run(budget),
        Bench::Log => log::run(budget),
        Bench::Drain => drain::run(budget),
        Bench::Expiry => expiry::run(budget),
        Bench::Volume => volume::run(budget),
        Bench::Credit => credit::run(budget),
        Bench::Eviction => eviction::run(),
        Bench::Qos => qos::run(budget),
        Bench::Traces => traces::run(budget),
        Bench::Query => query::run(None, budget),
        Bench::Make => Err(BenchError("make wants a directory: --data DIR".to_owned())),
        Bench::Gateway => gateway::run(budget),
    }
}
