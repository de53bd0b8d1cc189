//! Goal: what the log has let go of leaves the projections, and nothing else does: the rest is answered as before, old time is
//! said not to be kept, and a fold of what is left finds no less. Method: a log on disk that is sealed and trimmed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{World, append};
use std::collections::BTreeSet;
use std::path::Path;
use weir_kernel::{Micros, Step};
use weir_log::hot::{HotOptions, HotStore};
use weir_log::reader::Logs;
use weir_log::retention::Retention;
use weir_log::store::Store as _;
use weir_log::upkeep::Upkeep;
use weir_projection::{
    After, Anew, Filter, Grain, Kinds, Moment, Order, Page, PoolProjection, ProjectionError, Projections,
    Source, Work,
};

/// Writes and seals in four parts, each with a snapshot at its end.
fn make(data: &Path, steps: &[Step]) {
    let mut store =
        HotStore::open(data, HotOptions { rotate_bytes: 64 << 20, cache_bytes: 8 << 20 }).unwrap();
    for part in steps.chunks(steps.len() / 4) {
        append(&mut store, "chat", part, 200);
        store.rotate_now().unwrap();
        upkeep(&store, Retention::default()).round(Micros(1)).unwrap();
    }
}

fn upkeep(store: &HotStore, retention: Retention) -> Upkeep {
    let id = store.dir().description().log_id_bytes();
    Upkeep::new(store.dir().path(), id, store.format(), store.window(), retention)
}

fn rows(pool: &PoolProjection) -> BTreeSet<u64> {
    let page = Page { after: None, before: None, limit: usize::MAX - 1, backwards: false };
    let found = pool.requests(&Filter::default(), Order::Arrival, page, &Work::unbounded()).unwrap();
    found.rows.iter().map(|(_, row)| row.id).collect()
}

fn notes(pool: &PoolProjection) -> Vec<u64> {
    let mut found = Vec::new();
    let kinds = Kinds::named(&["RegimeChanged".to_owned(), "Evicted".to_owned(), "Held".to_owned()]);
    let span = (0, Micros(0), Micros::MAX);
    pool.notes(kinds, span, &Work::unbounded(), |note| {
        found.push(note.spot.seq);
        Ok(true)
    })
    .unwrap();
    found
}

/// The service was down, or killed again and again, while the log went on and let go of the steps in between.
#[test]
fn projections_that_the_log_has_left_behind_are_folded_anew() {
    let dir = tempfile::tempdir().unwrap();
    let steps = World::new(43).run(40_000);
    let open = || {
        let logs = Logs::open(dir.path()).unwrap();
        let source = Source::new(Some(dir.path()), logs.hot().cloned());
        Projections::open(Some(dir.path()), &source).unwrap()
    };
    let (first, rest) = steps.split_at(5_000);
    make(dir.path(), first);
    open().catch_up(|_, _| {}).unwrap();
    make(dir.path(), rest);
    let now = steps.last().unwrap().at;
    {
        let store = HotStore::open(dir.path(), HotOptions::default()).unwrap();
        let max_age = now.since(steps[steps.len() / 2].at) + Micros(1);
        upkeep(&store, Retention { max_age: Some(max_age), max_bytes: None }).round(now).unwrap();
    }
    let again = {
        let all = open();
        all.catch_up(|_, _| {}).unwrap();
        let pool = all.pool("chat").unwrap();
        let position = pool.position().unwrap();
        assert!(position.begun.seq > 5_001, "{:?}", position.begun);
        assert_eq!(pool.at().seq, 40_000);
        rows(pool)
    };
    // As if nothing had been there.
    Projections::throw_away(dir.path()).unwrap();
    let all = open();
    all.catch_up(|_, _| {}).unwrap();
    assert_eq!(rows(all.pool("chat").unwrap()), again);
    assert!(!again.is_empty());
}

#[test]
fn what_the_log_lets_go_of_leaves_the_projections_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let steps = World::new(41).run(40_000);
    make(dir.path(), &steps);
    let open = || {
        let logs = Logs::open(dir.path()).unwrap();
        let source = Source::new(Some(dir.path()), logs.hot().cloned());
        (Projections::open(Some(dir.path()), &source).unwrap(), logs)
    };
    let work = Work::unbounded();
    let (before, noted, state) = {
        let (all, _logs) = open();
        all.catch_up(|_, _| {}).unwrap();
        let pool = all.pool("chat").unwrap();
        let state = pool.state_at(Moment::Seq(35_000), &work).unwrap().state.digest();
        assert_eq!(pool.position().unwrap().begun.seq, 1);
        (rows(pool), notes(pool), state)
    };
    // The first half of the log is too old from now on.
    let now = steps.last().unwrap().at;
    let half = steps[steps.len() / 2].at;
    {
        let store = HotStore::open(dir.path(), HotOptions::default()).unwrap();
        let retention = Retention { max_age: Some(now.since(half) + Micros(1)), max_bytes: None };
        let trimmed = upkeep(&store, retention).round(now).unwrap().trimmed;
        assert!(trimmed.segments >= 1, "{trimmed:?}");
    }
    let (all, _logs) = open();
    assert_eq!(all.made_anew(), None, "they go on from where they were");
    all.catch_up(|_, _| {}).unwrap();
    let pool = all.pool("chat").unwrap();
    let oldest = pool.position().unwrap().begun.seq;
    assert!(oldest > 5_000 && oldest <= 20_001, "{oldest}");
    // Rows are gone chunk by chunk: those of steps that are kept are all there, and most of the others are not.
    let after = rows(pool);
    assert!(after.is_subset(&before));
    let kept = |rows: &BTreeSet<u64>| rows.range(oldest..).count();
    assert_eq!(kept(&after), kept(&before));
    let (left, had) = (after.range(..oldest).count(), before.range(..oldest).count());
    assert!(had > 3_000 && left < 600 && left * 5 < had, "{left} of {had} rows of trimmed steps are left");
    let gone = before.difference(&after).next().unwrap();
    assert!(pool.request(*gone, &work).unwrap().is_none());
    for id in after.iter().step_by(97) {
        assert!(pool.request(*id, &work).unwrap().is_some(), "{id}");
    }
    let after = notes(pool);
    let kept = |notes: &[u64]| notes.iter().filter(|seq| **seq >= oldest).count();
    assert_eq!(kept(&after), kept(&noted));
    assert!(after.len() - kept(&after) < 300 && after.len() < noted.len());
    // Who was admitted next is not told of a step that is gone: what came in between may be gone with it.
    let next = |seq| pool.next_admitted(seq, 0, 0, &work).unwrap();
    assert!((oldest..40_000).step_by(100).any(|seq| next(seq).admitted().is_some()));
    assert!((1..oldest).step_by(100).chain([oldest - 1]).all(|seq| next(seq) == After::NotKept));
    // No bucket, regime or episode that rests on nothing but what is gone; one regime and one setting from before stay.
    pool.buckets(Grain::Fine, Micros(0), Micros::MAX, &work, |bucket| {
        assert!(bucket.last_seq >= oldest);
        Ok(())
    })
    .unwrap();
    let regimes = pool.regimes(Micros(0), Micros::MAX, usize::MAX, &work).unwrap();
    assert!(regimes.iter().filter(|regime| regime.spot.seq < oldest).count() <= 1);
    assert!(pool.policies(&work).unwrap().iter().filter(|policy| policy.spot.seq < oldest).count() <= 1);
    let episodes = pool.episodes(Micros(0), Micros::MAX, usize::MAX, &work).unwrap();
    assert!(!episodes.is_empty() && episodes.iter().all(|episode| episode.to.seq >= oldest));
    // States: as before where they are kept, and said not to be where they are not.
    assert_eq!(pool.state_at(Moment::Seq(35_000), &work).unwrap().state.digest(), state);
    let error = pool.state_at(Moment::Seq(100), &work).unwrap_err();
    assert!(
        matches!(error, ProjectionError::Trimmed { .. } | ProjectionError::Log(_)),
        "said to be trimmed: {error}"
    );
    // A fold from nothing begins with the oldest state that the log has, and has the same requests from there on.
    let again = rows(pool);
    drop((all, _logs));
    Projections::throw_away(dir.path()).unwrap();
    let (all, _logs) = open();
    assert_eq!(all.made_anew(), Some(&Anew::None));
    all.catch_up(|_, _| {}).unwrap();
    let pool = all.pool("chat").unwrap();
    let (rebuilt, begun) = (rows(pool), pool.position().unwrap().begun.seq);
    assert!(begun >= oldest && begun < 35_000, "{begun}");
    let from = |rows: &BTreeSet<u64>| rows.range(begun + 1..).copied().collect::<Vec<u64>>();
    assert_eq!(from(&rebuilt), from(&again));
}
