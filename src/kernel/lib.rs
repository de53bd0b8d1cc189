#![no_std]
//! The pure decision kernel: `step(state, at, input)` decides, `fold(state, step)` only applies.
//!
//! No clock, no randomness, no IO, no async, no logging, no container without a defined order. What it needs to
//! know comes in as an [`Input`]; what it decides goes out as [`Event`]s; [`State`] changes only by applying them.
//! It imports nothing of ours.

extern crate alloc;

pub mod ceilings;
mod event;
mod fine;
mod input;
pub mod ordering;
mod outcome;
mod policy;
mod ratio;
pub mod saturation;
pub mod service;
mod step;
mod time;

pub use event::*;
pub use fine::Fine;
pub use input::*;
pub use outcome::*;
pub use policy::*;
pub use ratio::Ratio;
pub use step::{DECISIONS_PER_STEP, KERNEL_BEHAVIOUR, Step};
pub use time::Micros;
