//! Goal: whatever instant the process dies at, the projections come back, with nothing twice and nothing missing. Method:
//! a child (this test's own binary) follows a log on disk and is killed at random instants, 50 times; at the end they must
//! equal those that were folded in one go.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Random, World, append};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_kernel::{Micros, Step};
use weir_log::memory::MemoryDisk;
use weir_projection::{Anew, Filter, Grain, Order, Page, Projections, Row, Source, Work};

const CHILD: &str = "WEIR_TEST_FOLLOW";

/// Everything that the projections of the pool say.
#[derive(Debug, PartialEq)]
struct Said {
    rows: Vec<Row>,
    buckets: Vec<weir_projection::Bucket>,
    coarse: Vec<weir_projection::Bucket>,
    regimes: Vec<weir_projection::RegimeBegan>,
    policies: Vec<weir_projection::PolicyBegan>,
    decided: Vec<weir_projection::Decided>,
    revocations: Vec<weir_projection::Revocation>,
    episodes: Vec<weir_projection::Episode>,
    digest: [u8; 32],
    count: u64,
}

fn said(all: &Projections) -> Said {
    let (pool, work) = (all.pool("chat").unwrap(), Work::unbounded());
    let page = Page { after: None, before: None, limit: usize::MAX - 1, backwards: false };
    let rows = pool.requests(&Filter::default(), Order::Arrival, page, &work).unwrap().rows;
    let buckets = |grain| {
        let mut found = Vec::new();
        pool.buckets(grain, Micros(0), Micros::MAX, &work, |bucket| {
            found.push(bucket.clone());
            Ok(())
        })
        .unwrap();
        found
    };
    Said {
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        buckets: buckets(Grain::Fine),
        coarse: buckets(Grain::Coarse),
        regimes: pool.regimes(Micros(0), Micros::MAX, usize::MAX, &work).unwrap(),
        policies: pool.policies(&work).unwrap(),
        decided: pool.reclamations(Micros(0), Micros::MAX, usize::MAX, &work).unwrap(),
        revocations: pool.revocations(1, usize::MAX, &work).unwrap(),
        episodes: pool.episodes(Micros(0), Micros::MAX, usize::MAX, &work).unwrap(),
        digest: pool.with_state(weir_kernel::State::digest),
        count: pool.count(&Filter::default(), u64::MAX, &work).unwrap().0,
    }
}

/// Rows go to chunks a commit at a time here, so that a kill meets every part of the work.
fn follow(data: &Path, pause: Duration) {
    let logs = weir_log::reader::Logs::open(data).unwrap();
    let source = Source::new(Some(data), logs.hot().cloned());
    let all = Projections::open(Some(data), &source).unwrap();
    let pool = all.pool("chat").unwrap();
    let mut feed = weir_projection::Feed::new(source, "chat");
    while pool.advance(&mut feed).unwrap() > 0 {
        pool.commit().unwrap();
        std::thread::sleep(pause);
    }
}

fn make_log(data: &Path, steps: &[Step]) {
    let mut store = weir_log::hot::HotStore::open(data, weir_log::hot::HotOptions::default()).unwrap();
    append(&mut store, "chat", steps, 911);
}

#[test]
fn fifty_kills_leave_nothing_twice_and_nothing_missing() {
    if let Ok(data) = std::env::var(CHILD) {
        follow(Path::new(&data), Duration::from_millis(1));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let steps = World::new(21).run(60_000);
    make_log(dir.path(), &steps);
    let mut random = Random(99);
    let (mut kills, mut starts) = (0, 0);
    while kills < 50 {
        starts += 1;
        assert!(starts < 400, "{kills} kills in {starts} starts");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fifty_kills_leave_nothing_twice_and_nothing_missing", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_millis(20 + random.below(140));
        let mut ended = false;
        while Instant::now() < until && !ended {
            ended = child.try_wait().unwrap().is_some();
            std::thread::yield_now();
        }
        if ended {
            // All is folded: start over, so that there is something to kill.
            std::fs::remove_dir_all(Projections::dir(dir.path())).unwrap();
            continue;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    follow(dir.path(), Duration::ZERO);
    let logs = weir_log::reader::Logs::open(dir.path()).unwrap();
    let source = Source::new(Some(dir.path()), logs.hot().cloned());
    let all = Projections::open(Some(dir.path()), &source).unwrap();
    assert_eq!(all.made_anew(), None);
    let disk = common::memory("chat", &steps);
    let once = Projections::open(None, &Source::new(None, Some(Arc::new(disk)))).unwrap();
    once.catch_up(|_, _| {}).unwrap();
    assert_eq!(said(&all), said(&once));
    assert!(said(&once).count > 10_000);
}

#[test]
fn a_fold_in_one_go_and_one_with_a_commit_after_every_batch_say_the_same() {
    let steps = World::new(22).run(12_000);
    let disk = common::memory("chat", &steps);
    let source = Source::new(None, Some(Arc::new(disk)));
    let once = Projections::open(None, &source).unwrap();
    once.catch_up(|_, _| {}).unwrap();
    let often = Projections::open(None, &source).unwrap();
    let pool = often.pool("chat").unwrap();
    let mut feed = weir_projection::Feed::new(source, "chat");
    while pool.advance(&mut feed).unwrap() > 0 {
        pool.commit().unwrap();
        pool.reload().unwrap();
    }
    assert_eq!(said(&often), said(&once));
}

#[test]
fn what_is_written_while_it_follows_is_there_soon_and_a_rebuild_says_the_same() {
    let steps = World::new(23).run(6_000);
    let disk = MemoryDisk::new();
    let mut store = weir_log::memory::MemoryStore::open(&disk);
    append(&mut store, "chat", &steps[..10], 10);
    let source = Source::new(None, Some(Arc::new(disk)));
    let all = Projections::open(None, &source).unwrap();
    let followers = all.follow().unwrap();
    append(&mut store, "chat", &steps[10..], 61);
    let until = Instant::now() + Duration::from_secs(60);
    while all.pool("chat").unwrap().at().seq < steps.len() as u64 {
        assert!(Instant::now() < until, "{:?}", all.pool("chat").unwrap().position());
        std::thread::yield_now();
    }
    drop(followers);
    let before = said(&all);
    let (anew, mut heard) = (Projections::open(None, &source).unwrap(), 0);
    anew.catch_up(|_, position| heard = position.at.seq).unwrap();
    assert_eq!((said(&anew), heard), (before, steps.len() as u64));
}

#[test]
fn projections_of_another_log_are_thrown_away() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let steps = World::new(24).run(3_000);
    make_log(one.path(), &steps);
    make_log(two.path(), &World::new(25).run(3_000));
    follow(one.path(), Duration::ZERO);
    std::fs::rename(Projections::dir(one.path()), Projections::dir(two.path())).unwrap();
    let logs = weir_log::reader::Logs::open(two.path()).unwrap();
    let all =
        Projections::open(Some(two.path()), &Source::new(Some(two.path()), logs.hot().cloned())).unwrap();
    let why = all.made_anew();
    assert!(matches!(why, Some(Anew::OtherLog { .. })), "{why:?}");
}
