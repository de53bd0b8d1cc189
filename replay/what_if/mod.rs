//! `weir-replay what-if`: the logged inputs, decided under other settings.

mod ahead;
mod caveats;
mod chart;
mod command;
mod facts;
mod found;
mod json;
mod lockstep;
mod logged;
mod look;
mod options;
mod page;
mod pending;
mod print;
mod report_file;
mod rounds;
mod series;
mod tally;
mod world;

#[cfg(test)]
mod caveats_tests;
#[cfg(test)]
pub(crate) mod tests;

pub use caveats::doubt;
pub use command::{Args, WhatIfError, answer, run as command};
pub use facts::{Course, Fact, Facts, Keep, Stage, count_waiting, subject, take};
pub use found::Shares;
pub use lockstep::{Answer, Question, run};
pub use look::Look;
pub use options::{Options, PatienceRule};
pub use print::changes;
pub use tally::{Counts, Tallies, Tally};
pub use world::World;
