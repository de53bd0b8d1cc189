//! Queue limits, what a refusal is called, and `Retry-After` (contract.md rows 16, 17, 25).

use crate::script::{Script, Show, check};
use crate::settings::{bands, budgets, counted, pushed};
use weir_kernel::*;

fn room_for(requests: u64) -> Policy {
    let mut policy = pushed();
    policy.bands.insert(0, BandSettings { max_requests: requests, ..BandSettings::default() });
    policy
}

#[test]
fn c012_a_live_but_full_pool_is_429_both_ways() {
    check(
        budgets(room_for(1), 2, 60),
        "
        t=0     pool 1 sat=1.4
        t=0     arrive r1
        t=100ms arrive r2 => r2:429 rejected-saturated
        t=2     pass => r1:429 rejected-ttl-expired
        t=2     is count.RejectedCapacity=1 count.EvictedTTL=1
        ",
    );
}

#[test]
fn c013_a_full_queue_before_an_empty_pool_is_503() {
    check(
        room_for(2),
        "
        t=0 pool 0
        t=0 arrive r1
        t=0 arrive r2
        t=0 arrive r3 => r3:503 rejected-no-endpoints
        t=0 arrive r4 => r4:503 rejected-no-endpoints
        t=0 arrive r5 => r5:503 rejected-no-endpoints
        t=1 pool 1 sat=1
        t=1 arrive r6 => r6:429 rejected-saturated
        t=1 is queued=2 count.RejectedNoEndpoints=3 count.RejectedCapacity=1
        ",
    );
}

#[test]
fn c018_a_full_band_refuses_and_says_by_how_much() {
    let mut policy = pushed();
    policy.bands = bands([(0, |b| b.max_bytes = 1_000)]);
    Script::new(policy).show(&[Show::Why]).check(
        "
        t=0 pool 1 sat=1
        t=0 arrive r1 bytes=600
        t=0 arrive r2 bytes=600 => r2:429 rejected-saturated (band maxBytes 600/1000 at 1)
        t=0 arrive r3 bytes=400
        t=0 is bytes=1000
        ",
    );
}

#[test]
fn c027_each_of_the_four_limits_takes_exactly_what_fits() {
    let mut policy = pushed();
    let small: fn(&mut BandSettings) = |b| (b.max_requests, b.max_bytes) = (5, 500);
    policy.bands = bands([(10, small), (0, small), (-10, small)]);
    (policy.max_requests, policy.max_bytes) = (10, 1_000);
    Script::new(policy).show(&[Show::Why]).check(
        "
        t=0 pool 1 sat=1
        t=0 arrive a1 bytes=200
        t=0 arrive a2 bytes=100
        t=0 arrive a3 bytes=100
        t=0 arrive a4 bytes=100
        t=0 arrive a5 bytes=1 => a5:429 rejected-saturated (band maxBytes 500/500 at 1)
        t=0 arrive b1 prio=10 bytes=1
        t=0 arrive b2 prio=10 bytes=1
        t=0 arrive b3 prio=10 bytes=1
        t=0 arrive b4 prio=10 bytes=1
        t=0 arrive b5 prio=10 bytes=1
        t=0 arrive b6 prio=10 bytes=1  => b6:429 rejected-saturated (band maxRequests 5/5 at 1)
        t=0 arrive c1 prio=-10 bytes=1
        t=0 is queued=10
        t=0 arrive c2 prio=-10 bytes=1   => c2:429 rejected-saturated (maxRequests 10/10 at 1)
        t=0 arrive c3 prio=-10 bytes=495 => c3:429 rejected-saturated (maxBytes 506/1000 at 1)
        ",
    );
}

#[test]
fn no_global_limit_is_no_limit() {
    let mut rows = String::from("t=0 pool 1 sat=1\n");
    for n in 0..200 {
        rows += &format!("t=0 arrive r{n} prio={}\n", n % 3);
    }
    rows += "t=0 is queued=200";
    check(pushed(), &rows);
}

#[test]
fn c029_a_request_that_is_given_up_frees_its_slot_at_once() {
    check(
        room_for(3),
        "
        t=0    pool 1 sat=1
        t=0    arrive r1 bytes=9
        t=0    arrive r2 bytes=9
        t=0    arrive r3 bytes=9
        t=1    cancel r1 => r1:503 rejected-context-cancelled
        t=1    cancel r2 => r2:503 rejected-context-cancelled
        t=1    cancel r3 => r3:503 rejected-context-cancelled
        t=1    is queued=0 bytes=0
        t=1.1s arrive r4
        t=1.1s is queued=1
        t=2    cancel r4 purge => r4:503 rejected-purged
        t=2    cancel r4 => ignored
        ",
    );
}

#[test]
fn c025_a_caller_who_left_is_never_dispatched() {
    check(
        pushed(),
        "
        t=0 pool 1 sat=1
        t=0 arrive r1
        t=1 cancel r1 => r1:503 rejected-context-cancelled
        t=2 pool 1 sat=0
        t=2 is queued=0 in-flight=0
        ",
    );
}

/// So many dispatches in each second from t=10s on, then a full band at t=39s.
fn drained(per_second: usize, seconds: usize) -> String {
    let mut rows = String::from(
        "t=0 pool 1 sat=1\nt=0 arrive first\nt=1 cancel first => first:503 rejected-context-cancelled\n",
    );
    rows += "t=9 pool 1 sat=0.5\n";
    for second in 0..seconds {
        for n in 0..per_second {
            rows += &format!("t={} arrive d{second}.{n} => d{second}.{n}:admit\n", second + 10);
        }
    }
    rows + "t=39 pool 1 sat=1\nt=39 arrive last\n"
}

#[test]
fn c019_retry_after_is_given_on_capacity_refusals_with_a_known_rate() {
    for (per_second, seconds, row) in [
        // 12 in 30 s: 2.5 s each.
        (1, 12, "t=40 arrive r1 => r1:429 rejected-saturated retry=3"),
        // 150 in 30 s: below a second.
        (5, 30, "t=40 arrive r1 => r1:429 rejected-saturated"),
        // One in 30 s.
        (1, 1, "t=40 arrive r1 => r1:429 rejected-saturated retry=30"),
        // Nothing was ever dispatched.
        (0, 0, "t=40 arrive r1 => r1:429 rejected-saturated"),
    ] {
        // Of 5 a second, those of t=39s are refused nothing: the band is full only from t=39s on.
        let seconds = seconds.min(29);
        check(room_for(1), &(drained(per_second, seconds) + row));
    }
}

#[test]
fn c019_the_refused_are_spread_and_begin_again_when_a_slot_is_freed() {
    let rows = drained(1, 12)
        + "
        t=40 arrive r1 => r1:429 rejected-saturated retry=3
        t=40 arrive r2 => r2:429 rejected-saturated retry=5
        t=40 arrive r3 => r3:429 rejected-saturated retry=8
        t=40 cancel last => last:503 rejected-context-cancelled
        t=40 arrive r4
        t=40 arrive r5 => r5:429 rejected-saturated retry=3
        ";
    check(room_for(1), &rows);
}

#[test]
fn c031_a_silent_request_keeps_its_lease() {
    let mut rows = String::from("t=0 join e1\n");
    for n in 0..12 {
        rows += &format!("t=0 arrive r{n} face=proxy => r{n}:admit\n");
    }
    for n in 0..50 {
        rows += &format!("t=0 arrive q{n}\n");
    }
    rows += "t=10m is in-flight=12 sat=1 queued=50\nt=20m end r0 => r0:Completed, q0:admit";
    check(budgets(counted(12), 0, 0), &rows);
}

#[test]
fn c033_concurrent_arrivals_never_overshoot_the_limit() {
    let mut rows = String::from("t=0 join e1\n");
    for n in 0..9 {
        rows += &format!("t=0 arrive r{n} => r{n}:admit\n");
    }
    for n in 9..73 {
        rows += &format!("t=0 arrive r{n}{}\n", if n == 9 { " => r9:admit" } else { "" });
    }
    rows += "t=0 is in-flight=10 queued=63 sat=1";
    check(counted(10), &rows);
}

#[test]
fn c035_what_was_booked_is_what_is_released() {
    let mut rows = String::from("t=0 pool 1 sat=1\n");
    for n in 0..100 {
        rows += &format!("t=0 arrive r{n} bytes=500\n");
    }
    rows += "t=0 is bytes=50000\n";
    let admitted = |from: usize, to: usize| (from..to).map(|n| format!("r{n}:admit")).collect::<Vec<_>>();
    rows += &format!("t=1 pool 1 sat=0 => {}\n", admitted(0, 64).join(", "));
    rows += &format!("t=1 pass => {}\n", admitted(64, 100).join(", "));
    rows += "t=1 is bytes=0 queued=0 in-flight=100 band.0=0";
    check(pushed(), &rows);
}

#[test]
fn c134_every_request_is_counted_once() {
    let state = Script::new(budgets(room_for(9), 10, 60)).check(
        "
        t=0 pool 1 sat=0
        t=0 arrive a1 => a1:admit
        t=0 arrive a2 face=untracked => a2:admit, a2:Untracked
        t=0 end a1 => a1:Completed
        t=1 pool 1 sat=1
        t=1 arrive b1
        t=1 arrive b2 deadline=-1s => b2:503 rejected-context-cancelled
        t=11 pass => b1:429 rejected-ttl-expired
        t=12 arrive c1
        t=12 arrive c2
        t=12 arrive c3
        t=12 arrive c4
        t=12 arrive c5
        t=12 arrive c6
        t=12 arrive c7
        t=12 arrive c8
        t=12 arrive c9
        t=12 arrive c10 => c10:429 rejected-saturated retry=6
        t=13 cancel c1 => c1:503 rejected-context-cancelled
        t=13 cancel c2 => c2:503 rejected-context-cancelled
        t=14 stop 0s => c3:503 rejected-shutting-down, c4:503 rejected-shutting-down, c5:503 rejected-shutting-down, c6:503 rejected-shutting-down, c7:503 rejected-shutting-down, c8:503 rejected-shutting-down, c9:503 rejected-shutting-down
        t=15 arrive d1 => d1:503 rejected-shutting-down
        t=15 refused 4
        t=15 is arrivals=15 refused-outside=4 count.EvictedOther=7 count.RejectedOther=2
        ",
    );
    let counters = state.counters();
    assert_eq!(counters.outcomes.iter().sum::<u64>(), 15);
    assert_eq!(counters.lease_ends, [1, 0, 0, 1]);
}

#[test]
fn counting_what_was_refused_outside_never_overflows() {
    check(
        pushed(),
        "
        t=0 refused 18446744073709551615
        t=0 refused 7
        t=0 is refused-outside=18446744073709551615
        ",
    );
}
