//! The gateway over real engines and real sockets: every status and reason, bad input, races at the edge, the drain.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod admin;
mod admission;
mod bad_input;
mod binary;
mod bounds;
mod ext_proc;
mod flood;
mod graphql;
mod harness;
mod heads;
#[path = "../kept/mod.rs"]
mod kept;
mod observe;
mod poison;
mod pools;
mod questions;
mod refusal;
mod reload;
mod reports;
mod tls;
mod vanish;
