//! Goal: no acknowledged batch is missing after a loss of power, a kill, a full disk or a flipped bit; or the start is
//! refused. Never a log that is silently short.
//!
//! A child (this same binary) keeps a log under a preloaded shim that records every write, sync and rename
//! (`power_loss/shim.c`); the stream is then cut at many points, and the files are built as a loss of power could have
//! left them (`power_loss/stream.rs`). A failure prints its seed: set `WEIR_POWER_LOSS_SEED` to repeat it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "power_loss/stream.rs"]
mod stream;

use common::{batch, steps};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stream::{Kind, Left, Op, Random};
use weir_log::LogError;
use weir_log::hot::{HotOptions, HotStore};
use weir_log::store::Store;
use weir_log::writer::{Writer, WriterOptions};

const LONG: Duration = Duration::from_secs(60);
const POOLS: [&str; 2] = ["a", "b"];

fn options() -> HotOptions {
    HotOptions { rotate_bytes: 1 << 20, cache_bytes: 8 << 20 }
}

/// Not a test: what the child runs. `WEIR_CHILD` is the directory, `WEIR_CHILD_BATCHES` how many batches to append.
#[test]
fn child() {
    let Ok(dir) = std::env::var("WEIR_CHILD").map(PathBuf::from) else { return };
    let batches: u64 = std::env::var("WEIR_CHILD_BATCHES").unwrap().parse().unwrap();
    let store = HotStore::open(&dir.join("log"), options()).unwrap();
    let window = store.window();
    let mut heads = POOLS.map(|pool| store.head(pool).seq);
    let writer = Writer::spawn(Box::new(store), WriterOptions::default()).unwrap();
    let acks = OpenOptions::new().create(true).append(true).open(dir.join("acks")).unwrap();
    let acks = Arc::new(Mutex::new(acks));
    for n in 0..batches {
        let which = usize::from(n % 5 == 0);
        let (count, filler) = (1 + n % 7, [30, 2_000, 400][(n % 3) as usize]);
        let next = steps(heads[which] + 1, count, filler);
        heads[which] += count;
        let acks = acks.clone();
        let release = move |result: Result<weir_log::writer::Durable, LogError>| {
            let line = format!("{} {}\n", POOLS[which], result.unwrap().last_seq);
            acks.lock().unwrap().write_all(line.as_bytes()).unwrap();
        };
        writer.submit(&Arc::from(POOLS[which]), &next, Box::new(release)).unwrap();
        if n % 32 == 0 && !window.closed().is_empty() {
            window.delete(window.closed()[0].number).unwrap();
        }
    }
    drop(writer.close());
}

/// The shim, compiled; `None` (said aloud) where there is no C compiler.
fn shim(tmp: &Path) -> Option<PathBuf> {
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

fn spawn(dir: &Path, batches: u64, environment: &[(&str, &Path)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env("WEIR_CHILD", dir).env("WEIR_CHILD_BATCHES", batches.to_string());
    command.envs(environment.iter().copied());
    command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap()
}

fn acknowledged(text: &str) -> BTreeMap<String, u64> {
    let mut acks = BTreeMap::new();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let (pool, seq) = line.trim_end().split_once(' ').unwrap();
        acks.insert(pool.to_owned(), seq.parse().unwrap());
    }
    acks
}

/// Opens the log; every acknowledged batch must be there, readable, and the log must go on.
fn holds(log: &Path, acks: &BTreeMap<String, u64>) -> Result<(), LogError> {
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

fn acks_in(ops: &[Op]) -> BTreeMap<String, u64> {
    let written = ops.iter().filter(|op| op.kind == Kind::Write && op.path.ends_with("acks"));
    acknowledged(&written.map(|op| String::from_utf8(op.data.clone()).unwrap()).collect::<String>())
}

#[test]
fn c105_a_loss_of_power_at_any_point_takes_nothing_that_was_acknowledged() {
    let tmp = tempfile::tempdir().unwrap();
    let Some(shim) = shim(tmp.path()) else { return };
    let (dir, record) = (tmp.path().join("data"), tmp.path().join("stream"));
    fs::create_dir(&dir).unwrap();
    let environment = [("LD_PRELOAD", &*shim), ("SHIM_ROOT", &*dir), ("SHIM_LOG", &*record)];
    // Twice, so that opening an existing log is in the stream as well.
    for batches in [900, 600] {
        assert!(spawn(&dir, batches, &environment).wait().unwrap().success());
    }
    let ops = stream::read(&record);
    assert!(ops.iter().any(|op| op.kind == Kind::Range), "sled's own flush is in the stream");
    assert!(ops.iter().any(|op| op.kind == Kind::Remove), "a deleted database is in the stream");
    let all = acks_in(&ops);
    assert!(all["a"] > 1_000, "{all:?}");

    // The files after the loss need no disk: in memory their syncs cost nothing.
    let memory = Path::new("/dev/shm");
    let after = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let seed = std::env::var("WEIR_POWER_LOSS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(0x5eed_0000_0001);
    let mut random = Random(seed);
    let acks: Vec<usize> = (0..ops.len()).filter(|at| ops[*at].path.ends_with("acks")).collect();
    let (mut begun, mut with_acks) = (0, 0);
    for point in 0..100 {
        // Half of the points right after an acknowledgement, where it matters most.
        let cut = match point % 2 {
            0 => 1 + random.below(ops.len() as u64 - 1) as usize,
            _ => acks[random.below(acks.len() as u64) as usize] + 1,
        };
        let left = [Left::Some, Left::Nothing, Left::Some, Left::Everything, Left::Some][point % 5];
        let target = after.path().join("files");
        let _ = fs::remove_dir_all(&target);
        fs::create_dir(&target).unwrap();
        stream::rebuild(&ops[..cut], &dir, left, &mut random, &target);
        let acked = acks_in(&ops[..cut]);
        let result = holds(&target.join("log"), &acked);
        assert!(
            result.is_ok(),
            "seed {seed}, point {point}, cut at {cut} of {}, {left:?} left, acknowledged {acked:?}: {}",
            ops.len(),
            result.unwrap_err()
        );
        begun += 1;
        with_acks += usize::from(!acked.is_empty());
    }
    assert!(begun == 100 && with_acks > 80, "{begun} points, {with_acks} after an acknowledgement");
}

#[test]
fn c105_a_kill_at_any_moment_takes_nothing_that_was_acknowledged() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().to_owned();
    let mut random = Random(11);
    let mut before = 0;
    for round in 0..12 {
        let mut child = spawn(&dir, 1_000_000, &[]);
        let goal = before + 200 + random.below(4_000);
        let begun = Instant::now();
        let size = || fs::metadata(dir.join("acks")).map_or(0, |metadata| metadata.len());
        while size() < goal {
            assert!(begun.elapsed() < LONG, "round {round}: nothing is acknowledged");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        before = size();
        let acked = acknowledged(&fs::read_to_string(dir.join("acks")).unwrap());
        holds(&dir.join("log"), &acked).unwrap();
    }
}
