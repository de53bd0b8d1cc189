//! Stop, restart and recovery (contract.md rows 14, 15; DESIGN.md, *Recovery*).

use crate::script::{Script, Show, check};
use crate::settings::{budgets, counted, pushed, scraped};

#[test]
fn c016_a_stop_with_no_drain_ends_all_at_once_with_its_own_reason() {
    check(
        pushed(),
        "
        t=0 pool 1 sat=1
        t=0 arrive r1
        t=0 arrive r2
        t=0 arrive r3
        t=1 stop 0s => r1:503 rejected-shutting-down, r2:503 rejected-shutting-down, r3:503 rejected-shutting-down
        t=1 arrive r4 => r4:503 rejected-shutting-down
        t=1 stopped
        t=1 is queued=0 count.EvictedOther=3 count.RejectedOther=1
        ",
    );
}

#[test]
fn c144_a_drain_serves_what_is_queued_until_it_is_over() {
    check(
        counted(1),
        "
        t=0  join e1
        t=0  arrive r0 => r0:admit
        t=0  arrive r1
        t=0  arrive r2
        t=0  arrive r3 face=ticket
        t=1  stop 30s
        t=1  arrive r4 => r4:503 rejected-shutting-down
        t=2  end r0 => r0:Completed, r1:admit
        t=31 pass => r2:503 rejected-shutting-down
        t=31 is queued=1 in-flight=1
        ",
    );
}

#[test]
fn a_drain_ends_more_than_one_step_can_within_the_same_instant() {
    let mut rows = String::from("t=0 pool 1 sat=1\n");
    for n in 0..150 {
        let face = if n % 3 == 0 { " face=ticket" } else { "" };
        rows += &format!("t=0 arrive r{n}{face}\n");
    }
    let ended: Vec<String> =
        (0..150).filter(|n| n % 3 != 0).map(|n| format!("r{n}:503 rejected-shutting-down")).collect();
    rows += &format!("t=1 stop 0s => {}\n", ended[..64].join(", "));
    rows += &format!("t=1 pass => {}\n", ended[64..].join(", "));
    rows += "t=1 is queued=50";
    check(pushed(), &rows);
}

#[test]
fn after_a_restart_each_face_gets_what_it_can_have() {
    check(
        budgets(pushed(), 30, 60),
        "
        t=0  pool 1 sat=1
        t=0  arrive r1
        t=0  arrive r2 face=proxy
        t=0  arrive r3 face=ticket
        t=0  arrive r4 key=k
        t=0  arrive r5 key=m
        t=10 restart => r1:503 rejected-restarted, r2:503 rejected-restarted
        t=11 arrive r6 key=k => r6:as-r4 back
        t=12 pool 1 sat=0 => r3:admit, r4:admit
        t=15 pass => r5:503 rejected-restarted
        t=15 is queued=0 in-flight=2
        ",
    );
}

#[test]
fn downtime_counts_against_no_budget_and_a_fresh_start_is_a_fresh_budget() {
    check(
        budgets(pushed(), 30, 60),
        "
        t=0    pool 1 sat=1
        t=0    arrive r1 face=ticket
        t=20   see
        t=20   oversleep
        t=3600 restart
        t=3601 pool 1 sat=1
        t=3601 is due.r1=3631s
        t=3631 pass => r1:429 rejected-ttl-expired
        ",
    );
    // The meter of the empty pool goes on from where it stood.
    check(
        budgets(pushed(), 30, 60),
        "
        t=0    pool 0
        t=0    arrive r1 face=ticket
        t=20   renew r1
        t=20   oversleep
        t=3600 restart
        t=3601 pool 0
        t=3601 is due.r1=3641s
        ",
    );
}

#[test]
fn leases_after_a_restart_by_face() {
    Script::new(counted(9)).show(&[Show::Regime]).check(
        "
        t=0  join e1 => regime:HasEndpoints
        t=0  arrive a face=proxy  => a:admit
        t=0  arrive b face=closed => b:admit
        t=0  arrive c face=stream => c:admit
        t=0  arrive d             => d:admit
        t=0  arrive e face=ticket => e:admit
        t=0  arrive f face=open   => f:admit
        t=60 restart => a:Lost restart, b:Lost restart, c:Lost restart
        t=60 is in-flight=3
        t=61 see => regime:HasEndpoints
        t=62 end d => d:Completed
        t=90 renew e
        # Nobody will ever tell of the end of a stream that outlived us.
        t=660 pass => f:Lost timeout
        t=690 pass => e:Lost timeout
        ",
    );
}

#[test]
fn orphans_that_the_endpoints_do_not_show_are_lost() {
    check(
        scraped(),
        "
        t=0  join e1 + join e2 + sample e1 w=0 + sample e2 w=0
        t=0  arrive a choose => a:admit e1
        t=0  arrive b choose => b:admit e2
        t=0  arrive c choose => c:admit e1
        t=0  arrive d choose => d:admit e2
        t=9  restart
        t=9  is in-flight=4
        t=10 sample e1 r=1
        t=10 is in-flight=4
        # Both are fresh: one runs on the first, none on the second.
        t=11 sample e2 r=0 => a:Lost not-at-engine, b:Lost not-at-engine, d:Lost not-at-engine
        t=11 is in-flight=1
        ",
    );
}

#[test]
fn a_restart_in_the_middle_of_a_recovery_starts_it_over() {
    let mut rows = String::from("t=0 pool 1 sat=1\n");
    for n in 0..100 {
        rows += &format!("t=0 arrive r{n}\n");
    }
    let ended: Vec<String> = (0..100).map(|n| format!("r{n}:503 rejected-restarted")).collect();
    rows += &format!("t=1 restart => {}\n", ended[..64].join(", "));
    rows += &format!("t=1 restart => {}\n", ended[64..].join(", "));
    rows += "t=1 is queued=0";
    check(pushed(), &rows);
}
