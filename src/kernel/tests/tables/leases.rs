//! Leases, tickets, idempotency, objectives and observe mode (contract.md row 29, *Names on the wire*).

use crate::script::{Script, Show, check};
use crate::settings::{budgets, counted, pushed};
use weir_kernel::*;

#[test]
fn a_held_lease_lapses_unless_its_holder_renews_it() {
    check(
        counted(3),
        "
        t=0   join e1
        t=0   arrive r1 => r1:admit
        t=0   arrive r2 => r2:admit
        t=5m  renew r2
        t=10m pass => r1:Lost timeout
        t=12m end r2 => r2:Completed
        t=12m renew r2 => ignored
        t=13m end r1 => ignored
        t=13m is in-flight=0
        ",
    );
}

#[test]
fn a_lease_with_an_open_stream_never_times_out() {
    let mut rows = String::from("t=0 join e1\n");
    for face in ["stream", "proxy", "closed", "open"] {
        rows += &format!("t=0 arrive {face} face={face} => {face}:admit\n");
    }
    rows += "t=24h is in-flight=4\nt=24h end open => open:Completed\n";
    check(counted(9), &rows);
}

#[test]
fn a_ticket_that_nobody_polls_is_given_up() {
    check(
        budgets(pushed(), 0, 0),
        "
        t=0  pool 1 sat=1
        t=0  arrive r1 face=ticket
        t=0  arrive r2 face=ticket
        t=0  arrive r3
        t=30 renew r2
        t=30 renew r3 => ignored
        t=60 pass => r1:503 rejected-context-cancelled
        t=90 pass => r2:503 rejected-context-cancelled
        t=91 is queued=1
        ",
    );
}

#[test]
fn a_cancelled_lease_ends_and_its_room_is_free() {
    check(
        counted(1),
        "
        t=0 join e1
        t=0 arrive r1 => r1:admit
        t=0 arrive r2
        t=1 cancel r1 => r1:Completed client-disconnect, r2:admit
        t=1 cancel r1 => ignored
        ",
    );
}

#[test]
fn the_same_key_is_the_same_request() {
    let state = check(
        pushed(),
        "
        t=0 pool 1 sat=1
        t=0 arrive r1 key=k
        t=1 arrive r2 key=k        => r2:as-r1
        t=1 arrive r3 key=k body=x => r3:422 rejected-idempotency-mismatch
        t=1 arrive r4 key=m
        t=1 is queued=2 arrivals=3 count.RejectedOther=1
        t=2 pool 1 sat=0           => r1:admit, r4:admit
        t=3 arrive r5 key=k        => r5:as-r1
        t=3 is in-flight=2
        ",
    );
    let key = Idempotency { key: [b'k'; 16], body: [b'b'; 8] };
    let (request, answer) = state.key_answer(&key).unwrap();
    assert_eq!((request, answer.unwrap().outcome), (RequestId(4), Outcome::Dispatched));
}

#[test]
fn a_refusal_is_not_remembered_under_a_key() {
    let mut policy = pushed();
    policy.bands.insert(0, BandSettings { max_requests: 1, ..BandSettings::default() });
    check(
        policy,
        "
        t=0 pool 1 sat=1
        t=0 arrive r1
        t=0 arrive r2 key=k => r2:429 rejected-saturated
        t=1 cancel r1 => r1:503 rejected-context-cancelled
        t=1 arrive r3 key=k
        t=1 is queued=1
        ",
    );
}

#[test]
fn the_oldest_keys_make_room_also_under_a_lower_limit() {
    let keys = |idempotency_keys| Policy { idempotency_keys, ..pushed() };
    Script::new(keys(4)).other("fewer", keys(2)).check(
        "
        t=0 pool 1 sat=0
        t=0 arrive r1 key=1 => r1:admit
        t=0 arrive r2 key=2 => r2:admit
        t=0 arrive r3 key=3 => r3:admit
        t=0 arrive r4 key=4 => r4:admit
        t=0 arrive r5 key=5 => r5:admit
        t=0 is keys=4
        t=0 arrive r6 key=1 => r6:admit
        t=0 arrive r7 key=4 => r7:as-r4
        t=1 settings fewer
        t=1 arrive r8 key=8 => r8:admit
        t=1 is keys=2
        t=1 arrive r9 key=1 => r9:as-r6
        ",
    );
}

#[test]
fn c081_one_caller_id_twice_is_two_requests() {
    check(
        counted(5),
        "
        t=0 join e1
        t=0 arrive r1 caller=id prio=-5 => r1:admit
        t=0 arrive r2 caller=id         => r2:admit
        t=0 is in-flight=2
        t=1 end r2 => r2:Completed
        t=1 is in-flight=1
        t=2 end r1 => r1:Completed
        t=2 is in-flight=0
        ",
    );
}

#[test]
fn c083_an_unknown_objective_gets_priority_zero_and_says_so() {
    Script::new(pushed()).show(&[Show::Queued, Show::Why]).check(
        "
        t=0 pool 1 sat=1
        t=0 objectives critical=10 batch=-10
        t=0 arrive r1 obj=critical => r1:queued (60s global)
        t=0 arrive r2 obj=crtical  => r2:queued (60s global objective unknown)
        t=0 arrive r3 obj=Critical => r3:queued (60s global objective unknown)
        t=0 arrive r4              => r4:queued (60s global)
        t=0 arrive r5 obj=batch prio=7 => r5:queued (60s global)
        t=0 is band.10=1 band.0=3 band.-10=0 band.7=1
        ",
    );
}

#[test]
fn an_empty_fairness_id_is_the_default_flow() {
    let state = check(
        pushed(),
        "
        t=0 pool 1 sat=1
        t=0 arrive r1
        t=0 arrive r2 flow=default-flow
        t=0 is flows=1
        ",
    );
    assert!(state.has_flow(DEFAULT_FLOW, 0));
}

#[test]
fn in_observe_mode_what_ended_in_the_real_pool_is_recorded_as_that() {
    Script::new(Policy { observe: true, ..pushed() }).show(&[Show::Why]).check(
        "
        t=0 pool 1 sat=1
        t=0 arrive r1
        t=0 arrive r2
        t=1 end r1 => r1:503 rejected-context-cancelled (ended-in-pool) behind band 0 1>=1
        t=2 pool 1 sat=0 => r2:admit (0 0 1)
        t=3 end r2 => r2:Completed
        t=3 is count.EvictedOther=1
        ",
    );
}

#[test]
fn tokens_are_held_until_the_first_byte() {
    let detector = Detector::Concurrency {
        mode: ConcurrencyMode::Tokens,
        max_requests: 1,
        max_tokens: 1_000,
        headroom: Ratio::ZERO,
        output_estimate: None,
    };
    let estimate = |cap| {
        let Detector::Concurrency { mode, max_requests, max_tokens, headroom, .. } = detector.clone() else {
            unreachable!()
        };
        let output_estimate = Some(OutputEstimate { ratio: Ratio(1_500_000), cap });
        Detector::Concurrency { mode, max_requests, max_tokens, headroom, output_estimate }
    };
    check(
        Policy { detector: detector.clone(), ..pushed() },
        "
        t=0 join e1
        t=0 arrive r1 tokens=400 => r1:admit
        t=0 arrive r2 tokens=500 => r2:admit
        t=0 is sat=0.9
        t=1 byte r1
        t=1 is sat=0.5
        t=1 byte r1 => ignored
        t=2 end r2 => r2:Completed
        t=2 is sat=0
        ",
    );
    check(
        Policy { detector: estimate(300), ..pushed() },
        "
        t=0 join e1
        t=0 arrive r1 tokens=100 => r1:admit
        t=0 is sat=0.25
        t=0 arrive r2 tokens=400 => r2:admit
        t=0 is sat=0.95
        t=1 byte r2
        t=1 is sat=0.55
        ",
    );
    // Absurd ratios neither overflow nor stick.
    let absurd = match estimate(0) {
        Detector::Concurrency { mode, max_requests, max_tokens, headroom, .. } => Detector::Concurrency {
            mode,
            max_requests,
            max_tokens,
            headroom,
            output_estimate: Some(OutputEstimate { ratio: Ratio(i64::MAX), cap: 0 }),
        },
        other => other,
    };
    check(
        Policy { detector: absurd, ..pushed() },
        "
        t=0 join e1
        t=0 arrive r1 tokens=4294967295 => r1:admit
        t=0 arrive r2 tokens=4294967295
        t=1 end r1 => r1:Completed, r2:admit
        t=2 end r2 => r2:Completed
        t=2 is sat=0
        ",
    );
}
