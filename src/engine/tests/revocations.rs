//! Who hears of a revocation, and when: never before it is durable, whoever is already late at once, nobody in vain.

use super::rig::{Rig, Setup, concurrency_policy, pushed_policy, wait, wait_for};
use crate::engine::{Decision, Fate, Revocation, Revoking};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use weir_kernel::{
    Ended, Event, Face, LeaseEnd, Micros, Policy, RequestId, RevocationEnd, RevocationOrder, State,
    Termination,
};

fn lease(rig: &Rig, face: Face) -> RequestId {
    let arrival = weir_kernel::Arrival { face, ..rig.arrival("r") };
    match wait_for(rig.pool.admit(arrival).unwrap()) {
        Decision::Admitted(admitted) => admitted.id,
        other => panic!("not admitted: {other:?}"),
    }
}

fn end(rig: &Rig, request: RequestId) -> Fate {
    wait_for(rig.pool.end(Ended { request, termination: Termination::Evicted, usage: None }))
}

fn now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn ends(rig: &Rig, wanted: RevocationEnd) -> usize {
    rig.logged(|event| matches!(event, Event::RevocationEnded(e) if e.end == wanted))
}

#[test]
fn a_face_hears_of_a_revocation_once_it_is_durable() {
    let rig = Setup::default().start();
    rig.open_pool(0);
    let id = lease(&rig, Face::Proxy);
    let mut heard = rig.pool.revocation(id);
    rig.hold();
    let answer = rig.pool.revoke(id, "ops", "a runaway");
    wait("the order in the log's hands", || rig.logged(|e| matches!(e, Event::RevocationIssued(_))) == 1);
    assert_eq!(now(&mut heard), None, "not before it is durable");
    rig.release();
    let Revoking::Issued { seq, number } = wait_for(answer) else { panic!("not issued") };
    let want = Revocation { seq, number, order: RevocationOrder::Operator };
    assert_eq!(wait_for(heard), Some(want));
    assert_eq!(wait_for(rig.pool.revoke(id, "ops", "again")), Revoking::AlreadyRevoked);
    // Whoever asks later hears of it at once, with nothing else to wake the pool.
    assert_eq!(wait_for(rig.pool.revocation(id)).map(|late| late.number), Some(number));
    assert!(matches!(end(&rig, id), Fate::Done { .. }));
    assert_eq!(ends(&rig, RevocationEnd::Confirmed), 1);
    assert_eq!(rig.logged(|e| matches!(e, Event::LeaseEnded(l) if l.end == LeaseEnd::Revoked)), 1);
    rig.check();
}

#[test]
fn a_lease_that_ends_otherwise_is_not_waited_for_any_more() {
    let rig = Setup::default().start();
    rig.open_pool(0);
    let id = lease(&rig, Face::Stream);
    let heard = rig.pool.revocation(id);
    end(&rig, id);
    assert_eq!(wait_for(heard), None);
    let late = rig.pool.revocation(id);
    assert_eq!(wait_for(rig.pool.revoke(id, "ops", "late")), Revoking::Unknown);
    assert_eq!(wait_for(late), None, "there is no such lease");
    rig.saturate(1_000_000);
    let queued = rig.admit("waits");
    wait("it is queued", || rig.peek(State::queued) == 1);
    let request = queued.id().unwrap();
    assert_eq!(wait_for(rig.pool.revoke(request, "ops", "early")), Revoking::NotRunning);
    rig.check();
}

#[test]
fn a_held_lease_is_revoked_only_while_its_holder_waits() {
    let rig = Setup::default().start();
    rig.open_pool(0);
    let id = lease(&rig, Face::Held);
    assert!(matches!(wait_for(rig.pool.revoke(id, "ops", "x")), Revoking::Undeliverable { .. }));
    // Two polls at once, of which one ends.
    let (first, second) = (rig.pool.watching(id), rig.pool.watching(id));
    let heard = rig.pool.revocation(id);
    drop(first);
    assert!(matches!(wait_for(rig.pool.revoke(id, "ops", "x")), Revoking::Issued { number: 2, .. }));
    assert_eq!(wait_for(heard).map(|heard| heard.number), Some(2));
    rig.pool.undeliverable(id);
    wait("the order to end", || ends(&rig, RevocationEnd::Undeliverable) == 2);
    drop(second);
    wait("nobody to wait", || rig.peek(move |state| state.lease(id).is_some_and(|lease| !lease.can_be_told)));
    // A watch of what is not there, or needs none, is no input.
    let before = rig.peek(State::seq);
    drop(rig.pool.watching(RequestId(99)));
    assert_eq!(rig.peek(State::seq), before);
    rig.check();
}

#[test]
fn in_observe_mode_nobody_is_told() {
    let policy = Policy { observe: true, ..pushed_policy() };
    let rig = Setup::policy(policy).start();
    rig.open_pool(0);
    let id = lease(&rig, Face::Proxy);
    let mut heard = rig.pool.revocation(id);
    assert!(matches!(wait_for(rig.pool.revoke(id, "ops", "x")), Revoking::Issued { .. }));
    assert_eq!(now(&mut heard), None);
    rig.clock.advance(Micros::from_secs(10));
    wait("the time-out", || ends(&rig, RevocationEnd::TimedOut) == 1);
    assert_eq!(now(&mut heard), None);
    rig.check();
}

#[test]
fn a_long_reason_is_cut_at_a_character() {
    let rig = Setup::policy(concurrency_policy(3)).start();
    rig.open_pool(0);
    let id = lease(&rig, Face::Proxy);
    wait_for(rig.pool.revoke(id, &"ü".repeat(200), "why"));
    let found = rig.steps().into_iter().find_map(|step| match step.input {
        weir_kernel::Input::Revoke { by, why, .. } => Some((by, why)),
        _ => None,
    });
    assert_eq!(found, Some(("ü".repeat(128), "why".to_owned())));
}

/// The process dies between the order and the end of the stream.
#[test]
fn after_a_restart_whoever_comes_back_hears_of_what_is_outstanding() {
    let rig = Setup::default().start();
    rig.open_pool(0);
    let (held, proxied) = (lease(&rig, Face::Held), lease(&rig, Face::Proxy));
    rig.pool.watch(held, true);
    assert!(matches!(wait_for(rig.pool.revoke(held, "ops", "x")), Revoking::Issued { .. }));
    assert!(matches!(wait_for(rig.pool.revoke(proxied, "ops", "x")), Revoking::Issued { .. }));
    let state = State::from_restated(&rig.peek(State::restate)).unwrap();
    let steps = rig.steps();
    let clock = rig.clock.clone();
    rig.stop();
    let rig = Setup { state, clock, ..Setup::default() }.start();
    wait("the streams that died to end", || {
        rig.logged(|e| matches!(e, Event::LeaseEnded(l) if l.request == proxied && l.end == LeaseEnd::Lost))
            == 1
    });
    assert_eq!(ends(&rig, RevocationEnd::TimedOut), 1);
    let watching = rig.pool.watching(held);
    assert_eq!(wait_for(rig.pool.revocation(held)).map(|heard| heard.number), Some(1));
    assert!(matches!(end(&rig, held), Fate::Done { .. }));
    drop(watching);
    assert_eq!(ends(&rig, RevocationEnd::Confirmed), 1);
    let (issued, outstanding) =
        rig.peek(|state| (state.revocations().issued, state.revocations().outstanding));
    assert_eq!((issued, outstanding), (2, 0));
    assert!(!steps.is_empty());
}
