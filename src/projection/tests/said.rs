//! Goal: a service that folds its read models anew says so, why, and when that is over. Method: the lines of the process,
//! kept; the follower has a thread of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{World, append};
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use weir_projection::{Projections, Source};

static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct To;

impl Write for To {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        KEPT.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn lines(words: &[&str]) -> usize {
    let text = String::from_utf8(KEPT.lock().unwrap().clone()).unwrap();
    text.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
}

/// Follows until all is folded, and ends.
fn follow(data: &std::path::Path, until: u64) {
    KEPT.lock().unwrap().clear();
    let logs = weir_log::reader::Logs::open(data).unwrap();
    let source = Source::new(Some(data), logs.hot().cloned());
    let all = Projections::open(Some(data), &source).unwrap();
    let followers = all.follow().unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while all.pool("chat").unwrap().at().seq < until {
        assert!(Instant::now() < patience, "{:?}", all.pool("chat").unwrap().position());
        std::thread::yield_now();
    }
    drop(followers);
}

fn make_log(data: &std::path::Path, steps: &[weir_kernel::Step]) {
    let mut store = weir_log::hot::HotStore::open(data, weir_log::hot::HotOptions::default()).unwrap();
    append(&mut store, "chat", steps, 911);
}

#[test]
fn folding_anew_is_said_with_the_reason_and_so_is_its_end() {
    tracing_subscriber::fmt().with_ansi(false).with_writer(|| To).init();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let steps = World::new(24).run(2_000);
    make_log(one.path(), &steps);
    make_log(two.path(), &steps);
    let head = steps.len() as u64;
    let (begins, ends) = (format!("from=1 to={head}"), format!("steps={head}"));
    let anew = |why: &[&str]| {
        assert_eq!(lines(why), 1, "{why:?}: {}", String::from_utf8_lossy(&KEPT.lock().unwrap()));
        assert_eq!(lines(&["INFO", "the projections catch up with the log", &begins]), 1);
        assert_eq!(lines(&["INFO", "the projections have caught up with the log", &ends]), 1);
    };
    follow(one.path(), head);
    anew(&["INFO", "projections are folded from the log: there are none"]);
    follow(one.path(), head);
    assert_eq!(lines(&["the log"]), 0, "nothing to say: {}", String::from_utf8_lossy(&KEPT.lock().unwrap()));
    std::fs::rename(Projections::dir(one.path()), Projections::dir(two.path())).unwrap();
    follow(two.path(), head);
    anew(&["WARN", "projections are folded anew from the log: those that are there are of the log"]);
}
