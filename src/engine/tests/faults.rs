//! The log fails, the kernel fails, the inbox fills, the service stops: nobody is left without an answer.

use super::rig::{Setup, pushed_policy, wait, wait_for};
use crate::engine::EngineError;
use crate::engine::inbox::{Intake, Message};
use crate::engine::pool::End;
use crate::engine::{
    Decision, Engine, EngineOptions, Fate, INBOX_ARRIVALS_MAX, LogOptions, Place, PoolOptions, Unavailable,
};
use weir_kernel::{Ended, Event, Input, Micros, Outcome, Policy, Reason, Step, Termination};
use weir_log::memory::MemoryDisk;

/// While the log fails nothing is decided; the refused are counted, and all goes on by itself afterwards.
#[test]
fn c104_a_failing_log_refuses_at_once_and_recovers_by_itself() {
    let rig = Setup::default().start();
    rig.open_pool(1_000_000);
    let waiting = rig.admit("before");
    wait("it is queued", || rig.peek(|state| state.queued()) == 1);
    wait("readiness", || rig.pool.status().ready());
    rig.fail(true);
    wait("the intake is shut", || rig.intake() == Intake::Closed(Unavailable::Log));
    assert!(!rig.pool.status().ready());
    for i in 0..1_000 {
        assert_eq!(rig.pool.admit(rig.arrival(&i.to_string())).err(), Some(Unavailable::Log));
    }
    let end = rig.pool.cancel(weir_kernel::RequestId(99_999), weir_kernel::Cause::Other);
    let before = rig.steps().len();
    rig.clock.advance(Micros::from_secs(5));
    assert_eq!(rig.peek(|state| state.queued()), 1, "a look is answered meanwhile");
    assert_eq!(rig.steps().len(), before, "nothing is decided meanwhile");
    rig.fail(false);
    assert_eq!(wait_for(end), Fate::Unknown);
    wait("readiness", || rig.pool.status().ready());
    let resumed: Vec<_> = rig
        .steps()
        .into_iter()
        .filter_map(|step| match step.input {
            Input::LogResumed { since, refused } => Some((since, refused)),
            _ => None,
        })
        .collect();
    assert_eq!(resumed, [(Micros::from_secs(1_000), 1_000)]);
    rig.saturate(0);
    assert!(matches!(wait_for(waiting), Decision::Admitted(_)));
    rig.check();
}

/// More arrivals than the inbox holds are refused there and counted; ends never wait behind them.
#[test]
fn a_flood_of_arrivals_fills_its_own_lane_only() {
    let rig = Setup { inbox: 5_000, ..Setup::default() }.start();
    rig.open_pool(0);
    let Decision::Admitted(running) = wait_for(rig.admit("first")) else { panic!("the pool is open") };
    rig.hold();
    let mut pending = Vec::new();
    let mut refused = 0;
    // Held: two batches go to the log, one more is built, the rest fills the lane.
    while refused < 100 {
        match rig.pool.admit(rig.arrival("flood")) {
            Ok(one) => pending.push(one),
            Err(why) => {
                assert_eq!(why, Unavailable::InboxFull);
                refused += 1;
                std::thread::yield_now();
            }
        }
        assert!(pending.len() < 50_000, "the lane has no bound");
    }
    let end = rig.pool.end(Ended { request: running.id, termination: Termination::Natural, usage: None });
    let decided_before = rig.peek(|state| state.seq());
    rig.release();
    let Fate::Done { seq } = wait_for(end) else { panic!("the end counted") };
    assert!(seq <= decided_before + 10, "the end waited behind arrivals: {seq}, {decided_before}");
    for one in pending {
        assert!(matches!(wait_for(one), Decision::Admitted(_)));
    }
    rig.clock.advance(Micros::from_secs(2));
    wait("the refused are counted", || {
        let counted = |step: &Step| match step.input {
            Input::LogResumed { refused, .. } => refused,
            _ => 0,
        };
        rig.steps().iter().map(counted).sum::<u64>() == refused
    });
    rig.check();
}

/// A stop: new requests are refused with that reason, queued ones are served until the drain time, then end with it.
#[test]
fn c016_a_stop_drains_and_then_ends_what_is_left() {
    let rig = Setup::default().start();
    rig.open_pool(1_000_000);
    let (one, two) = (rig.admit("r1"), rig.admit("r2"));
    wait("both are queued", || rig.peek(|state| state.queued()) == 2);
    let drain_until = rig.clock.now() + Micros::from_secs(10);
    rig.pool.0.inbox.put(Message::Stop { drain_until }).unwrap();
    wait("not ready", || !rig.pool.status().ready());
    let Decision::Refused(new) = wait_for(rig.admit("r3")) else { panic!("it is stopping") };
    assert_eq!((new.outcome, new.reason), (Outcome::RejectedOther, Reason::ShuttingDown));
    rig.clock.advance(Micros::from_secs(10));
    for pending in [one, two] {
        let Decision::Refused(left) = wait_for(pending) else { panic!("nothing was served") };
        assert_eq!((left.outcome, left.reason), (Outcome::EvictedOther, Reason::ShuttingDown));
    }
    assert_eq!(rig.running.thread.join().unwrap(), End::Stopped);
    let steps = rig.script.steps();
    assert!(matches!(steps.last().unwrap().input, Input::Stopped));
    assert_eq!(rig.pool.admit(new_arrival()).err(), Some(Unavailable::Stopped));
}

fn new_arrival() -> weir_kernel::Arrival {
    weir_kernel::Arrival::default()
}

/// With nothing queued and no stream open a stop is immediate; a running stream is waited for.
#[test]
fn c144_a_stop_waits_for_streams_but_not_for_held_leases() {
    let rig = Setup::default().start();
    rig.open_pool(0);
    let Decision::Admitted(stream) = wait_for(rig.admit("r1")) else { panic!("the pool is open") };
    let held = weir_kernel::Arrival { face: weir_kernel::Face::Held, ..rig.arrival("r2") };
    assert!(matches!(wait_for(rig.pool.admit(held).unwrap()), Decision::Admitted(_)));
    let drain_until = rig.clock.now() + Micros::from_secs(10);
    rig.pool.0.inbox.put(Message::Stop { drain_until }).unwrap();
    wait("the drain", || rig.logged(|event| matches!(event, Event::DrainBegun { .. })) == 1);
    assert_eq!(rig.peek(|state| state.in_flight()), 2);
    rig.pool.end_unheard(Ended { request: stream.id, termination: Termination::Natural, usage: None });
    assert_eq!(rig.running.thread.join().unwrap(), End::Stopped);
}

/// The inbox is full, the log stands still, and the service is told to stop: everybody is answered.
#[test]
fn c146_nobody_stays_blocked_at_a_stop() {
    let rig = Setup { inbox: 50, ..Setup::policy(Policy { max_requests: 10, ..pushed_policy() }) }.start();
    rig.open_pool(1_000_000);
    rig.hold();
    let pending: Vec<_> = (0..50).map_while(|i| rig.pool.admit(rig.arrival(&i.to_string())).ok()).collect();
    rig.pool.0.inbox.put(Message::Stop { drain_until: rig.clock.now() }).unwrap();
    rig.release();
    for one in pending {
        assert!(!matches!(wait_for(one), Decision::Admitted(_)));
    }
    assert_eq!(rig.running.thread.join().unwrap(), End::Stopped);
}

/// Left without a stop, as a crash would: whoever waits hears of it, and nothing more is logged.
#[test]
fn a_pool_that_is_left_writes_nothing_more() {
    let rig = Setup::default().start();
    rig.open_pool(1_000_000);
    let pending = rig.admit("r1");
    wait("it is queued", || rig.peek(|state| state.queued()) == 1);
    let (steps, script) = (rig.steps().len(), std::sync::Arc::clone(&rig.script));
    assert_eq!(rig.stop(), End::Left);
    assert_eq!(wait_for(pending), Decision::Unavailable(Unavailable::Failed));
    assert_eq!(script.steps().len(), steps);
}

#[test]
fn several_pools_stop_in_order_or_are_left() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let options = || EngineOptions {
        pools: ["a", "b"].map(|name| (name.to_owned(), PoolOptions::default())).into(),
        place: Place::Memory(MemoryDisk::new()),
        log: LogOptions::default(),
        clock: None,
        inbox_arrivals_max: INBOX_ARRIVALS_MAX,
    };
    let engine = Engine::open(options()).unwrap();
    assert_eq!(engine.pools().map(|pool| pool.name().to_owned()).collect::<Vec<_>>(), ["a", "b"]);
    let pending = engine.pool("b").unwrap().admit(weir_kernel::Arrival::default()).unwrap();
    runtime.block_on(engine.shutdown(std::time::Duration::ZERO)).unwrap();
    let Decision::Refused(refused) = wait_for(pending) else { panic!("the pool is unknown") };
    assert_eq!(refused.reason, Reason::ShuttingDown);
    drop(Engine::open(options()).unwrap());
    let mut bad = options();
    bad.pools.insert("a/b".to_owned(), PoolOptions::default());
    assert!(matches!(Engine::open(bad), Err(EngineError::Name { pool, .. }) if pool == "a/b"));
}
