//! `weir-replay verify` as a command: exit codes and what it prints, on a data directory, an export and standard input.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use weir_kernel::{Arrival, Input, KERNEL_BEHAVIOUR, Micros, Started, State, step};
use weir_log::export::{Wanted, export};
use weir_log::hot::{HotOptions, HotStore};
use weir_log::reader::Logs;
use weir_log::store::Store;
use weir_log::{Frame, Head};

const START: u64 = 1_764_460_800_000_000;

fn log(data: &Path) {
    let mut store = HotStore::open(data, HotOptions::default()).unwrap();
    let mut state = State::new();
    let started =
        Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "0.1.0".to_owned(), wall: Micros(START) };
    let mut steps = vec![step(&mut state, Micros(START), Input::Started(started))];
    for turn in 1..500 {
        let arrival = Arrival { caller_id: format!("r{turn}"), bytes: 10, ..Arrival::default() };
        steps.push(step(&mut state, Micros(START + turn * 1_000), Input::Arrived(arrival)));
    }
    let mut head = Head::default();
    for chunk in steps.chunks(10) {
        let frame = Frame::encode(&Arc::from("chat"), head.hash, chunk[0].at, chunk).unwrap();
        head = Head::of(&frame);
        store.write(&[frame]).unwrap();
    }
    store.sync().unwrap();
}

fn verify(args: &[&str], at: &Path, input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir-replay"))
        .arg("verify")
        .args(args)
        .current_dir(at)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that reads no standard input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_log_verifies_and_damage_is_named_with_exit_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    log(&data);
    let good = verify(&["--data", "data"], dir.path(), b"");
    assert!(good.status.success(), "{}", text(&good));
    assert!(text(&good).contains("500 steps derived again (sequences 1 to 500)"), "{}", text(&good));

    let logs = Logs::open(&data).unwrap();
    let mut bytes = Vec::new();
    export(&logs, &Wanted::default(), [1; 16], Micros(1), &mut bytes, "export").unwrap();
    drop(logs);
    let piped = verify(&["-", "--json"], dir.path(), &bytes);
    assert!(piped.status.success(), "{}", text(&piped));
    let report: serde_json::Value = serde_json::from_slice(&piped.stdout).unwrap();
    assert_eq!((&report["verdict"], &report["pools"][0]["steps"]), (&"verified".into(), &500.into()));

    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(dir.path().join("bad.wlog"), &bytes).unwrap();
    let bad = verify(&["bad.wlog"], dir.path(), b"");
    assert_eq!(bad.status.code(), Some(1), "{}", text(&bad));
    assert!(text(&bad).contains("bad.wlog: damaged at byte"), "{}", text(&bad));
    assert!(text(&bad).contains("batch that starts at sequence 1"), "{}", text(&bad));
}

#[test]
fn a_database_that_does_not_open_is_refused_with_the_way_back() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    log(&data);
    let database = std::fs::read_dir(data.join("hot")).unwrap().next().unwrap().unwrap().path().join("db");
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[..4096].fill(0xa5);
    std::fs::write(&database, bytes).unwrap();
    let refused = verify(&["--data", "data"], dir.path(), b"");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("weir log import"), "{}", text(&refused));
    assert!(!text(&refused).contains("panicked"), "{}", text(&refused));

    let nothing = verify(&["--data", "elsewhere"], dir.path(), b"");
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing).contains("there is no log here"), "{}", text(&nothing));
}

#[test]
fn a_closed_pipe_keeps_the_exit_code_and_a_full_disk_is_told() {
    let dir = tempfile::tempdir().unwrap();
    log(&dir.path().join("data"));
    let to = |args: &[&str], out: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-replay"));
        command.arg("verify").args(args).current_dir(dir.path()).stdin(Stdio::null());
        let child = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let closed = || Stdio::from(std::io::pipe().unwrap().1);
    for args in [&["--data", "data"][..], &["--data", "data", "--json"]] {
        assert_eq!(to(args, closed()), (Some(0), String::new()), "{args:?}");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, told) = to(args, full.into());
        assert_eq!(code, Some(1), "{args:?}: {told}");
        assert!(told.starts_with("weir-replay: standard output: ") && !told.contains("panicked"), "{told}");
    }
    let (code, told) = to(&["--data", "elsewhere", "--json"], closed());
    assert_eq!(code, Some(1), "nothing verified, read or not");
    assert!(told.contains("there is no log here"), "{told}");
}
