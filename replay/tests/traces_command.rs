//! `weir-replay traces` as a command: what it writes is what the log makes, in a file, on standard output and at a receiver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::mpsc;
use weir_kernel::*;
use weir_log::hot::{HotOptions, HotStore};
use weir_log::store::Store;
use weir_log::{Frame, Head};
use weir_telemetry::{Sampler, Spans, document};

const START: u64 = 1_764_460_800_000_000;
const REQUESTS: u64 = 300;

fn at(millis: u64) -> Micros {
    Micros(START + millis * 1_000)
}

/// A pool that serves every request, one after another; every second caller sampled nothing.
fn log(data: &Path) -> Vec<Step> {
    let mut state = State::new();
    let started =
        Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "0.1.0".to_owned(), wall: Micros(START) };
    let policy = Policy { detector: Detector::Pushed, ..Policy::default() };
    let changed = PolicyChange { policy: Box::new(policy), digest: [0; 32] };
    let slot = Slot(0);
    let changes = vec![
        EndpointChange::Joined { slot, name: "e".to_owned(), role: Role::Both },
        EndpointChange::Sampled { slot, waiting: 0, running: 0, kv: 0 },
    ];
    let view = Observation { requested_at: at(0), changes, pushed: Pushed::Pool(Ratio(100_000)) };
    let mut steps = Vec::new();
    for input in [Input::Started(started), Input::PolicyChanged(changed), Input::Observed(view)] {
        steps.push(step(&mut state, at(0), input));
    }
    for turn in 1..=REQUESTS {
        let mut trace_id = [0; 16];
        trace_id[8..].copy_from_slice(&turn.to_be_bytes());
        let trace = Trace { trace_id, parent_id: [1; 8], flags: (turn % 2) as u8 };
        let arrival =
            Arrival { received_at: at(10 * turn), bytes: 10, trace: Some(trace), ..Arrival::default() };
        steps.push(step(&mut state, at(10 * turn), Input::Arrived(arrival)));
        let request = RequestId(steps.last().unwrap().seq);
        while state.next_deadline().is_some_and(|due| due <= at(10 * turn)) {
            steps.push(step(&mut state, at(10 * turn), Input::TimePassed));
        }
        let ended = Ended { request, termination: Termination::Natural, usage: None };
        steps.push(step(&mut state, at(10 * turn + 5), Input::Ended(ended)));
    }
    let mut store = HotStore::open(data, HotOptions::default()).unwrap();
    let mut head = Head::default();
    for chunk in steps.chunks(50) {
        let frame = Frame::encode(&Arc::from("chat"), head.hash, chunk[0].at, chunk).unwrap();
        head = Head::of(&frame);
        store.write(&[frame]).unwrap();
    }
    store.sync().unwrap();
    steps
}

fn traces(args: &[&str], at: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir-replay")).arg("traces").args(args).current_dir(at).output().unwrap()
}

/// The spans of documents, one per line.
fn spans(text: &str) -> Vec<Value> {
    let documents = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let spans = documents.flat_map(|document| {
        document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    });
    spans.collect()
}

fn wanted(steps: &[Step]) -> Vec<Value> {
    let (mut spans_of, mut made) = (Spans::new("chat", Sampler::EVERYTHING), Vec::new());
    steps.iter().for_each(|step| spans_of.apply(step, &mut made));
    spans(&document(&[], &made).to_string())
}

#[test]
fn what_is_written_is_what_the_log_makes() {
    let dir = tempfile::tempdir().unwrap();
    let steps = log(&dir.path().join("data"));
    let wanted = wanted(&steps);
    assert_eq!(wanted.len() as u64, 3 * REQUESTS, "sampled or not");
    let output = traces(&["--data", "data", "-o", "spans.jsonl"], dir.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(dir.path().join("spans.jsonl")).unwrap();
    assert_eq!(spans(&text), wanted);
    assert!(text.lines().count() > 1 && text.contains("\"service.name\""));

    // A range has what ended in it, whole.
    let seq = steps.iter().find(|step| step.at >= at(1_000)).unwrap().seq.to_string();
    let part =
        traces(&["--data", "data", "--from", &seq, "--to", &(steps.len() - 10).to_string()], dir.path());
    let part = spans(&String::from_utf8_lossy(&part.stdout));
    assert!(part.len() > 100 && part.len() < wanted.len(), "{}", part.len());
    assert!(part.iter().all(|span| wanted.contains(span)));

    let trace = wanted[3]["traceId"].as_str().unwrap();
    let one = traces(&["--data", "data", "--trace", trace], dir.path());
    let one = spans(&String::from_utf8_lossy(&one.stdout));
    assert_eq!(one.len(), 3);
    assert!(one.iter().all(|span| span["traceId"] == trace));
    for wrong in
        [&["--data", "data", "--trace", "xyz"][..], &["--data", "data", "--pool", "none"], &["--data", "no"]]
    {
        assert!(!traces(wrong, dir.path()).status.success(), "{wrong:?}");
    }
}

/// Answers every request so, and gives their bodies' sizes.
fn receiver(status: &'static str) -> (u16, mpsc::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, (to, from)) = (listener.local_addr().unwrap().port(), mpsc::channel());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut read, mut piece) = (Vec::new(), [0; 65_536]);
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                read.extend_from_slice(&piece[..count]);
                let Some(head) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
                let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                let length: usize = length.parse().unwrap();
                if read.len() >= head + 4 + length {
                    let _ = to.send(length);
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                    stream.write_all(answer.as_bytes()).unwrap();
                    read.clear();
                }
            }
        }
    });
    (port, from)
}

#[test]
fn a_receiver_gets_all_of_them_or_the_command_fails() {
    let dir = tempfile::tempdir().unwrap();
    log(&dir.path().join("data"));
    let (port, bodies) = receiver("200 OK");
    let output = traces(&["--data", "data", "--otlp", &format!("http://127.0.0.1:{port}")], dir.path());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains(&format!("{} spans were taken", 3 * REQUESTS)), "{text}");
    assert!(bodies.try_iter().count() >= 2);
    let (port, _bodies) = receiver("400 Bad Request");
    let output = traces(&["--data", "data", "--otlp", &format!("http://127.0.0.1:{port}")], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did not take"));
}

/// A URL that can never work is a mistake of the command line; an attribute that is none is said, and left out.
#[test]
fn what_cannot_be_a_receiver_or_an_attribute_is_named() {
    let dir = tempfile::tempdir().unwrap();
    log(&dir.path().join("data"));
    for url in ["http://127.0.0.1:99999", "https://127.0.0.1:4318", "127.0.0.1:4318"] {
        let output = traces(&["--data", "data", "--otlp", url], dir.path());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(url) && text.contains("allowed"), "{url}: {text}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_weir-replay"))
        .args(["traces", "--data", "data"])
        .env("OTEL_RESOURCE_ATTRIBUTES", "zone=a,broken")
        .current_dir(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && text.contains("OTEL_RESOURCE_ATTRIBUTES: \"broken\" is not allowed"),
        "{text}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"zone\""));
}
