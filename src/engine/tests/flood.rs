//! Refusals by the thousand: one step for many, and each caller hears what it would have heard alone.

use super::rig::{Rig, Setup, pushed_policy, wait, wait_for};
use crate::engine::{
    Decision, Engine, EngineOptions, INBOX_ARRIVALS_MAX, LogOptions, Pending, Place, PoolOptions, Refused,
};
use std::time::{Duration, Instant};
use weir_kernel::{
    Arrival, EndpointChange, Event, Input, Micros, Observation, Outcome, Policy, Pushed, Ratio, Reason, Role,
    Slot, State, Step, decide, step,
};
use weir_log::reader::{Bound, Logs};

fn rig(limit: u64) -> Rig {
    let rig = Setup::policy(Policy { max_requests: limit, ..pushed_policy() }).start();
    rig.open_pool(1_000_000);
    rig
}

fn refused(pending: Pending) -> Refused {
    match wait_for(pending) {
        Decision::Refused(refused) => refused,
        other => panic!("not refused: {other:?}"),
    }
}

fn many(steps: &[Step]) -> Vec<(u64, u64)> {
    let count = |step: &Step| match &step.input {
        Input::ArrivedMany(many) => Some((step.seq, many.count)),
        _ => None,
    };
    steps.iter().filter_map(count).collect()
}

/// The log derives again, byte for byte, and its counters add up.
fn verify(rig: &Rig, arrivals: u64) {
    rig.check();
    let mut again = State::new();
    for logged in rig.steps() {
        let derived = step(&mut again, logged.at, logged.input.clone());
        assert_eq!(derived, logged);
    }
    assert_eq!(again.counters().arrivals, arrivals);
    again.check().unwrap();
}

/// 3,000 within one second of the log: the first thousand have a step each, the others share a few.
#[test]
fn c138_past_a_thousand_a_second_one_step_counts_many() {
    let rig = rig(1);
    let queued = rig.admit("first");
    wait("it is queued", || rig.peek(|state| state.queued()) == 1);
    let first: Vec<_> = (0..1_001).map(|n| rig.admit(&format!("a{n}"))).collect();
    for one in first {
        assert_eq!(refused(one).reason, Reason::Saturated);
    }
    assert!(many(&rig.steps()).is_empty());
    rig.hold();
    let stall = rig.stall();
    let flood: Vec<_> = (0..2_000).map(|n| rig.admit(&format!("b{n}"))).collect();
    drop(stall);
    wait("that the log has some", || !many(&rig.steps()).is_empty());
    rig.release();
    for one in flood {
        let heard = refused(one);
        assert_eq!((heard.outcome, heard.reason), (Outcome::RejectedCapacity, Reason::Saturated));
        assert_eq!(heard.limit.map(|limit| (limit.held, limit.limit)), Some((1, 1)));
    }
    let counted = many(&rig.steps());
    assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>() + ones(&rig), 3_001, "{counted:?}");
    assert!(counted.len() < 50, "{counted:?}");
    // An end of the flood is an end of counting: the next second begins anew.
    rig.clock.advance(Micros::from_secs(3));
    assert_eq!(refused(rig.admit("later")).reason, Reason::Saturated);
    assert_eq!(many(&rig.steps()), counted);
    rig.saturate(0);
    assert!(matches!(wait_for(queued), Decision::Admitted(_)));
    verify(&rig, 3_003);
}

/// Refusals with a step of their own.
fn ones(rig: &Rig) -> u64 {
    rig.logged(|event| matches!(event, Event::Rejected(_))) as u64
}

/// Nobody hears of a refusal before the step that counts it is durable.
#[test]
fn a_counted_refusal_is_durable_before_it_is_heard() {
    let rig = rig(1);
    let _queued = rig.admit("first");
    let first: Vec<_> = (0..1_001).map(|n| rig.admit(&format!("a{n}"))).collect();
    first.into_iter().for_each(|one| assert_eq!(refused(one).reason, Reason::Saturated));
    rig.hold();
    let stall = rig.stall();
    let mut flood: Vec<_> = (0..500).map(|n| rig.admit(&format!("b{n}"))).collect();
    drop(stall);
    wait("that the log has some", || !many(&rig.steps()).is_empty());
    assert!(flood.iter_mut().all(|one| super::rig::is_decided(one).is_none()));
    rig.release();
    let heard: Vec<Refused> = flood.into_iter().map(refused).collect();
    let counted = many(&rig.steps());
    for (seq, count) in &counted {
        let mine = heard.iter().filter(|refused| refused.seq == *seq).count() as u64;
        assert_eq!(mine, *count, "step {seq} answers those it counts");
    }
    verify(&rig, 1_502);
}

/// A slot is free in the middle of a flood: the first who comes after that is queued, in order of arrival, and the others
/// of the same batch are refused as before.
#[test]
fn a_slot_that_is_free_in_a_flood_goes_to_the_next_one() {
    let rig = rig(2);
    let (one, two) = (rig.admit("one"), rig.admit("two"));
    wait("both are queued", || rig.peek(|state| state.queued()) == 2);
    let first: Vec<_> = (0..1_001).map(|n| rig.admit(&format!("a{n}"))).collect();
    first.into_iter().for_each(|one| assert_eq!(refused(one).reason, Reason::Saturated));
    rig.hold();
    let before: Vec<_> = (0..100).map(|n| rig.admit(&format!("b{n}"))).collect();
    wait("that they are taken in", || rig.pool.0.inbox.lock().arrivals.is_empty());
    drop(one);
    wait("the cancellation", || rig.peek(|state| state.queued()) == 1);
    let next = rig.admit("next");
    let after: Vec<_> = (0..100).map(|n| rig.admit(&format!("c{n}"))).collect();
    wait("that next is queued", || rig.peek(|state| state.queued()) == 2);
    rig.release();
    for one in before.into_iter().chain(after) {
        assert_eq!(refused(one).reason, Reason::Saturated);
    }
    rig.saturate(0);
    for one in [two, next] {
        assert!(matches!(wait_for(one), Decision::Admitted(_)));
    }
    verify(&rig, 2 + 1_001 + 201);
}

/// What is foreseen is decided at the same instant, together or alone: both logs add up to the same state.
#[test]
fn c019_together_or_alone_the_state_is_the_same() {
    let policy = Policy { max_requests: 1, ..pushed_policy() };
    let rig = Setup::policy(policy).start();
    rig.open_pool(1_000_000);
    let _queued = rig.admit("first");
    wait("it is queued", || rig.peek(|state| state.queued()) == 1);
    let mut alone = rig.peek(Clone::clone);
    let mut together = alone.clone();
    let at = alone.now() + Micros(5);
    let arrival = |n: u64| Arrival { bytes: n, received_at: at, ..Arrival::default() };
    let mut sum: Option<weir_kernel::ArrivedMany> = None;
    for n in 1..=9 {
        let foreseen = together.foresee(at, &arrival(n), n - 1).unwrap();
        let events = decide(&mut alone, at, &Input::Arrived(arrival(n)));
        let [Event::Rejected(rejected)] = &events[..] else { panic!("{events:?}") };
        assert_eq!((rejected.limit, rejected.retry_after), (foreseen.limit, foreseen.retry_after));
        let one = weir_kernel::ArrivedMany::one(at, &arrival(n), &foreseen);
        sum = Some(sum.map_or_else(|| one.clone(), |sum| sum.and(&one)));
    }
    decide(&mut together, at, &Input::ArrivedMany(sum.unwrap()));
    assert_eq!(together.counters(), alone.counters());
    // The next one hears the same `Retry-After`, as the band counted all nine.
    let next = arrival(1);
    assert_eq!(together.foresee(at, &next, 0), alone.foresee(at, &next, 0));
}

/// What a flood takes of the log: printed, and far less than a step each. (Before: see the figure of the first second,
/// whose first thousand have one.)
#[test]
fn c138_a_flood_takes_little_of_the_log() {
    const RATE: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let policy = Policy { max_requests: 1, ..pushed_policy() };
    let engine = Engine::open(EngineOptions {
        pools: [("p".to_owned(), PoolOptions { policy, ..PoolOptions::default() })].into(),
        place: Place::Directory(dir.path().to_owned()),
        log: LogOptions::default(),
        clock: None,
        inbox_arrivals_max: INBOX_ARRIVALS_MAX,
    })
    .unwrap();
    let pool = engine.pool("p").unwrap().clone();
    let (requested_at, pushed) = (pool.clock().now(), Pushed::Pool(Ratio(1_500_000)));
    let joined = EndpointChange::Joined { slot: Slot(0), name: "e".to_owned(), role: Role::Decode };
    pool.observe(Observation { requested_at, changes: vec![joined], pushed }).unwrap();
    let arrival = |n: u64| Arrival {
        caller_id: format!("0000-{n:08}"),
        fairness_id: format!("tenant-{}", n % 10),
        bytes: 1_000,
        received_at: pool.clock().now(),
        ..Arrival::default()
    };
    let _queued = pool.admit(arrival(0)).unwrap();
    wait("it is queued", || wait_for(pool.peek(|state| state.queued())).unwrap() == 1);
    let (before, began) = (engine.log_metrics(), Instant::now());
    let mut waiting = Vec::new();
    for n in 1..=RATE * 2 {
        let due = Duration::from_micros(n * 1_000_000 / RATE);
        while began.elapsed() < due {
            std::thread::sleep(Duration::from_micros(200));
        }
        waiting.push(pool.admit(arrival(n)).unwrap());
    }
    for one in waiting {
        assert_eq!(refused(one).reason, Reason::Saturated);
    }
    let (after, took) = (engine.log_metrics(), began.elapsed().as_secs_f64());
    let (bytes, steps) = (after.bytes - before.bytes, after.steps - before.steps);
    println!(
        "{:.0} refusals/s: {:.0} bytes/s of log in {:.0} steps/s and {:.0} batches/s",
        (RATE * 2) as f64 / took,
        bytes as f64 / took,
        steps as f64 / took,
        (after.batches - before.batches) as f64 / took
    );
    // A thousand of each second have one; a machine that is busy takes more seconds.
    let alone = 1_001 * (took as u64 + 2);
    assert!(steps < RATE / 2 + alone, "{steps} steps for {} refusals within {took:.1} s", RATE * 2);
    assert_eq!(wait_for(pool.query(|state| state.counters().arrivals)).unwrap(), RATE * 2 + 1);
    drop(engine);
    let logs = Logs::open(dir.path()).unwrap();
    let mut again = State::new();
    for logged in logs.reader("p", Bound::Open, Bound::Open).steps() {
        let logged = logged.unwrap();
        assert_eq!(step(&mut again, logged.at, logged.input.clone()), logged);
    }
    again.check().unwrap();
    assert_eq!(again.counters().arrivals, RATE * 2 + 1);
}
