//! Reclamation: who is taken back for whom, how many, and when again (seed-system.md section 8; contract.md rows 12, 23,
//! 24 and 28). The gauge is pushed by hand unless a table is about sensors.

use crate::script::{Script, check};
use crate::settings::{bands, counted, pushed, scraped};
use std::collections::BTreeMap;
use weir_kernel::*;

/// Bands 10, 0, -1 and -5; three victims a decision, half a second of grace.
fn evicting(policy: Policy) -> Policy {
    let eviction = Eviction { enabled: true, max_revocations: 3, ..Eviction::default() };
    Policy { eviction, bands: bands([(10, |_| ()), (-1, |_| ()), (-5, |_| ())]), ..policy }
}

#[test]
fn c065_lowest_priority_first_then_the_newest_and_never_those_who_are_not_sheddable() {
    check(
        evicting(pushed()),
        "
        t=0   pool 1 sat=0
        t=1   arrive a prio=-1 face=proxy => a:admit
        t=2   arrive c prio=-5 face=proxy => c:admit
        t=8   arrive e prio=-5 face=proxy => e:admit
        t=9   arrive b prio=-1 face=proxy => b:admit
        t=9   arrive d prio=0  face=proxy => d:admit
        t=10  is evictable=4 in-flight=5
        t=10  pool 1 sat=5
        t=10  arrive hi prio=10 => for 10: 4 of 4, e:revoke, c:revoke, b:revoke
        t=10  is evictable=1 gate=shut pending=3 target=4
        t=11  end e => e:confirmed 1s, e:Revoked
        t=11  end c => c:confirmed 1s, c:Revoked
        t=11  end b => b:confirmed 1s, b:Revoked
        t=11.5 pass => for 10: 2 of 1, a:revoke
        t=11.5 is evictable=0
        ",
    );
}

#[test]
fn c066_no_victim_is_at_or_above_the_demand_band() {
    let rows = |demand: &str, third: &str, said: &str| {
        format!(
            "
            t=0 pool 1 sat=0
            t=0 arrive x prio=-5 face=proxy => x:admit
            t=0 arrive y prio=-1 face=proxy => y:admit
            t=0 arrive z prio={third} face=proxy => z:admit
            t=1 pool 1 sat=3
            t=1 arrive r prio={demand} => {said}
            "
        )
    };
    let policy = evicting(pushed());
    check(policy.clone(), &rows("-1", "-1", "for -1: 2 of 3, x:revoke"));
    check(policy.clone(), &rows("0", "0", "for 0: 2 of 2, x:revoke, y:revoke"));
    check(policy, &rows("-5", "-1", ""));
}

#[test]
fn c067_no_new_decision_before_the_last_ones_effect_can_be_seen() {
    check(
        evicting(pushed()),
        "
        t=0     pool 1 sat=0
        t=0     arrive a prio=-1 face=proxy => a:admit
        t=0     arrive b prio=-1 face=proxy => b:admit
        t=0     arrive c prio=-1 face=proxy => c:admit
        t=0     arrive d prio=-1 face=proxy => d:admit
        t=0     pool 1 sat=2
        t=0     arrive hi prio=10 => for 10: 2 of 4, d:revoke, c:revoke
        t=0     is pending=1
        t=0.1   end d => d:confirmed 100ms, d:Revoked
        t=0.3   end c => c:confirmed 300ms, c:Revoked
        t=0.6   pass
        t=0.6   is pending=0.5 gate=shut
        t=0.7   pool 1 sat=0.9 => d:reclaimed 600ms 700ms, c:reclaimed 400ms 700ms, hi:admit
        t=0.799 pass
        t=0.799 is gate=shut
        t=0.8   pass
        t=0.8   is gate=open pending=0
        t=2     is in-flight=3 outstanding=0
        ",
    );
}

#[test]
fn c069_repeated_unknown_and_immediate_confirmations() {
    let state = check(
        evicting(pushed()),
        "
        t=0 pool 1 sat=0
        t=0 arrive r1 prio=-1 face=proxy => r1:admit
        t=0 arrive r0 face=proxy => r0:admit
        t=0 pool 1 sat=1
        # The end comes at the very instant of the order.
        t=0 arrive hi prio=10 => for 10: 1 of 1, r1:revoke
        t=0 end r1 => r1:confirmed 0s, r1:Revoked
        t=0 end r1 => ignored
        t=0 end r1 => ignored
        t=0 cancel r1 => ignored
        t=0 is outstanding=0 pending=0.5
        t=0.5 pass
        t=0.5 is gate=open pending=0
        ",
    );
    assert_eq!(state.revocations().ends, [1, 0, 0]);
}

#[test]
fn c071_the_room_that_was_freed_goes_to_the_demand() {
    let state = check(
        evicting(counted(4)),
        "
        t=0     join e1
        t=0     arrive a prio=-5 face=proxy => a:admit
        t=0     arrive b prio=-5 face=proxy => b:admit
        t=0     arrive c prio=-5 face=proxy => c:admit
        t=0     arrive d prio=-5 face=proxy => d:admit
        t=0     arrive hi prio=10 face=proxy => for 10: 1 of 4, d:revoke
        t=0.001 end d => d:confirmed 1ms, d:Revoked, hi:admit
        t=0.002 arrive again prio=-5 face=proxy
        t=10    is band.-5=1 in-flight=4 outstanding=0
        ",
    );
    assert_eq!(state.revocations().issued, 1);
}

#[test]
fn c073_demand_that_cannot_run_takes_nothing_back() {
    let shut = UsageLimit::Fixed { ceilings: BTreeMap::from([(10, Ratio::ZERO)]), default: Ratio::ONE };
    let rows = |rows: &str| {
        format!(
            "
            t=0 pool 1 sat=0
            t=0 arrive v prio=-5 face=proxy => v:admit
            t=0 pool 1 sat=0.5
            {rows}
            "
        )
    };
    // A ceiling that nothing can be below.
    let policy = Policy { usage_limit: shut, ..evicting(pushed()) };
    check(policy, &rows("t=1 arrive r prio=10\nt=2 is outstanding=0 queued=1"));
    // Over, or gone, before the pool is full; nothing queued at all.
    check(
        evicting(pushed()),
        &rows(
            "
            t=1 pool 1 sat=1
            t=2 pass
            t=2 is outstanding=0
            ",
        ),
    );
    let half = UsageLimit::Static { threshold: Ratio(500_000) };
    let policy = Policy { usage_limit: half, eviction: Eviction::default(), ..evicting(pushed()) };
    Script::new(policy.clone())
        .other("evicting", Policy { eviction: evicting(pushed()).eviction, ..policy })
        .check(&rows(
            "
            t=1 arrive r prio=10 ttl=1s
            t=1 arrive s prio=10
            t=1.5 cancel s => s:503 rejected-context-cancelled
            t=2 pass => r:429 rejected-ttl-expired
            t=3 settings evicting
            t=3 is outstanding=0
            ",
        ));
}

#[test]
fn a_band_below_one_that_is_shut_for_good_is_demand() {
    let limit = UsageLimit::Fixed { ceilings: BTreeMap::from([(10, Ratio::ZERO)]), default: Ratio(900_000) };
    check(
        Policy { usage_limit: limit, ..evicting(pushed()) },
        "
        t=0 pool 1 sat=0
        t=0 arrive v prio=-5 face=proxy => v:admit
        t=0 arrive w prio=-5 face=proxy => w:admit
        t=1 pool 1 sat=1
        t=1 arrive r prio=10
        t=1 arrive s prio=0 => for 0: 1 of 2, w:revoke
        ",
    );
}

#[test]
fn a_victim_out_of_reach_is_tried_once_and_the_next_one_taken() {
    check(
        evicting(pushed()),
        "
        t=0 pool 1 sat=0
        t=0 arrive a prio=-1 face=proxy => a:admit
        t=0 arrive b prio=-1 face=proxy => b:admit
        t=0 arrive c prio=-5 face=proxy => c:admit
        t=0 pool 1 sat=1
        t=0 arrive hi prio=10 => for 10: 1 of 3, c:revoke
        t=1 undeliverable c => c:undeliverable 1s, b:revoke
        t=2 undeliverable b => b:undeliverable 1s, a:revoke
        t=3 undeliverable a => a:undeliverable 1s
        # Nobody is left; those who could not be told are left alone for as long as a confirmation may take.
        t=3 is gate=open outstanding=0 evictable=3
        t=11 pass => for 10: 1 of 3, c:revoke
        ",
    );
}

#[test]
fn a_held_lease_is_a_victim_only_while_its_holder_waits() {
    check(
        evicting(pushed()),
        "
        t=0 pool 1 sat=0
        t=0 arrive h prio=-1 => h:admit
        t=0 arrive t prio=-1 face=ticket => t:admit
        t=0 arrive u prio=-1 face=untracked => u:admit, u:Untracked
        t=0 pool 1 sat=1
        t=0 arrive hi prio=10
        t=1 watch h => for 10: 1 of 1, h:revoke
        t=2 end h => h:confirmed 1s, h:Revoked
        t=3 watch t => for 10: 1 of 1, t:revoke
        ",
    );
}

#[test]
fn a_pool_that_shows_nothing_takes_nothing_back() {
    // No figure of the pusher's own; no endpoints; a blind sensor.
    check(
        evicting(pushed()),
        "
        t=0 pool 1 sat=0
        t=0 arrive v prio=-1 face=proxy => v:admit
        t=1 pool 0 sat=1
        t=1 arrive hi prio=10
        t=2 is outstanding=0
        ",
    );
    check(
        evicting(scraped()),
        "
        t=0 join e1 + sample e1 w=0 r=0
        t=0 arrive v prio=-1 face=proxy => v:admit
        t=1 sample e1 w=0 r=1
        t=2 stale e1
        t=2 arrive hi prio=10
        t=3 is outstanding=0
        ",
    );
}

#[test]
fn where_some_are_stale_the_fresh_ones_alone_count() {
    let limit = UsageLimit::Static { threshold: Ratio(850_000) };
    check(
        Policy { usage_limit: limit, ..evicting(scraped()) },
        "
        t=0 join e1 + sample e1 w=0 r=0 + join e2 + sample e2 w=0 r=0
        t=0 arrive a prio=-1 face=proxy choose => a:admit e1
        t=0 arrive b prio=-1 face=proxy choose => b:admit e2
        t=0 arrive c prio=-1 face=proxy choose => c:admit e1
        t=0 arrive d prio=-1 face=proxy choose => d:admit e2
        # e1 is at 1.2 by itself; e2 counts 1 as stale, and its leases neither size nor are taken.
        t=1 sample e1 w=6 r=2
        t=2 stale e2
        t=2 arrive hi prio=10 => for 10: 1 of 4, c:revoke
        t=3 end c => c:confirmed 1s, c:Revoked
        # Below its ceiling, e1 has no need: that e2 is stale is no reason.
        t=3.2 sample e1 w=4 r=1 => c:reclaimed 200ms 1200ms
        t=5 is outstanding=0 sat=0.9 queued=1 gate=open
        ",
    );
}

#[test]
fn a_charge_that_no_sample_bears_out_takes_nothing_back() {
    let full = "
        t=0    join e1 + sample e1 w=0 r=0
        t=0    arrive a prio=-1 face=proxy choose => a:admit e1
        t=0    arrive b prio=-1 face=proxy choose => b:admit e1
        t=0    arrive c prio=-1 face=proxy choose => c:admit e1
        t=0    arrive d prio=-1 face=proxy choose => d:admit e1
        t=0    arrive e prio=-1 face=proxy choose => e:admit e1
        ";
    let rows = |rows: &str| check(evicting(scraped()), &format!("{full}{rows}"));
    // The gauge is at its ceiling by what was sent to an engine that showed no queue. They all run.
    rows(
        "
        t=10ms arrive hi prio=10
        t=10ms is sat=1 raw=0 outstanding=0 queued=1
        t=50ms sample e1 w=0 r=5 => hi:admit
        ",
    );
    // They do not.
    rows(
        "
        t=10ms arrive hi prio=10
        t=50ms sample e1 w=5 r=0 => for 10: 1 of 5, e:revoke
        ",
    );
    // Where some wait already, one more will.
    rows(
        "
        t=50ms sample e1 w=4 r=1
        t=60ms arrive f prio=-1 face=proxy choose => f:admit e1
        t=60ms is sat=1 raw=0.8
        t=60ms arrive hi prio=10 => for 10: 1 of 6, f:revoke
        ",
    );
    // An engine whose memory is full.
    rows(
        "
        t=50ms sample e1 w=0 r=5 kv=0.8
        t=60ms arrive hi prio=10 => for 10: 1 of 5, e:revoke
        ",
    );
    // The same where another endpoint is stale.
    check(
        evicting(scraped()),
        "
        t=0    join e1 + sample e1 w=0 r=0 + join e2 + sample e2 w=0 r=0
        t=1    stale e2
        t=1    arrive a prio=-1 face=proxy choose => a:admit e1
        t=1    arrive b prio=-1 face=proxy choose => b:admit e1
        t=1    arrive c prio=-1 face=proxy choose => c:admit e1
        t=1    arrive d prio=-1 face=proxy choose => d:admit e1
        t=1    arrive e prio=-1 face=proxy choose => e:admit e1
        t=1    arrive hi prio=10
        t=1    is sat=1 outstanding=0
        t=1.05 sample e1 w=5 r=0 => for 10: 1 of 5, e:revoke
        ",
    );
}

#[test]
fn after_a_restart_nothing_is_taken_back_before_the_view_is_back_and_a_grace_has_passed() {
    check(
        evicting(pushed()),
        "
        t=0 pool 1 sat=0
        t=0 arrive h prio=-1 => h:admit
        t=0 arrive p prio=-1 face=proxy => p:admit
        t=1 restart => p:Lost restart
        t=1 watch h
        t=1 arrive hi prio=10
        t=2 pool 1 sat=1
        t=3 is gate=shut
        t=3 sample e1 w=0 r=1
        t=3 is gate=shut
        t=3.5 pass => for 10: 1 of 1, h:revoke
        ",
    );
}

#[test]
fn in_observe_mode_the_log_says_who_would_have_been_taken_back() {
    check(
        Policy { observe: true, ..evicting(pushed()) },
        "
        t=0 pool 1 sat=0
        t=0 arrive v prio=-1 face=proxy => v:admit
        t=1 pool 1 sat=1
        t=1 arrive hi prio=10 => for 10: 1 of 1, v:revoke
        t=11 pass => v:timed_out 10s
        t=12 end v => v:late 1s, v:Revoked
        ",
    );
}

#[test]
fn without_the_setting_nothing_is_taken_back() {
    let state = check(
        Policy { eviction: Eviction::default(), ..evicting(pushed()) },
        "
        t=0 pool 1 sat=0
        t=0 arrive v prio=-1 face=proxy => v:admit
        t=1 pool 1 sat=1
        t=1 arrive hi prio=10
        t=9 is outstanding=0 queued=1
        ",
    );
    assert_eq!((state.reclamations(), state.revocations().issued), (0, 0));
}
