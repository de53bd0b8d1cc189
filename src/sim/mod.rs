//! Simulated model servers: a pure *truth* model of one server (`weir-truth`), the same over HTTP in real time.
//!
//! Not here: anything that a replay fits to a log. What is measured against the truth must not share code with it.

pub mod gate;
pub mod http;
pub mod world;

pub use weir_truth::{self as truth, rng};
