//! Goal: a request's spans arrive at a real OTLP receiver, say what happened to it, and are those that its log makes.
//! Method: the binary, and `oteltap` (HTTP) and `rotel` (gRPC) as receivers, each a process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../kept/mod.rs"]
mod kept;
mod rig;

use rig::{Receiver, Weir, from_log, line_with, until, whole};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

const SETTINGS: &str = "plugins: [{name: d, type: pushed-saturation-detector}]\n\
    flowControl: {saturationDetector: {pluginRef: d}, enableEviction: true}\n\
    weir: {objectives: {high: 10, low: -1}}\n";

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn http(receiver: &Receiver) -> [(&'static str, String); 2] {
    let endpoint = format!("http://127.0.0.1:{}", receiver.port);
    [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf".to_owned())]
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|event| event[0].as_str().unwrap()).collect()
}

/// The value of an attribute.
fn attribute<'v>(span: &'v Value, name: &str) -> &'v Value {
    let all = span["attributes"].as_array().unwrap();
    let found = all.iter().find(|attribute| attribute["key"] == name);
    &found.unwrap_or_else(|| panic!("no {name} in {span:#}"))["value"]
}

/// It waits for a pool that is empty, is admitted when that changes, and is taken back for another one.
#[test]
fn c130_a_request_that_waited_and_was_revoked_is_told_whole_and_its_log_tells_the_same() {
    let dir = kept::tempdir().unwrap();
    let Some(receiver) = Receiver::oteltap(dir.path()) else { return };
    let weir = Weir::start(dir.path(), SETTINGS, &[], &http(&receiver));
    weir.pool_is(0, 0.0);
    let headers = [("traceparent", PARENT), ("accept", "application/x-ndjson")];
    let body = json!({"objective": "low", "model": "m", "requestId": "r-1", "fairnessId": "t"}).to_string();
    let mut victim = weir.send("POST", "/v1/admissions", &headers, &body);
    weir.queued(1);
    weir.pool_is(1, 0.1);
    line_with(&mut victim, "\"admitted\"");
    weir.pool_is(1, 1.5);
    let demand = weir.send("POST", "/v1/admissions", &[], &json!({"objective": "high"}).to_string());
    line_with(&mut victim, "\"revoked\"");
    drop(victim);
    weir.pool_is(1, 0.2);
    let (status, text) = whole(demand);
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let id = answer["admission"]["id"].as_str().unwrap();
    let usage = json!({"usage": {"prompt": 3, "completion": 9}}).to_string();
    assert_eq!(weir.call("POST", &format!("/v1/admissions/{id}/complete"), &[], &usage).0, 200);
    let mut saturation = 0.2;
    let is = |name: &str| receiver.spans().values().any(|span| span["name"] == name);
    until("the reclamation", || {
        // Its span ends with the grace after the last revocation, which a step must show.
        saturation += 0.001;
        weir.pool_is(1, saturation);
        is("weir.reclamation").then_some(())
    });
    weir.stop();
    let received = receiver.spans();
    let of = |name: &str, trace: &str| {
        let found = received
            .values()
            .filter(|span| span["name"] == name && (span["trace"] == trace) == (trace == TRACE));
        let found: Vec<&Value> = found.filter(|span| trace == TRACE || span["trace"] != TRACE).collect();
        assert_eq!(found.len(), 1, "{name}: {found:#?}");
        found[0].clone()
    };
    let (whole, queue, lease) =
        (of("weir.admission", TRACE), of("weir.queue", TRACE), of("weir.lease", TRACE));
    assert_eq!(whole["parent"], "b7ad6b7169203331");
    let seen = names(&queue["events"]);
    for name in ["weir.enqueued", "weir.regime_changed", "weir.budget_recharged", "weir.dispatched"] {
        assert!(seen.contains(&name), "{name} in {seen:?}");
    }
    let events = names(&lease["events"]);
    assert_eq!(events, ["weir.dispatched", "weir.revoked", "weir.revocation_ended", "weir.ended"]);
    assert_eq!(attribute(&whole, "error.type")["stringValue"], "evicted");
    assert_eq!(attribute(&whole, "gen_ai.request.model")["stringValue"], "m");
    let decision = received.values().find(|span| span["name"] == "weir.reclamation").unwrap();
    let links = decision["links"].as_array().unwrap();
    assert_eq!(links.len(), 2, "demand and victim: {links:?}");
    assert_eq!(attribute(decision, "weir.reclamation.wanted")["intValue"], "1");
    assert_eq!(from_log(dir.path()), received, "the log makes the same spans");
}

#[test]
fn a_request_that_outlives_a_kill_has_the_spans_of_its_log() {
    let dir = kept::tempdir().unwrap();
    let Some(receiver) = Receiver::oteltap(dir.path()) else { return };
    let weir = Weir::start(dir.path(), SETTINGS, &[], &http(&receiver));
    weir.pool_is(1, 0.1);
    let (status, text) = weir.call("POST", "/v1/admissions", &[("traceparent", PARENT)], "{}");
    assert_eq!(status, 200, "{text}");
    until("the span of its wait", || (receiver.spans().len() == 1).then_some(()));
    // SIGKILL.
    drop(weir);
    let weir = Weir::start(dir.path(), SETTINGS, &[], &http(&receiver));
    weir.pool_is(1, 0.1);
    // The endpoint shows no running request: the lease is lost.
    until("the end of the lease", || (receiver.spans().len() == 3).then_some(()));
    weir.stop();
    let received = receiver.spans();
    assert!(received.values().any(|span| span["message"] == "lost"), "{received:#?}");
    assert_eq!(from_log(dir.path()), received);
}

/// The whole demo: every span that went out while it ran is one that its log makes, and the log makes no other.
#[test]
fn the_spans_of_the_demo_are_those_of_its_log() {
    let dir = kept::tempdir().unwrap();
    let Some(receiver) = Receiver::oteltap(dir.path()) else { return };
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["demo", "--seconds", "6", "--json", "--data"])
        .arg(dir.path().join("data"))
        .envs(http(&receiver))
        // Nothing may be dropped: what is compared is everything.
        .envs([("OTEL_BSP_MAX_QUEUE_SIZE", "1000000"), ("OTEL_BSP_SCHEDULE_DELAY", "50")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let received = receiver.spans();
    let admissions = received.values().filter(|span| span["name"] == "weir.admission").count();
    assert!(admissions > 100, "{admissions}");
    let all = from_log(dir.path());
    assert_eq!(received.len(), all.len());
    for (id, span) in &all {
        assert_eq!(received.get(id), Some(span), "{id}");
    }
    eprintln!("{} spans of {admissions} requests, id for id", all.len());
}

#[test]
fn c129_what_the_caller_did_not_sample_is_not_exported() {
    let dir = kept::tempdir().unwrap();
    let Some(receiver) = Receiver::oteltap(dir.path()) else { return };
    let weir = Weir::start(dir.path(), SETTINGS, &[], &http(&receiver));
    weir.pool_is(1, 0.1);
    let not = PARENT.replace("-01", "-00");
    for parent in [not.as_str(), "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"] {
        let (status, text) = weir.call("POST", "/v1/admissions", &[("traceparent", parent)], "{}");
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let path = format!("/v1/admissions/{}/complete", answer["admission"]["id"].as_str().unwrap());
        assert_eq!(weir.call("POST", &path, &[], "").0, 200);
    }
    weir.stop();
    let received = receiver.spans();
    assert_eq!(received.len(), 3, "{received:#?}");
    assert!(received.values().all(|span| span["trace"] != TRACE));
    let all = from_log(dir.path());
    assert_eq!(all.len(), 6, "the log has the others as well");
    assert!(received.iter().all(|(id, span)| all.get(id) == Some(span)));
}

/// A model server that keeps the heads of what it is asked.
fn server() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, heads) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&heads);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut head = String::new();
            while reader.read_line(&mut head).is_ok_and(|read| read > 0) && !head.ends_with("\r\n\r\n") {}
            let body = if head.contains("/metrics ") {
                "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\n"
            } else {
                kept.lock().unwrap().push(head.to_ascii_lowercase());
                "{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}"
            };
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    (port, heads)
}

#[test]
fn c129_the_model_server_is_told_of_the_lease_as_its_parent() {
    let dir = kept::tempdir().unwrap();
    let Some(receiver) = Receiver::oteltap(dir.path()) else { return };
    let (port, heads) = server();
    let upstream = format!("http://127.0.0.1:{port}");
    let weir = Weir::start(dir.path(), "weir: {}\n", &["--upstream", &upstream], &http(&receiver));
    until("the pool", || (weir.call("GET", "/readyz", &[], "").0 == 200).then_some(()));
    let asks: [&[(&str, &str)]; 2] =
        [&[("traceparent", PARENT), ("tracestate", "a=b")], &[("tracestate", "a=b")]];
    for headers in asks {
        let (status, text) =
            weir.call("POST", "/v1/completions", headers, "{\"model\":\"m\",\"prompt\":\"x\"}");
        assert_eq!(status, 200, "{text}");
    }
    weir.stop();
    let (heads, spans) = (heads.lock().unwrap(), receiver.spans());
    assert_eq!(heads.len(), 2);
    assert_eq!(heads[0].matches("traceparent").count(), 1);
    for head in heads.iter() {
        let parent = head.lines().find_map(|line| line.strip_prefix("traceparent: ")).unwrap();
        let parts: Vec<&str> = parent.split('-').collect();
        let lease = &spans[parts[2]];
        assert_eq!((&lease["name"], &lease["kind"]), (&json!("weir.lease"), &json!(3)));
        assert_eq!((lease["trace"].as_str().unwrap(), parts[3]), (parts[1], "01"));
        assert!(names(&lease["events"]).contains(&"weir.usage"), "{lease:#}");
    }
    assert!(heads[0].contains(TRACE) && heads[0].contains("tracestate: a=b"));
    assert!(!heads[1].contains(TRACE) && !heads[1].contains("tracestate"));
}

#[test]
fn spans_travel_over_grpc() {
    let dir = kept::tempdir().unwrap();
    let Some(receiver) = Receiver::rotel(dir.path()) else { return };
    let endpoint = format!("http://127.0.0.1:{}", receiver.port);
    let otel = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc".to_owned()),
        ("OTEL_SERVICE_NAME", "edge".to_owned()),
    ];
    let weir = Weir::start(dir.path(), SETTINGS, &[], &otel);
    weir.pool_is(1, 0.1);
    let headers = [("traceparent", PARENT), ("accept", "application/x-ndjson")];
    let mut stream = weir.send("POST", "/v1/admissions", &headers, "{\"objective\":\"low\"}");
    line_with(&mut stream, "\"admitted\"");
    drop(stream);
    // They come as they end, and are told line by line.
    for part in [
        TRACE,
        "weir.lease",
        "weir.queue",
        "weir.admission",
        "service.name: Str(edge)",
        "weir.face: Str(stream)",
    ] {
        until(part, || receiver.text().contains(part).then_some(()));
    }
    weir.stop();
}

/// From a line of the process's log to the trace: the ids are those of the spans, also where no spans are exported.
#[test]
fn log_lines_of_requests_carry_the_ids_of_their_spans() {
    let dir = kept::tempdir().unwrap();
    let debug = [("WEIR_LOG", "info,weir::requests=debug".to_owned())];
    let settings = format!("{SETTINGS}pools: {{default: {{}}}}\n")
        .replace("enableEviction: true", "defaultRequestTTL: 50ms");
    let weir = Weir::start(dir.path(), &settings, &[], &debug);
    weir.pool_is(1, 0.1);
    let (status, text) = weir.call("POST", "/v1/admissions", &[("traceparent", PARENT)], "{}");
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let path = format!("/v1/admissions/{}/complete", answer["admission"]["id"].as_str().unwrap());
    assert_eq!(weir.call("POST", &path, &[], "").0, 200);
    weir.pool_is(1, 1.5);
    let (status, _) = weir.call("POST", "/v1/admissions", &[("traceparent", PARENT)], "{}");
    assert_eq!(status, 429);
    let err = dir.path().join("weir.err");
    let said = until("both lines", || {
        let said = std::fs::read_to_string(&err).unwrap();
        (said.contains(" ended") && said.contains(" refused")).then_some(said)
    });
    weir.stop();
    let spans = from_log(dir.path());
    let admissions: Vec<(&String, &Value)> =
        spans.iter().filter(|(_, span)| span["name"] == "weir.admission").collect();
    assert_eq!(admissions.len(), 2);
    for (id, span) in admissions {
        let line = said.lines().find(|line| line.contains(id.as_str()));
        let line = line.unwrap_or_else(|| panic!("no line with {id} in {said}"));
        assert!(line.contains(TRACE) && span["trace"] == TRACE, "{line}");
        let refused =
            span["status"] == 0 && line.contains("rejected-ttl-expired") || line.contains("Completed");
        assert!(refused, "{line}");
    }
}

/// Admits and completes so many, one after the other.
fn served(weir: &Weir, requests: usize) {
    for _ in 0..requests {
        let (status, text) = weir.call("POST", "/v1/admissions", &[], "{}");
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let path = format!("/v1/admissions/{}/complete", answer["admission"]["id"].as_str().unwrap());
        assert_eq!(weir.call("POST", &path, &[], "").0, 200);
    }
}

/// At the most talkative the export makes no span of itself, over either protocol.
#[test]
fn c128_the_export_makes_no_spans_of_itself() {
    let dir = kept::tempdir().unwrap();
    let Some(receiver) = Receiver::oteltap(dir.path()) else { return };
    let [endpoint, protocol] = http(&receiver);
    let weir =
        Weir::start(dir.path(), SETTINGS, &[], &[endpoint, protocol, ("WEIR_LOG", "trace".to_owned())]);
    weir.pool_is(1, 0.1);
    served(&weir, 10);
    until("their spans", || (receiver.spans().len() >= 30).then_some(()));
    // Several batches more would have gone by now.
    served(&weir, 1);
    until("those of the last", || (receiver.spans().len() >= 33).then_some(()));
    weir.stop();
    assert_eq!(receiver.spans().len(), 33);
}

/// A receiver that is gone, and one that takes connections and is silent: the process ends, in order, and says what was lost.
#[test]
fn c126_a_stop_ends_in_time_whatever_the_receiver_does() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (port, protocol) in [
        (gone, "http/protobuf"),
        (gone, "grpc"),
        (silent.local_addr().unwrap().port(), "http/protobuf"),
        (silent.local_addr().unwrap().port(), "grpc"),
    ] {
        let dir = kept::tempdir().unwrap();
        let otel = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}")),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
        ];
        let weir = Weir::start(dir.path(), SETTINGS, &[], &otel);
        weir.pool_is(1, 0.1);
        served(&weir, 34);
        // Exit code 0 is asserted there.
        let took = weir.stop();
        assert!(took < std::time::Duration::from_secs(8), "{port} {protocol}: {took:?}");
        let said = std::fs::read_to_string(dir.path().join("weir.err")).unwrap();
        let line = said.lines().find(|line| line.contains("spans exported and dropped"));
        assert!(line.is_some_and(|line| line.contains("exported=0")), "{said}");
    }
}

#[test]
fn variables_that_are_not_allowed_are_named_at_the_start() {
    let dir = kept::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(dir.path().join("data"))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("OTEL_EXPORTER_OTLP_ENDPOINT") && text.contains("allowed"), "{text}");
    // Where the standard says how to go on, it is a warning.
    let odd = [("OTEL_SDK_DISABLED", "maybe".to_owned()), ("WEIR_LOG", "weir=loud".to_owned())];
    Weir::start(dir.path(), SETTINGS, &[], &odd).stop();
    let text = std::fs::read_to_string(dir.path().join("weir.err")).unwrap();
    let warning = "OTEL_SDK_DISABLED: \"maybe\" is not allowed; allowed: true, false; it is taken as false";
    assert!(text.contains(" WARN ") && text.contains(warning), "{text}");
    assert!(text.contains("WEIR_LOG: \"weir=loud\" is not allowed"), "{text}");
}

/// The last steps of a stop come when the drain is over, and spans may take seconds after that: meanwhile nobody reads a log that is
/// closed, and nothing is said of the projections, which were well.
#[test]
fn a_stop_beside_a_receiver_that_fails_says_nothing_of_the_projections() {
    let dir = kept::tempdir().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let otel = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{gone}")),
        ("OTEL_BSP_SCHEDULE_DELAY", "60000".to_owned()),
    ];
    let settings = SETTINGS.replace("weir: {", "weir: {drainTimeout: 300ms, ");
    let weir = Weir::start(dir.path(), &settings, &[], &otel);
    weir.pool_is(0, 0.0);
    let held = weir.send("POST", "/v1/admissions", &[], "{}");
    weir.queued(1);
    weir.stop();
    assert_eq!(whole(held).0, 503);
    let said = std::fs::read_to_string(dir.path().join("weir.err")).unwrap();
    assert!(said.contains("does not take spans") && said.contains("stopped"), "{said}");
    // That they were folded at the start is said; nothing that would be wrong with them.
    let wrong = said.lines().find(|line| line.contains("projection") && !line.contains(" INFO "));
    assert_eq!(wrong, None, "{said}");
}
