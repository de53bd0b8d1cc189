//! Goal: what is said of "one behind it was admitted later" and of a limit that stood alone is what the log says. Method:
//! logs of random worlds; a plain walk with the kernel's own fold, beside what the read models answer, for every request.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{World, memory};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_kernel::{BudgetKind, Event, Fairness, Input, LimitKind, Ordering, State, Step, fold};
use weir_projection::{After, Filter, Order, Page, Projections, Source, Spot, Work};

/// For each request whose budget ended in a strict band who was admitted next behind it; for each
/// that a limit refused, whether that limit stood alone.
#[derive(Default)]
struct Walked {
    next: BTreeMap<u64, Option<(u64, u64)>>,
    alone: BTreeMap<u64, bool>,
    /// Where all certainty about it ended before anybody behind it was admitted.
    spoiled: BTreeMap<u64, u64>,
}

fn strict(state: &State, priority: i32) -> bool {
    state.bands().any(|band| {
        let settings = &band.settings;
        band.priority == priority
            && settings.ordering == Ordering::Fcfs
            && settings.fairness == Fairness::GlobalStrict
    })
}

/// The limits that stand against a request of this size.
fn against(state: &State, priority: i32, bytes: u64) -> Vec<LimitKind> {
    let band = state.bands().find(|band| band.priority == priority).unwrap();
    let policy = state.policy();
    let all = [
        (LimitKind::GlobalBytes, state.queued_bytes() + bytes, policy.max_bytes),
        (LimitKind::GlobalRequests, state.queued() + 1, policy.max_requests),
        (LimitKind::BandBytes, band.bytes + bytes, band.settings.max_bytes),
        (LimitKind::BandRequests, band.requests + 1, band.settings.max_requests),
    ];
    all.iter().filter(|(_, wanted, limit)| *limit > 0 && wanted > limit).map(|(which, ..)| *which).collect()
}

fn walk(steps: &[Step]) -> Walked {
    let (mut state, mut bands, mut walked) = (State::new(), BTreeMap::new(), Walked::default());
    let mut waits: BTreeMap<u64, i32> = BTreeMap::new();
    for step in steps {
        for (place, event) in step.events.iter().enumerate() {
            match event {
                Event::Enqueued(enqueued) => {
                    bands.insert(step.seq, enqueued.priority);
                }
                Event::Dispatched(dispatched) => {
                    let id = dispatched.request.0;
                    let band = bands.get(&id).copied();
                    waits.retain(|waiting, priority| {
                        let answers = band == Some(*priority) && id > *waiting;
                        if answers {
                            walked.next.insert(*waiting, Some((step.seq, id)));
                        }
                        !answers
                    });
                    if band.is_none() {
                        // Admitted at once: its band is that of its lease.
                        let mut after = state.clone();
                        fold(&mut after, step);
                        let priority = after.lease(dispatched.request).unwrap().priority;
                        waits.retain(|waiting, band| {
                            let answers = *band == priority && id > *waiting;
                            if answers {
                                walked.next.insert(*waiting, Some((step.seq, id)));
                            }
                            !answers
                        });
                    }
                }
                Event::Evicted(evicted) => {
                    let id = evicted.request.0;
                    let timed = evicted.budget.is_some_and(|budget| budget.which != BudgetKind::Whole);
                    if timed && strict(&state, bands[&id]) {
                        waits.insert(id, bands[&id]);
                        walked.next.insert(id, None);
                    }
                }
                Event::Rejected(rejected) => {
                    let Some(limit) = rejected.limit else { continue };
                    let Input::Arrived(arrival) = &step.input else { panic!("no arrival: {step:?}") };
                    let mut before = state.clone();
                    let mut so_far = step.clone();
                    so_far.events.truncate(place);
                    fold(&mut before, &so_far);
                    let all = against(&before, rejected.priority, arrival.bytes);
                    assert!(all.contains(&limit.which), "{limit:?} of {all:?}");
                    walked.alone.insert(step.seq, all == [limit.which]);
                }
                Event::StartNoted { .. }
                | Event::PolicyAdopted
                | Event::ObjectivesAdopted
                | Event::BandChanged { .. }
                | Event::BandClosed { .. }
                | Event::PurgeBegun { .. }
                | Event::DrainBegun { .. }
                | Event::ClassRebudgeted { .. } => {
                    for id in std::mem::take(&mut waits).into_keys() {
                        walked.spoiled.insert(id, step.seq);
                    }
                }
                _ => {}
            }
        }
        fold(&mut state, step);
    }
    walked
}

#[test]
fn who_came_next_and_which_limit_stood_alone_is_as_a_plain_walk_finds_it() {
    let (mut answered, mut open, mut alone, mut several) = (0, 0, 0, 0);
    for seed in 1..=4 {
        let steps = World::new(seed).run(6_000);
        let walked = walk(&steps);
        let disk = memory("chat", &steps);
        let all = Projections::open(None, &Source::new(None, Some(Arc::new(disk)))).unwrap();
        all.catch_up(|_, _| {}).unwrap();
        let pool = all.pool("chat").unwrap();
        let work = Work::unbounded();
        let (mut left, mut after) = (walked.next.len() + walked.alone.len(), None);
        loop {
            let page = Page { after, before: None, limit: 1_000, backwards: false };
            let found = pool.requests(&Filter::default(), Order::Arrival, page, &work).unwrap();
            after = found.rows.last().map(|(key, _)| *key);
            for (_, row) in &found.rows {
                let (id, certain) = (row.id, row.end.as_ref().is_some_and(|end| end.certain));
                if let Some(next) = walked.next.get(&id) {
                    let seq = row.end.as_ref().unwrap().spot.seq;
                    let found = pool.next_admitted(seq, row.priority, id, &work).unwrap();
                    let why = found;
                    let found = found.admitted().map(|(Spot { seq, .. }, other)| (seq, other));
                    assert!(
                        certain && found == *next,
                        "request {id} of world {seed}: {found:?}, not {next:?}"
                    );
                    // Why there is none: whoever was walked past last, or nobody yet.
                    assert_eq!(
                        matches!(why, After::Nobody),
                        next.is_none() && !walked.spoiled.contains_key(&id)
                    );
                    if let After::Spoiled(spot) = why {
                        assert_eq!(walked.spoiled.get(&id), Some(&spot.seq), "request {id} of world {seed}");
                    }
                    *(if next.is_some() { &mut answered } else { &mut open }) += 1;
                    left -= 1;
                } else if let Some(stood_alone) = walked.alone.get(&id) {
                    assert_eq!(certain, *stood_alone, "request {id} of world {seed}");
                    *(if *stood_alone { &mut alone } else { &mut several }) += 1;
                    left -= 1;
                } else {
                    assert!(!certain, "request {id} of world {seed}");
                }
            }
            if !found.more {
                break;
            }
        }
        assert_eq!(left, 0, "of world {seed}");
    }
    println!("answered {answered}, open {open}; alone {alone}, several {several}");
    assert!(answered > 50 && open > 5 && alone > 50 && several > 2, "too few to tell");
}
