//! Simulated model servers: a pure *truth* model of one server, the same over HTTP in real time.
//!
//! Not here: anything that a replay fits to a log. What is measured against the truth must not share code with it.

pub mod gate;
pub mod http;
pub mod rng;
pub mod truth;
pub mod world;
