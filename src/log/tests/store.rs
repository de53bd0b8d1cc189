//! Goal: what the seam promises holds for the hot window and for its twin in memory alike, and what only the hot
//! window has to promise (databases in a row, a mark beside them) holds as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::batch;
use std::fs;
use std::path::Path;
use std::time::Duration;
use weir_kernel::Micros;
use weir_log::hot::{HotOptions, HotStore};
use weir_log::memory::{MemoryDisk, MemoryStore};
use weir_log::store::{Frames, Store};
use weir_log::{Head, LogError, mark};

type Again<'a> = dyn FnMut(Box<dyn Store>) -> Box<dyn Store> + 'a;

/// Runs the same test over both stores; `again` closes the store and opens it anew.
fn both(test: fn(store: Box<dyn Store>, again: &mut Again<'_>)) {
    let disk = MemoryDisk::new();
    test(Box::new(MemoryStore::open(&disk)), &mut |store| {
        drop(store);
        Box::new(MemoryStore::open(&disk))
    });
    let dir = tempfile::tempdir().unwrap();
    test(Box::new(open(dir.path())), &mut |store| {
        drop(store);
        Box::new(open(dir.path()))
    });
}

fn open(path: &Path) -> HotStore {
    HotStore::open(path, HotOptions::default()).unwrap()
}

fn commit(store: &mut dyn Store, pool: &str, count: u64, filler: usize) -> Head {
    let frame = batch(pool, &store.head(pool), count, filler);
    store.write(std::slice::from_ref(&frame)).unwrap();
    store.sync().unwrap();
    Head::of(&frame)
}

fn sequences(frames: &dyn Frames, pool: &str, from: u64, bytes: usize) -> Vec<(u64, u64)> {
    let read = frames.read(pool, from, bytes).unwrap();
    read.iter().map(|frame| (frame.header.first_seq, frame.header.last_seq())).collect()
}

#[test]
fn batches_read_back_from_any_sequence_and_after_a_restart() {
    both(|mut store, again| {
        for _ in 0..3 {
            commit(&mut *store, "a", 10, 20);
        }
        commit(&mut *store, "b", 5, 20_000); // Parts: 100,000 bytes are 17 values.
        for _ in 0..2 {
            let frames = store.frames();
            assert_eq!(frames.pools(), ["a".into(), "b".into()]);
            assert_eq!((frames.head("a").seq, frames.head("b").seq, frames.head("c").seq), (30, 5, 0));
            assert_eq!((frames.oldest("a"), frames.oldest("c")), (Some(1), None));
            assert_eq!(sequences(&*frames, "a", 1, usize::MAX), [(1, 10), (11, 20), (21, 30)]);
            assert_eq!(sequences(&*frames, "a", 20, usize::MAX), [(11, 20), (21, 30)]);
            assert_eq!(sequences(&*frames, "a", 21, usize::MAX), [(21, 30)]);
            assert_eq!(sequences(&*frames, "a", 12, 1), [(11, 20)], "at least one");
            assert_eq!(sequences(&*frames, "a", 31, usize::MAX), []);
            assert_eq!(sequences(&*frames, "c", 1, usize::MAX), []);
            let frame = &frames.read("b", 3, 1).unwrap()[0];
            assert_eq!(frame.steps().unwrap(), common::steps(1, 5, 20_000));
            store = again(store);
        }
        assert_eq!(commit(&mut *store, "a", 1, 20).seq, 31, "it goes on where it ended");
    });
}

#[test]
fn a_batch_that_does_not_follow_is_refused_and_nothing_of_its_list_is_written() {
    both(|mut store, _| {
        let head = commit(&mut *store, "a", 10, 20);
        let good = batch("a", &head, 5, 20);
        let gap = batch("a", &Head { seq: 99, ..head }, 5, 20);
        let twice = batch("a", &Head::default(), 10, 20);
        let swapped = batch("a", &Head { hash: [1; 32], ..head }, 5, 20);
        let early = {
            let steps =
                common::steps(11, 1, 1).into_iter().map(|step| weir_kernel::Step { at: Micros(1), ..step });
            weir_log::Frame::encode(&"a".into(), head.hash, Micros(7), &steps.collect::<Vec<_>>()).unwrap()
        };
        for bad in [gap, twice, swapped, early] {
            let error = store.write(&[good.clone(), bad]).unwrap_err();
            assert!(matches!(error, LogError::Frame(_)), "{error}");
        }
        assert_eq!(store.head("a"), head);
        store.write(&[good]).expect("a mistake of the caller breaks nothing");
    });
}

#[test]
fn readers_see_durable_batches_only_and_can_wait_for_them() {
    both(|mut store, _| {
        let frames = store.frames();
        let first = batch("a", &Head::default(), 10, 20);
        store.write(&[first.clone(), batch("b", &Head::default(), 2, 20)]).unwrap();
        assert_eq!(frames.head("a"), Head::default());
        assert_eq!(sequences(&*frames, "a", 1, usize::MAX), []);
        assert_eq!(frames.wait("a", 0, Duration::ZERO).seq, 0);
        let waiter = std::thread::spawn(move || frames.wait("a", 0, Duration::from_secs(20)));
        store.sync().unwrap();
        assert_eq!(waiter.join().unwrap(), Head::of(&first));
        store.write(&[batch("a", &Head::of(&first), 10, 20)]).unwrap();
        let frames = store.frames();
        assert_eq!(sequences(&*frames, "a", 1, usize::MAX), [(1, 10)]);
    });
}

#[test]
fn reopening_reads_the_heads_back() {
    both(|mut store, _| {
        let head = commit(&mut *store, "a", 10, 20);
        store.write(&[batch("a", &head, 5, 20)]).unwrap();
        store.reopen().unwrap();
        let back = store.head("a");
        assert!([10, 15].contains(&back.seq), "in doubt was 11 to 15 only, found {}", back.seq);
        commit(&mut *store, "a", 1, 20);
        assert_eq!(store.frames().head("a").seq, back.seq + 1);
    });
}

#[test]
fn the_hot_window_goes_on_in_a_new_database_and_gives_the_old_ones_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let options = HotOptions { rotate_bytes: 2 << 20, ..HotOptions::default() };
    let mut store = HotStore::open(dir.path(), options.clone()).unwrap();
    let quiet = commit(&mut store, "quiet", 1, 20);
    while store.window().closed().len() < 2 {
        commit(&mut store, "busy", 20, 1_000);
    }
    drop(store);
    let mut store = HotStore::open(dir.path(), options.clone()).unwrap();
    let window = store.window();
    let head = store.head("busy").seq;
    let read = sequences(&*window, "busy", 1, usize::MAX);
    assert_eq!((read[0].0, read.last().unwrap().1), (1, head));
    assert!(read.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "no gap between databases");
    let small = window.read("busy", 1, 50_000).unwrap();
    assert!(small.len() < read.len() && small[0].header.first_seq == 1);

    let closed = window.closed();
    assert_eq!(closed.iter().map(|old| old.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(closed[0].pools["quiet"], (1, 1));
    assert!(window.delete(2).is_err(), "the oldest goes first");
    assert!(window.delete(3).is_err(), "the one being written stays");
    let before = window.disk_bytes();
    window.delete(1).unwrap();
    assert!(!dir.path().join("hot/000001").exists());
    assert!(window.disk_bytes() < before);
    let oldest = closed[1].pools["busy"].0;
    assert_eq!(window.oldest("busy"), Some(oldest));
    assert_eq!(
        window.read("busy", 1, 1).unwrap_err(),
        LogError::Trimmed { pool: "busy".into(), wanted: 1, oldest }
    );
    drop(store);
    store = HotStore::open(dir.path(), options).unwrap();
    assert_eq!(store.head("quiet"), quiet, "a pool keeps its head when its batches are gone from here");
    assert_eq!(commit(&mut store, "quiet", 1, 20).seq, 2);
    assert_eq!(store.head("busy").seq, head);
}

#[test]
fn a_database_that_lost_its_tail_or_is_another_one_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    for _ in 0..5 {
        commit(&mut store, "a", 10, 100);
    }
    drop(store);
    let short = dir.path().join("short");
    copy(&dir.path().join("hot"), &short);
    let mut store = open(dir.path());
    for _ in 0..5 {
        commit(&mut store, "a", 10, 100);
    }
    drop(store);

    let hot = dir.path().join("hot");
    fs::rename(&hot, dir.path().join("whole")).unwrap();
    fs::rename(&short, &hot).unwrap();
    let error = HotStore::open(dir.path(), HotOptions::default()).err().unwrap();
    assert!(matches!(error, LogError::TailMissing { found: 50, expected: 100, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("50 steps are missing") && text.contains("weir log import"), "{text}");

    // The same length, but not the same batches.
    let other = tempfile::tempdir().unwrap();
    let mut store = open(other.path());
    for _ in 0..10 {
        commit(&mut store, "a", 10, 101);
    }
    drop(store);
    fs::remove_dir_all(&hot).unwrap();
    copy(&other.path().join("hot"), &hot);
    let error = HotStore::open(dir.path(), HotOptions::default()).err().unwrap();
    assert!(matches!(error, LogError::HeadDiffers { seq: 100, .. }), "{error}");

    fs::remove_dir_all(&hot).unwrap();
    let error = HotStore::open(dir.path(), HotOptions::default()).err().unwrap().to_string();
    assert!(error.contains("hot/000001") && error.contains("missing"), "{error}");

    fs::rename(dir.path().join("whole"), &hot).unwrap();
    assert_eq!(open(dir.path()).head("a").seq, 100);
    fs::remove_file(dir.path().join("mark")).unwrap();
    let error = HotStore::open(dir.path(), HotOptions::default()).err().unwrap().to_string();
    assert!(error.contains("mark"), "{error}");
}

#[test]
fn a_log_put_together_elsewhere_goes_on_where_its_mark_says() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let head = Head { seq: 4_000, hash: [5; 32], at: Micros(9_000) };
    let pools = [("a".into(), (head, head))].into();
    fs::remove_dir_all(dir.path().join("hot")).unwrap();
    mark::create(&dir.path().join("mark"), &mark::Mark { generation: 0, pools }).unwrap();
    let mut store = open(dir.path());
    assert_eq!(store.head("a"), head);
    let steps = vec![weir_kernel::Step {
        seq: 4_001,
        at: Micros(9_001),
        input: weir_kernel::Input::TimePassed,
        events: vec![],
    }];
    let frame = weir_log::Frame::encode(&"a".into(), head.hash, Micros(1), &steps).unwrap();
    store.write(&[frame]).unwrap();
    store.sync().unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!((store.head("a").seq, store.frames().oldest("a")), (4_001, Some(4_001)));
}

#[test]
fn a_generation_that_was_cut_off_at_its_beginning_still_learns_where_the_logs_ended() {
    let (dir, fresh) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut store = open(dir.path());
    commit(&mut store, "a", 10, 20);
    let quiet = commit(&mut store, "b", 10, 20);
    drop(store);
    drop(open(fresh.path()));
    copy(&fresh.path().join("hot/000001"), &dir.path().join("hot/000002"));
    let path = dir.path().join("mark");
    let written = mark::read(&path).unwrap();
    mark::create(&path, &mark::Mark { generation: 2, ..written }).unwrap();

    let mut store = open(dir.path());
    assert_eq!(commit(&mut store, "a", 5, 20).seq, 15);
    store.window().delete(1).unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!((store.head("b"), store.head("a").seq), (quiet, 15));
    assert_eq!(store.frames().oldest("a"), Some(11));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// With a sync now and then (`interval`) a database is left while batches of it are not durable. When it may be deleted,
/// the mark must not name an end within it: after a loss of power then nobody could find that end again.
#[test]
fn c105_a_database_may_go_only_when_the_mark_names_an_end_beyond_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = HotOptions { rotate_bytes: 1 << 20, ..HotOptions::default() };
    let mut store = HotStore::open(dir.path(), options).unwrap();
    let mut left = 0;
    for _ in 0..10_000 {
        let generation = mark::read(&dir.path().join("mark")).unwrap().generation;
        for _ in 0..20 {
            let frame = batch("a", &store.head("a"), 4, 2_000);
            store.write(std::slice::from_ref(&frame)).unwrap();
        }
        store.sync().unwrap();
        let mark = mark::read(&dir.path().join("mark")).unwrap();
        if generation > 0 && mark.generation > generation {
            left += 1;
            let (durable, _) = mark.pools["a"];
            assert_eq!(durable, store.head("a"), "as generation {} begins", mark.generation);
        }
        if left == 3 {
            return;
        }
    }
    panic!("{left} databases were left");
}
