//! By hand: pause, resume, purge, drain.

use crate::script::{Script, Show, check};
use crate::settings::{budgets, counted, pushed};

#[test]
fn a_paused_pool_queues_and_dispatches_nothing_until_it_is_resumed() {
    Script::new(budgets(pushed(), 30, 60)).show(&[Show::Queued, Show::Held]).check(
        "
        t=0  pool 1 sat=0
        t=0  arrive r1 => r1:admit
        t=1  pause => paused
        t=1  pause => ignored
        t=2  arrive r2 => r2:queued, held:paused
        t=3  arrive r3 => r3:queued
        t=20 resume => resumed, r2:admit, r3:admit
        t=20 resume => ignored
        t=21 arrive r4 => r4:admit
        ",
    );
}

/// The pool has capacity all the while, so the budget is the one for a busy pool, measured as ever.
#[test]
fn budgets_run_while_the_pool_is_paused() {
    Script::new(budgets(pushed(), 30, 60)).show(&[Show::Why]).check(
        "
        t=0  pool 1 sat=0
        t=0  pause => paused
        t=5  arrive r1
        t=6  arrive r2 ttl=4s
        t=12 pass => r2:429 rejected-ttl-expired (Saturation 4s) behind paused@10s
        t=35 pass => r1:429 rejected-ttl-expired (Saturation 30s) behind paused
        t=35 is queued=0
        ",
    );
}

#[test]
fn a_pause_outlives_a_restart() {
    Script::new(budgets(pushed(), 30, 60)).show(&[Show::Held]).check(
        "
        t=0  pool 1 sat=0
        t=0  pause => paused
        t=1  arrive r1 face=ticket => held:paused
        t=9  restart => held:paused
        t=10 pool 1 sat=0
        t=11 arrive r2
        t=12 resume => resumed, r1:admit, r2:admit
        ",
    );
}

/// What held the queue before holds it again, and says so.
#[test]
fn a_resumed_pool_is_held_by_what_holds_it_then() {
    Script::new(pushed()).show(&[Show::Held]).check(
        "
        t=0 pool 1 sat=1.5
        t=0 arrive r1 => held:band 0 1.5>=1
        t=1 pause => paused, held:paused
        t=2 resume => resumed, held:band 0 1.5>=1
        t=3 pause => paused, held:paused
        t=4 pool 0
        t=5 resume => resumed, held:regime NoEndpoints
        ",
    );
}

/// Without flow control nothing stays queued, but in a pause the limits bound what waits.
#[test]
fn the_limits_hold_in_a_pause_without_flow_control() {
    let mut policy = pushed();
    policy.flow_control = false;
    policy.max_requests = 2;
    check(
        policy,
        "
        t=0 pool 1 sat=0
        t=0 arrive r1 => r1:admit
        t=1 pause => paused
        t=1 arrive r2
        t=1 arrive r3
        t=1 arrive r4 => r4:429 rejected-saturated retry=1
        t=2 resume => resumed, r2:admit, r3:admit
        ",
    );
}

#[test]
fn a_purged_request_leaves_the_queue_and_a_running_one_does_not() {
    check(
        counted(1),
        "
        t=0 join e1
        t=0 arrive r1 => r1:admit
        t=0 arrive r2
        t=0 arrive r3
        t=1 purge r2 => purge of 1, r2:503 rejected-purged
        t=1 purge r2 => ignored
        t=1 purge r1 => ignored
        t=2 end r1 => r1:Completed, r3:admit
        t=2 is queued=0 in-flight=1
        ",
    );
}

#[test]
fn a_purge_of_a_flow_takes_all_that_it_has_queued_and_nothing_else() {
    check(
        pushed(),
        "
        t=0 pool 1 sat=1.5
        t=0 objectives high=10
        t=0 arrive a1 flow=a
        t=0 arrive b1 flow=b
        t=0 arrive a2 flow=a
        t=0 arrive a3 flow=a obj=high
        t=0 arrive d1
        t=1 purge-flow a 0 => purge of 2, a1:503 rejected-purged, a2:503 rejected-purged
        t=1 purge-flow a 0 => ignored
        t=1 purge-flow nobody 0 => ignored
        t=1 purge-flow a 77 => ignored
        t=1 purge-flow default-flow 0 => purge of 1, d1:503 rejected-purged
        t=1 is queued=2
        ",
    );
}

/// At most 64 per step, the rest at once after; whoever is queued after the order stays, and nothing is dispatched
/// before all of it is gone.
#[test]
fn a_large_purge_goes_on_in_the_steps_that_follow() {
    let mut rows = String::from("t=0 pool 1 sat=1.5\n");
    for n in 0..150 {
        rows += &format!("t=0 arrive r{n} flow=a\n");
    }
    let gone: Vec<String> = (0..150).map(|n| format!("r{n}:503 rejected-purged")).collect();
    rows += &format!("t=1 purge-flow a 0 => purge of 150, {}\n", gone[..64].join(", "));
    rows += "t=1 is queued=86\n";
    rows += &format!("t=1 arrive late flow=a => {}\n", gone[64..128].join(", "));
    rows += &format!("t=1 pool 1 sat=0 => {}, late:admit\n", gone[128..].join(", "));
    rows += "t=1 is queued=0 in-flight=1 count.EvictedOther=150";
    check(pushed(), &rows);
}

/// A crash in the middle of a purge: what is left of it is removed by the next run, under either reason.
#[test]
fn a_purge_is_not_forgotten_in_a_restart() {
    let mut rows = String::from("t=0 pool 1 sat=1.5\n");
    for n in 0..100 {
        rows += &format!("t=0 arrive r{n} flow=a face=ticket\n");
    }
    let gone: Vec<String> = (0..100).map(|n| format!("r{n}:503 rejected-purged")).collect();
    rows += &format!("t=1 purge-flow a 0 => purge of 100, {}\n", gone[..64].join(", "));
    rows += &format!("t=1 restart => {}\n", gone[64..].join(", "));
    rows += "t=1 is queued=0";
    check(pushed(), &rows);
}

#[test]
fn c016_a_drain_by_hand_is_the_drain_of_a_stop() {
    check(
        pushed(),
        "
        t=0 pool 1 sat=1.5
        t=0 arrive r1
        t=1 drain 30s
        t=2 arrive r2 => r2:503 rejected-shutting-down
        t=31 pass => r1:503 rejected-shutting-down
        ",
    );
}
