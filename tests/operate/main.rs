//! Goal: what operators look at is true, and what `deploy/` holds works. Method: the binary beside its log, and the tools
//! that read these files, where they are at hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod counters;
#[path = "../traces/rig.rs"]
#[allow(dead_code)]
mod rig;
