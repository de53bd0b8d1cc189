//! Export over OTLP: a bounded queue, a thread of its own, and a receiver somewhere that may be gone, slow or refusing.
//!
//! Nothing that decides ever waits here: what the queue has no room for is dropped and counted, and can be had from the
//! log (`weir-replay traces`).
//!
//! Not here: TLS to the receiver. One on the same machine or in the same pod is the usual way.

mod complaints;
mod convert;
mod queue;
mod settings;
mod worker;

pub use queue::{Counters, Counts, Exporter};
pub use settings::{Protocol, Settings, SettingsError, is_receiver};
