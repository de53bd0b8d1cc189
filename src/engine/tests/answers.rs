//! Who hears what, and when: never before it is durable, exactly once, also after having left.

use super::rig::{Rig, Setup, is_decided, pushed_policy, wait, wait_for};
use crate::engine::{Change, Decision, Fate, PoolHandle, Unavailable};
use weir_kernel::{
    Arrival, Cause, Ended, Event, Face, Idempotency, LeaseEnd, LeaseEndCause, Micros, ObjectivesChange,
    Outcome, Policy, Reason, RequestId, Termination,
};

const OPEN: i64 = 0;
const SHUT: i64 = 1_000_000;

fn ended(request: RequestId) -> Ended {
    Ended { request, termination: Termination::Natural, usage: None }
}

fn admitted(decision: Decision) -> crate::engine::Admitted {
    match decision {
        Decision::Admitted(admitted) => admitted,
        other => panic!("not admitted: {other:?}"),
    }
}

fn refused(decision: Decision) -> crate::engine::Refused {
    match decision {
        Decision::Refused(refused) => refused,
        other => panic!("not refused: {other:?}"),
    }
}

fn evicted_as(rig: &Rig, wanted: Outcome) -> usize {
    rig.logged(|event| matches!(event, Event::Evicted(e) if e.outcome == wanted))
}

#[test]
fn no_effect_before_durability() {
    let rig = Setup::default().start();
    rig.open_pool(OPEN);
    rig.hold();
    let mut pending = rig.admit("r1");
    wait("the step in the log's hands", || rig.logged(|event| matches!(event, Event::Dispatched(_))) == 1);
    assert_eq!(is_decided(&mut pending), None);
    let mut query = Box::pin(rig.pool.query(|state| state.in_flight()));
    assert_eq!(rig.peek(|state| state.in_flight()), 1, "a peek sees what is not durable yet");
    let waker = std::task::Waker::noop();
    assert!(query.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    assert_eq!(is_decided(&mut pending), None);
    rig.release();
    let heard = admitted(wait_for(pending));
    assert_eq!((heard.priority, heard.flow.as_str(), heard.shadow), (0, "default-flow", false));
    assert_eq!(wait_for(query), Ok(1));
    rig.check();
}

use std::future::Future;

#[test]
fn a_queued_request_hears_its_outcome_at_its_deadline() {
    let rig = Setup::default().start();
    rig.open_pool(SHUT);
    let mut pending = rig.admit("r1");
    wait("it is queued", || rig.peek(|state| state.queued()) == 1);
    rig.clock.advance(Micros::from_secs(59));
    assert_eq!(rig.peek(|state| state.queued()), 1);
    assert_eq!(is_decided(&mut pending), None);
    rig.clock.advance(Micros::from_secs(1));
    let heard = refused(wait_for(pending));
    assert_eq!((heard.outcome, heard.reason), (Outcome::EvictedTTL, Reason::TtlExpired));
    assert_eq!(heard.waited, Micros::from_secs(60));
    rig.check();
}

/// The caller goes away while it is queued: its slot is free at once, and the pool gets no call.
#[test]
fn c025_a_client_that_leaves_while_queued_is_gone_at_once() {
    let rig = Setup::default().start();
    rig.open_pool(SHUT);
    let pending = rig.admit("r1");
    wait("it is queued", || rig.peek(|state| state.queued()) == 1);
    drop(pending);
    wait("the cancellation", || evicted_as(&rig, Outcome::EvictedContextCancelled) == 1);
    rig.saturate(OPEN);
    rig.wait_idle();
    assert_eq!(rig.logged(|event| matches!(event, Event::Dispatched(_))), 0);
    rig.check();
}

/// Dropped before the kernel has seen it: it still arrives, is ended, and is never served.
#[test]
fn a_client_that_leaves_before_its_arrival_is_looked_at_has_one_outcome() {
    let rig = Setup::default().start();
    rig.open_pool(SHUT);
    for i in 0..500 {
        drop(rig.admit(&format!("r{i}")));
    }
    wait("every cancellation", || evicted_as(&rig, Outcome::EvictedContextCancelled) == 500);
    rig.wait_idle();
    rig.check();
}

/// Admitted, but nobody took the answer: the lease ends as if its caller had left.
#[test]
fn an_admission_that_nobody_hears_is_given_back() {
    let rig = Setup::default().start();
    rig.open_pool(OPEN);
    rig.hold();
    let pending = rig.admit("r1");
    wait("the dispatch", || rig.logged(|event| matches!(event, Event::Dispatched(_))) == 1);
    rig.release();
    drop(pending);
    wait("the lease's end", || {
        rig.logged(|event| {
            matches!(event, Event::LeaseEnded(e) if e.cause == Some(LeaseEndCause::Cancelled(Cause::ClientDisconnect)))
        }) == 1
    });
    rig.wait_idle();
    rig.check();
}

fn keyed(rig: &Rig, body: u8) -> Arrival {
    let idempotency = Some(Idempotency { key: [7; 16], body: [body; 8] });
    Arrival { idempotency, face: Face::Held, ..rig.arrival("r") }
}

#[test]
fn calls_with_one_key_share_one_fate() {
    let rig = Setup::default().start();
    rig.open_pool(SHUT);
    let first = rig.pool.admit(keyed(&rig, 1)).unwrap();
    let second = rig.pool.admit(keyed(&rig, 1)).unwrap();
    let other = rig.pool.admit(keyed(&rig, 2)).unwrap();
    assert_eq!(refused(wait_for(other)).reason, Reason::IdempotencyMismatch);
    wait("both are known", || first.id().is_some() && second.id().is_some());
    assert_eq!(first.id(), second.id());
    // The first caller leaves; the second still waits, so nothing is cancelled.
    drop(first);
    rig.saturate(OPEN);
    let heard = admitted(wait_for(second));
    assert_eq!(evicted_as(&rig, Outcome::EvictedContextCancelled), 0);
    // A third comes after the decision and hears the same.
    let third = admitted(wait_for(rig.pool.admit(keyed(&rig, 1)).unwrap()));
    assert!(third.repeated);
    assert_eq!((third.id, third.seq), (heard.id, heard.seq));
    rig.check();
}

#[test]
fn ends_cancels_and_renewals_say_what_became_of_them() {
    let rig = Setup::default().start();
    rig.open_pool(OPEN);
    let held = admitted(wait_for(rig.pool.admit(Arrival { face: Face::Held, ..rig.arrival("r1") }).unwrap()));
    let watch = rig.pool.watch_lease(held.id);
    assert!(matches!(wait_for(rig.pool.renew(held.id)), Fate::Done { .. }));
    rig.pool.first_byte(held.id);
    let Fate::Done { seq } = wait_for(rig.pool.end(ended(held.id))) else { panic!("the end counted") };
    let notice = wait_for(watch).unwrap();
    assert_eq!((notice.seq, notice.end, notice.cause), (seq, LeaseEnd::Completed, None));
    assert_ne!(wait_for(rig.pool.end(ended(held.id))), Fate::Done { seq: seq + 1 });
    assert_eq!(wait_for(rig.pool.cancel(RequestId(99_999), Cause::Purged)), Fate::Unknown);
    assert_eq!(wait_for(rig.pool.watch_lease(RequestId(99_999))), Err(Unavailable::Failed));
    rig.check();
}

#[test]
fn an_operator_purges_a_queued_request_and_its_caller_hears_it() {
    let rig = Setup::default().start();
    rig.open_pool(SHUT);
    let pending = rig.admit("r1");
    wait("it is named", || pending.id().is_some());
    let id = pending.id().unwrap();
    assert!(matches!(wait_for(rig.pool.cancel(id, Cause::Purged)), Fate::Done { .. }));
    assert_eq!(refused(wait_for(pending)).reason, Reason::Purged);
    rig.check();
}

/// Observe mode: the caller goes on at once, the log holds what would have been decided.
#[test]
fn in_observe_mode_nobody_is_held() {
    let rig = Setup::policy(Policy { observe: true, ..pushed_policy() }).start();
    rig.open_pool(SHUT);
    let heard = admitted(wait_for(rig.admit("r1")));
    assert!(heard.shadow);
    assert_eq!(rig.peek(|state| state.queued()), 1);
    assert!(matches!(wait_for(rig.pool.end(ended(heard.id))), Fate::Done { .. }));
    assert_eq!(
        rig.logged(|event| matches!(event, Event::Evicted(e) if e.cause == Some(Cause::EndedInPool))),
        1,
        "it ended in the real pool while the shadow still queued it"
    );
    let next = admitted(wait_for(rig.admit("r2")));
    rig.saturate(OPEN);
    wait("the shadow's dispatch", || {
        rig.logged(|event| matches!(event, Event::Dispatched(e) if e.request == next.id)) == 1
    });
    rig.check();
}

#[test]
fn settings_change_by_a_logged_input_and_only_if_they_differ() {
    let rig = Setup::default().start();
    let other = Policy { max_requests: 7, ..pushed_policy() };
    assert!(matches!(wait_for(rig.pool.change_policy(other.clone())), Ok(Change::Adopted { .. })));
    assert_eq!(wait_for(rig.pool.change_policy(other)), Ok(Change::Same));
    let set = |name: &str, priority| ObjectivesChange {
        set: vec![(name.to_owned(), priority)],
        removed: Vec::new(),
    };
    assert!(matches!(wait_for(rig.pool.change_objectives(set("gold", 10))), Ok(Change::Adopted { .. })));
    rig.open_pool(OPEN);
    let arrival = Arrival { objective: Some("gold".to_owned()), ..rig.arrival("r1") };
    assert_eq!(admitted(wait_for(rig.pool.admit(arrival).unwrap())).priority, 10);
    rig.check();
}

#[test]
fn subscribers_get_every_durable_step_in_order_or_hear_that_they_missed_some() {
    let rig = Setup::default().start();
    let mut steps = rig.pool.subscribe();
    rig.hold();
    rig.open_pool(OPEN);
    let pending = rig.admit("r1");
    wait("it is in the log's hands", || rig.logged(|event| matches!(event, Event::Dispatched(_))) == 1);
    rig.release();
    let heard = admitted(wait_for(pending));
    let mut seqs = Vec::new();
    wait("its step comes by", || {
        while let Ok(batch) = steps.try_recv() {
            seqs.extend(batch.iter().map(|step| step.seq));
        }
        seqs.last().is_some_and(|last| *last >= heard.seq)
    });
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
    for i in 0..3_000 {
        admitted(wait_for(rig.admit(&format!("s{i}"))));
    }
    assert!(matches!(steps.try_recv(), Err(tokio::sync::broadcast::error::TryRecvError::Lagged(_))));
}

fn is_send<T: Send>(_: &T) {}

#[test]
fn handles_and_waits_go_between_threads() {
    let rig = Setup::default().start();
    let handle: PoolHandle = rig.pool.clone();
    is_send(&handle);
    is_send(&rig.admit("r1"));
    is_send(&handle.query(|state| state.seq()));
}
