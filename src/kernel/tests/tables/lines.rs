//! Standing queues: orders that turn, hopeless arrivals, starvation bounds.

use crate::script::{Script, Show, check};
use crate::settings::{bands, budgets, counted, pushed};
use std::collections::BTreeMap;
use weir_kernel::*;

const S: fn(u64) -> Micros = Micros::from_secs;

/// One band whose order turns when its oldest has waited past 1 s for 2 s.
fn turning(policy: Policy, fairness: Fairness) -> Policy {
    let ordering = Ordering::NewestFirstWhenStanding { target: S(1), window: S(2) };
    let settings = BandSettings { ordering, fairness, ..BandSettings::default() };
    Policy { bands: BTreeMap::from([(0, settings)]), ..budgets(policy, 15, 60) }
}

fn bounded(policy: Policy, priority: i32, starvation: Micros) -> Policy {
    let mut policy = policy;
    policy.bounds.bands.insert(priority, BandBounds { starvation, ..BandBounds::default() });
    policy
}

fn hopeless(mut policy: Policy) -> Policy {
    policy.bounds.bands.insert(0, BandBounds { reject_hopeless: true, ..BandBounds::default() });
    policy
}

#[test]
fn a_short_wait_turns_nothing() {
    for (at, want) in [
        // Past the target since t=1: 1.999 s of the window.
        ("t=2.999", "a:admit, b:admit, c:admit"),
        ("t=3", "newest first (a 3s 2s), c:admit, b:admit, a:admit"),
    ] {
        check(
            turning(pushed(), Fairness::GlobalStrict),
            &format!(
                "
                t=0 pool 1 sat=1
                t=0 arrive a
                t=1 arrive b
                t=2 arrive c
                {at} pool 1 sat=0 => {want}
                "
            ),
        );
    }
}

#[test]
fn it_turns_back_when_the_oldest_is_within_the_target() {
    check(
        turning(counted(1), Fairness::GlobalStrict),
        "
        t=0   join e1
        t=0   arrive x => x:admit
        t=0   arrive a
        t=1   arrive b
        t=2.5 arrive c
        t=3   end x => x:Completed, newest first (a 3s 2s), c:admit
        t=3.5 end c => c:Completed, b:admit
        t=3.6 arrive d
        t=3.7 arrive e
        t=4   cancel a => a:503 rejected-context-cancelled
        t=4   end b => b:Completed, oldest first (d 400ms 0s), d:admit
        t=5   end d => d:Completed, e:admit
        ",
    );
}

#[test]
fn a_queue_stands_although_nobody_stays_long() {
    // One a second comes and one a second goes: everybody waits 2 s, and the queue never gets shorter.
    let mut rows = String::from("t=0 join e1\nt=0 arrive r0 => r0:admit\nt=0 arrive r1\nt=0 arrive r2\n");
    rows += "t=1 end r0 => r0:Completed, r1:admit\nt=1 arrive r3\n";
    // r2 waits from t=0 on: past the target from t=1 on; so is whoever comes after it in its place.
    rows += "t=2 end r1 => r1:Completed, r2:admit\nt=2 arrive r4\n";
    rows += "t=3 end r2 => r2:Completed, newest first (r3 2s 2s), r4:admit\n";
    let ordering = Ordering::NewestFirstWhenStanding { target: S(1), window: S(2) };
    let settings = BandSettings { ordering, ..BandSettings::default() };
    let policy = Policy { bands: BTreeMap::from([(0, settings)]), ..counted(1) };
    check(policy, &rows);
}

#[test]
fn flows_keep_their_turns_while_the_order_is_turned() {
    check(
        turning(pushed(), Fairness::RoundRobin),
        "
        t=0 pool 1 sat=1
        t=0 arrive a1 flow=a
        t=0 arrive a2 flow=a
        t=0 arrive a3 flow=a
        t=1 arrive b1 flow=b
        t=1 arrive b2 flow=b
        t=4 pool 1 sat=0 => newest first (a1 4s 3s), a3:admit, b2:admit, a2:admit, b1:admit, a1:admit
        ",
    );
}

#[test]
fn a_waiting_room_is_no_standing_queue() {
    check(
        turning(pushed(), Fairness::GlobalStrict),
        "
        t=0  pool 0
        t=0  arrive a
        t=1  arrive b
        t=30 pool 1 sat=0.5 => a:admit, b:admit
        ",
    );
}

#[test]
fn other_settings_begin_the_spell_afresh() {
    let other = Policy { saturation_budget: S(20), ..turning(pushed(), Fairness::GlobalStrict) };
    let mut fcfs = turning(pushed(), Fairness::GlobalStrict);
    fcfs.bands.insert(0, BandSettings::default());
    let script = || {
        Script::new(turning(pushed(), Fairness::GlobalStrict))
            .other("same-order", other.clone())
            .other("fcfs", fcfs.clone())
            .other("turning", turning(pushed(), Fairness::GlobalStrict))
    };
    let queue = "t=0 pool 1 sat=1\nt=0 arrive a\nt=1 arrive b\n";
    let want = "newest first (a 4s 3s), b:admit, a:admit";
    script().check(&format!("{queue}t=2 settings same-order\nt=4 pool 1 sat=0 => {want}"));
    script().check(&format!(
        "{queue}t=3 settings fcfs\nt=3 settings turning\nt=4 pool 1 sat=0 => a:admit, b:admit"
    ));
}

#[test]
fn a_turned_order_survives_a_restart() {
    check(
        turning(counted(1), Fairness::GlobalStrict),
        "
        t=0  join e1
        t=0  arrive x face=ticket => x:admit
        t=0  arrive a face=ticket
        t=1  arrive b face=ticket
        t=2  arrive c face=ticket
        t=3  end x => x:Completed, newest first (a 3s 2s), c:admit
        t=4  restart
        t=14 join e1
        t=15 end c => c:Completed, b:admit
        ",
    );
}

#[test]
fn a_bound_request_is_served_next_whatever_its_priority() {
    let policy = Policy { bands: bands([(10, |_| ()), (-10, |_| ())]), ..counted(1) };
    check(
        bounded(policy, -10, S(5)),
        "
        t=0 join e1
        t=0 arrive x prio=10 => x:admit
        t=0 arrive b1 prio=-10
        t=0 arrive b2 prio=-10
        t=1 arrive h1 prio=10
        t=1 arrive h2 prio=10
        t=4 end x => x:Completed, h1:admit
        t=5 end h1 => h1:Completed, b1:bound 5s, b1:admit
        t=6 end b1 => b1:Completed, b2:bound 6s, b2:admit
        t=7 arrive b3 prio=-10
        t=8 end b2 => b2:Completed, h2:admit
        ",
    );
}

#[test]
fn of_several_bounds_the_one_reached_first_goes_first() {
    let policy = Policy { bands: bands([(10, |_| ()), (-10, |_| ())]), ..counted(1) };
    check(
        bounded(bounded(policy, -10, S(5)), 0, S(2)),
        "
        t=0 join e1
        t=0 arrive x prio=10 => x:admit
        t=0 arrive b prio=-10
        t=2 arrive n prio=0
        t=4 arrive h prio=10
        t=6 end x => x:Completed, n:bound 4s, n:admit
        t=7 end n => n:Completed, b:bound 7s, b:admit
        t=8 end b => b:Completed, h:admit
        ",
    );
}

#[test]
fn a_bound_does_not_pass_the_ceiling_of_its_own_band() {
    let limit = UsageLimit::Fixed { ceilings: [(-10, Ratio(500_000))].into(), default: Ratio::ONE };
    let policy = Policy { bands: bands([(10, |_| ()), (-10, |_| ())]), usage_limit: limit, ..pushed() };
    check(
        bounded(policy, -10, S(5)),
        "
        t=0 pool 1 sat=0.7
        t=0 arrive b prio=-10
        t=6 arrive h1 prio=10 => h1:admit
        t=7 pool 1 sat=1
        t=7 arrive h2 prio=10
        t=8 pool 1 sat=0.4 => b:bound 8s, b:admit, h2:admit
        ",
    );
}

#[test]
fn a_bound_passes_a_blocked_higher_band_at_its_instant() {
    let limit = UsageLimit::Fixed { ceilings: [(10, Ratio(500_000))].into(), default: Ratio::ONE };
    let policy = Policy { bands: bands([(10, |_| ()), (-10, |_| ())]), usage_limit: limit, ..pushed() };
    let script = Script::new(bounded(policy, -10, S(5))).show(&[Show::Held]);
    script.check(
        "
        t=0 pool 1 sat=0.7
        t=0 arrive h prio=10 => held:band 10 0.7>=0.5
        t=1 arrive b1 prio=-10
        t=2 arrive b2 prio=-10
        t=6 pass => b1:bound 5s, b1:admit
        t=9 arrive c prio=-10 => b2:bound 5s@7s, b2:admit@7s
        ",
    );
}

#[test]
fn nobody_grows_old_where_nothing_can_serve() {
    let policy = Policy { bands: bands([(10, |_| ()), (-10, |_| ())]), ..counted(1) };
    check(
        bounded(policy, -10, S(5)),
        "
        t=0  pool 0
        t=0  arrive b prio=-10
        t=20 arrive h1 prio=10
        t=20 arrive h2 prio=10
        t=30 join e1 => h1:admit
        t=34 end h1 => h1:Completed, h2:admit
        t=35 end h2 => h2:Completed, b:bound 5s, b:admit
        ",
    );
}

/// 30 queued at t=0, one a second served from t=1 on.
fn one_a_second(seconds: u64) -> String {
    let mut rows = String::from("t=0 join e1\nt=0 arrive q0 => q0:admit\n");
    for n in 1..=30 {
        rows += &format!("t=0 arrive q{n}\n");
    }
    for n in 1..=seconds {
        rows += &format!("t={n} end q{} => q{}:Completed, q{n}:admit\n", n - 1, n - 1);
    }
    rows
}

#[test]
fn a_hopeless_arrival_is_refused_with_its_prediction() {
    // 11 were dispatched in 10.5 s, 20 are ahead.
    let refused = "r:hopeless 19090909us>15s 20*10500ms/11, r:429 rejected-saturated";
    for (policy, row) in [
        (hopeless(budgets(counted(1), 15, 60)), format!("t=10.5 arrive r => {refused}")),
        (budgets(counted(1), 15, 60), "t=10.5 arrive r".to_owned()),
        (hopeless(budgets(counted(1), 20, 60)), "t=10.5 arrive r".to_owned()),
        (hopeless(budgets(counted(1), 0, 0)), "t=10.5 arrive r".to_owned()),
        // The caller's own deadline and its header count as well.
        (
            hopeless(budgets(counted(1), 0, 60)),
            "t=10.5 arrive r deadline=19s => r:hopeless 19090909us>19s 20*10500ms/11, r:429 rejected-saturated"
                .to_owned(),
        ),
        (
            hopeless(budgets(counted(1), 60, 60)),
            "t=10.5 arrive r ttl=5s => r:hopeless 19090909us>5s 20*10500ms/11, r:429 rejected-saturated"
                .to_owned(),
        ),
        (hopeless(budgets(counted(1), 60, 60)), "t=10.5 arrive r prio=7".to_owned()),
    ] {
        check(policy, &(one_a_second(10) + &row));
    }
}

#[test]
fn refusals_of_the_hopeless_are_spread() {
    let mut rows = one_a_second(10);
    for (n, retry) in [(1, ""), (2, " retry=2"), (3, " retry=3")] {
        rows += &format!(
            "t=10.5 arrive r{n} => r{n}:hopeless 19090909us>15s 20*10500ms/11, r{n}:429 rejected-saturated{retry}\n"
        );
    }
    rows += "t=10.5 is queued=20 count.RejectedCapacity=3";
    check(hopeless(budgets(counted(1), 15, 60)), &rows);
}

#[test]
fn without_a_rate_nobody_is_hopeless() {
    let policy = || hopeless(budgets(counted(1), 15, 60));
    // Not for the first five seconds.
    check(policy(), &(one_a_second(4) + "t=4.9 arrive r"));
    let refused = "r:hopeless 20833333us>15s 25*5s/6, r:429 rejected-saturated";
    check(policy(), &(one_a_second(5) + "t=5 arrive r => " + refused));
    // Not where nothing was served since the queue began.
    let idle = "t=0 join e1\nt=0 arrive x => x:admit\nt=1 arrive q\nt=10 arrive r";
    check(policy(), idle);
    // Not while the pool is paused, nor right after: nothing was drained for another reason.
    let paused = "t=5.5 pause => paused\nt=9 arrive p\nt=9.5 resume => resumed\nt=10 arrive r";
    check(policy(), &(one_a_second(5) + paused));
}

#[test]
fn a_flow_that_gets_its_turn_is_not_hopeless() {
    let mut policy = hopeless(budgets(counted(1), 15, 60));
    policy.bands.insert(0, BandSettings { fairness: Fairness::RoundRobin, ..BandSettings::default() });
    let rows = one_a_second(10)
        + "
        t=10.5 arrive z flow=z
        t=10.5 arrive r => r:hopeless 20045454us>15s 21*10500ms/11, r:429 rejected-saturated
        ";
    check(policy, &rows);
}

#[test]
fn who_is_served_at_once_is_not_hopeless() {
    let policy = hopeless(turning(counted(1), Fairness::GlobalStrict));
    let mut rows = String::from("t=0 join e1\nt=0 arrive q0 => q0:admit\n");
    for n in 1..=30 {
        rows += &format!("t=0 arrive q{n}\n");
    }
    rows += "t=1 end q0 => q0:Completed, q1:admit\nt=2 end q1 => q1:Completed, q2:admit\n";
    rows += "t=3 end q2 => q2:Completed, newest first (q3 3s 2s), q30:admit\n";
    rows += "t=10 arrive r\nt=10 end q30 => q30:Completed, r:admit";
    check(policy, &rows);
}
