//! Scenarios hold or fail as they should, mistakes are named, and one that is made from a log gives back its decision.

use super::file::parse;
use super::*;
use crate::what_if::tests::{log, seal};
use weir_kernel::Event;

const BURST: &str = r"
name: a burst is shed by the band's limit
settings: {flowControl: {priorityBands: [{priority: 0, maxRequests: 2}], defaultRequestTTL: 10s}}
objectives: {interactive: 100}
pool:
  - {at: 0s, endpoint: a, waiting: 9, running: 20, kv: 0.9}
  - {at: 4s, endpoint: a, waiting: 0, running: 20, kv: 0.2}
requests:
  - {at: 1s, id: r, flow: t1, runs: 2s, count: 4, every: 100ms}
  - {at: 1500ms, id: i, objective: interactive, runs: 1s}
expect:
  - {request: r-3, outcome: RejectedCapacity, reason: rejected-saturated}
  - {request: r-1, outcome: Dispatched, waitAtLeast: 2900ms, waitAtMost: 3100ms}
  - {outcome: RejectedCapacity, count: 2}
  - {request: i, outcome: Dispatched}
";

fn verdicts(text: &str, words: &[&str]) -> Vec<judge::Verdict> {
    let scenario = parse(text).unwrap();
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let policy = settings(&scenario, &Candidate::default().with(&words).unwrap()).unwrap();
    judge::judge(&scenario, &run::run(&scenario, &policy))
}

#[test]
fn expectations_are_met_under_the_settings_and_fail_under_others() {
    assert!(
        verdicts(BURST, &[]).iter().all(|verdict| verdict.failed.is_none()),
        "{:?}",
        verdicts(BURST, &[])
    );
    let other = verdicts(BURST, &["priorityBands[0].maxRequests=10"]);
    assert_eq!(other[0].failed.as_deref().map(|found| found.contains("Dispatched")), Some(true), "{other:?}");
    let other = verdicts(BURST, &["defaultRequestTTL=2s", "blindAfter=1s"]);
    assert!(
        other[1].failed.as_ref().unwrap().contains("EvictedTTL (rejected-ttl-expired) after 2"),
        "{other:?}"
    );
}

#[test]
fn mistakes_are_named() {
    for (text, want) in [
        ("requests: [{at: soon, id: a}]", "soon"),
        ("requests: [{id: a, prio: 3}]", "prio"),
        ("requests: []\nexpect: [{outcome: Dispatch}]", "did you mean Dispatched?"),
        ("requests: []\nexpect: [{reason: rejected-saturate}]", "did you mean rejected-saturated?"),
        ("requests: []\npool: [{at: 0s, endpoint: a, kv: 7}]", "allowed: 0 to 1"),
        ("requests: [{id: a, count: 4000000000}]", "at most 200000"),
        ("requests: [", "line"),
        ("pool: []", "requests"),
    ] {
        let got = parse(text).unwrap_err();
        assert!(got.contains(want), "{text}: {got}");
    }
    let absent = verdicts("requests: []\nexpect: [{request: x, outcome: Dispatched}]", &[]);
    assert_eq!(absent[0].failed.as_deref(), Some("there is no such request"));
}

#[test]
fn an_incident_becomes_a_scenario_that_gives_back_its_decision() {
    let dir = tempfile::tempdir().unwrap();
    let steps = log(&["defaultRequestTTL=8s"], 120);
    seal(dir.path(), &steps);
    let shed = steps.iter().find_map(|step| {
        step.events.iter().find_map(|event| match event {
            Event::Evicted(e) => Some(e.request),
            _ => None,
        })
    });
    let out = dir.path().join("incident.yaml");
    let source = Source { data: Some(dir.path().to_owned()), files: Vec::new(), sealed: true };
    let request = shed.unwrap().to_string();
    let args = FromLog { source, pool: None, request: request.clone(), output: Some(out.clone()) };
    assert!(from_log::run(&args).unwrap(), "{}", std::fs::read_to_string(&out).unwrap());
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(verdicts(&text, &[])[0].failed.is_none());
    let longer = verdicts(&text, &["defaultRequestTTL=600s"]);
    assert!(longer[0].failed.as_ref().is_some_and(|found| !found.contains("EvictedTTL")), "{longer:?}");
    let unknown = FromLog { request: "nobody".to_owned(), ..args };
    assert!(from_log::run(&unknown).unwrap_err().to_string().contains("no request \"nobody\""));
}
