//! Counters equal the log's counts, after kills as well: each run counts what its own steps say, no more and no less.

use crate::rig::{Weir, until};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use weir_kernel::{Event, Input, Step};

const SETTINGS: &str = "plugins: [{name: d, type: pushed-saturation-detector}]\n\
    flowControl: {saturationDetector: {pluginRef: d}, maxRequests: '20', defaultRequestTTL: 300ms}\n\
    weir: {objectives: {high: 10, low: -1}}\n";

/// A caller that keeps its connection; false once that is gone.
fn ask(stream: &mut BufReader<TcpStream>, path: &str, body: &str) -> Option<String> {
    let head = format!("POST {path} HTTP/1.1\r\nhost: weir\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.get_mut().write_all(format!("{head}{body}").as_bytes()).ok()?;
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    String::from_utf8(body).ok()
}

/// So many requests over eight connections, each admitted one completed; how many were answered.
fn load(addr: SocketAddr, requests: usize) -> usize {
    let one = move |caller: usize| {
        let mut answered = 0;
        let Ok(stream) = TcpStream::connect(addr) else { return 0 };
        let mut stream = BufReader::new(stream);
        for turn in 0..requests / 8 {
            let objective = ["high", "low", "none"][(turn + caller) % 3];
            let body = json!({"objective": objective, "fairnessId": format!("f{}", turn % 7), "bytes": 10});
            let Some(text) = ask(&mut stream, "/v1/admissions", &body.to_string()) else { break };
            answered += 1;
            let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
            if let Some(id) = answer["admission"]["id"].as_str()
                && ask(&mut stream, &format!("/v1/admissions/{id}/complete"), "").is_none()
            {
                break;
            }
        }
        answered
    };
    let callers: Vec<_> = (0..8).map(|caller| std::thread::spawn(move || one(caller))).collect();
    callers.into_iter().map(|caller| caller.join().unwrap()).sum()
}

/// Every sample: name with labels, and value.
fn samples(weir: &Weir) -> BTreeMap<String, f64> {
    let (status, text) = weir.call("GET", "/metrics", &[], "");
    assert_eq!(status, 200);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

/// What the steps from `from` on say, by the names of the samples.
fn counted(steps: &[Step], from: u64) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    let mut bands = BTreeMap::new();
    let pool = "inference_pool=\"default\"";
    for step in steps {
        let mut add = |name: String| {
            if step.seq >= from {
                *counts.entry(name).or_insert(0.0) += 1.0;
            }
        };
        if let Input::Arrived(_) = step.input {
            add(format!("weir_flow_control_arrivals_total{{{pool}}}"));
        }
        for event in &step.events {
            let mut outcome = |outcome: &str, priority: i32| {
                add(format!(
                    "weir_flow_control_requests_total{{outcome=\"{outcome}\",priority=\"{priority}\",{pool}}}"
                ));
            };
            match event {
                Event::Enqueued(e) => drop(bands.insert(step.seq, e.priority)),
                Event::Rejected(e) => {
                    outcome(e.outcome.word(), e.priority);
                    add(format!("weir_flow_control_dropped_total{{reason=\"{}\",{pool}}}", e.reason.word()));
                }
                Event::Dispatched(e) => outcome("Dispatched", bands[&e.request.0]),
                Event::Evicted(e) => {
                    outcome(e.outcome.word(), bands[&e.request.0]);
                    add(format!("weir_flow_control_dropped_total{{reason=\"{}\",{pool}}}", e.reason.word()));
                }
                Event::LeaseEnded(e) => {
                    add(format!("weir_flow_control_lease_ends_total{{end=\"{}\",{pool}}}", e.end.word()));
                }
                _ => {}
            }
        }
    }
    counts
}

fn log(dir: &Path) -> Vec<Step> {
    let logs = weir_log::reader::Logs::open(&dir.join("data")).unwrap();
    let open = weir_log::reader::Bound::Open;
    logs.reader("default", open, open).steps().map(Result::unwrap).collect()
}

/// The requests in all; more of them by hand (`WEIR_COUNTED_REQUESTS=100000`).
fn requests() -> usize {
    let given = std::env::var("WEIR_COUNTED_REQUESTS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(6_000)
}

#[test]
fn counters_equal_the_log_after_kills() {
    let dir = crate::kept::tempdir().unwrap();
    let mut answered = 0;
    for run in 0..3 {
        let weir = Weir::start(dir.path(), SETTINGS, &[], &[]);
        weir.pool_is(1, 0.5);
        let addr = weir.addr;
        // What the kills cut off is made up for by the last.
        let share = if run < 2 { requests() / 3 } else { requests() - answered };
        let loading = std::thread::spawn(move || load(addr, share));
        for saturation in [2.0, 0.6, 1.7, 0.4] {
            std::thread::sleep(std::time::Duration::from_millis(100));
            weir.pool_is(1, saturation);
        }
        let arrivals = "weir_flow_control_arrivals_total{inference_pool=\"default\"}";
        if run < 2 {
            until("half of it has come", || {
                (samples(&weir).get(arrivals).copied().unwrap_or(0.0) >= share as f64 / 2.0).then_some(())
            });
            drop(weir);
            answered += loading.join().unwrap();
            continue;
        }
        let mut last = loading.join().unwrap();
        // Whatever the load met, one has waited in vain.
        weir.pool_is(1, 2.0);
        assert_eq!(weir.call("POST", "/v1/admissions", &[], "{}").0, 429);
        weir.pool_is(1, 0.4);
        last += 1;
        answered += last;
        let shown = until("the figures of the last run", || {
            let shown = samples(&weir);
            let idle = shown.get("weir_flow_control_in_flight{inference_pool=\"default\"}") == Some(&0.0);
            (idle && shown.get(arrivals) == Some(&(last as f64))).then_some(shown)
        });
        weir.stop();
        let steps = log(dir.path());
        let starts = steps.iter().rposition(|step| matches!(step.input, Input::Started(_))).unwrap();
        let (before, after) = steps.split_at(starts);
        // What its recovery did to the requests of the killed run is the last run's own.
        let wanted = counted(&steps, after[0].seq);
        for (name, value) in &wanted {
            assert_eq!(shown.get(name), Some(value), "{name}");
        }
        for name in ["requests_total", "dropped_total", "lease_ends_total", "arrivals_total"] {
            let prefix = format!("weir_flow_control_{name}{{");
            let sum = |all: &BTreeMap<String, f64>| {
                all.iter().filter(|(name, _)| name.starts_with(&prefix)).map(|(_, value)| value).sum::<f64>()
            };
            assert_eq!(sum(&shown), sum(&wanted), "{name}");
        }
        let arrived =
            |steps: &[Step]| steps.iter().filter(|step| matches!(step.input, Input::Arrived(_))).count();
        assert_eq!(arrived(after), last, "the run's own");
        assert!(arrived(before) + last >= answered, "whatever was answered is in the log");
        assert!(
            answered + 8 >= requests(),
            "{answered} answered in all: each of the eight callers may miss one"
        );
        assert!(wanted.len() > 6, "{wanted:#?}");
    }
}
