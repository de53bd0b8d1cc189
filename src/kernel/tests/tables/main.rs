//! Goal: show what the kernel does, one row per fact, with figures worked out by hand. Method: `script.rs` owns the API.
//!
//! Functions named `cNNN_…` cover the field report of that number as far as a kernel can show it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admin;
mod bands;
mod budgets;
mod capacity;
mod credit;
mod demand;
mod flood;
mod leases;
mod lines;
#[path = "../worlds/oracle/mod.rs"]
mod oracle;
mod order;
mod reclaim;
mod regimes;
mod revocations;
mod script;
mod settings;
mod standing;
mod stop;
mod words;
