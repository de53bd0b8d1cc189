//! Weir: flow control for LLM inference pools, event-sourced.
//!
//! This crate is the service around the pure kernel (`weir-kernel`) and the log (`weir-log`): it turns the world
//! into inputs, makes decisions durable, and lets callers see them only then.

pub mod bench;
pub mod cli;
pub mod demo;
pub mod discovery;
pub mod engine;
pub mod gateway;
pub mod load;
pub mod observer;
pub mod sim;
pub mod workers;
