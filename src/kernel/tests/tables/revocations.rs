//! Revocations that an operator orders: who can be told, how each ends, what a restart makes of it (contract.md rows
//! 11 to 13, *Leases*).

use crate::script::check;
use crate::settings::{counted, pushed, scraped};
use weir_kernel::*;

#[test]
fn a_revoked_lease_counts_until_its_stream_has_ended() {
    check(
        counted(1),
        "
        t=0     join e1
        t=0     arrive r1 face=proxy => r1:admit
        t=0     arrive r2
        t=1     revoke r1 => r1:revoke
        t=1     is in-flight=1 outstanding=1 pending=1
        t=1     revoke r1 => ignored
        t=1     revoke r2 => ignored
        t=1.003 end r1 => r1:confirmed 3ms, r1:Revoked, r2:admit
        t=1.003 is in-flight=1 outstanding=0 cooling=1 pending=1
        t=1.503 pass
        t=1.503 is cooling=0 pending=0
        t=1.503 end r1 => ignored
        ",
    );
}

#[test]
fn whatever_ends_the_stream_confirms() {
    check(
        counted(9),
        "
        t=0 join e1
        t=0 arrive r1 face=stream => r1:admit
        t=0 revoke r1 => r1:revoke
        t=1 cancel r1 => r1:confirmed 1s, r1:Revoked client-disconnect
        ",
    );
}

#[test]
fn a_revocation_times_out_at_its_deadline_and_a_late_end_is_counted() {
    let state = check(
        counted(9),
        "
        t=0  join e1
        t=0  arrive r1 face=proxy => r1:admit
        t=1  revoke r1 => r1:revoke
        t=12 pass => r1:timed_out 10s@11s
        t=12 is in-flight=1 outstanding=0 cooling=0
        t=13 end r1 => r1:late 2s, r1:Revoked
        t=14 arrive r2 face=proxy => r2:admit
        t=14 revoke r2 => r2:revoke
        t=24 end r2 => r2:timed_out 10s, r2:late 0s, r2:Revoked
        ",
    );
    let counts = state.revocations();
    assert_eq!((counts.issued, counts.ends, counts.late), (2, [0, 2, 0], 2));
    assert_eq!(state.counters().lease_ends[LeaseEnd::Revoked as usize], 2);
}

#[test]
fn only_who_can_hear_it_is_revoked() {
    check(
        counted(20),
        "
        t=0 join e1
        t=0 arrive s face=stream => s:admit
        t=0 arrive p face=proxy  => p:admit
        t=0 arrive c face=closed => c:admit
        t=0 arrive o face=open   => o:admit
        t=0 arrive h             => h:admit
        t=0 arrive t face=ticket => t:admit
        t=0 arrive u face=untracked => u:admit, u:Untracked
        t=1 revoke s => s:revoke
        t=1 revoke p => p:revoke
        t=1 revoke c => c:revoke
        t=1 revoke o => o:revoke
        t=1 revoke u => ignored
        t=1 revoke h => h:revoke, h:undeliverable 0s
        t=1 revoke t => t:revoke, t:undeliverable 0s
        t=1 is outstanding=4 in-flight=6
        t=2 watch h
        t=2 watch h => ignored
        t=2 watch s => ignored
        t=2 watch u => ignored
        t=2 revoke h => h:revoke
        t=3 unwatch h
        t=3 is outstanding=5
        t=4 end h => h:confirmed 2s, h:Revoked
        ",
    );
}

#[test]
fn a_ticket_watched_while_queued_can_be_revoked_once_it_runs() {
    check(
        pushed(),
        "
        t=0 pool 1 sat=1
        t=0 arrive t face=ticket
        t=0 watch t
        t=1 pool 1 sat=0 => t:admit
        t=2 revoke t => t:revoke
        t=3 undeliverable t => t:undeliverable 1s
        t=3 undeliverable t => ignored
        t=3 end t => t:Completed
        ",
    );
}

#[test]
fn across_a_restart_each_revocation_ends_once() {
    let policy = Policy { lease_timeout: Micros::from_secs(100), ..counted(9) };
    check(
        policy,
        "
        t=0  join e1
        t=0  arrive p face=proxy => p:admit
        t=0  arrive h            => h:admit
        t=0  arrive o face=open  => o:admit
        t=0  watch h
        t=1  revoke p => p:revoke
        t=1  revoke h => h:revoke
        t=1  revoke o => o:revoke
        # Eight seconds down, which count against nothing.
        t=3  pass
        t=11 oversleep
        t=11 restart => p:timed_out 10s, p:Lost restart
        t=11 is outstanding=2
        t=12 revoke o => ignored
        t=13 end h => h:confirmed 12s, h:Revoked
        t=20 pass => o:timed_out 18s@19s
        t=20 revoke o => o:revoke, o:undeliverable 0s
        ",
    );
}

#[test]
fn a_lease_that_lapses_ends_its_revocation() {
    check(
        Policy { lease_timeout: Micros::from_secs(5), ..counted(9) },
        "
        t=0 join e1
        t=0 arrive h => h:admit
        t=0 watch h
        t=3 revoke h => h:revoke
        t=5 pass => h:timed_out 2s, h:Lost timeout
        ",
    );
}

#[test]
fn the_release_is_seen_in_the_endpoints_own_metrics() {
    check(
        scraped(),
        "
        t=0     join e1 + sample e1 w=0 r=0 kv=0.1
        t=0     arrive r1 face=proxy choose => r1:admit e1
        t=0     arrive r2 face=proxy choose => r2:admit e1
        # Somebody else's request runs there as well.
        t=0.1   sample e1 w=0 r=3 kv=0.3
        t=0.2   revoke r1 => r1:revoke
        t=0.203 end r1 => r1:confirmed 3ms, r1:Revoked
        # Asked for before the end, or not shown yet.
        t=0.210 sample e1 w=0 r=2 kv=0.2 ago=20ms
        t=0.220 sample e1 w=0 r=3 kv=0.3
        t=0.260 sample e1 w=0 r=2 kv=0.2 ago=5ms => r1:reclaimed 52ms 55ms
        ",
    );
}

#[test]
fn a_release_in_a_pool_without_endpoint_choice_is_seen_pool_wide() {
    check(
        scraped(),
        "
        t=0     join e1 + sample e1 w=0 r=0 + join e2 + sample e2 w=0 r=0
        t=0     arrive r1 face=open => r1:admit
        t=0     arrive r2 face=open => r2:admit
        t=0.1   sample e1 w=0 r=1 + sample e2 w=0 r=1
        t=0.150 revoke r2 => r2:revoke
        t=0.160 end r2 => r2:confirmed 10ms, r2:Revoked
        t=0.170 see
        t=0.200 sample e2 w=0 r=0 => r2:reclaimed 40ms 50ms
        ",
    );
}
