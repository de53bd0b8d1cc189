//! Sealing, snapshots and retention around a hot window that is being written.

use super::*;
use crate::dir;
use crate::hot::{HotOptions, HotStore};
use crate::reader::{Bound, Logs};
use crate::snapshot::recover;
use crate::store::Store;
use crate::world::World;
use weir_kernel::State;

fn disk(path: &Path) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path).unwrap().flatten() {
        let kind = entry.metadata().unwrap();
        bytes += if kind.is_dir() { disk(&entry.path()) } else { kind.len() };
    }
    bytes
}

fn store(data: &Path, rotate_bytes: u64) -> HotStore {
    HotStore::open(data, HotOptions { rotate_bytes, cache_bytes: 8 << 20 }).unwrap()
}

fn upkeep(store: &HotStore, retention: Retention) -> Upkeep {
    let id = store.dir().description().log_id_bytes();
    Upkeep::new(store.dir().path(), id, store.format(), store.window(), retention)
}

#[test]
fn state_comes_back_from_snapshot_and_tail_and_from_the_older_one_if_the_newer_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 64 << 20);
    let mut world = World::new("chat", 7);
    for _ in 0..3 {
        store.write(&world.frames(20, 30)).unwrap();
        store.sync().unwrap();
        store.rotate_now().unwrap();
        let round = upkeep(&store, Retention::default()).round(Micros(1)).unwrap();
        assert_eq!(round.deleted.len(), 1);
        assert_eq!(round.snapshots, [("chat".to_owned(), world.head.seq)]);
    }
    store.write(&world.frames(5, 10)).unwrap();
    store.sync().unwrap();

    let check = |from: Option<u64>| {
        let logs = Logs::of_dir(dir.path(), Some(store.frames())).unwrap();
        let recovered = recover(&logs, "chat").unwrap();
        assert_eq!(recovered.from_snapshot, from);
        assert_eq!(recovered.head, world.head);
        assert_eq!(recovered.state.digest(), world.state.digest());
        assert_eq!(recovered.tail_steps, world.head.seq - from.unwrap_or(0));
        logs.snapshots("chat").to_vec()
    };
    let kept = check(Some(1_800));
    assert_eq!(kept.iter().map(|s| s.seq).collect::<Vec<_>>(), [1_200, 1_800]);
    for damaged in [1, 0] {
        let mut bytes = std::fs::read(&kept[damaged].path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&kept[damaged].path, bytes).unwrap();
        check([None, Some(1_200)][damaged]);
    }
    // Without a usable snapshot the beginning of the log is needed.
    let first = crate::segment::list(dir.path(), "chat").unwrap().remove(0);
    std::fs::remove_file(first.path).unwrap();
    let logs = Logs::of_dir(dir.path(), Some(store.frames())).unwrap();
    let error = recover(&logs, "chat").unwrap_err().to_string();
    assert!(error.contains("no usable snapshot"), "{error}");
}

#[test]
fn c106_the_disk_stays_within_the_retention_and_old_time_reads_as_trimmed() {
    let dir = tempfile::tempdir().unwrap();
    let retention = Retention { max_bytes: Some(8 << 20), max_age: None };
    let mut store = store(dir.path(), retention.rotate_bytes(64 << 20));
    let upkeep = upkeep(&store, retention);
    let (mut one, mut two) = (World::new("chat", 3), World::new("batch", 4));
    let (mut written, mut most) = (0u64, 0u64);
    while written < 28 << 20 {
        for world in [&mut one, &mut two] {
            let frames = world.frames(8, 200);
            written += frames.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>();
            store.write(&frames).unwrap();
        }
        store.sync().unwrap();
        upkeep.round(one.state.now()).unwrap();
        most = most.max(disk(dir.path()));
    }
    let limit = retention.max_bytes.unwrap() * 3 / 2;
    println!("{written} bytes written, at most {most} on disk, limit {limit}");
    assert!(most <= limit, "{most} bytes on disk, at most {limit} allowed");

    let logs = Logs::of_dir(dir.path(), Some(store.frames())).unwrap();
    for world in [&one, &two] {
        let oldest = logs.reader(&world.pool, Bound::Seq(1), Bound::Open).next().unwrap();
        assert!(matches!(oldest, Err(SegmentError::Trimmed { .. })), "{oldest:?}");
        let recovered = recover(&logs, &world.pool).unwrap();
        assert_eq!(recovered.state.digest(), world.state.digest());
    }
}

#[test]
fn by_age_only_what_is_old_and_covered_goes() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 64 << 20);
    let retention = Retention { max_age: Some(Micros::from_secs(3_600)), max_bytes: None };
    let mut world = World::new("chat", 7);
    let mut last = Micros::ZERO;
    for _ in 0..3 {
        store.write(&world.frames(20, 30)).unwrap();
        store.sync().unwrap();
        store.rotate_now().unwrap();
        last = world.state.now();
        let round = upkeep(&store, retention).round(last).unwrap();
        assert_eq!(round.trimmed.segments, 0);
    }
    let round = upkeep(&store, retention).round(last + Micros::from_secs(7_200)).unwrap();
    assert_eq!(round.trimmed.segments, 2, "the third is not covered by the older snapshot");
    assert!(round.trimmed.held_back);
}

#[test]
fn an_import_goes_on_where_the_export_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new, file) = (dir.path().join("old"), dir.path().join("new"), dir.path().join("x.wlog"));
    let mut before = store(&old, 64 << 20);
    let mut world = World::new("chat", 7);
    for _ in 0..2 {
        before.write(&world.frames(20, 30)).unwrap();
        before.sync().unwrap();
        before.rotate_now().unwrap();
    }
    upkeep(&before, Retention::default()).round(Micros(1)).unwrap();
    before.write(&world.frames(5, 30)).unwrap();
    before.sync().unwrap();
    drop(before);
    let logs = Logs::open(&old).unwrap();
    let out = std::fs::File::create(&file).unwrap();
    let id = dir::read_description(&old).unwrap().unwrap().log_id_bytes();
    crate::export::export(&logs, &crate::export::Wanted::default(), id, Micros(1), out, "x").unwrap();
    crate::export::import_log(&[file], &new, Micros(2)).unwrap();

    let mut store = store(&new, 64 << 20);
    assert_eq!(store.head("chat"), world.head);
    store.write(&world.frames(3, 10)).unwrap();
    store.sync().unwrap();
    let logs = Logs::of_dir(&new, Some(store.frames())).unwrap();
    let recovered = recover(&logs, "chat").unwrap();
    assert_eq!(recovered.state.digest(), world.state.digest());
    let mut folded = State::new();
    for step in logs.reader("chat", Bound::Open, Bound::Open).steps() {
        weir_kernel::fold(&mut folded, &step.unwrap());
    }
    assert_eq!(folded.digest(), world.state.digest());
}

#[test]
fn a_reader_goes_on_while_what_it_reads_is_sealed_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 64 << 20);
    let mut world = World::new("chat", 7);
    for _ in 0..3 {
        store.write(&world.frames(20, 30)).unwrap();
        store.sync().unwrap();
        store.rotate_now().unwrap();
    }
    store.write(&world.frames(20, 30)).unwrap();
    store.sync().unwrap();
    // Opened before anything is sealed; at every place it may be when it is.
    for read_first in [0, 1, 30, 70] {
        let logs = Logs::of_dir(dir.path(), Some(store.frames())).unwrap();
        let mut reader = logs.reader("chat", Bound::Open, Bound::Open);
        let mut frames: Vec<_> = reader.by_ref().take(read_first).map(Result::unwrap).collect();
        if read_first > 0 || !store.window().closed().is_empty() {
            upkeep(&store, Retention::default()).round(Micros(1)).unwrap();
        }
        frames.extend(reader.map(Result::unwrap));
        assert_eq!(frames.len(), 80, "after {read_first} batches");
        assert_eq!(frames.last().unwrap().hash, world.head.hash);
    }
}
