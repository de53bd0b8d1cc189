//! An open-loop load: arrivals from a trace or a rate, sent when they are due whatever the answers are.
//!
//! Not here: closed-loop clients and retries; both would hide what a caller of the trace would have seen.

mod client;
mod drive;
mod plan;
mod report;
mod send;
mod trace;

pub use client::{Answer, Client, Failure};
pub use drive::{Drive, Progress, drive};
pub use plan::{Class, Classes, ClassesError, Planned, from_rate, from_trace};
pub use report::{ClassReport, Ending, Report, Sample};
pub use send::{Mode, Target};
pub use trace::{Row, TraceError, parse, read};
