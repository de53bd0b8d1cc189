//! `weir-replay what-if`: the logged inputs, decided under other settings.

mod ahead;
mod chart;
mod command;
mod facts;
mod found;
mod lockstep;
mod logged;
mod look;
mod page;
mod pending;
mod print;
mod rounds;
mod series;
mod tally;
mod world;

#[cfg(test)]
pub(crate) mod tests;

pub use command::{Args, WhatIfError, answer, run as command};
pub use facts::{Course, Fact, Facts, Keep, Stage, subject, take};
pub use found::Shares;
pub use lockstep::{Answer, Question, run};
pub use look::Look;
pub use print::changes;
pub use tally::{Counts, Tallies, Tally};
pub use world::{Options, PatienceRule, World};
