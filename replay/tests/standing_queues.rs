//! Goal: a log in which orders turn, bounds are reached and arrivals are hopeless is derived again, byte for byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use weir_kernel::*;
use weir_log::hot::{HotOptions, HotStore};
use weir_log::store::Store;
use weir_log::{Frame, Head};

const START: Micros = Micros(1_764_460_800_000_000);

/// One lease at a time; band 10 turns its order, band 0 refuses the hopeless, band -10 is not to starve.
fn policy() -> Policy {
    let turning =
        Ordering::NewestFirstWhenStanding { target: Micros::from_secs(1), window: Micros::from_secs(2) };
    let mut policy = Policy {
        saturation_budget: Micros::from_secs(12),
        detector: Detector::Concurrency {
            mode: ConcurrencyMode::Requests,
            max_requests: 1,
            max_tokens: 1_000_000,
            headroom: Ratio::ZERO,
            output_estimate: None,
        },
        ..Policy::default()
    };
    policy.bands = BTreeMap::from([
        (10, BandSettings { ordering: turning, ..BandSettings::default() }),
        (0, BandSettings::default()),
        (-10, BandSettings::default()),
    ]);
    policy.bounds.bands = BTreeMap::from([
        (0, BandBounds { starvation: Micros::from_secs(9), reject_hopeless: true }),
        (-10, BandBounds { starvation: Micros::from_secs(8), reject_hopeless: false }),
    ]);
    policy
}

/// A minute of a pool that serves two requests a second and is asked for three, in bursts.
fn steps() -> Vec<Step> {
    let mut state = State::new();
    let mut steps = Vec::new();
    let mut take = |state: &mut State, ms: u64, input: Input| {
        let at = START + Micros::from_millis(ms);
        while let Some(due) = state.next_deadline().filter(|due| *due < at && state.seq() > 0) {
            steps.push(step(state, due, Input::TimePassed));
        }
        steps.push(step(state, at, input));
    };
    let started = Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "0.1.0".to_owned(), wall: START };
    take(&mut state, 0, Input::Started(started));
    take(&mut state, 0, Input::PolicyChanged(PolicyChange { policy: Box::new(policy()), digest: [0; 32] }));
    let changes = vec![EndpointChange::Joined { slot: Slot(1), name: "e1".to_owned(), role: Role::Decode }];
    let seen = Observation { requested_at: START, changes, pushed: Pushed::Keep };
    take(&mut state, 0, Input::Observed(seen));
    for tick in 1..240_u64 {
        let ms = tick * 250;
        // Quiet in the middle, so that queues go and orders turn back.
        let asked = if (120..180).contains(&tick) { 0 } else { 1 };
        for n in 0..asked {
            let priority = Some([10, 0, -10, 0][(tick % 4) as usize]);
            let arrival = Arrival { caller_id: format!("r{tick}.{n}"), priority, ..Arrival::default() };
            take(&mut state, ms, Input::Arrived(arrival));
        }
        let running = state.leases().next();
        if let Some(request) = running.filter(|_| tick % 2 == 0) {
            let ended = Ended { request, termination: Termination::Natural, usage: None };
            take(&mut state, ms, Input::Ended(ended));
        }
    }
    state.check().unwrap();
    steps
}

fn write(data: &Path, steps: &[Step]) {
    let mut store = HotStore::open(data, HotOptions::default()).unwrap();
    let mut head = Head::default();
    for chunk in steps.chunks(16) {
        let frame = Frame::encode(&Arc::from("chat"), head.hash, chunk[0].at, chunk).unwrap();
        head = Head::of(&frame);
        store.write(&[frame]).unwrap();
    }
    store.sync().unwrap();
}

#[test]
fn a_log_of_standing_queues_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let steps = steps();
    let mut seen = BTreeSet::new();
    for event in steps.iter().flat_map(|step| &step.events) {
        match event {
            Event::OrderTurned(e) => seen.insert(if e.newest_first { "newest first" } else { "by arrival" }),
            Event::BoundReached(_) => seen.insert("bound"),
            Event::FoundHopeless(_) => seen.insert("hopeless"),
            Event::BandBounded { .. } => seen.insert("bounded"),
            _ => false,
        };
    }
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        ["bound", "bounded", "by arrival", "hopeless", "newest first"]
    );
    write(&dir.path().join("data"), &steps);
    let output = Command::new(env!("CARGO_BIN_EXE_weir-replay"))
        .args(["verify", "--data", "data"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(&format!("{0} steps derived again (sequences 1 to {0})", steps.len())), "{text}");
}
