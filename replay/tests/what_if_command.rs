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
    let mut state = State::new();
    let mut steps = Vec::new();
    let mut take = |at: u64, input: Input| steps.push(step(&mut state, Micros(START + at), input));
    let started =
        Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "0.1.0".to_owned(), wall: Micros(START) };
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

    let page = ask(&["--set", "defaultRequestTTL=2s", "--report", "r.html"]);
    assert!(page.status.success(), "{}", text(&page));
    assert!(std::fs::read_to_string(dir.path().join("r.html")).unwrap().ends_with("</html>\n"));
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
