//! Demand-aware sizing: how many are taken back for all that wait, with figures worked out by hand.

use crate::script::check;
use crate::settings::{bands, counted, pushed, scraped};
use weir_kernel::*;

/// Bands 10, 0 and -1; half a second of grace.
fn evicting(policy: Policy) -> Policy {
    let eviction = Eviction { enabled: true, sizing: Sizing::Demand, ..Eviction::default() };
    Policy { eviction, bands: bands([(10, |_| ()), (-1, |_| ())]), ..policy }
}

/// Sheddable leases, so many, that fill a pool of four places.
const FULL: &str = "
    t=0 join e1
    t=0 arrive a prio=-1 face=proxy => a:admit
    t=0 arrive b prio=-1 face=proxy => b:admit
    t=0 arrive c prio=-1 face=proxy => c:admit
    t=0 arrive d prio=-1 face=proxy => d:admit
";

fn full(rows: &str) -> String {
    format!("{FULL}{rows}")
}

#[test]
fn room_is_made_for_all_that_wait() {
    // Four of four; the first of the demand needs one, each more one more.
    check(
        evicting(counted(4)),
        &full(
            "
            t=1     arrive x prio=10 => of 1, for 10: 1 of 4, d:revoke
            t=1     arrive y prio=10
            t=1     arrive z prio=10
            t=1.002 end d => d:confirmed 2ms, d:Revoked, x:admit
            # Three places left, two of them taken back: y and z wait.
            t=1.502 pass => of 2, for 10: 2 of 3, c:revoke, b:revoke
            t=1.503 end c => c:confirmed 1ms, c:Revoked, y:admit
            t=1.503 end b => b:confirmed 1ms, b:Revoked, z:admit
            t=3     is in-flight=4 queued=0
            ",
        ),
    );
}

#[test]
fn its_own_cap_holds() {
    let mut policy = evicting(counted(4));
    policy.eviction.max_revocations_on_demand = 2;
    policy.eviction.max_revocations = 1;
    check(
        policy,
        &full(
            "
            t=1   arrive x prio=10 => of 1, for 10: 1 of 4, d:revoke
            t=1   arrive y prio=10
            t=1   arrive z prio=10
            t=1   arrive w prio=10
            t=1   end d => d:confirmed 0s, d:Revoked, x:admit
            t=1.5 pass => of 3, for 10: 3 of 3, c:revoke, b:revoke
            ",
        ),
    );
}

#[test]
fn who_cannot_wait_so_long_is_no_demand() {
    check(
        evicting(counted(4)),
        &full(
            "
            # Half a second of grace: 400 ms do not outlast it.
            t=1   arrive x prio=10 ttl=400ms
            t=1   arrive y prio=10 deadline=400ms
            t=1   is outstanding=0
            t=1.1 arrive z prio=10 => of 1, for 10: 1 of 4, d:revoke
            ",
        ),
    );
}

#[test]
fn leases_that_end_by_themselves_are_not_taken_back() {
    check(
        evicting(counted(4)),
        &full(
            "
            t=1     arrive x prio=10 => of 1, for 10: 1 of 4, d:revoke
            t=1     arrive y prio=10
            t=1     end d => d:confirmed 0s, d:Revoked, x:admit
            t=1.1   end c => c:Completed, y:admit
            t=1.2   arrive e prio=10
            t=1.3   arrive f prio=10
            # One ended in half a second: one is expected in the next.
            t=1.5   pass => of 2 natural 1, for 10: 1 of 2, b:revoke
            ",
        ),
    );
}

#[test]
fn while_the_engine_queues_a_victim_frees_a_slot_of_its_queue() {
    // Five waiting of five allowed beside four that run: by the mean footprint of nine leases a decision for one takes one
    // ninth of the gauge to be what a victim gives; a slot of the queue is a fifth.
    let rows = |sizing| {
        let mut policy = evicting(scraped());
        policy.eviction.sizing = sizing;
        policy.eviction.max_revocations = 16;
        policy.usage_limit = UsageLimit::Static { threshold: Ratio(800_000) };
        policy.detector = Detector::Utilization {
            queue_depth: 5,
            kv: Ratio::ONE,
            staleness: Micros::from_secs(10),
            headroom: Ratio::ZERO,
        };
        policy
    };
    let script = |decided: &str| {
        let arrivals: String = (0..9)
            .map(|n| format!("t=0.1 arrive v{n} prio=-1 face=proxy choose => v{n}:admit e1\n"))
            .collect();
        format!(
            "
            t=0 join e1 + sample e1 w=0 r=9
            t=0.01 sample e1 w=0 r=0
            {arrivals}
            t=1 sample e1 w=5 r=4
            t=1 arrive x prio=10 => {decided}
            "
        )
    };
    check(rows(Sizing::Deficit), &script("for 10: 2 of 9, v8:revoke, v7:revoke"));
    check(rows(Sizing::Demand), &script("of 1, for 10: 2 of 9, v8:revoke, v7:revoke"));
}

#[test]
fn what_the_samples_still_show_is_pending_although_its_grace_is_over() {
    let mut policy = evicting(scraped());
    policy.in_flight_credit = false;
    policy.eviction.confirmation_grace = Micros::from_millis(5);
    policy.detector = Detector::Utilization {
        queue_depth: 4,
        kv: Ratio::ONE,
        staleness: Micros::from_secs(10),
        headroom: Ratio::ZERO,
    };
    check(
        policy,
        "
        t=0     join e1 + sample e1 w=0 r=0
        t=0     arrive a prio=-1 face=proxy => a:admit
        t=0.002 arrive b prio=-1 face=proxy => b:admit
        t=0.004 arrive c prio=-1 face=proxy => c:admit
        t=0.006 arrive d prio=-1 face=proxy => d:admit
        t=0.1   sample e1 w=4 r=0
        t=0.1   arrive x prio=10 face=proxy => of 1, for 10: 1 of 4, d:revoke
        t=0.103 end d => d:confirmed 3ms, d:Revoked
        # The grace is over and the sensor does not show d gone: x needs no second one, y does.
        t=0.109 arrive y prio=10 face=proxy => of 2 hidden 1, for 10: 1 of 3, c:revoke
        t=0.112 end c => c:confirmed 3ms, c:Revoked
        t=1     is outstanding=0 queued=2 gate=open
        t=1     sample e1 w=3 r=0 => x:admit
        ",
    );
}

#[test]
fn a_pushed_figure_says_nothing_of_one_dispatch_so_it_counts_as_a_mean_lease() {
    check(
        evicting(pushed()),
        "
        t=0   pool 1 sat=0
        t=0   arrive a prio=-1 face=proxy => a:admit
        t=0   arrive b prio=-1 face=proxy => b:admit
        t=0   arrive c prio=-1 face=proxy => c:admit
        t=0   arrive d prio=-1 face=proxy => d:admit
        t=0   pool 1 sat=1
        t=0   arrive x prio=10 => of 1, for 10: 1 of 4, d:revoke
        t=0   arrive y prio=10
        t=0   end d => d:confirmed 0s, d:Revoked
        # Three leases make 1 now: two more ends for two.
        t=0.5 pass => of 2, for 10: 2 of 3, c:revoke, b:revoke
        ",
    );
}
