//! Goal: `kill -9` between a revocation and its confirmation loses no revocation and ends none twice, and the gate opens
//! again.
//!
//! Each round: a pool full of sheddable leases that are long-polled or streamed, blocked demand, revocations, the kill;
//! then a start in which what is left confirms, stays silent until its time-out, or is not at the engine any more. That
//! the next round decides again is the gate that opened.

use super::audit::Audit;
use super::holders::{Events, Poll, call, events, held, until, waiting};
use super::replay;
use super::service::Service;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use weir_kernel::{Event, Input, LeaseEnd, RequestId, RevocationEnd, RevocationOrder};
use weir_log::reader::{Bound, Logs};

const ROUNDS: usize = 12;

/// A revocation that is to be confirmed waits for as long as anything may take: what is left of its time when it is made
/// passes while the service starts again. One that is not, is made in a run in which little is enough.
fn settings(then: Then) -> String {
    let timeout = if then == Then::StaysSilent { "2s" } else { "60s" };
    format!(
        "plugins: [{{name: d, type: pushed-saturation-detector}}]\n\
         flowControl: {{saturationDetector: {{pluginRef: d}}, enableEviction: true}}\n\
         weir: {{listen: '127.0.0.1:0', resumeWindow: 1ms, drainTimeout: 0s}}\n\
         pools:\n  default:\n    trustRequestPriority: true\n    \
         eviction: {{confirmationTimeout: {timeout}, confirmationGrace: 20ms}}\n"
    )
}

/// What becomes of a held lease whose revocation outlived the service.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Confirms,
    StaysSilent,
    IsGone,
}

impl Then {
    /// After the kill of this round; another one follows the last.
    fn after(round: usize) -> Then {
        if round == ROUNDS {
            return Then::StaysSilent;
        }
        [Then::Confirms, Then::StaysSilent, Then::IsGone][round % 3]
    }
}

fn push(addr: SocketAddr, saturation: f64, running: u64) {
    let endpoint = json!({"name": "e", "waiting": 0, "running": running, "kv": 0});
    let body = json!({"endpoints": [endpoint], "saturation": saturation});
    let (status, answer) = call(addr, "PUT", "/v1/pools/default/endpoints", &body);
    assert_eq!(status, 200, "{answer}");
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| !event[kind].is_null()).count()
}

/// Four sheddable leases, blocked demand, and the kill between the order and its confirmation. The held leases.
fn killed_between(service: Service, round: usize) -> Vec<String> {
    let addr = service.addr();
    push(addr, 0.0, 0);
    let name = |what: &str| format!("{round}-{what}");
    // The youngest are taken first: one of each kind, in either order.
    let mut ids = vec![held(addr, &name("old"), -1)];
    let mut streams = vec![Events::open(addr, &name("old-stream"), -1)];
    if round.is_multiple_of(2) {
        streams.push(Events::open(addr, &name("stream"), -1));
        ids.push(held(addr, &name("held"), -1));
    } else {
        ids.push(held(addr, &name("held"), -1));
        streams.push(Events::open(addr, &name("stream"), -1));
    }
    let polled = |events: &[Value]| events.iter().filter(|e| e["WatchNoted"]["watching"] == true).count();
    let before = polled(&events(addr));
    let mut polls: Vec<Poll> = ids.iter().map(|id| Poll::begin(addr, id, "50s")).collect();
    until(addr, "the polls", |events| polled(events) == before + 2);
    push(addr, 2.0, 4);
    let demand = waiting(addr, &name("demand"), 10);
    match round % 4 {
        // Killed as soon as the demand was sent: before the decision, in its step, or after it.
        3 => std::thread::sleep(std::time::Duration::from_micros(700 * round as u64)),
        // Killed when both have heard: the revocations are durable, and nobody has confirmed.
        _ => {
            let answer = polls.pop().unwrap().answer().unwrap();
            assert_eq!(answer["state"], "revoked", "{answer}");
            assert!(streams[1].hears("revoked"));
        }
    }
    service.kill();
    drop((demand, polls, streams));
    ids
}

/// After the start: what is left of the held leases confirms, is silent, or is not at the engine.
fn afterwards(service: &Service, ids: &[String], then: Then) {
    let addr = service.addr();
    match then {
        Then::Confirms => {
            // As much runs as there was; a holder that asks again hears at once, and ends its request. Where the kill
            // came before the decision nobody is revoked, and the demand went with its caller.
            push(addr, 2.0, 4);
            let answer = Poll::begin(addr, &ids[1], "500ms").answer().unwrap();
            if answer["state"] == "revoked" {
                assert_eq!(
                    call(addr, "POST", &format!("/v1/admissions/{}/complete", ids[1]), &json!({})).0,
                    200
                );
            }
        }
        Then::StaysSilent => push(addr, 2.0, 4),
        Then::IsGone => push(addr, 2.0, 0),
    }
    until(addr, "an end of each revocation", |events| {
        count(events, "RevocationIssued") == count(events, "RevocationEnded")
    });
    push(addr, 0.0, 4);
    for id in ids {
        // Whoever is left; one that was lost is told so.
        let (status, answer) = call(addr, "POST", &format!("/v1/admissions/{id}/complete"), &json!({}));
        assert!(status == 200 || status == 409, "{status} {answer}");
    }
}

/// Each revocation by its number: how it ended, once; and how many decisions there were in each run.
fn read(dir: &Path) -> (BTreeMap<u64, RevocationEnd>, Vec<u64>) {
    let logs = Logs::open(&dir.join("data")).unwrap();
    let (mut issued, mut ended, mut runs) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for step in logs.reader("default", Bound::Open, Bound::Open).steps() {
        let step = step.unwrap();
        if matches!(step.input, Input::Started(_)) {
            runs.push(0);
        }
        for event in &step.events {
            match event {
                Event::ReclamationDecided(_) => *runs.last_mut().unwrap() += 1,
                Event::RevocationIssued(e) => {
                    assert!(matches!(e.order, RevocationOrder::Reclamation { demand: 10, .. }), "{e:?}");
                    assert_eq!(issued.insert(e.number, e.request), None, "{e:?} twice");
                }
                Event::RevocationEnded(e) => {
                    assert_eq!(issued.get(&e.number), Some(&e.request), "{e:?} of another");
                    assert_eq!(ended.insert(e.number, e.end), None, "{e:?} ended twice");
                }
                Event::LeaseEnded(e) if e.end == LeaseEnd::Revoked => revoked(&issued, e.request),
                _ => {}
            }
        }
    }
    assert!(issued.keys().eq(ended.keys()), "{issued:?} and {ended:?}");
    (ended, runs)
}

fn revoked(issued: &BTreeMap<u64, RequestId>, request: RequestId) {
    assert!(issued.values().any(|id| *id == request), "{request} ended as revoked and was not");
}

#[test]
fn a_kill_between_a_revocation_and_its_confirmation_ends_each_once_and_the_gate_opens_again() {
    let dir = crate::kept::tempdir().unwrap();
    let mut audit = Audit::new(dir.path());
    let mut service = Service::start(dir.path(), &settings(Then::after(0)));
    for round in 0..ROUNDS {
        let ids = killed_between(service, round);
        audit.check_round(&[]);
        service = Service::start(dir.path(), &settings(Then::after(round + 1)));
        afterwards(&service, &ids, Then::after(round));
    }
    let last = killed_between(service, 0);
    service = Service::start(dir.path(), &settings(Then::after(ROUNDS)));
    afterwards(&service, &last, Then::after(ROUNDS));
    service.stop();
    audit.check_end(ROUNDS as u64);

    let (ends, runs) = read(dir.path());
    let of = |wanted: RevocationEnd| ends.values().filter(|end| **end == wanted).count();
    let (confirmed, timed_out) = (of(RevocationEnd::Confirmed), of(RevocationEnd::TimedOut));
    println!(
        "{} revocations: {confirmed} confirmed, {timed_out} timed out; decisions by run: {runs:?}",
        ends.len()
    );
    assert!(confirmed >= 3 && timed_out >= ROUNDS && ends.len() >= 2 * (ROUNDS - 3), "{ends:?}");
    // Each run but the last, and those killed before they could decide, decided: the gate was open again.
    let decided = runs.iter().filter(|decisions| **decisions > 0).count();
    assert!(decided > ROUNDS - 3, "{runs:?}");
    replay::verify(&dir.path().join("data"));
}
