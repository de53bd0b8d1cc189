//! A pure model of one model server in virtual time: token steps with chunked prefill, paged KV with preemption.
//!
//! It reads no clock: the caller says how far time has come, and hears what happened until then. The same calls
//! give the same answers. A package of its own, so that a replay can be measured against it without importing the
//! service. Not here: prefix caching, speculative decoding, several models on one server.

pub mod rng;
mod server;
mod spec;

#[cfg(test)]
mod tests;

pub use server::{Gauges, Job, Progress, Refusal, Server, Totals, What};
pub use spec::Spec;
