//! Refusals that are decided many at a time: the same as one by one.

use crate::script::check;
use crate::settings::{counted, pushed};
use weir_kernel::*;

fn full(limit: u64) -> Policy {
    Policy { max_requests: limit, ..pushed() }
}

#[test]
fn many_refusals_in_one_step_are_conserved() {
    check(
        full(1),
        "
        t=0 pool 1 sat=1.5
        t=0 arrive r1
        t=1 flood 500 => all:429 rejected-saturated
        t=1 flood 0 => ignored
        t=1 is queued=1 arrivals=501 count.RejectedCapacity=500
        t=2 pool 0
        t=2 flood 30 => all:503 rejected-no-endpoints
        t=2 is arrivals=531 count.RejectedNoEndpoints=30
        t=3 stop 10s
        t=3 flood 7 => all:503 rejected-shutting-down
        t=3 is arrivals=538 count.RejectedOther=7
        ",
    );
}

/// Each of them is one more for `Retry-After`: the first and the last are in the event, the next one counts on.
#[test]
fn c019_refusals_decided_together_spread_like_those_decided_alone() {
    let mut policy = counted(1);
    policy.max_requests = 1;
    check(
        policy,
        "
        t=0  join e1
        t=0  arrive r1 => r1:admit
        t=0  arrive r2
        t=10 end r1 => r1:Completed, r2:admit
        t=10 arrive r3
        t=10 flood 5 => all:429 rejected-saturated retry=5..25
        t=10 arrive r4 => r4:429 rejected-saturated retry=30
        ",
    );
}

/// Foreseen at an instant at which something is due, or for a band that is not there: not at all.
#[test]
fn nothing_is_foreseen_where_something_else_is_decided_first() {
    let mut state = check(
        Policy { saturation_budget: Micros::from_secs(60), ..full(1) },
        "
        t=0 pool 1 sat=1.5
        t=0 arrive r1
        t=1 is queued=1
        ",
    );
    let (now, arrival) = (state.now(), Arrival { received_at: state.now(), ..Arrival::default() });
    let foreseen = state.foresee(now, &arrival, 0).expect("the queue is full");
    assert_eq!((foreseen.outcome, foreseen.reason), (Outcome::RejectedCapacity, Reason::Saturated));
    assert_eq!(state.foresee(now + Micros::from_secs(59), &arrival, 0), Some(foreseen));
    assert_eq!(state.foresee(now + Micros::from_secs(60), &arrival, 0), None, "r1 is due then");
    let elsewhere = Arrival { priority: Some(7), ..arrival.clone() };
    assert_eq!(state.foresee(now, &elsewhere, 0), None, "its band is opened first");
    let late = Arrival { deadline: Some(now), ..arrival.clone() };
    assert_eq!(state.foresee(now, &late, 0).map(|f| f.reason), Some(Reason::ContextCancelled));
    let together =
        ArrivedMany::one(now, &arrival, &foreseen).and(&ArrivedMany::one(now, &arrival, &foreseen));
    assert_eq!((together.count, state.foresee_many(now, &together, 0)), (2, Some(foreseen)));
}
