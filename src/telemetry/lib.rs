//! Spans of what Weir decides, built from the durable steps of its log, and their export over OTLP.
//!
//! A span is a function of the log: the running service and a replay of its log build the same spans, with the same ids
//! and the same instants. What a request's caller sent of its own trace is in the log; whether it is *sampled* decides
//! only what is exported at once, never what a span is.
//!
//! Not here: who reads the log (`gateway/traces.rs`, `replay/traces`), and metrics.

mod context;
pub mod export;
mod json;
pub mod names;
mod sampler;
mod span;
mod spans;
mod variables;

pub use context::{Context, hex};
pub use json::{document, resource};
pub use sampler::{Sampler, SamplerError};
pub use span::{Attribute, Kind, Link, Span, SpanEvent, Status, Value, attribute};
pub use spans::Spans;
pub use variables::{Warning, environment};
