//! Goal: every log that the test suite makes is derived again, decision by decision.
//!
//! Tests export their logs to the directory that `WEIR_KEEP_LOGS` names (`tests/kept`); `.ci/run` runs this afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use weir_kernel::{Event, Input, KERNEL_BEHAVIOUR, Micros, Started, State, Step, step};
use weir_log::Frame;
use weir_log::seal::Sealer;

/// Fewer logs than this mean that they were not collected, not that all is well.
const FEWEST: usize = 60;

/// Verifies every log in the directory. Those that hold are removed; of the others is told what was found.
fn verify_all(dir: &Path) -> (usize, u64, Vec<String>) {
    let mut logs: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|end| end == "wlog" || end == "wseg"));
    logs.sort();
    let (next, found) = (AtomicUsize::new(0), Mutex::new((0, Vec::new())));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(log) = logs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = verify(log);
                    let mut found = found.lock().unwrap();
                    match verdict {
                        Ok(steps) => {
                            found.0 += steps;
                            std::fs::remove_file(log).unwrap();
                        }
                        Err(said) => found.1.push(format!("{}:\n{said}", log.display())),
                    }
                }
            });
        }
    });
    let (steps, failed) = found.into_inner().unwrap();
    (logs.len(), steps, failed)
}

/// The steps that were looked at, or what was found.
fn verify(log: &Path) -> Result<u64, String> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_weir-replay")).args(["verify", "--json"]).arg(log).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(text + &String::from_utf8_lossy(&output.stderr));
    }
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["verdict"], "verified", "{text}");
    let pools = answer["pools"].as_array().unwrap();
    Ok(pools.iter().map(|pool| pool["steps"].as_u64().unwrap()).sum())
}

#[test]
#[ignore = "needs the logs of the other tests: .ci/run runs it after them"]
fn c113_every_log_that_the_test_suite_made_is_derived_again() {
    let dir =
        std::env::var_os("WEIR_KEEP_LOGS").map(PathBuf::from).expect("WEIR_KEEP_LOGS names the directory");
    let (logs, steps, failed) = verify_all(&dir);
    println!("{logs} logs of the test suite, {steps} steps derived again, {} logs differ", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(logs >= FEWEST, "only {logs} logs in {}; allowed: at least {FEWEST}", dir.display());
}

/// A few steps, sealed; `change` may falsify them.
fn log(dir: &Path, name: &str, change: impl FnOnce(&mut Vec<Step>)) {
    let mut state = State::new();
    let started =
        Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "0.1.0".to_owned(), wall: Micros(1) };
    let mut steps = vec![step(&mut state, Micros(1), Input::Started(started))];
    for n in 2..40 {
        let arrival = weir_kernel::Arrival { caller_id: format!("r{n}"), bytes: 10, ..Default::default() };
        steps.push(step(&mut state, Micros(n), Input::Arrived(arrival)));
    }
    change(&mut steps);
    let frame = Frame::encode(&Arc::from("chat"), [0; 32], Micros(1), &steps).unwrap();
    let own = tempfile::tempdir().unwrap();
    let sealed = Sealer::new(own.path(), [1; 16]).seal("chat", Micros(1), [Ok(frame)].into_iter()).unwrap();
    std::fs::copy(&sealed[0].path, dir.join(name)).unwrap();
}

#[test]
fn a_log_with_a_planted_decision_is_named_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), "as-written.wseg", |_| {});
    log(dir.path(), "planted.wseg", |steps| {
        let enqueued = steps.iter_mut().find_map(|step| {
            step.events.iter_mut().find_map(|event| match event {
                Event::Enqueued(enqueued) => Some(enqueued),
                _ => None,
            })
        });
        enqueued.unwrap().priority += 1;
    });
    let (logs, steps, failed) = verify_all(dir.path());
    assert_eq!((logs, steps, failed.len()), (2, 39, 1), "{failed:?}");
    assert!(failed[0].contains("planted.wseg") && failed[0].contains("priority"), "{failed:?}");
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["planted.wseg"]);
}
