//! A pure model of one model server in virtual time: token steps with chunked prefill, paged KV with preemption.
//!
//! It reads no clock: the caller says how far time has come, and hears what happened until then. The same calls
//! give the same answers. Not here: prefix caching, speculative decoding, several models on one server.

mod server;
mod spec;

#[cfg(test)]
mod tests;

pub use server::{Gauges, Job, Progress, Refusal, Server, Totals, What};
pub use spec::Spec;
