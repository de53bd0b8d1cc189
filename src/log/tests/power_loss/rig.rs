//! The child that keeps a log until it is killed, and the question that is asked of what it leaves.
#![allow(dead_code)]

use crate::common::{batch, steps};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_log::LogError;
use weir_log::hot::{HotOptions, HotStore};
use weir_log::store::Store;
use weir_log::writer::{Durability, Durable, Writer, WriterOptions};

pub const LONG: Duration = Duration::from_secs(60);
pub const POOLS: [&str; 2] = ["a", "b"];

pub fn options() -> HotOptions {
    HotOptions { rotate_bytes: 1 << 20, cache_bytes: 8 << 20 }
}

/// The shim, compiled; `None` (said aloud) where there is no C compiler.
pub fn shim(tmp: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power_loss/shim.c");
    let library = tmp.join("shim.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).args(["-ldl", "-lpthread"]);
    match cc.output() {
        Ok(output) if output.status.success() => Some(library),
        other => {
            eprintln!("SKIPPED: no shim without a C compiler: {other:?}");
            None
        }
    }
}

pub fn spawn(dir: &Path, batches: u64, environment: &[(&str, &Path)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env("WEIR_CHILD", dir).env("WEIR_CHILD_BATCHES", batches.to_string());
    command.envs(environment.iter().copied());
    command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap()
}

pub fn acknowledged(text: &str) -> BTreeMap<String, u64> {
    let mut acks = BTreeMap::new();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let (pool, seq) = line.trim_end().split_once(' ').unwrap();
        acks.insert(pool.to_owned(), seq.parse().unwrap());
    }
    acks
}

/// Opens the log; every acknowledged batch must be there, readable, and the log must go on.
pub fn holds(log: &Path, acks: &BTreeMap<String, u64>) -> Result<(), LogError> {
    let mut store = HotStore::open(log, options())?;
    let frames = store.frames();
    for (pool, acked) in acks {
        let head = store.head(pool);
        assert!(head.seq >= *acked, "pool {pool}: {acked} was acknowledged, the log ends at {}", head.seq);
        let oldest = frames.oldest(pool).unwrap_or(head.seq + 1);
        let read = frames.read(pool, oldest, usize::MAX).unwrap();
        let there: Vec<u64> =
            read.iter().flat_map(|frame| frame.steps().unwrap()).map(|step| step.seq).collect();
        assert!(there.into_iter().eq(oldest..=head.seq), "pool {pool}: a gap");
    }
    for pool in POOLS {
        store.write(&[batch(pool, &store.head(pool), 3, 100)])?;
    }
    store.sync()?;
    let heads = POOLS.map(|pool| store.head(pool));
    drop(store);
    let store = HotStore::open(log, options())?;
    assert_eq!(POOLS.map(|pool| store.head(pool)), heads, "what was appended afterwards");
    Ok(())
}

/// What the child runs; nothing in the parent. `WEIR_CHILD` is the directory, `WEIR_CHILD_BATCHES` how many batches to append.
pub fn run_as_child() {
    let Ok(dir) = std::env::var("WEIR_CHILD").map(PathBuf::from) else { return };
    let batches: u64 = std::env::var("WEIR_CHILD_BATCHES").unwrap().parse().unwrap();
    let store = HotStore::open(&dir.join("log"), options()).unwrap();
    let window = store.window();
    let mut heads = POOLS.map(|pool| store.head(pool).seq);
    let interval = std::env::var("WEIR_CHILD_INTERVAL_MS").ok().and_then(|text| text.parse().ok());
    let durability = interval.map_or(Durability::Group, |ms| Durability::Interval(Duration::from_millis(ms)));
    let options = WriterOptions { durability, ..WriterOptions::default() };
    let writer = Writer::spawn(Box::new(store), options).unwrap();
    let acks = OpenOptions::new().create(true).append(true).open(dir.join("acks")).unwrap();
    let acks = Arc::new(Mutex::new(acks));
    for n in 0..batches {
        let which = usize::from(n % 5 == 0);
        let (count, filler) = (1 + n % 7, [30, 2_000, 400][(n % 3) as usize]);
        let next = steps(heads[which] + 1, count, filler);
        heads[which] += count;
        let acks = acks.clone();
        let release = move |result: Result<Durable, LogError>| {
            let line = format!("{} {}\n", POOLS[which], result.unwrap().last_seq);
            acks.lock().unwrap().write_all(line.as_bytes()).unwrap();
        };
        writer.submit(&Arc::from(POOLS[which]), &next, Box::new(release)).unwrap();
        if n % 32 == 0 && !window.closed().is_empty() {
            let deleted = window.delete(window.closed()[0].number);
            assert!(deleted.is_ok() || std::env::var_os("SHIM_FAIL").is_some(), "{deleted:?}");
        }
    }
    drop(writer.close());
}

/// A directory whose syncs cost nothing, where there is one.
pub fn memory_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}
