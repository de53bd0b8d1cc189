#![no_std]
//! The pure decision kernel: `step(state, at, input)` decides, `fold(state, step)` only applies.
//!
//! No clock, no randomness, no IO, no async, no logging, no container without a defined order. What it needs to
//! know comes in as an [`Input`]; what it decides goes out as [`Event`]s; [`State`] changes only by applying them.
//! It imports nothing of ours.

extern crate alloc;

mod admin;
mod arrival;
mod bands;
pub mod ceilings;
mod check;
mod classes;
mod clocks;
mod demand;
mod dispatch;
mod endpoints;
mod event;
mod expiry;
mod fairness;
mod fine;
mod gauge;
mod hopeless;
mod input;
mod kept;
mod keys;
mod leases;
mod lifecycle;
mod line;
pub mod ordering;
mod outcome;
mod policy;
mod pool;
mod queueing;
mod queues;
mod ratio;
mod reclaim;
mod refusals;
mod restate;
mod restated;
mod revocation;
mod revoke;
mod revoke_restated;
pub mod saturation;
pub mod service;
pub mod sizing;
mod standing;
mod state;
mod step;
mod time;
mod turn;
mod view;
mod waits;

pub use arrival::DEFAULT_FLOW;
pub use check::Violation;
pub use event::*;
pub use fine::Fine;
pub use input::*;
pub use outcome::*;
pub use policy::*;
pub use queueing::*;
pub use ratio::Ratio;
pub use reclaim::{VictimKey, victim_key};
pub use refusals::Foreseen;
pub use restate::RestateError;
pub use restated::*;
pub use revocation::*;
pub use standing::{RunningBudget, Standing};
pub use state::{Counters, State};
pub use step::{DECISIONS_PER_STEP, KERNEL_BEHAVIOUR, Step};
pub use time::Micros;
pub use turn::{decide, decide_within, fold, step};
pub use view::{BandView, EndpointView, LeaseView, PauseView, QueuedView, RevocationCounts, RevocationView};
