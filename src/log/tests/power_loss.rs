//! Goal: no acknowledged batch is missing after a loss of power, a kill, a full disk or a flipped bit; or the start is
//! refused. Never a log that is silently short.
//!
//! A child (this same binary) keeps a log under a preloaded shim that records every write, sync and rename
//! (`power_loss/shim.c`); the stream is then cut at many points, and the files are built as a loss of power could have
//! left them (`power_loss/stream.rs`). A failure prints its seed: set `WEIR_POWER_LOSS_SEED` to repeat it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "power_loss/rig.rs"]
mod rig;
#[path = "power_loss/stream.rs"]
mod stream;

use rig::{LONG, acknowledged, holds, memory_dir, shim, spawn};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;
use stream::{Kind, Left, Op, Random};

/// Not a test: what the child runs.
#[test]
fn child() {
    rig::run_as_child();
}

fn acks_in(ops: &[Op]) -> BTreeMap<String, u64> {
    let written = ops.iter().filter(|op| op.kind == Kind::Write && op.path.ends_with("acks"));
    acknowledged(&written.map(|op| String::from_utf8(op.data.clone()).unwrap()).collect::<String>())
}

/// Records children that append so many batches each, cuts the stream at so many points, and asks each time what
/// holds; `promised` says which of the acknowledged batches must be there.
fn cut_everywhere(
    batches: &[u64],
    interval_ms: Option<&str>,
    points: usize,
    promised: fn(BTreeMap<String, u64>) -> BTreeMap<String, u64>,
) {
    let tmp = tempfile::tempdir().unwrap();
    let Some(shim) = shim(tmp.path()) else { return };
    let (dir, record) = (tmp.path().join("data"), tmp.path().join("stream"));
    fs::create_dir(&dir).unwrap();
    let mut environment = vec![("LD_PRELOAD", &*shim), ("SHIM_ROOT", &*dir), ("SHIM_LOG", &*record)];
    environment.extend(interval_ms.map(|ms| ("WEIR_CHILD_INTERVAL_MS", Path::new(ms))));
    for batches in batches {
        assert!(spawn(&dir, *batches, &environment).wait().unwrap().success());
    }
    let ops = stream::read(&record);
    assert!(ops.iter().any(|op| op.kind == Kind::Range), "sled's own flush is in the stream");
    assert!(ops.iter().any(|op| op.kind == Kind::Remove), "a deleted database is in the stream");
    assert!(acks_in(&ops)["a"] > 1_000);

    let after = memory_dir();
    let seed = std::env::var("WEIR_POWER_LOSS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(0x5eed_0000_0001);
    let mut random = Random(seed);
    let acks: Vec<usize> = (0..ops.len()).filter(|at| ops[*at].path.ends_with("acks")).collect();
    let mut with_acks = 0;
    for point in 0..points {
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
        with_acks += usize::from(!acked.is_empty());
        let promised = promised(acked);
        let result = holds(&target.join("log"), &promised);
        assert!(
            result.is_ok(),
            "seed {seed}, point {point}, cut at {cut} of {}, {left:?} left, promised {promised:?}: {}",
            ops.len(),
            result.unwrap_err()
        );
    }
    assert!(with_acks * 10 > points * 8, "{with_acks} of {points} points after an acknowledgement");
}

#[test]
fn c105_a_loss_of_power_at_any_point_takes_nothing_that_was_acknowledged() {
    // Twice, so that opening an existing log is in the stream as well.
    cut_everywhere(&[900, 600], None, 100, |acked| acked);
}

#[test]
fn with_interval_durability_a_loss_of_power_takes_only_the_end() {
    let contiguous = |acked: BTreeMap<String, u64>| acked.into_keys().map(|pool| (pool, 0)).collect();
    cut_everywhere(&[1_500], Some("3"), 40, contiguous);
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
        // A kill can cut a line where a page of the file ends: the next child must not write on in it.
        let mut text = fs::read_to_string(dir.join("acks")).unwrap();
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        fs::write(dir.join("acks"), &text).unwrap();
        before = size();
        let acked = acknowledged(&text);
        holds(&dir.join("log"), &acked).unwrap();
    }
}
