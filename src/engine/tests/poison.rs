//! The kernel fails on an input: the pool comes back without it, and nobody but its caller notices.

use super::rig::{Rig, Setup, is_decided, pushed_policy, wait, wait_for};
use crate::engine::pool::End;
use crate::engine::{Decision, Fate, Unavailable};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_kernel::{Arrival, Event, Input, Micros, Policy, Reason, RequestId, State};

/// A kernel that fails on callers called boom, half through its work, and on the end of time.
fn faulty(state: &mut State, at: Micros, input: &Input) -> Vec<Event> {
    let events = weir_kernel::decide(state, at, input);
    match input {
        Input::Arrived(arrival) => assert!(!arrival.caller_id.starts_with("boom"), "it went boom"),
        Input::FirstByte { request } => assert_ne!(request.0, 666, "the number of the beast"),
        Input::ArrivedMany(_) => panic!("one at a time"),
        Input::TimePassed => assert!(at < Micros::from_secs(5_000), "the end of time"),
        _ => {}
    }
    events
}

fn rig() -> Rig {
    Setup { decide: faulty, ..Setup::default() }.start()
}

fn boom(rig: &Rig, name: &str, bytes: u64) -> Arrival {
    Arrival { bytes, ..rig.arrival(name) }
}

#[test]
fn a_kernel_that_fails_on_an_input_comes_back_without_it() {
    let gate = Arc::new(Mutex::new(()));
    let rig = Setup { decide: faulty, gate: Arc::clone(&gate), ..Setup::default() }.start();
    rig.open_pool(1_000_000);
    let waiting = rig.admit("r1");
    wait("readiness", || rig.pool.status().ready() && rig.peek(|state| state.queued()) == 1);
    let figures = || rig.peek(|state| (state.queued(), state.counters().arrivals, state.in_flight()));
    let before = figures();

    let closed = gate.lock().unwrap();
    let bad = rig.pool.admit(boom(&rig, "boom", 1)).unwrap();
    wait("that it is not ready", || !rig.pool.status().ready());
    assert!(rig.pool.status().recovering && !rig.pool.status().failed);
    let began = Instant::now();
    drop(closed);
    assert_eq!(wait_for(bad), Decision::Unavailable(Unavailable::Poisoned));
    wait("readiness", || rig.pool.status().ready());
    assert!(began.elapsed() < Duration::from_secs(20), "back at once: {:?}", began.elapsed());
    assert_eq!(figures(), before, "as if it had never been");
    assert_eq!(rig.pool.status().faults, 1);

    // The same again is refused before it comes that far; others are served, and so is who waited all along.
    assert_eq!(rig.pool.admit(boom(&rig, "boom", 1)).err(), Some(Unavailable::Poisoned));
    assert_eq!((rig.pool.status().faults, rig.pool.poison_refused()), (1, 1));
    let next = rig.admit("r2");
    rig.saturate(0);
    for one in [waiting, next] {
        assert!(matches!(wait_for(one), Decision::Admitted(_)));
    }
    // Both are in no step, but they are counted.
    rig.clock.advance(Micros::from_secs(2));
    let counted = || rig.peek(|state| state.counters().refused_outside);
    wait("that both are counted", || counted() == 2);
    assert!(
        rig.steps().iter().all(|step| !matches!(&step.input, Input::Arrived(a) if a.caller_id == "boom"))
    );
    rig.check();
}

/// What was decided and is not durable yet is neither lost nor decided anew.
#[test]
fn what_is_on_its_way_to_the_log_survives() {
    let rig = rig();
    rig.open_pool(0);
    rig.hold();
    let mut admitted: Vec<_> = (0..200).map(|n| rig.admit(&format!("r{n}"))).collect();
    wait("that they are decided", || rig.peek(|state| state.in_flight()) == 200);
    let bad = rig.admit("boom");
    assert_eq!(wait_for(bad), Decision::Unavailable(Unavailable::Poisoned));
    assert_eq!(rig.peek(|state| state.in_flight()), 200);
    assert_eq!(is_decided(&mut admitted[0]), None, "not before it is durable");
    rig.release();
    for one in admitted {
        assert!(matches!(wait_for(one), Decision::Admitted(_)));
    }
    rig.check();
}

/// Two that differ only in their callers failed with the same words: their whole kind is refused.
#[test]
fn the_kind_of_what_failed_twice_is_refused() {
    let rig = rig();
    rig.open_pool(0);
    for name in ["boom-1", "boom-2"] {
        assert_eq!(
            wait_for(rig.pool.admit(boom(&rig, name, 77)).unwrap()),
            Decision::Unavailable(Unavailable::Poisoned)
        );
    }
    assert_eq!(rig.pool.admit(boom(&rig, "boom-3", 77)).err(), Some(Unavailable::Poisoned));
    assert!(matches!(wait_for(rig.admit("another kind")), Decision::Admitted(_)));
    // Other inputs than arrivals go by themselves.
    rig.pool.first_byte(RequestId(666));
    wait("the third", || rig.pool.status().faults == 3);
    rig.pool.first_byte(RequestId(666));
    wait("that it is refused", || rig.pool.poison_refused() == 2);
    assert_eq!(rig.pool.status().faults, 3);
    wait("readiness", || rig.pool.status().ready());
    rig.check();
}

/// A kernel that fails on a step for many decides them one by one from then on.
#[test]
fn what_fails_together_is_decided_alone() {
    let policy = Policy { max_requests: 1, ..pushed_policy() };
    let rig = Setup { decide: faulty, ..Setup::policy(policy) }.start();
    rig.open_pool(1_000_000);
    let _queued = rig.admit("first");
    let flood: Vec<_> = (0..3_000).map(|n| rig.admit(&format!("r{n}"))).collect();
    for one in flood {
        assert!(matches!(wait_for(one), Decision::Refused(refused) if refused.reason == Reason::Saturated));
    }
    assert_eq!(rig.pool.status().faults, 1);
    assert_eq!(rig.logged(|event| matches!(event, Event::Rejected(_))), 3_000);
    wait("readiness", || rig.pool.status().ready());
    rig.check();
}

/// A pool that fails again and again stays down, and says so; nobody is left waiting.
#[test]
fn a_pool_that_goes_on_failing_stays_down() {
    let rig = rig();
    rig.open_pool(1_000_000);
    let queued = rig.admit("r1");
    wait("it is queued", || rig.peek(|state| state.queued()) == 1);
    for n in 0..5 {
        let why = wait_for(rig.pool.admit(boom(&rig, &format!("boom-{n}"), n)).unwrap());
        let last = if n == 4 { Unavailable::Failed } else { Unavailable::Poisoned };
        assert_eq!(why, Decision::Unavailable(last), "{n}");
    }
    assert_eq!(wait_for(queued), Decision::Unavailable(Unavailable::Failed));
    wait("its end", || rig.pool.status().failed);
    assert!(!rig.pool.status().ready());
    assert_eq!(rig.pool.admit(rig.arrival("r2")).err(), Some(Unavailable::Failed));
    let cancelled = wait_for(rig.pool.cancel(RequestId(1), weir_kernel::Cause::Other));
    assert_eq!(cancelled, Fate::Unavailable(Unavailable::Failed));
    assert_eq!(wait_for(rig.pool.peek(|state| state.seq())), Err(Unavailable::Failed));
    assert_eq!(rig.running.thread.join().unwrap(), End::Failed);
}

/// A fault that no input from outside brings cannot be refused: it comes again at once, and the pool stays down.
#[test]
fn a_fault_of_time_itself_ends_in_a_bounded_loop() {
    let rig = rig();
    rig.open_pool(1_000_000);
    let queued = rig.admit("r1");
    wait("it is queued", || rig.peek(|state| state.queued()) == 1);
    rig.clock.advance(Micros::from_secs(4_500));
    assert_eq!(wait_for(queued), Decision::Unavailable(Unavailable::Failed));
    assert_eq!(rig.pool.status().faults, 5);
    assert_eq!(rig.running.thread.join().unwrap(), End::Failed);
}
