//! In-flight credit, with figures worked out by hand (contract.md, *In-flight credit*).
//!
//! Thresholds are the defaults, queue depth 5 and KV share 0.8, unless a table says otherwise. Each `admit` shows the
//! raw gauge, the effective one and the ceiling.

use crate::script::{Script, Show};
use crate::settings::scraped;
use weir_kernel::*;

fn figures(policy: Policy, rows: &str) {
    Script::new(policy).show(&[Show::Why, Show::Held]).check(rows);
}

fn by_kv() -> Policy {
    let detector = Detector::Utilization {
        queue_depth: 1_000,
        kv: Ratio(800_000),
        staleness: Micros::from_millis(200),
        headroom: Ratio::ZERO,
    };
    Policy { detector, ..scraped() }
}

#[test]
fn each_dispatch_is_charged_a_place_in_the_engines_queue() {
    figures(
        scraped(),
        "
        t=0    join e1 + sample e1 w=0 r=0
        t=0    arrive r1 => r1:admit (0 0 1)
        t=0    arrive r2 => r2:admit (0 0.2 1)
        t=0    arrive r3 => r3:admit (0 0.4 1)
        t=0    arrive r4 => r4:admit (0 0.6 1)
        t=0    arrive r5 => r5:admit (0 0.8 1)
        t=0    arrive r6 => held:band 0 1>=1
        t=10ms end r1    => r1:Completed, r6:admit (0 0.8 1)
        t=10ms is sat=1 raw=0
        ",
    );
}

#[test]
fn a_sample_counts_from_when_it_was_asked_for() {
    figures(
        scraped(),
        "
        t=0    join e1 + sample e1 w=0 r=0
        t=10ms arrive r1 => r1:admit (0 0 1)
        t=40ms arrive r2 => r2:admit (0 0.2 1)
        # Asked for at 30 ms: it shows r1, and cannot show r2.
        t=50ms sample e1 w=0 r=1 ago=20ms
        t=50ms is sat=0.2
        # It shows one of both.
        t=100ms sample e1 w=0 r=1
        t=100ms is sat=0.2
        t=150ms sample e1 w=0 r=2
        t=150ms is sat=0
        ",
    );
}

#[test]
fn what_the_sample_does_not_show_is_charged_until_it_does() {
    figures(
        scraped(),
        "
        t=0    join e1 + sample e1 w=0 r=0
        t=0    arrive r1 => r1:admit (0 0 1)
        t=0    arrive r2 => r2:admit (0 0.2 1)
        t=0    arrive r3 => r3:admit (0 0.4 1)
        t=50ms sample e1 w=0 r=1
        t=50ms is sat=0.4
        t=100ms sample e1 w=2 r=1
        t=100ms is sat=0.4 raw=0.4
        ",
    );
}

#[test]
fn sequences_that_the_engine_ran_lately_start_at_once() {
    // Ten ran within the last 10 s, four run now: six are free, and then five places in the queue.
    let mut rows = String::from("t=0 join e1 + sample e1 w=0 r=10\nt=1 sample e1 w=0 r=4\n");
    for n in 0..11 {
        let effective = ["0", "0.2", "0.4", "0.6", "0.8"][(n as usize).saturating_sub(6)];
        rows += &format!("t=1 arrive r{n} => r{n}:admit (0 {effective} 1)\n");
    }
    rows += "t=1 arrive r11 => held:band 0 1>=1\n";
    figures(scraped(), &rows);
    // A sample with waiting requests ends that.
    figures(
        scraped(),
        "
        t=0 join e1 + sample e1 w=0 r=10
        t=1 sample e1 w=1 r=10
        t=2 sample e1 w=0 r=4
        t=2 arrive r1 => r1:admit (0 0 1)
        t=2 is sat=0.2
        ",
    );
    // And so do ten seconds.
    figures(
        scraped(),
        "
        t=0  join e1 + sample e1 w=0 r=10
        t=5  sample e1 w=0 r=4
        t=12 sample e1 w=0 r=4
        t=12 arrive r1 => r1:admit (0 0 1)
        t=12 is sat=0.2
        ",
    );
}

#[test]
fn each_dispatch_is_charged_the_mean_kv_share_of_those_that_run() {
    // (0.4 + u 0.4 / 8) / 0.8 = 0.5 + u / 16: full at the eighth.
    let mut rows = String::from("t=0 join e1 + sample e1 w=0 r=8 kv=0.4\n");
    for (n, effective) in
        ["0.5", "0.5625", "0.625", "0.6875", "0.75", "0.8125", "0.875", "0.9375"].iter().enumerate()
    {
        rows += &format!("t=0 arrive r{n} => r{n}:admit (0.5 {effective} 1)\n");
    }
    rows += "t=0 arrive r8 => held:band 0 1>=1\n";
    // An end gives no KV back before a sample shows it.
    rows += "t=10ms end r0 => r0:Completed\nt=10ms is sat=1";
    figures(by_kv(), &rows);
}

#[test]
fn with_nothing_running_one_is_the_divisor() {
    figures(
        by_kv(),
        "
        t=0 join e1 + sample e1 w=0 r=0 kv=0.2
        t=0 arrive r1 => r1:admit (0.25 0.25 1)
        t=0 arrive r2 => r2:admit (0.25 0.5 1)
        t=0 arrive r3 => r3:admit (0.25 0.75 1)
        t=0 arrive r4 => held:band 0 1>=1
        ",
    );
}

#[test]
fn where_the_endpoint_is_not_known_the_charge_is_spread_evenly() {
    figures(
        scraped(),
        "
        t=0 join e1 + join e2 + sample e1 w=0 + sample e2 w=0
        t=0 arrive r1 => r1:admit (0 0 1)
        t=0 arrive r2 => r2:admit (0 0.1 1)
        t=0 arrive r3 => r3:admit (0 0.2 1)
        t=0 is sat=0.3
        ",
    );
}

#[test]
fn a_chosen_endpoint_alone_is_charged() {
    figures(
        scraped(),
        "
        t=0 join e1 + join e2 + sample e1 w=2 + sample e2 w=0
        t=0 arrive r1 choose => r1:admit e2 (0.2 0.2 1)
        t=0 arrive r2 choose => r2:admit e2 (0.2 0.3 1)
        t=0 arrive r3 choose => r3:admit e1 (0.2 0.4 1)
        t=0 is sat=0.5
        t=100ms leave e2
        t=100ms is sat=0.6
        ",
    );
}

#[test]
fn a_stale_endpoint_counts_as_full() {
    figures(
        scraped(),
        "
        t=0 join e1 + join e2 + sample e1 w=3 + sample e2 w=0
        t=0 is sat=0.3
        t=1 stale e2
        t=1 is sat=0.8
        t=1 arrive r1 => r1:admit (0.8 0.8 1)
        t=1 is sat=0.85
        ",
    );
}

#[test]
fn where_no_end_is_seen_a_dispatch_counts_until_a_sample_can_show_it() {
    let mut rows = String::from("t=0 join e1 + sample e1 w=0 r=0\n");
    for (n, effective) in ["0", "0.2", "0.4", "0.6", "0.8"].iter().enumerate() {
        rows += &format!("t=0 arrive r{n} face=untracked => r{n}:admit (0 {effective} 1), r{n}:Untracked\n");
    }
    let sampled = rows.clone()
        + "t=0 arrive r5 face=untracked => held:band 0 1>=1
           t=50ms sample e1 w=0 r=5 => r5:admit (0 0 1), r5:Untracked";
    figures(scraped(), &sampled);
    // A fresh endpoint whose sample did not change was sampled all the same: within its staleness, and 50 ms.
    let elided = rows
        + "t=0 arrive r5 face=untracked => held:band 0 1>=1
           t=1 pass => r5:admit (0 0 1)@250001us, r5:Untracked@250001us";
    figures(scraped(), &elided);
}

#[test]
fn without_credit_the_raw_gauge_decides() {
    figures(
        Policy { in_flight_credit: false, ..scraped() },
        "
        t=0   join e1 + sample e1 w=4
        t=1ms arrive r1 => r1:admit (0.8 0.8 1)
        t=2ms arrive r2 => r2:admit (0.8 0.8 1)
        t=2ms is sat=0.8
        ",
    );
}
