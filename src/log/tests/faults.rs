//! Goal: damage is refused in words, a full disk stops the log and does not lose it. Never a log silently short.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "power_loss/rig.rs"]
mod rig;

use rig::{LONG, POOLS, acknowledged, holds, memory_dir, options, shim, spawn};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_log::LogError;
use weir_log::hot::{HotOptions, HotStore};
use weir_log::store::Store;

/// Not a test: what the child runs.
#[test]
fn child() {
    rig::run_as_child();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &target) } else { assert!(fs::copy(&path, &target).is_ok()) }
    }
}

fn files(dir: &Path, to: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, to) } else { to.push(path) }
    }
}

/// sled reads its snapshot files before its log: one that a full disk, a kill or a loss of power cut off, or that is
/// damaged, must not cost a log that is whole.
#[test]
fn c104_a_snapshot_of_sled_that_is_cut_off_or_damaged_costs_nothing() {
    let tmp = memory_dir();
    let log = tmp.path().join("log");
    let grow = |store: &mut HotStore| {
        for n in 0..50 {
            let frame = common::batch(POOLS[0], &store.head(POOLS[0]), 1 + n % 7, 150);
            store.write(&[frame]).unwrap();
            store.sync().unwrap();
        }
        store.head(POOLS[0])
    };
    let head = grow(&mut HotStore::open(&log, options()).unwrap());
    let database = log.join("hot/000001");

    fs::write(database.join("snap.0000000000004000.generating"), b"").unwrap();
    let mut store = HotStore::open(&log, options()).unwrap();
    assert_eq!(store.head(POOLS[0]), head, "an unfinished snapshot is no snapshot");
    let head = grow(&mut store);
    drop(store);

    // The opening above wrote a snapshot of its own.
    let snapshot = || {
        let names = fs::read_dir(&database).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("snap.")).max()
    };
    let path = snapshot().expect("sled keeps a snapshot");
    for damage in [Vec::new(), vec![0xff; 40]] {
        fs::write(&path, &damage).unwrap();
        let store = HotStore::open(&log, options()).unwrap();
        assert_eq!(store.head(POOLS[0]), head, "with {} bytes of nonsense", damage.len());
    }
}

#[test]
fn c102_one_flipped_bit_in_a_database_is_refused_or_harmless() {
    let tmp = memory_dir();
    let (whole, log) = (tmp.path().join("whole"), tmp.path().join("log"));
    let mut store = HotStore::open(&whole, options()).unwrap();
    for n in 0..400 {
        let pool = POOLS[usize::from(n % 4 == 0)];
        let frame = common::batch(pool, &store.head(pool), 1 + n % 7, [30, 900, 150][(n % 3) as usize]);
        store.write(&[frame]).unwrap();
        store.sync().unwrap();
    }
    let heads = POOLS.map(|pool| store.head(pool));
    drop(store);
    let mut state = 0x9e37_79b9_u64;
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    let (mut refused, mut harmless) = (0, 0);
    for trial in 0..60 {
        let _ = fs::remove_dir_all(&log);
        copy(&whole, &log);
        let mut all = Vec::new();
        files(&log.join("hot"), &mut all);
        all.sort();
        all.retain(|path| fs::metadata(path).unwrap().len() > 0);
        // Mostly the database itself; now and then one of the small files beside it.
        let database = log.join("hot/000001/db");
        let file = if trial % 10 == 9 { all[below(all.len())].clone() } else { database };
        let mut bytes = fs::read(&file).unwrap();
        let (at, bit) = (below(bytes.len()), below(8));
        bytes[at] ^= 1 << bit;
        fs::write(&file, &bytes).unwrap();
        match HotStore::open(&log, options()) {
            Ok(store) => {
                assert_eq!(POOLS.map(|pool| store.head(pool)), heads, "byte {at}, bit {bit} of {file:?}");
                for (pool, head) in POOLS.iter().zip(&heads) {
                    let read = store.frames().read(pool, 1, usize::MAX).unwrap();
                    assert_eq!(read.last().unwrap().header.last_seq(), head.seq);
                    assert_eq!(read.iter().map(|frame| u64::from(frame.header.count)).sum::<u64>(), head.seq);
                }
                harmless += 1;
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("weir log import"), "no way back in: {text}");
                assert!(
                    matches!(
                        error,
                        LogError::Damaged { .. }
                            | LogError::TailMissing { .. }
                            | LogError::HeadDiffers { .. }
                    ),
                    "{error:?}"
                );
                refused += 1;
            }
        }
    }
    println!("60 flipped bits: {refused} refused, {harmless} harmless, 0 short");
    assert!(refused > 10, "{refused} refused, {harmless} harmless: the bits missed the data");
}

/// Has the number stayed the same for 150 ms?
fn quiet(last: &mut (u64, Instant), now: u64) -> bool {
    if last.0 != now {
        *last = (now, Instant::now());
    }
    last.1.elapsed() > Duration::from_millis(150)
}

#[test]
fn c104_a_full_disk_or_a_failing_sync_stops_the_log_and_it_goes_on_by_itself() {
    for fault in ["full", "sync"] {
        let tmp = tempfile::tempdir().unwrap();
        let Some(shim) = shim(tmp.path()) else { return };
        let (dir, fail, record) =
            (tmp.path().join("data"), tmp.path().join("fail"), tmp.path().join("stream"));
        fs::create_dir(&dir).unwrap();
        let environment =
            [("LD_PRELOAD", &*shim), ("SHIM_ROOT", &*dir), ("SHIM_LOG", &*record), ("SHIM_FAIL", &*fail)];
        let mut child = spawn(&dir, 1_000_000, &environment);
        let size = || fs::metadata(dir.join("acks")).map_or(0, |metadata| metadata.len());
        let until = |what: &str, done: &mut dyn FnMut() -> bool| {
            let begun = Instant::now();
            while !done() {
                assert!(begun.elapsed() < LONG, "{fault}: {what}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for _ in 0..3 {
            let before = size();
            until("nothing is acknowledged", &mut || size() > before + 500);
            fs::write(&fail, fault).unwrap();
            // Whatever was acknowledged until now stays; then acknowledgements must stop.
            let mut last = (size(), Instant::now());
            until("acknowledgements go on while nothing can be written", &mut || quiet(&mut last, size()));
            fs::remove_file(&fail).unwrap();
        }
        let before = size();
        until("it never goes on", &mut || size() > before + 500);
        child.kill().unwrap();
        child.wait().unwrap();
        let acked = acknowledged(&fs::read_to_string(dir.join("acks")).unwrap());
        holds(&dir.join("log"), &acked).unwrap();
    }
}

#[test]
fn c108_a_second_writer_is_refused_at_once() {
    let tmp = tempfile::tempdir().unwrap();
    let _first = HotStore::open(tmp.path(), HotOptions::default()).unwrap();
    let error = HotStore::open(tmp.path(), HotOptions::default()).err().unwrap();
    assert!(matches!(error, LogError::Locked { holder: Some(_), .. }), "{error}");
}
