//! Goal: `kill -9` of the real service under load, 50 times, loses nothing that was answered.
//!
//! Each round starts `weir serve` on the same data directory, drives it over HTTP, kills it at another moment, and
//! reads the log. Every answer that a caller got is in it; no request has two outcomes or two lease ends; re-deriving
//! each step from its input gives the logged decisions; the state is the fold from the start; and in the end, when all
//! callers are gone and leases have lapsed, nothing is queued or running. Likewise for leases that are being taken back
//! (`revocation.rs`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "crash/audit.rs"]
mod audit;
#[path = "crash/callers.rs"]
mod callers;
#[path = "crash/holders.rs"]
mod holders;
#[path = "kept/mod.rs"]
mod kept;
#[path = "crash/replay.rs"]
mod replay;
#[path = "crash/revocation.rs"]
mod revocation;
#[path = "crash/service.rs"]
mod service;

use audit::Audit;
use callers::Callers;
use service::{SETTINGS, Service};
use std::time::{Duration, Instant};

const KILLS: u64 = 50;

#[test]
fn c105_every_answer_survives_fifty_kills() {
    let dir = kept::tempdir().unwrap();
    let mut audit = Audit::new(dir.path());
    let mut answers = 0;
    for round in 0..KILLS {
        let service = Service::start(dir.path(), SETTINGS);
        let callers = Callers::start(service.addr(), round);
        // Killed after so many answers, not after a time: a busy machine gets the same test.
        let enough = 5 + (round * 37) % 60;
        callers.wait_for(enough, Duration::from_secs(60));
        service.kill();
        let heard = callers.finish();
        answers += heard.len();
        audit.check_round(&heard);
    }
    assert!(answers as u64 > KILLS * 15, "only {answers} answers in all: no load");

    let service = Service::start(dir.path(), SETTINGS);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let pool = callers::get(service.addr(), "/v1/pools/default");
        let (queued, in_flight) = (pool["queue"]["requests"].as_u64(), pool["leases"].as_u64());
        if (queued, in_flight) == (Some(0), Some(0)) {
            break;
        }
        assert!(Instant::now() < until, "not idle: {pool}");
        std::thread::sleep(Duration::from_millis(20));
    }
    service.stop();
    audit.check_end(KILLS);
    println!("{KILLS} kills, {answers} answers, {} steps, {}", audit.steps(), audit.figures());
}
