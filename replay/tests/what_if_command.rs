//! `weir-replay what-if` and its neighbours as commands: exit codes and what they say, on a small log.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use weir_kernel::{
    Arrival, EndpointChange, Input, KERNEL_BEHAVIOUR, Micros, Observation, Policy, PolicyChange, Role, Slot,
    Started, State, Step, step,
};
use weir_log::seal::Sealer;
use weir_log::{Frame, LogError};

const START: u64 = 1_764_460_800_000_000;

/// A full pool: everything waits, and is shed after 10 s.
fn log(data: &Path) -> Vec<Step> {
    log_by(data, KERNEL_BEHAVIOUR)
}

/// The same, as if this version of the kernel had decided it.
fn log_by(data: &Path, kernel_behaviour: u32) -> Vec<Step> {
    let mut state = State::new();
    let mut steps = Vec::new();
    let mut take = |at: u64, input: Input| steps.push(step(&mut state, Micros(START + at), input));
    let started = Started { kernel_behaviour, version: "0.1.0".to_owned(), wall: Micros(START) };
    take(0, Input::Started(started));
    let policy = Box::new(Policy { saturation_budget: Micros::from_secs(10), ..Policy::default() });
    take(1, Input::PolicyChanged(PolicyChange { policy, digest: [1; 32] }));
    let changes = vec![
        EndpointChange::Joined { slot: Slot(0), name: "a".to_owned(), role: Role::Decode },
        EndpointChange::Sampled { slot: Slot(0), waiting: 9, running: 3, kv: 9_000 },
    ];
    take(2, Input::Observed(Observation { requested_at: Micros(START), changes, ..Observation::default() }));
    for n in 0..40_u64 {
        let arrival = Arrival { caller_id: format!("r{n}"), bytes: 10, ..Arrival::default() };
        take(1_000_000 + n * 100_000, Input::Arrived(arrival));
    }
    for n in 0..40_u64 {
        take(11_000_010 + n * 100_000, Input::TimePassed);
    }
    let pool: Arc<str> = Arc::from("chat");
    let mut prev = [0; 32];
    let frames: Vec<Frame> = steps
        .chunks(20)
        .map(|chunk| {
            let frame = Frame::encode(&pool, prev, chunk[0].at, chunk).unwrap();
            prev = frame.hash;
            frame
        })
        .collect();
    Sealer::new(data, [1; 16])
        .seal("chat", Micros(1), frames.into_iter().map(Ok::<Frame, LogError>))
        .unwrap();
    steps
}

fn replay(at: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-replay"));
    command.args(args).current_dir(at).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn candidates_are_answered_refused_and_listed() {
    let dir = tempfile::tempdir().unwrap();
    log(&dir.path().join("data"));
    let base = ["what-if", "--data", "data", "--sealed"];
    let ask = |more: &[&str]| replay(dir.path(), &[&base[..], more].concat());

    let same = ask(&["--set", "maxRequests=0"]);
    assert!(same.status.success(), "{}", text(&same));
    assert!(text(&same).contains("the runs never part"), "{}", text(&same));

    let limit = ask(&["--set", "priorityBands[0].maxRequests=5", "--requests", "--json"]);
    assert!(limit.status.success(), "{}", text(&limit));
    let json: serde_json::Value = serde_json::from_slice(&limit.stdout).unwrap();
    let pool = &json["pools"][0];
    assert_eq!((&pool["arrivals"], &pool["requests"]["flipped"]), (&40.into(), &35.into()), "{pool}");
    assert_eq!(pool["changed"].as_array().unwrap().len(), 35);
    assert_eq!(pool["baseline"]["trustworthy"], true);
    assert_eq!(pool["outcomes"]["all"]["candidate"]["outcomes"]["RejectedCapacity"], 35);

    for (more, want) in [
        (&["--set", "defaultRequestTtl=1s"][..], "did you mean defaultRequestTTL?"),
        (&["--set", "maxRequests=many"], "flowControl.maxRequests (global maxRequests): found \"many\""),
        (&["--pool", "chess", "--set", "maxRequests=1"], "no pool \"chess\" in this log; it has chat"),
        (&["--from", "9000", "--set", "maxRequests=1"], "no steps in this range"),
        (&["--pool-model", "none.json", "--set", "maxRequests=1"], "none.json"),
        (&["--config", "none.yaml"], "none.yaml"),
    ] {
        let got = ask(more);
        assert_eq!(got.status.code(), Some(1), "{more:?}: {}", text(&got));
        assert!(text(&got).contains(want), "{more:?}: {}", text(&got));
    }

    let cut = ask(&["--set", "defaultRequestTTL=300s", "--draws", "2"]);
    for want in [
        "still waiting at the end of the range: logged 0, candidate 40",
        "WARNING: the candidate's longest budget (300s) is more than half of the range (",
        "difference  candidate's 90 % interval",
    ] {
        assert!(text(&cut).contains(want), "{want}: {}", text(&cut));
    }

    let page = ask(&["--set", "defaultRequestTTL=2s", "--report", "r.html"]);
    assert!(page.status.success(), "{}", text(&page));
    let made = || std::fs::read_to_string(dir.path().join("r.html")).unwrap();
    assert!(made().starts_with("<!doctype") && made().ends_with("</html>\n"));
    let first = made();
    assert!(ask(&["--set", "maxRequests=many", "--report", "r.html"]).status.code() == Some(1));
    assert_eq!(made(), first, "a page that is there stays where there is no answer");
}

#[test]
fn a_page_that_cannot_be_written_is_named_and_loses_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    log(&dir.path().join("data"));
    let base = ["what-if", "--data", "data", "--sealed", "--set", "defaultRequestTTL=2s", "--report"];
    let ask = |more: &[&str]| replay(dir.path(), &[&base[..], more].concat());
    let none = ask(&["none/r.html"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none).contains("--report none/r.html: No such file"), "{}", text(&none));
    assert!(none.stdout.is_empty(), "refused before the work begins");
    if Path::new("/dev/full").exists() {
        let full = ask(&["/dev/full"]);
        assert_eq!(full.status.code(), Some(1));
        assert!(text(&full).contains("--report /dev/full: No space left"), "{}", text(&full));
        assert!(text(&full).contains("EvictedTTL"), "the answer is told: {}", text(&full));
    }
    let empty = ask(&["r.html", "--from", "9000"]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(!dir.path().join("r.html").exists(), "nothing is left of a page that was not made");
}

#[test]
fn the_log_of_another_version_is_answered_with_a_doubt() {
    let dir = tempfile::tempdir().unwrap();
    log_by(&dir.path().join("data"), KERNEL_BEHAVIOUR + 1);
    let ask = |command: &str, args: &[&str]| {
        text(&replay(dir.path(), &[&[command, "--data", "data", "--sealed"], args].concat()))
    };
    let what_if = ask("what-if", &["--set", "defaultRequestTTL=2s"]);
    assert!(what_if.contains("NOT COMPARED: no step") && !what_if.contains("all as logged"), "{what_if}");
    let vary = ["--vary", "defaultRequestTTL=2s,3s"];
    let table = ask("sweep", &vary);
    let told = table.lines().filter(|line| line.contains("decided by another version")).count();
    assert_eq!(told, 1, "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&ask("sweep", &[&vary[..], &["--json"]].concat())).unwrap();
    assert!(json["doubt"].as_str().unwrap().starts_with("NOT COMPARED"), "{json}");
}

#[test]
fn a_sweep_an_export_a_step_and_a_scenario_from_the_same_log() {
    let dir = tempfile::tempdir().unwrap();
    log(&dir.path().join("data"));
    let run = |args: &[&str]| replay(dir.path(), args);
    let vary =
        ["sweep", "--data", "data", "--sealed", "--vary", "defaultRequestTTL=2s,10s", "--state", "s.jsonl"];
    let sweep = run(&[&vary[..], &["--vary", "priorityBands[0].maxRequests=5,50", "--json"]].concat());
    assert!(sweep.status.success(), "{}", text(&sweep));
    let json: serde_json::Value = serde_json::from_slice(&sweep.stdout).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 4);
    let again = run(&[&vary[..], &["--vary", "priorityBands[0].maxRequests=5,50", "--json"]].concat());
    assert_eq!(again.stdout, sweep.stdout, "rows that are done are not done again");

    let rows = run(&["export", "--data", "data", "--sealed", "--what", "requests", "--format", "csv"]);
    assert_eq!(text(&rows).lines().count(), 41, "{}", text(&rows));
    assert!(text(&rows).contains("EvictedTTL"), "{}", text(&rows));
    let one = run(&["verify", "--data", "data", "--sealed", "--step", "5"]);
    assert!(text(&one).contains("* queued: 1 requests, 10 bytes -> 2 requests, 20 bytes"), "{}", text(&one));

    let made =
        run(&["scenario", "from-log", "--data", "data", "--sealed", "--request", "r3", "-o", "r3.yaml"]);
    assert!(made.status.success(), "{}", text(&made));
    let holds = run(&["scenario", "r3.yaml"]);
    assert!(holds.status.success() && text(&holds).contains("1 of 1 hold"), "{}", text(&holds));
    let fails = run(&["scenario", "r3.yaml", "--set", "priorityBands[0].maxRequests=2"]);
    assert_eq!(fails.status.code(), Some(1), "{}", text(&fails));
    assert!(text(&fails).contains("found RejectedCapacity (rejected-saturated)"), "{}", text(&fails));
}
