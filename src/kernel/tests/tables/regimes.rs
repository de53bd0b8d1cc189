//! Regimes, a blind sensor, and the gauge (contract.md row 4; seed-system.md 10.3).

use crate::script::{Script, Show, check};
use crate::settings::{bands, budgets, counted, pushed, scraped};
use weir_kernel::*;

#[test]
fn c148_before_the_first_view_nothing_is_claimed_of_the_pool() {
    let mut policy = pushed();
    policy.bands = bands([(0, |b| b.max_requests = 2)]);
    Script::new(policy).show(&[Show::Regime]).check(
        "
        t=10ms  arrive r1
        t=500ms arrive r2
        t=1.9s  arrive r3 => r3:503 rejected-not-ready
        t=1.9s  is due.r1=never count.RejectedNoEndpoints=1
        t=2s    pool 3 sat=0 => regime:HasEndpoints, r1:admit, r2:admit
        ",
    );
}

#[test]
fn no_budget_runs_before_the_first_view() {
    check(
        budgets(pushed(), 10, 10),
        "
        t=0   arrive r1
        t=100 pool 1 sat=1
        t=110 pass => r1:429 rejected-ttl-expired
        ",
    );
}

#[test]
fn c038_a_scrape_outage_is_told_from_overload() {
    let mut policy = scraped();
    policy.bands = bands([(0, |b| b.max_requests = 1)]);
    Script::new(policy).show(&[Show::Regime, Show::Held, Show::Why]).check(
        "
        t=0  join e1 + join e2 + sample e1 w=1 + sample e2 w=1 => regime:HasEndpoints
        t=1  stale e1 + stale e2
        t=1  is stale=2 sat=1
        t=2  arrive r1 => held:band 0 1>=1 stale 2/2
        t=3  arrive r2 => r2:503 rejected-no-fresh-metrics (band maxRequests 1/1 at 1)
        t=6  pass => regime:NoFreshMetrics, held:regime NoFreshMetrics
        t=66 pass => r1:503 rejected-no-fresh-metrics (NoEndpoint 60s) behind regime NoFreshMetrics
        ",
    );
}

#[test]
fn a_shed_while_every_endpoint_is_stale_is_not_a_shed_for_load() {
    check(
        budgets(scraped(), 3, 60),
        "
        t=0 join e1 + sample e1 w=5
        t=0 arrive r1
        t=1 stale e1
        t=3 pass => r1:503 rejected-no-fresh-metrics
        t=3 is regime=HasEndpoints count.EvictedNoEndpoints=1 count.EvictedTTL=0
        ",
    );
}

#[test]
fn the_shared_meter_runs_in_both_regimes_without_service() {
    Script::new(budgets(scraped(), 60, 10)).show(&[Show::Regime, Show::Why]).check(
        "
        t=0  see => regime:NoEndpoints
        t=0  arrive r1
        t=4  join e1 => regime:NoFreshMetrics
        t=10 pass => r1:503 rejected-no-fresh-metrics (NoEndpoint 10s) behind regime NoFreshMetrics
        ",
    );
}

#[test]
fn a_blind_spell_ends_with_the_second_fresh_round() {
    Script::new(scraped()).show(&[Show::Regime]).check(
        "
        t=0     join e1 => regime:NoFreshMetrics
        t=0     arrive r1
        t=50ms  sample e1 w=1
        t=100ms see
        t=150ms sample e1 w=1
        t=200ms sample e1 w=1 => regime:HasEndpoints, r1:admit
        ",
    );
}

#[test]
fn an_endpoint_that_joins_with_its_sample_serves_at_once() {
    Script::new(scraped()).show(&[Show::Regime]).check(
        "
        t=0 see => regime:NoEndpoints
        t=0 arrive r1
        t=9 join e1 + sample e1 w=0 => regime:HasEndpoints, r1:admit
        t=9 leave e1 => regime:NoEndpoints
        ",
    );
}

#[test]
fn c040_an_empty_pool_has_no_stale_endpoints() {
    Script::new(scraped()).show(&[Show::Regime]).check(
        "
        t=0 join e1 + join e2 + sample e1 w=1 + sample e2 w=1 => regime:HasEndpoints
        t=1 stale e1 + stale e2
        t=1 is stale=2
        t=2 leave e1 + leave e2 => regime:NoEndpoints
        t=2 is stale=0 sat=1
        ",
    );
}

#[test]
fn c041_endpoints_without_load_are_idle_and_no_endpoint_is_no_regime_of_load() {
    check(
        counted(10),
        "
        t=0 join e1 + join e2
        t=0 is sat=0 regime=HasEndpoints
        t=0 see
        ",
    );
    let mut rows = String::from("t=0 join e1 + join e2\n");
    for n in 0..10 {
        rows += &format!("t=0 arrive r{n} => r{n}:admit\n");
    }
    rows += "t=0 is sat=0.5\nt=1 leave e1 + leave e2\nt=1 is sat=1 regime=NoEndpoints";
    check(counted(10), &rows);
}

#[test]
fn c042_the_gauge_counts_our_own_leases() {
    Script::new(counted(2)).show(&[Show::Why]).check(
        "
        t=0 join e1
        t=0 arrive r1 => r1:admit (0 0 1)
        t=0 arrive r2 => r2:admit (0.5 0.5 1)
        t=0 arrive r3
        t=0 is sat=1
        t=1 end r1 => r1:Completed, r3:admit (0.5 0.5 1)
        t=1 is sat=1
        ",
    );
}

#[test]
fn c043_values_above_one_are_real() {
    let detector = Detector::Utilization {
        queue_depth: 10,
        kv: Ratio(800_000),
        staleness: Micros::from_millis(200),
        headroom: Ratio::ZERO,
    };
    Script::new(Policy { detector, ..scraped() }).show(&[Show::Held]).check(
        "
        t=0 join e1 + sample e1 w=17 kv=0.4
        t=0 is sat=1.7 raw=1.7
        t=0 arrive r1 => held:band 0 1.7>=1
        ",
    );
}

#[test]
fn c044_the_fuller_stage_decides() {
    check(
        scraped(),
        "
        t=0 join e1 role=prefill + join e2 role=decode + sample e1 w=6 + sample e2 kv=0.24
        t=0 is sat=1.2
        t=1 join e3 role=both + sample e3 kv=0.72
        t=1 is sat=1.05
        t=2 leave e1 + join e1 + sample e1 w=0
        t=3 leave e2 + leave e3
        t=3 join e2 + join e3
        t=3 sample e1 w=6
        t=3 sample e2 kv=0.24
        t=3 sample e3 kv=0.72
        t=3 is sat=0.8
        ",
    );
}

#[test]
fn c140_a_clock_that_steps_back_counts_as_standing_still() {
    check(
        budgets(counted(1), 10, 60),
        "
        t=0  join e1
        t=0  arrive r0 => r0:admit
        t=0  arrive r1
        t=0  arrive r2
        t=4  see
        t=0  see
        t=1s arrive r3
        t=6  end r0 => r0:Completed, r1:admit
        t=10 pass => r2:429 rejected-ttl-expired
        t=14 pass => r3:429 rejected-ttl-expired
        ",
    );
}

#[test]
fn flow_control_off_admits_all_but_sheddable_requests_of_a_full_pool() {
    check(
        Policy { flow_control: false, ..pushed() },
        "
        t=0 pool 1 sat=1.2
        t=0 arrive r1         => r1:admit
        t=0 arrive r2 prio=-1 => r2:429 rejected-saturated
        t=1 pool 1 sat=0.9
        t=1 arrive r3 prio=-1 => r3:admit
        ",
    );
}
