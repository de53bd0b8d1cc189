//! Goal: what the read models say of a request, of a span of time and of a moment is what the log says. Method: logs of
//! random worlds, made by the real kernel, are folded; requests are compared with a plain walk over the steps, states
//! with the kernel's own fold, figures with sums over the steps.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{BASE, Random, World, memory};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_kernel::{Event, Input, LeaseEnd, Micros, Outcome, Reason, State, Step, fold};
use weir_log::describe::{event_kind, event_kinds, input_kind};
use weir_projection::{Filter, Grain, Kinds, Moment, Order, Page, Projections, Row, Source, Work};

/// What a plain walk over the log finds of one request.
#[derive(Clone, Debug, Default, PartialEq)]
struct Plain {
    arrived: u64,
    caller_id: String,
    outcome: Option<(u64, Outcome, Option<Reason>, u64)>,
    first_byte: Option<u64>,
    lease_end: Option<(u64, LeaseEnd, u64)>,
    revocations: Vec<u64>,
    effective: Option<i64>,
}

fn walk(steps: &[Step]) -> BTreeMap<u64, Plain> {
    let mut found: BTreeMap<u64, Plain> = BTreeMap::new();
    for step in steps {
        for event in &step.events {
            let mut arrived = |plain: Option<Plain>| {
                let Input::Arrived(arrival) = &step.input else { panic!("no arrival: {step:?}") };
                let new =
                    Plain { arrived: step.at.0, caller_id: arrival.caller_id.clone(), ..Plain::default() };
                found.insert(step.seq, plain.unwrap_or(new));
            };
            match event {
                Event::Enqueued(_) => arrived(None),
                Event::Rejected(rejected) => {
                    arrived(None);
                    let end = (step.seq, rejected.outcome, Some(rejected.reason), 0);
                    found.get_mut(&step.seq).unwrap().outcome = Some(end);
                }
                Event::Dispatched(dispatched) => {
                    let plain = found.get_mut(&dispatched.request.0).unwrap();
                    plain.outcome = Some((step.seq, Outcome::Dispatched, None, dispatched.waited.0));
                    plain.effective = Some(dispatched.effective.0);
                }
                Event::Evicted(evicted) => {
                    let plain = found.get_mut(&evicted.request.0).unwrap();
                    plain.outcome = Some((step.seq, evicted.outcome, Some(evicted.reason), evicted.waited.0));
                }
                Event::LeaseEnded(ended) => {
                    found.get_mut(&ended.request.0).unwrap().lease_end =
                        Some((step.seq, ended.end, ended.ran.0));
                }
                Event::FirstByteNoted { request } => {
                    found.get_mut(&request.0).unwrap().first_byte = Some(step.seq)
                }
                Event::RevocationIssued(issued) => {
                    found.get_mut(&issued.request.0).unwrap().revocations.push(issued.number);
                }
                _ => {}
            }
        }
    }
    found
}

fn plain(row: &Row) -> Plain {
    let lease = row.lease.as_ref();
    Plain {
        arrived: row.arrived_at.0,
        caller_id: row.caller_id.clone(),
        outcome: row.end.as_ref().map(|end| (end.spot.seq, end.outcome, end.reason, end.waited.0)),
        first_byte: lease.and_then(|lease| lease.first_byte).map(|spot| spot.seq),
        lease_end: lease.and_then(|lease| lease.end.as_ref()).map(|end| (end.spot.seq, end.end, end.ran.0)),
        revocations: lease.map(|lease| lease.revocations.clone()).unwrap_or_default(),
        effective: row.end.as_ref().and_then(|end| end.effective).map(|ratio| ratio.0),
    }
}

fn folded(steps: &[Step]) -> Projections {
    let disk = memory("chat", steps);
    let all = Projections::open(None, &Source::new(None, Some(Arc::new(disk)))).unwrap();
    all.catch_up(|_, _| {}).unwrap();
    all
}

#[test]
fn a_thousand_requests_of_random_logs_are_as_a_plain_walk_finds_them() {
    let mut compared = 0;
    let mut kinds = BTreeMap::new();
    for seed in 1..=4 {
        let steps = World::new(seed).run(9_000);
        let (all, walked) = (folded(&steps), walk(&steps));
        let pool = all.pool("chat").unwrap();
        let mut random = Random(seed);
        let ids: Vec<u64> = walked.keys().copied().collect();
        for _ in 0..300 {
            let id = ids[random.below(ids.len() as u64) as usize];
            let row = pool.request(id, &Work::unbounded()).unwrap().expect("it is there");
            assert_eq!(plain(&row), walked[&id], "request {id} of world {seed}");
            *kinds.entry(row.end.map(|end| end.outcome)).or_insert(0) += 1;
            compared += 1;
        }
        assert!(pool.request(u64::MAX, &Work::unbounded()).unwrap().is_none());
        // And every one of them once, by pages.
        let (mut seen, mut after) = (BTreeMap::new(), None);
        loop {
            let page = Page { after, before: None, limit: 250, backwards: false };
            let found = pool.requests(&Filter::default(), Order::Arrival, page, &Work::unbounded()).unwrap();
            after = found.rows.last().map(|(key, _)| *key);
            for (_, row) in found.rows {
                assert!(seen.insert(row.id, plain(&row)).is_none(), "twice");
            }
            if !found.more {
                break;
            }
        }
        assert_eq!(seen, walked);
    }
    assert!(compared >= 1_000 && kinds.len() >= 6, "{compared}: {kinds:?}");
}

#[test]
fn filters_and_orders_give_what_a_look_at_every_row_gives() {
    let steps = World::new(9).run(12_000);
    let all = folded(&steps);
    let pool = all.pool("chat").unwrap();
    let whole = Page { after: None, before: None, limit: 100_000, backwards: false };
    let every = pool.requests(&Filter::default(), Order::Arrival, whole, &Work::unbounded()).unwrap();
    let middle = Micros(BASE + (steps.last().unwrap().at.0 - BASE) / 2);
    let filters = [
        Filter { outcomes: vec![Outcome::EvictedTTL], ..Filter::default() },
        Filter { from: Some(middle), flow: Some("tenant-b".to_owned()), ..Filter::default() },
        Filter { to: Some(middle), priorities: vec![10], revoked: Some(false), ..Filter::default() },
        Filter {
            waited_min: Some(Micros::from_millis(900)),
            model: Some("qwen".to_owned()),
            ..Filter::default()
        },
        Filter { reasons: vec![Reason::NoEndpoints, Reason::NoFreshMetrics], ..Filter::default() },
        Filter { lease_ends: vec![LeaseEnd::Revoked], ..Filter::default() },
        Filter { over: Some(false), ..Filter::default() },
        Filter { caller_id: Some(every.rows[77].1.caller_id.clone()), ..Filter::default() },
        Filter { objective: Some("nobody".to_owned()), ..Filter::default() },
    ];
    for filter in filters {
        for order in [Order::Arrival, Order::ArrivalDesc, Order::Wait, Order::WaitDesc] {
            let mut wanted: Vec<_> = every
                .rows
                .iter()
                .filter(|(_, row)| filter.holds(row))
                .map(|(_, row)| order.key(row))
                .collect();
            wanted.sort_unstable();
            for backwards in [false, true] {
                let page = Page { after: None, before: None, limit: 7, backwards };
                let found = pool.requests(&filter, order, page, &Work::unbounded()).unwrap();
                let keys: Vec<_> = found.rows.iter().map(|(key, _)| *key).collect();
                let count = wanted.len().min(7);
                let expected = if backwards { &wanted[wanted.len() - count..] } else { &wanted[..count] };
                assert_eq!(keys, expected, "{filter:?} {order:?} {backwards}");
                assert_eq!(found.more, wanted.len() > 7);
            }
            let count = pool.count(&filter, u64::MAX, &Work::unbounded()).unwrap();
            assert_eq!(count, (wanted.len() as u64, true));
        }
    }
}

#[test]
fn the_state_at_a_hundred_sequences_and_times_is_the_fold() {
    let steps = World::new(5).run(20_000);
    let all = folded(&steps);
    let pool = all.pool("chat").unwrap();
    let mut random = Random(77);
    let mut wanted: Vec<u64> = (0..100).map(|_| 1 + random.below(steps.len() as u64)).collect();
    wanted.sort_unstable();
    let mut state = State::new();
    let mut done = 0;
    for seq in wanted {
        for step in &steps[done..seq as usize] {
            fold(&mut state, step);
        }
        done = seq as usize;
        let found = pool.state_at(Moment::Seq(seq), &Work::unbounded()).unwrap();
        assert_eq!(found.state.digest(), state.digest(), "at {seq}");
        // By time: after the last step of that instant.
        if steps.get(done).is_none_or(|next| next.at > state.now()) {
            let found = pool.state_at(Moment::Time(state.now()), &Work::unbounded()).unwrap();
            assert_eq!(found.state.digest(), state.digest(), "at {}", state.now().0);
        }
    }
    assert!(pool.state_at(Moment::Seq(steps.len() as u64 + 1), &Work::unbounded()).is_err());
}

#[test]
fn notes_are_the_events_of_a_plain_walk_whatever_is_asked_for() {
    let steps = World::new(6).run(12_000);
    let all = folded(&steps);
    let pool = all.pool("chat").unwrap();
    let kinds: Vec<&str> = event_kinds().iter().copied().filter(|kind| is_noted(&[kind])).collect();
    let (first, last) = (BASE, steps.last().unwrap().at.0);
    let (third, two_thirds) = (first + (last - first) / 3, first + (last - first) / 3 * 2);
    let groups: [&[&str]; 5] = [
        &["RegimeChanged"],
        &["Held", "HoldLifted"],
        &["Evicted", "Rejected"],
        &["ReclamationDecided", "RevocationIssued", "RevocationEnded"],
        &kinds,
    ];
    for wanted in groups {
        for (from, since, until) in [
            (0, 0, u64::MAX),
            (steps.len() as u64 / 2, 0, u64::MAX),
            (0, third, two_thirds),
            (0, last, u64::MAX),
        ] {
            let walked: Vec<(u64, &Event)> = steps
                .iter()
                .filter(|step| step.seq >= from && step.at.0 >= since && step.at.0 < until)
                .flat_map(|step| step.events.iter().map(|event| (step.seq, event)))
                .filter(|(_, event)| wanted.contains(&event_kind(event)))
                .collect();
            let mut found = Vec::new();
            let names: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            let span = (from, Micros(since), Micros(until));
            let at = pool
                .notes(Kinds::named(&names), span, &Work::unbounded(), |note| {
                    assert_eq!(note.input(), input_kind(&steps[note.spot.seq as usize - 1].input));
                    found.push((note.spot.seq, note.event.clone()));
                    Ok(true)
                })
                .unwrap();
            assert_eq!(at.seq, steps.len() as u64);
            let walked: Vec<(u64, Event)> =
                walked.into_iter().map(|(seq, event)| (seq, event.clone())).collect();
            assert_eq!(found, walked, "{wanted:?} from {from} since {since}");
            assert!(from > 0 || since > third || found.len() > 20, "{wanted:?}: {}", found.len());
        }
    }
}

fn is_noted(kinds: &[&str]) -> bool {
    Kinds::named(&kinds.iter().map(ToString::to_string).collect::<Vec<_>>()).are_noted()
}

#[test]
fn spans_in_the_middle_of_a_log_hold_what_a_look_at_all_of_it_finds_there() {
    let steps = World::new(8).run(15_000);
    let all = folded(&steps);
    let pool = all.pool("chat").unwrap();
    let work = Work::unbounded();
    let (first, last) = (BASE, steps.last().unwrap().at.0);
    let regimes = pool.regimes(Micros(0), Micros::MAX, usize::MAX, &work).unwrap();
    let episodes = pool.episodes(Micros(0), Micros::MAX, usize::MAX, &work).unwrap();
    let decided = pool.reclamations(Micros(0), Micros::MAX, usize::MAX, &work).unwrap();
    assert!(regimes.len() > 20 && episodes.len() > 20 && decided.len() > 5);
    let mut random = Random(3);
    for _ in 0..60 {
        let from = Micros(first + random.below(last - first));
        let to = Micros(from.0 + 1 + random.below(120_000_000));
        let began = regimes.iter().rposition(|regime| regime.spot.at <= from).unwrap_or(0);
        let wanted: Vec<_> =
            regimes[began..].iter().take_while(|regime| regime.spot.at < to).cloned().collect();
        assert_eq!(pool.regimes(from, to, usize::MAX, &work).unwrap(), wanted, "{from:?} to {to:?}");
        let touches = |episode: &&weir_projection::Episode| {
            episode.from.at < to && (episode.to.at >= from || !episode.over)
        };
        let wanted: Vec<_> = episodes.iter().filter(touches).cloned().collect();
        assert_eq!(pool.episodes(from, to, usize::MAX, &work).unwrap(), wanted);
        let within = |decided: &&weir_projection::Decided| decided.spot.at >= from && decided.spot.at < to;
        let wanted: Vec<_> = decided.iter().filter(within).cloned().collect();
        assert_eq!(pool.reclamations(from, to, usize::MAX, &work).unwrap(), wanted);
    }
}

#[test]
fn buckets_add_up_to_what_the_steps_hold() {
    let steps = World::new(3).run(15_000);
    let all = folded(&steps);
    let pool = all.pool("chat").unwrap();
    let walked = walk(&steps);
    for grain in [Grain::Fine, Grain::Coarse] {
        let mut outcomes: BTreeMap<Outcome, (u64, u64)> = BTreeMap::new();
        let (mut arrivals, mut ends, mut buckets) = (0, 0, 0);
        pool.buckets(grain, Micros(0), Micros::MAX, &Work::unbounded(), |bucket| {
            for (key, cell) in &bucket.cells {
                let entry = outcomes.entry(key.outcome).or_default();
                entry.0 += cell.count;
                entry.1 += cell.waits.sum;
            }
            arrivals += bucket.arrivals;
            ends += bucket.lease_ends.values().sum::<u64>();
            buckets += 1;
            Ok(())
        })
        .unwrap();
        let mut wanted: BTreeMap<Outcome, (u64, u64)> = BTreeMap::new();
        for (_, outcome, _, waited) in walked.values().filter_map(|plain| plain.outcome) {
            let entry = wanted.entry(outcome).or_default();
            entry.0 += 1;
            entry.1 += waited;
        }
        assert_eq!(outcomes, wanted);
        assert_eq!(
            arrivals,
            steps.iter().filter(|step| matches!(step.input, Input::Arrived(_))).count() as u64
        );
        assert_eq!(ends, walked.values().filter(|plain| plain.lease_end.is_some()).count() as u64);
        assert!(buckets > 1, "{buckets}");
    }
    let (depth, bytes) = pool.with_state(|state| (state.queued(), state.queued_bytes()));
    let mut last = (0, 0);
    pool.buckets(Grain::Fine, Micros(0), Micros::MAX, &Work::unbounded(), |bucket| {
        last = (bucket.queue.requests.last, bucket.queue.bytes.last);
        Ok(())
    })
    .unwrap();
    assert_eq!(last, (depth, bytes));
}

#[test]
fn a_question_ends_when_its_time_is_over() {
    let steps = World::new(4).run(9_000);
    let all = folded(&steps);
    let pool = all.pool("chat").unwrap();
    let work = Work::unbounded();
    work.cancel();
    let page = Page { after: None, before: None, limit: 9, backwards: false };
    assert!(pool.requests(&Filter::default(), Order::Arrival, page, &work).is_err());
    assert!(pool.state_at(Moment::Seq(5_000), &work).is_err());
}
