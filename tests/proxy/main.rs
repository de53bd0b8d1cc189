//! The reverse proxy over real sockets: what passes, what is refused, what is cut, and who sees what of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bodies;
mod cut;
mod h2c;
#[path = "../gateway/harness.rs"]
#[allow(dead_code, reason = "shared with the tests of the gateway")]
mod harness;
#[path = "../kept/mod.rs"]
mod kept;
mod openai;
mod passing;
mod raw;
mod refused;
mod revoked;
mod rig;
