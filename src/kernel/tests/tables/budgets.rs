//! Queue-wait budgets and callers' deadlines (contract.md rows 1, 2, 3, 5, 19).

use crate::script::{Script, Show, check};
use crate::settings::{bands, budgets, pushed, scraped};
use weir_kernel::*;

#[test]
fn c001_an_unset_budget_is_sixty_seconds_and_an_explicit_zero_is_none() {
    check(
        pushed(),
        "
        t=0          pool 1 sat=1
        t=0          arrive r1 bytes=100
        t=59999999us pass
        t=60s        pass => r1:429 rejected-ttl-expired
        ",
    );
    check(
        pushed(),
        "
        t=0          pool 0
        t=0          arrive r1
        t=59999999us pass
        t=60s        pass => r1:503 rejected-no-endpoints
        ",
    );
    for pool in ["pool 1 sat=1", "pool 0"] {
        check(
            budgets(pushed(), 0, 0),
            &format!(
                "
            t=0     {pool}
            t=0     arrive r1
            t=3600s is queued=1 due.r1=never
            "
            ),
        );
    }
}

#[test]
fn c003_each_regime_has_its_budget_and_the_edge_is_inclusive() {
    let policy = || Policy {
        saturation_budget: Micros::from_millis(100),
        no_endpoint_budget: Micros::from_secs(2),
        ..pushed()
    };
    check(
        policy(),
        "
        t=0     pool 1 sat=1
        t=0     arrive r1
        t=99ms  is queued=1 due.r1=100ms
        t=100ms pass => r1:429 rejected-ttl-expired
        t=1s    pool 0
        t=1s    arrive r2
        t=2999ms is queued=1 due.r2=3s
        t=3s    pass => r2:503 rejected-no-endpoints
        t=3s    is count.EvictedTTL=1 count.EvictedNoEndpoints=1
        ",
    );
    check(
        Policy { no_endpoint_budget: Micros::ZERO, ..policy() },
        "
        t=0 pool 0
        t=0 arrive r1
        t=1h is queued=1
        ",
    );
    check(
        Policy { saturation_budget: Micros::ZERO, ..policy() },
        "
        t=0 pool 1 sat=1
        t=0 arrive r1
        t=1h is queued=1
        ",
    );
}

#[test]
fn c005_a_flapping_pool_ends_a_wait_at_the_sum_of_both_budgets() {
    Script::new(budgets(pushed(), 10, 30)).show(&[Show::Why]).check(
        "
        t=0  pool 0
        t=0  arrive r1
        t=7  pool 1 sat=1
        t=14 pool 0
        t=21 pool 1 sat=1
        t=28 pool 0
        t=35 pool 1 sat=1
        t=39999999us pass
        t=40 pass => r1:429 rejected-ttl-expired (Whole 40s) behind band 0 1>=1
        ",
    );
}

#[test]
fn the_meter_of_an_empty_pool_adds_up_over_visits() {
    Script::new(budgets(pushed(), 0, 30)).show(&[Show::Why]).check(
        "
        t=0  pool 0
        t=0  arrive r1
        t=20 pool 1 sat=1
        t=25 is due.r1=never
        t=25 pool 0
        t=25 is due.r1=35s
        t=35 pass => r1:503 rejected-no-endpoints (NoEndpoint 30s) behind regime NoEndpoints
        ",
    );
}

#[test]
fn leaving_an_empty_pool_starts_the_saturation_budget_afresh() {
    check(
        budgets(pushed(), 15, 300),
        "
        t=0   pool 0
        t=5   arrive r1
        t=90  pool 1 sat=1
        t=100 arrive r2
        t=105 pass => r1:429 rejected-ttl-expired
        t=115 pass => r2:429 rejected-ttl-expired
        ",
    );
}

#[test]
fn a_blind_spell_pauses_the_saturation_budget() {
    Script::new(budgets(scraped(), 10, 60)).show(&[Show::Regime]).check(
        "
        t=0        join e1 + sample e1 w=5 => regime:HasEndpoints
        t=0        arrive r1
        t=2        stale e1
        t=7        pass => regime:NoFreshMetrics
        t=20       sample e1 w=5
        t=20050ms  sample e1 w=5 => regime:HasEndpoints
        t=20050ms  is due.r1=23050ms
        t=23050ms  pass => r1:429 rejected-ttl-expired
        ",
    );
}

#[test]
fn c006_a_band_replaces_the_global_budget_and_a_header_only_shortens_it() {
    let mut policy = budgets(pushed(), 60, 60);
    policy.bands = bands([
        (10, |b| b.saturation_budget = Some(Micros::from_secs(5))),
        (-10, |b| b.saturation_budget = Some(Micros::ZERO)),
    ]);
    Script::new(policy).show(&[Show::Queued, Show::Why]).check(
        "
        t=0 pool 1 sat=1
        t=0 arrive a1 prio=10          => a1:queued (5s band)
        t=0 arrive a2 prio=10 ttl=2s   => a2:queued (2s header)
        t=0 arrive a3 prio=10 ttl=60s  => a3:queued (5s band)
        t=0 arrive b1                  => b1:queued (60s global)
        t=0 arrive b2 ttl=90s          => b2:queued (60s global)
        t=0 arrive c1 prio=-10         => c1:queued (0s band)
        t=0 arrive c2 prio=-10 ttl=2s  => c2:queued (2s header)
        t=2 pass => c2:429 rejected-ttl-expired (Saturation 2s) behind band 10 1>=1, a2:429 rejected-ttl-expired (Saturation 2s) behind band 10 1>=1
        ",
    );
}

#[test]
fn a_header_counts_in_an_empty_pool_only_through_the_sum() {
    check(
        budgets(pushed(), 60, 30),
        "
        t=0  pool 0
        t=0  arrive r1 ttl=2s
        t=30 pass => r1:503 rejected-no-endpoints
        ",
    );
}

#[test]
fn c008_the_sooner_of_both_deadlines_is_named_and_a_tie_is_ours() {
    Script::new(budgets(pushed(), 10, 60)).show(&[Show::Why]).check(
        "
        t=0  pool 1 sat=1
        t=0  arrive r1 deadline=3s
        t=0  arrive r2 deadline=10s
        t=0  arrive r3 deadline=30s
        t=0  arrive r4 deadline=-1s => r4:503 rejected-context-cancelled
        t=3  pass => r1:503 rejected-context-cancelled (client-deadline) behind band 0 1>=1
        t=3  is count.EvictedTTL=0 count.EvictedContextCancelled=1 count.RejectedOther=1
        t=10 pass => r2:429 rejected-ttl-expired (Saturation 10s) behind band 0 1>=1, r3:429 rejected-ttl-expired (Saturation 10s) behind band 0 1>=1
        ",
    );
}

#[test]
fn c010_expiry_needs_no_other_traffic_and_comes_before_dispatch() {
    check(
        budgets(pushed(), 15, 60),
        "
        t=0  pool 1 sat=1
        t=0  arrive r1
        t=60 pass => r1:429 rejected-ttl-expired@15s
        ",
    );
    let policy = Policy { saturation_budget: Micros::from_millis(100), ..pushed() };
    check(
        policy,
        "
        t=0     pool 1 sat=1
        t=0     arrive r1
        t=0     oversleep
        t=500ms pool 1 sat=0 => r1:429 rejected-ttl-expired
        ",
    );
}

#[test]
fn c011_huge_budgets_neither_wrap_nor_count() {
    check(
        pushed(),
        "
        t=0  pool 1 sat=1
        t=0  arrive r1 ttl=2562047h
        t=0  arrive r2 ttl=5000000000h
        t=60 pass => r1:429 rejected-ttl-expired, r2:429 rejected-ttl-expired
        ",
    );
    check(
        Policy { saturation_budget: Micros::MAX, no_endpoint_budget: Micros::MAX, ..pushed() },
        "
        t=0 pool 1 sat=1
        t=0 arrive r1
        t=9h is queued=1
        ",
    );
}

#[test]
fn c021_at_the_instant_of_its_end_a_request_is_not_dispatched() {
    check(
        budgets(pushed(), 10, 60),
        "
        t=0       pool 1 sat=1
        t=0       arrive r1
        t=0       arrive r2 deadline=5s
        t=0       arrive r3
        t=5       pool 1 sat=0 => r2:503 rejected-context-cancelled, r1:admit, r3:admit
        t=6       pool 1 sat=1
        t=6       arrive r4
        t=16      pool 1 sat=0 => r4:429 rejected-ttl-expired
        ",
    );
}

#[test]
fn other_settings_count_from_the_same_instants() {
    Script::new(budgets(pushed(), 60, 60)).other("short", budgets(pushed(), 10, 60)).check(
        "
        t=0  pool 1 sat=1
        t=0  arrive r1
        t=3  arrive r2 ttl=20s
        t=5  settings short
        t=5  is due.r1=10s due.r2=13s
        t=10 pass => r1:429 rejected-ttl-expired
        t=12 arrive r3
        t=30 settings short => r2:429 rejected-ttl-expired@13s, r3:429 rejected-ttl-expired@22s, ignored
        ",
    );
}

#[test]
fn a_budget_that_ran_out_is_not_saved_by_another_regime() {
    // More requests are due at one instant than a step ends, and the pool goes away in the next step.
    let mut rows = String::from("t=0 pool 1 sat=1\n");
    for n in 0..150 {
        rows += &format!("t=0 arrive r{n}\n");
    }
    let shed = |from: usize, to: usize| {
        (from..to).map(|n| format!("r{n}:429 rejected-ttl-expired")).collect::<Vec<_>>().join(", ")
    };
    rows += &format!("t=10 pass => {}\n", shed(0, 64));
    rows += &format!("t=10 pool 0 => {}\n", shed(64, 128));
    rows += &format!("t=10 pass => {}\n", shed(128, 150));
    rows += "t=10 is queued=0 regime=NoEndpoints";
    check(budgets(pushed(), 10, 300), &rows);
}

#[test]
fn many_callers_budgets_are_rounded_down_a_little_and_never_up() {
    let mut state = check(pushed(), "t=0 pool 1 sat=1");
    let now = state.now();
    for n in 0..3_000_u64 {
        let ttl = Micros(1_000_000 + n * 7_919);
        let arrival = Arrival { ttl: Some(ttl), received_at: now, ..Arrival::default() };
        let step = step(&mut state, now, Input::Arrived(arrival));
        let Some(Event::Enqueued(e)) = step.events.iter().find(|e| matches!(e, Event::Enqueued(_))) else {
            panic!("{step:?}");
        };
        assert!(e.saturation_budget <= ttl && e.saturation_budget.0 >= ttl.0 - ttl.0 / 8, "{n}: {e:?}");
    }
    // Longer than the band's own: the caller's word does not count, and is rounded onto nothing.
    let arrival = Arrival { ttl: Some(Micros::from_secs(90)), received_at: now, ..Arrival::default() };
    let step = step(&mut state, now, Input::Arrived(arrival));
    assert!(step.events.iter().any(
        |e| matches!(e, Event::Enqueued(e) if e.saturation_budget == Micros::from_secs(60) && e.header_class.is_none())
    ));
    state.check().unwrap();
}
