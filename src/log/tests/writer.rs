//! Goal: a batch is released once it is durable and not before, in order, each exactly once, whatever fails between.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::steps;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_log::hot::{HotOptions, HotStore};
use weir_log::memory::{MemoryDisk, MemoryStore};
use weir_log::store::{Frames, Store};
use weir_log::writer::{Durability, Durable, LogStatus, Release, Writer, WriterHandle, WriterOptions};
use weir_log::{Chain, Head, LogError};

const LONG: Duration = Duration::from_secs(60);

type Answer = (String, Result<Durable, LogError>);

fn options() -> WriterOptions {
    let ms = Duration::from_millis;
    WriterOptions { retry_min: ms(1), retry_max: ms(4), ..WriterOptions::default() }
}

fn release(to: &Sender<Answer>, pool: &str) -> Release {
    let (to, pool) = (to.clone(), pool.to_owned());
    Box::new(move |result| to.send((pool, result)).unwrap())
}

fn submit(writer: &WriterHandle, to: &Sender<Answer>, pool: &str, from: u64, count: u64) {
    writer.submit(&Arc::from(pool), &steps(from, count, 30), release(to, pool)).unwrap();
}

fn spans(answers: &Receiver<Answer>, count: usize) -> Vec<(String, u64, u64)> {
    (0..count)
        .map(|_| {
            let (pool, result) = answers.recv_timeout(LONG).expect("a batch was never released");
            let durable = result.unwrap();
            (pool, durable.first_seq, durable.last_seq)
        })
        .collect()
}

/// Every step of the pool's log, held to the chain.
fn logged(frames: &dyn Frames, pool: &str) -> Vec<u64> {
    let frames = frames.read(pool, 1, usize::MAX).unwrap();
    let mut chain = Chain::after(Head::default());
    frames
        .iter()
        .flat_map(|frame| {
            chain.follow(frame).unwrap();
            frame.steps().unwrap()
        })
        .map(|step| step.seq)
        .collect()
}

#[test]
fn batches_of_all_pools_are_durable_when_released_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let disk = MemoryDisk::new();
    let hot = HotStore::open(dir.path(), HotOptions::default()).unwrap();
    let stores: [Box<dyn Store>; 2] = [Box::new(MemoryStore::open(&disk)), Box::new(hot)];
    for store in stores {
        let writer = Writer::spawn(store, options()).unwrap();
        let frames = writer.frames();
        let (to, answers) = channel();
        for round in 0..40 {
            for (pool, count) in [("a", 3), ("b", 1)] {
                let (frames, to) = (frames.clone(), to.clone());
                let release: Release = Box::new(move |result| {
                    let durable = result.unwrap();
                    assert!(frames.head(pool).seq >= durable.last_seq, "released before it was durable");
                    to.send((pool.to_owned(), Ok(durable))).unwrap();
                });
                writer.submit(&Arc::from(pool), &steps(round * count + 1, count, 30), release).unwrap();
            }
        }
        let spans = spans(&answers, 80);
        let of = |name| spans.iter().filter(move |(pool, ..)| pool == name).map(|span| (span.1, span.2));
        assert!(of("a").eq((0..40).map(|round| (round * 3 + 1, round * 3 + 3))));
        assert!(of("b").eq((0..40).map(|round| (round + 1, round + 1))));
        let metrics = writer.metrics();
        assert_eq!((metrics.batches, metrics.steps, metrics.failures), (80, 160, 0));
        assert_eq!(metrics.flush_buckets.iter().sum::<u64>(), metrics.commits);
        let store = writer.close().unwrap();
        assert!(logged(&*frames, "b").into_iter().eq(1..=40));
        drop(store);
    }
    let store = HotStore::open(dir.path(), HotOptions::default()).unwrap();
    assert!(logged(&*store.frames(), "a").into_iter().eq(1..=120));
}

#[test]
fn c104_while_the_log_cannot_be_written_nothing_is_released_and_nothing_is_lost() {
    for (fault, what) in [
        (MemoryDisk::fail_writes as fn(&MemoryDisk, u32), "writes"),
        (MemoryDisk::fail_syncs, "syncs"),
        (|disk: &MemoryDisk, count| (disk.fail_writes(1), disk.fail_reopens(count)).1, "reopenings"),
    ] {
        let disk = MemoryDisk::new();
        let writer = Writer::spawn(Box::new(MemoryStore::open(&disk)), options()).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let watched = seen.clone();
        writer.watch(move |status| watched.lock().unwrap().push(*status == LogStatus::Writable));
        let (to, answers) = channel();
        submit(&writer, &to, "a", 1, 5);
        spans(&answers, 1);
        fault(&disk, 5);
        for (pool, from) in [("a", 6), ("b", 1), ("a", 11)] {
            submit(&writer, &to, pool, from, 5);
        }
        let got = spans(&answers, 3);
        let want = [("a", 6, 10), ("b", 1, 5), ("a", 11, 15)].map(|(pool, a, b)| (pool.to_owned(), a, b));
        assert_eq!(got, want, "{what}");
        assert!(logged(&disk, "a").into_iter().eq(1..=15), "{what}");
        assert!(writer.writable());
        writer.close();
        let seen = seen.lock().unwrap();
        assert!(seen[0] && !seen[1] && *seen.last().unwrap(), "{what}: {seen:?}");
        assert!(answers.try_recv().is_err(), "{what}: released twice");
    }
}

#[test]
fn a_log_that_stays_unwritable_answers_each_batch_when_the_writer_stops() {
    let disk = MemoryDisk::new();
    let writer = Writer::spawn(Box::new(MemoryStore::open(&disk)), options()).unwrap();
    disk.fail_all(true);
    let (to, answers) = channel();
    submit(&writer, &to, "a", 1, 5);
    submit(&writer, &to, "a", 6, 5);
    while writer.writable() {
        std::thread::yield_now();
    }
    assert!(matches!(writer.status(), LogStatus::Unavailable { .. }));
    assert!(answers.try_recv().is_err());
    writer.close();
    for _ in 0..2 {
        assert_eq!(answers.recv_timeout(LONG).unwrap().1, Err(LogError::Closed));
    }
    let error = writer.submit(&"a".into(), &steps(11, 1, 1), release(&to, "a")).unwrap_err();
    assert_eq!(error, LogError::Closed);
    assert_eq!(logged(&disk, "a"), [0; 0]);
}

#[test]
fn a_batch_that_does_not_follow_is_answered_and_the_others_go_on() {
    let disk = MemoryDisk::new();
    let writer = Writer::spawn(Box::new(MemoryStore::open(&disk)), options()).unwrap();
    let (to, answers) = channel();
    for from in [1, 9, 6] {
        submit(&writer, &to, "a", from, 5);
    }
    let results: Vec<_> = (0..3).map(|_| answers.recv_timeout(LONG).unwrap().1).collect();
    let bad = results.iter().filter_map(|result| result.as_ref().err()).collect::<Vec<_>>();
    assert_eq!(bad.len(), 1);
    assert!(bad[0].to_string().contains("sequence 9"), "{}", bad[0]);
    assert!(logged(&disk, "a").into_iter().eq(1..=10));
    assert!(writer.writable());
    assert!(writer.submit(&"a".into(), &[], release(&to, "a")).is_err());
}

#[test]
fn interval_durability_releases_first_and_syncs_within_its_time() {
    let disk = MemoryDisk::new();
    let hour = Durability::Interval(Duration::from_secs(3_600));
    let slow = WriterOptions { durability: hour, ..options() };
    let writer = Writer::spawn(Box::new(MemoryStore::open(&disk)), slow.clone()).unwrap();
    let (to, answers) = channel();
    submit(&writer, &to, "a", 1, 5);
    spans(&answers, 1);
    assert_eq!(disk.batches("a").len(), 0, "released, not durable");
    writer.close();
    assert!(logged(&disk, "a").into_iter().eq(1..=5), "an orderly end syncs");

    let writer = Writer::spawn(Box::new(MemoryStore::open(&disk)), slow).unwrap();
    submit(&writer, &to, "a", 6, 5);
    spans(&answers, 1);
    disk.fail_writes(1);
    submit(&writer, &to, "a", 11, 5);
    spans(&answers, 1);
    drop(writer);
    assert!(logged(&disk, "a").into_iter().eq(1..=15), "what was released before a failure is written again");

    let quick = Durability::Interval(Duration::from_millis(2));
    let writer =
        Writer::spawn(Box::new(MemoryStore::open(&disk)), WriterOptions { durability: quick, ..options() })
            .unwrap();
    submit(&writer, &to, "a", 16, 5);
    assert_eq!(writer.frames().wait("a", 19, LONG).seq, 20, "it is never synced");
}

#[test]
fn a_full_queue_makes_producers_wait_and_loses_nothing() {
    let disk = MemoryDisk::new();
    let narrow = WriterOptions { queue_batches: 2, commit_bytes_max: 1, ..options() };
    let writer = Writer::spawn(Box::new(MemoryStore::open(&disk)), narrow).unwrap();
    let (to, answers) = channel();
    std::thread::scope(|scope| {
        for pool in ["a", "b", "c"] {
            let (writer, to) = (&writer, to.clone());
            scope.spawn(move || (0..200).for_each(|n| submit(writer, &to, pool, n + 1, 1)));
        }
    });
    assert_eq!(spans(&answers, 600).len(), 600);
    assert!(logged(&disk, "c").into_iter().eq(1..=200));
}
