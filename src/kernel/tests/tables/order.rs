//! Priority, ceilings, fairness and order (contract.md rows 6, 7, 8, 9, 21; seed-system.md 9 and 10).

use crate::script::{Script, Show, check};
use crate::settings::{bands, budgets, counted, pushed, scraped};
use std::collections::BTreeMap;
use weir_kernel::*;

fn fixed<const N: usize>(ceilings: [(i32, i64); N]) -> UsageLimit {
    let ceilings = ceilings.into_iter().map(|(priority, ceiling)| (priority, Ratio(ceiling))).collect();
    UsageLimit::Fixed { ceilings, default: Ratio::ONE }
}

fn three_bands(usage_limit: UsageLimit) -> Policy {
    Policy { bands: bands([(10, |_| ()), (-10, |_| ())]), usage_limit, ..pushed() }
}

fn one_band(ordering: Ordering, fairness: Fairness) -> Policy {
    let settings = BandSettings { ordering, fairness, ..BandSettings::default() };
    Policy { bands: BTreeMap::from([(0, settings)]), ..pushed() }
}

#[test]
fn c050_a_blocked_higher_band_with_work_holds_back_all_below() {
    Script::new(three_bands(fixed([(10, 500_000)]))).show(&[Show::Held]).check(
        "
        t=0 pool 1 sat=0.7
        t=0 arrive a prio=-10 => a:admit
        t=0 arrive b prio=10  => held:band 10 0.7>=0.5
        t=0 arrive c
        t=0 arrive d prio=-10
        t=1 pool 1 sat=0.4    => b:admit, c:admit, d:admit
        ",
    );
}

#[test]
fn c052_holdback_with_one_band_and_with_three() {
    let holdback = |domain| UsageLimit::Holdback { min: Ratio(500_000), max: Ratio::ONE, domain };
    let rows = |row: &str| format!("t=0 pool 1 sat=0.9\n{row}");
    let lone = Policy { usage_limit: holdback(HoldbackDomain::Rank), ..pushed() };
    check(lone, &rows("t=0 is ceiling.0=1"));
    let ranked = three_bands(holdback(HoldbackDomain::Rank));
    check(ranked, &rows("t=0 is ceiling.10=1 ceiling.0=0.75 ceiling.-10=0.5"));
    let valued = Policy {
        bands: bands([(100, |_| ()), (1, |_| ())]),
        usage_limit: holdback(HoldbackDomain::Value),
        ..pushed()
    };
    check(valued, &rows("t=0 is ceiling.100=1 ceiling.1=0.505 ceiling.0=0.5"));
}

#[test]
fn a_provisioned_band_moves_nobodys_ceiling() {
    let limit =
        UsageLimit::Holdback { min: Ratio(400_000), max: Ratio(900_000), domain: HoldbackDomain::Rank };
    check(
        three_bands(limit),
        "
        t=0 pool 1 sat=1
        t=0 is ceiling.10=0.9 ceiling.0=0.65 ceiling.-10=0.4
        t=0 arrive a prio=5
        t=0 arrive b prio=-99
        t=0 is ceiling.10=0.9 ceiling.5=0.65 ceiling.0=0.65 ceiling.-10=0.4 ceiling.-99=0.4
        ",
    );
}

#[test]
fn c054_a_ceiling_of_zero_never_opens() {
    check(
        budgets(three_bands(fixed([(-10, 0)])), 5, 60),
        "
        t=0 pool 1 sat=0
        t=0 arrive a prio=-10
        t=5 pass => a:429 rejected-ttl-expired
        ",
    );
}

#[test]
fn c056_no_deadline_sorts_last_and_ties_keep_arrival_order() {
    let policy = budgets(one_band(Ordering::Edf, Fairness::GlobalStrict), 0, 0);
    check(
        policy,
        "
        t=0 pool 1 sat=1
        t=0 arrive r1
        t=0 arrive r2 ttl=10s
        t=0 arrive r3 ttl=5s
        t=0 arrive r4
        t=0 arrive r5 ttl=5s
        t=1 pool 1 sat=0 => r3:admit, r5:admit, r2:admit, r1:admit, r4:admit
        ",
    );
}

#[test]
fn the_slo_order_goes_by_receive_time_and_target() {
    check(
        one_band(Ordering::SloDeadline, Fairness::GlobalStrict),
        "
        t=0     pool 1 sat=1
        t=0     arrive r1
        t=0     arrive r2 slo=300ms
        t=100ms arrive r3 slo=100ms
        t=200ms pool 1 sat=0 => r3:admit, r2:admit, r1:admit
        ",
    );
}

#[test]
fn round_robin_serves_flows_in_turn_by_name() {
    check(
        one_band(Ordering::Fcfs, Fairness::RoundRobin),
        "
        t=0 pool 1 sat=1
        t=0 arrive b1 flow=b
        t=0 arrive b2 flow=b
        t=0 arrive b3 flow=b
        t=0 arrive a1 flow=a
        t=0 arrive c1 flow=c
        t=0 arrive c2 flow=c
        t=1 pool 1 sat=0 => a1:admit, b1:admit, c1:admit, b2:admit, c2:admit, b3:admit
        ",
    );
}

#[test]
fn c058_a_quiet_flow_builds_up_no_credit() {
    let mut policy = counted(1);
    policy.bands = one_band(Ordering::Fcfs, Fairness::RoundRobin).bands;
    let mut rows = String::from("t=0 join e1\nt=0 arrive x flow=b => x:admit\n");
    for n in 0..20 {
        rows += &format!("t=0 arrive b{n} flow=b\n");
    }
    // The first minute: `a` asks once and is served in the next turn.
    rows += "t=1 end x => x:Completed, b0:admit\nt=1 arrive a0 flow=a\n";
    rows += "t=2 end b0 => b0:Completed, a0:admit\nt=3 end a0 => a0:Completed, b1:admit\n";
    // Its burst shares evenly from then on.
    for n in 1..6 {
        rows += &format!("t=3 arrive a{n} flow=a\n");
    }
    for n in 1..6 {
        rows += &format!("t={} end b{n} => b{n}:Completed, a{n}:admit\n", 2 + 2 * n);
        rows += &format!("t={} end a{n} => a{n}:Completed, b{}:admit\n", 3 + 2 * n, n + 1);
    }
    check(policy, &rows);
}

#[test]
fn the_least_served_program_goes_first() {
    let mut policy = counted(1);
    policy.bands = one_band(Ordering::Fcfs, Fairness::ProgramAware(ProgramAware::default())).bands;
    check(
        policy,
        "
        t=0 join e1
        t=0 arrive a1 flow=a => a1:admit
        t=0 arrive a2 flow=a
        t=1 arrive b1 flow=b
        t=2 end a1 usage=100+50 => a1:Completed, b1:admit
        t=3 end b1 usage=10+5 => b1:Completed, a2:admit
        ",
    );
}

#[test]
fn programs_that_were_served_alike_go_by_arrival() {
    let policy = one_band(Ordering::Fcfs, Fairness::ProgramAware(ProgramAware::default()));
    check(
        policy,
        "
        t=0 pool 1 sat=1
        t=0 arrive c1 flow=c
        t=0 arrive a1 flow=a
        t=0 arrive b1 flow=b
        t=0 arrive a2 flow=a
        t=1 pool 1 sat=0 => c1:admit, a1:admit, b1:admit, a2:admit
        ",
    );
}

#[test]
fn c060_negative_priorities_keep_their_sign_and_their_place() {
    check(
        pushed(),
        "
        t=0 pool 1 sat=1
        t=0 arrive a prio=-2147483648
        t=0 arrive b prio=-1
        t=0 arrive c
        t=0 arrive d prio=10
        t=0 is band.-2147483648=1 band.-1=1 band.0=1 band.10=1
        t=1 pool 1 sat=0 => d:admit, c:admit, b:admit, a:admit
        ",
    );
}

#[test]
fn c062_starvation_by_a_higher_band_is_in_the_record() {
    Script::new(budgets(three_bands(fixed([])), 5, 60)).show(&[Show::Why]).check(
        "
        t=0 pool 1 sat=1
        t=0 arrive a
        t=1 arrive b prio=10
        t=5 pass => a:429 rejected-ttl-expired (Saturation 5s) behind band 10 1>=1
        t=6 pass => b:429 rejected-ttl-expired (Saturation 5s) behind band 10 1>=1
        ",
    );
}

#[test]
fn an_empty_blocked_band_holds_back_nobody() {
    check(
        three_bands(fixed([(10, 100_000), (0, 900_000)])),
        "
        t=0 pool 1 sat=0.7
        t=0 arrive a => a:admit
        ",
    );
}

#[test]
fn dispatch_goes_on_until_blocked() {
    let mut rows = String::from("t=0 join e1\n");
    for n in 0..8 {
        rows +=
            &format!("t=0 arrive r{n}{}\n", if n < 5 { format!(" => r{n}:admit") } else { String::new() });
    }
    for n in 0..3 {
        rows += &format!("t=1 end r{n} => r{n}:Completed, r{}:admit\n", n + 5);
    }
    check(counted(5), &rows);
}

#[test]
fn without_credit_one_request_a_millisecond_leaves() {
    check(
        Policy { in_flight_credit: false, ..scraped() },
        "
        t=0    join e1 + sample e1 w=5
        t=0    arrive r1
        t=0    arrive r2
        t=0    arrive r3
        t=50ms sample e1 w=0 => r1:admit
        t=60ms pass => r2:admit@51ms, r3:admit@52ms
        ",
    );
}

#[test]
fn a_gated_band_opens_on_every_second_tick_at_six_tenths() {
    let policy = Policy { bands: bands([(10, |_| ())]), usage_limit: UsageLimit::SoftReflective, ..pushed() };
    check(
        policy,
        "
        t=0   pool 1 sat=0.6
        t=0   arrive a
        t=9ms pass => a:admit@1ms
        t=1s  arrive b
        t=2s  pass => b:admit@1001ms
        t=3s  arrive c prio=10 => c:admit
        t=4s  pool 1 sat=0.55
        t=4s  arrive d => d:admit
        t=5s  pool 1 sat=1
        t=5s  arrive e
        t=6s  is queued=1
        ",
    );
}
