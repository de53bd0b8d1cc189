//! The table's rules as rows: what is done to it, and what the log hears in the next round.

use super::*;

const STALENESS: Micros = Micros::from_millis(200);

/// Drives a table: `round` at a millisecond gives the changes as short words and hands them to the log.
struct Driver(Table);

impl Driver {
    fn want(&mut self, names: &[&str]) {
        let specs = names
            .iter()
            .map(|name| Spec { name: (*name).to_owned(), role: Role::Decode, metrics_url: None })
            .collect();
        self.0.want(specs).unwrap();
    }

    fn sample(&mut self, ms: u64, name: &str, waiting: u32, running: u32, kv: u32) {
        let at = Micros::from_millis(ms);
        self.0.sampled(name, Load { waiting, running, kv }, at, at);
    }

    fn round(&mut self, ms: u64) -> String {
        let now = Micros::from_millis(ms);
        let changes = self.0.changes(now, now, STALENESS);
        self.0.logged(&changes, Pushed::Keep, now, now);
        changes.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

fn word(change: &EndpointChange) -> String {
    match change {
        EndpointChange::Joined { slot, name, .. } => format!("+{name}@{}", slot.0),
        EndpointChange::Left { slot } => format!("-{}", slot.0),
        EndpointChange::Stale { slot } => format!("stale{}", slot.0),
        EndpointChange::Sampled { slot, waiting, running, kv } => {
            format!("{}:{waiting},{running},{kv}", slot.0)
        }
    }
}

#[test]
fn samples_are_differences_and_those_within_the_deadband_are_elided() {
    let mut table = Driver(Table::default());
    table.want(&["e1"]);
    let rows = [
        (0, (1, 4, 5_000), "+e1@0 0:1,4,5000"),
        // Logged whatever it says: the second round after the join.
        (50, (1, 4, 5_000), "0:0,0,0"),
        (100, (1, 4, 5_050), ""),
        (150, (1, 4, 4_950), ""),
        (200, (1, 4, 4_949), "0:0,0,-51"),
        (250, (1, 5, 4_949), "0:0,1,0"),
        (300, (0, 5, 4_949), "0:-1,0,0"),
        (350, (0, 5, 4_999), ""),
        // Not drifting: still against what was logged, not against what was elided.
        (400, (0, 5, 5_000), "0:0,0,51"),
    ];
    for (ms, (waiting, running, kv), want) in rows {
        table.sample(ms, "e1", waiting, running, kv);
        assert_eq!(table.round(ms), want, "at {ms} ms");
    }
}

#[test]
fn an_unchanged_load_is_logged_once_a_second() {
    let mut table = Driver(Table::default());
    table.want(&["e1"]);
    let mut logged = Vec::new();
    for ms in (0..3_000).step_by(50) {
        table.sample(ms, "e1", 0, 1, 100);
        if !table.round(ms).is_empty() {
            logged.push(ms);
        }
    }
    assert_eq!(logged, [0, 50, 1_050, 2_050]);
}

/// While the pool has work, an unchanged load says that what was dispatched is in it: the last sample logged was asked
/// for after the work had ended.
#[test]
fn while_the_pool_works_nothing_is_elided() {
    let mut table = Driver(Table::default());
    table.want(&["e1"]);
    let mut logged = Vec::new();
    for ms in (0..600).step_by(50) {
        if (200..=320).contains(&ms) {
            table.0.worked(Micros::from_millis(ms));
        } else if ms > 320 {
            table.0.worked(Micros::from_millis(320));
        }
        table.sample(ms, "e1", 0, 1, 100);
        if !table.round(ms).is_empty() {
            logged.push(ms);
        }
    }
    assert_eq!(logged, [0, 50, 200, 250, 300, 350]);
}

/// Age 200 ms is fresh, 201 is stale; told once, and the way back is two full samples.
#[test]
fn c038_an_age_over_the_limit_is_one_edge() {
    let mut table = Driver(Table::default());
    table.want(&["e1", "e2"]);
    table.sample(0, "e1", 0, 0, 0);
    table.sample(0, "e2", 0, 0, 0);
    assert_eq!(table.round(0), "+e1@0 0:0,0,0 +e2@1 1:0,0,0");
    assert_eq!(table.0.next_stale(STALENESS), Some(Micros(200_001)));
    assert_eq!(table.round(200), "");
    assert_eq!(table.round(201), "stale0 stale1");
    for ms in 202..300 {
        assert_eq!(table.round(ms), "", "at {ms} ms");
    }
    assert_eq!(table.0.next_stale(STALENESS), None);
    for (ms, want) in [(300, "0:0,0,0"), (350, "0:0,0,0"), (400, "")] {
        table.sample(ms, "e1", 0, 0, 0);
        assert_eq!(table.round(ms), want, "at {ms} ms");
    }
}

/// A stamp of the endpoint's own is not looked at: age counts from when the sample came.
#[test]
fn c142_age_counts_from_receipt() {
    let mut table = Driver(Table::default());
    table.want(&["e1"]);
    let (asked, came) = (Micros::from_millis(0), Micros::from_millis(150));
    table.0.sampled("e1", Load::default(), asked, came);
    assert_eq!(table.round(350), "+e1@0 0:0,0,0");
    assert_eq!(table.round(351), "stale0");
}

/// Levels: what came and went between two rounds leaves the right end, whatever the order.
#[test]
fn c048_delete_and_add_within_a_round_leaves_the_endpoint_there() {
    let mut table = Driver(Table::default());
    table.want(&["e1"]);
    table.want(&[]);
    table.want(&["e1"]);
    assert_eq!(table.round(0), "+e1@0");
    table.want(&[]);
    table.want(&["e1"]);
    assert_eq!(table.round(1), "");
    table.want(&["e2"]);
    assert_eq!(table.round(2), "-0 +e2@1");
    table.want(&["e2", "e3"]);
    assert_eq!(table.round(3), "+e3@0");
}

#[test]
fn a_round_that_the_log_did_not_take_is_told_again() {
    let mut table = Driver(Table::default());
    table.want(&["e1"]);
    table.sample(0, "e1", 3, 0, 0);
    let now = Micros::ZERO;
    let first = table.0.changes(now, now, STALENESS);
    assert_eq!(table.0.changes(now, now, STALENESS), first);
    table.sample(50, "e1", 4, 0, 0);
    assert_eq!(table.round(50), "+e1@0 0:4,0,0");
}

/// A slow sample counts from when it was asked for; one that was overtaken is dropped.
#[test]
fn a_late_sample_belongs_to_the_round_that_asked_for_it() {
    let mut table = Driver(Table::default());
    table.want(&["e1"]);
    let ms = Micros::from_millis;
    table.0.sampled("e1", Load { waiting: 9, ..Load::default() }, ms(50), ms(60));
    table.0.sampled("e1", Load { waiting: 1, ..Load::default() }, ms(0), ms(70));
    assert_eq!(table.0.oldest_new(), Some(ms(50)));
    assert_eq!(table.0.changes(ms(0), ms(80), STALENESS).iter().map(word).collect::<Vec<_>>(), ["+e1@0"]);
    assert_eq!(table.round(80), "+e1@0 0:9,0,0");
    assert_eq!(table.0.oldest_new(), None);
}

/// After a restart the log's endpoints are the start: what is not there any more leaves, the rest goes on in place.
#[test]
fn a_restart_goes_on_from_the_log() {
    let known = |slot, name: &str, stale| Known {
        slot: Slot(slot),
        name: name.to_owned(),
        role: Role::Decode,
        sample: Some(Load { waiting: 2, running: 2, kv: 100 }),
        stale,
    };
    let mut table = Driver(Table::restored(vec![
        known(0, "gone", false),
        known(1, "kept", false),
        known(2, "silent", false),
    ]));
    table.want(&["kept", "silent", "new"]);
    table.sample(0, "kept", 3, 2, 100);
    assert_eq!(table.round(0), "-0 1:1,0,0 stale2 +new@3");
    table.sample(50, "silent", 0, 0, 0);
    assert_eq!(table.round(50), "2:-2,-2,-100");
}

#[test]
fn another_role_is_another_endpoint() {
    let mut table = Driver(Table::default());
    table.want(&["e1"]);
    table.sample(0, "e1", 0, 0, 0);
    assert_eq!(table.round(0), "+e1@0 0:0,0,0");
    table.0.want(vec![Spec { name: "e1".to_owned(), role: Role::Prefill, metrics_url: None }]).unwrap();
    assert_eq!(table.round(1), "-0 +e1@1");
}

#[test]
fn a_pushed_figure_is_told_when_it_changes() {
    let mut table = Table::default();
    let figure = Pushed::Pool(weir_kernel::Ratio(700_000));
    assert_eq!(table.pushed_change(), Pushed::Keep);
    for (push, want) in [
        (figure, figure),
        (figure, Pushed::Keep),
        (Pushed::Clear, Pushed::Clear),
        (Pushed::Clear, Pushed::Keep),
    ] {
        table.push(push);
        assert_eq!(table.pushed_change(), want);
        table.logged(&[], want, Micros::ZERO, Micros::ZERO);
    }
}

#[test]
fn more_endpoints_than_the_table_holds_change_nothing() {
    let mut table = Driver(Table::default());
    table.want(&["e1"]);
    let many = |n: usize| {
        (0..n)
            .map(|i| Spec { name: i.to_string(), role: Role::Decode, metrics_url: None })
            .collect::<Vec<_>>()
    };
    assert_eq!(table.0.want(many(ENDPOINTS_MAX + 1)), Err(TooMany { found: ENDPOINTS_MAX + 1 }));
    assert_eq!(table.round(0), "+e1@0");
    table.0.want(many(ENDPOINTS_MAX)).unwrap();
    assert_eq!(table.0.changes(Micros::ZERO, Micros::ZERO, STALENESS).len(), ENDPOINTS_MAX + 1);
}
