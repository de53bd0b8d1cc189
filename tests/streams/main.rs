//! Goal: streams and tickets as their holders see them, over real sockets; and what a `kill -9` of the real service
//! leaves of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;
#[path = "../gateway/harness.rs"]
#[allow(dead_code)]
mod harness;
#[path = "../kept/mod.rs"]
mod kept;
mod leases;
mod peers;
mod restart;
mod service;
mod streams;
mod tickets;
