//! Goal: whatever is malformed gets a clear 4xx that names field, value and what is allowed; nothing of it is logged.

use crate::harness::{Connection, World, call, pushed};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir::gateway::Options;

async fn world() -> World {
    let mut setup = pushed(|_| {});
    setup.objectives = vec![("critical", 10), ("batch", -10)];
    let world = World::one(setup).await;
    world.pool_is("default", 1, 0.0).await;
    world
}

#[track_caller]
fn named(problem: &Value, field: &str, value: &str, allowed: &str) {
    assert_eq!(problem["field"], field, "{problem}");
    assert!(problem["value"].as_str().unwrap().contains(value), "{problem}");
    assert!(problem["allowed"].as_str().unwrap().contains(allowed), "{problem}");
}

#[tokio::test]
async fn bodies_and_headers_are_refused_by_name() {
    let world = world().await;
    let before = world.log("default").await.len();
    let long = "x".repeat(257);
    let bodies = [
        (r#"{"priorty": 1}"#.to_owned(), "body", "priorty", "did you mean priority?"),
        (r#"{"priority": 1.5}"#.to_owned(), "priority", "1.5", "an integer"),
        (r#"{"bytes": -1}"#.to_owned(), "bytes", "-1", "whole number"),
        (r#"{"bytes": 1e400}"#.to_owned(), "body", "1e400", "JSON object"),
        (r#"{"ttl": "soon"}"#.to_owned(), "ttl", "soon", "Go duration"),
        (r#"{"requestId": "a\u0000b"}"#.to_owned(), "requestId", "a\\u{0}b", "control characters"),
        (format!(r#"{{"fairnessId": "{long}"}}"#), "fairnessId", "xxx", "256 bytes"),
        ("[1,2]".to_owned(), "body", "[1,2]", "JSON object"),
        ("{".to_owned(), "body", "{", "JSON object"),
    ];
    for (body, field, value, allowed) in &bodies {
        let reply = world.call("POST", "/v1/admissions", &[], body).await;
        named(&reply.refused(400, "rejected-invalid"), field, value, allowed);
    }
    let headers = [
        ("x-weir-deadline-ms", "soon", "milliseconds"),
        ("x-envoy-expected-rq-timeout-ms", "-5", "milliseconds"),
        ("grpc-timeout", "5 S", "digits"),
        ("x-weir-choose-endpoint", "yes", "true or false"),
        ("x-llm-d-inference-fairness-id", &long, "256 bytes"),
        ("idempotency-key", &long, "256 bytes"),
    ];
    for (name, value, allowed) in headers {
        let reply = world.call("POST", "/v1/admissions", &[(name, value)], "").await;
        let problem = reply.refused(400, "rejected-invalid");
        assert!(problem["field"].as_str().unwrap().eq_ignore_ascii_case(name), "{problem}");
        assert!(problem["allowed"].as_str().unwrap().contains(allowed), "{problem}");
    }
    assert_eq!(world.log("default").await.len(), before, "nothing of it is in the log");
    let text = world.get("/metrics").await.text();
    assert!(text.contains("weir_gateway_invalid_total 15\n"), "{text}");
}

/// Unknown names are served at priority 0 and counted; a raw priority counts only where it is trusted.
#[tokio::test]
async fn c083_unknown_names_and_raw_priorities() {
    let world = world().await;
    for (header, want) in [("critical", 10), ("Critical", 0), ("crtical", 0), ("batch", -10)] {
        let headers = [("x-llm-d-inference-objective", header)];
        let admission = world.call("POST", "/v1/admissions", &headers, "").await.admitted();
        assert_eq!(admission["priority"], want, "{header}");
    }
    assert_eq!(world.admit(json!({})).await.admitted()["priority"], 0);
    for (value, status) in [("10", 200), ("+10", 400), ("ten", 400), ("1e1", 400)] {
        let reply = world.call("POST", "/v1/admissions", &[("x-weir-priority", value)], "").await;
        assert_eq!(reply.status, status, "{value}: {}", reply.text());
        if status == 200 {
            assert_eq!(reply.admitted()["priority"], 0, "not trusted here");
        }
    }
    let arrived = world.log("default").await;
    let named: Vec<_> =
        arrived.iter().filter_map(|step| step["input"]["Arrived"]["objective"].as_str()).collect();
    assert_eq!(named, ["critical", "Critical", "crtical", "batch"]);
    world
        .until("the counters", async || {
            let text = world.get("/metrics").await.text();
            text.contains("weir_flow_control_objective_unknown_total{inference_pool=\"default\"} 2\n")
                && text.contains("weir_gateway_priority_ignored_total 1\n")
        })
        .await;

    let mut setup = pushed(|_| {});
    setup.trust_priority = true;
    let trusting = World::one(setup).await;
    trusting.pool_is("default", 1, 0.0).await;
    let reply = trusting.call("POST", "/v1/admissions", &[("x-weir-priority", "-7")], "").await;
    assert_eq!(reply.admitted()["priority"], -7);
}

/// A budget header that cannot be read is ignored and counted; it can only shorten.
#[tokio::test]
async fn c011_c006_a_budget_header_only_shortens() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.0).await;
    let values = ["50s", "90s", "2562047h", "18446744073709551615s", "soon", "0s"];
    let mut waiting = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let addr = world.addr;
        waiting.push(tokio::spawn(async move {
            call(addr, "POST", "/v1/admissions", &[("x-llm-d-inference-ttl", value)], b"").await
        }));
        world.queued("default", index as u64 + 1).await;
    }
    let enqueued = world.events("default", "Enqueued").await;
    let budgets: Vec<_> = enqueued.iter().map(|e| e["saturation_budget"].as_u64().unwrap()).collect();
    assert_eq!(budgets, [50_000_000, 60_000_000, 60_000_000, 60_000_000, 60_000_000, 60_000_000]);
    let figure = "weir_flow_control_ttl_unreadable_total{inference_pool=\"default\"} 2\n";
    world.until(figure, async || world.get("/metrics").await.text().contains(figure)).await;
    waiting.iter().for_each(|task| task.abort());
}

/// A body up to the limit is read, one byte more is refused before it takes a slot, and the connection goes on.
#[tokio::test]
async fn c085_a_body_over_the_limit_is_413_and_the_connection_lives() {
    let limit: usize = 4 << 20;
    let options = Options { body_bytes_max: limit as u64, ..Options::default() };
    let world = World::start(BTreeMap::from([("default", pushed(|_| {}))]), options).await;
    world.pool_is("default", 1, 0.0).await;
    let body = |size: usize| {
        let start = r#"{"bytes":1"#;
        format!("{start}{}}}", " ".repeat(size - start.len() - 1))
    };
    let mut connection = Connection::open(world.addr).await;
    for size in [127 << 10, 129 << 10, limit] {
        connection.send("POST", "/v1/admissions", &[], body(size).as_bytes()).await;
        connection.reply().await.admitted();
    }
    let before = world.log("default").await.len();
    connection.send("POST", "/v1/admissions", &[], body(limit + 1).as_bytes()).await;
    let problem = connection.reply().await.refused(413, "rejected-invalid");
    assert_eq!((&problem["field"], &problem["limit"]), (&json!("body"), &json!(limit)));
    // The same in chunks, where no length is announced.
    connection.raw(b"POST /v1/admissions HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n").await;
    for part in body(limit + 1).as_bytes().chunks(256 << 10) {
        connection.raw(format!("{:x}\r\n", part.len()).as_bytes()).await;
        connection.raw(part).await;
        connection.raw(b"\r\n").await;
    }
    connection.raw(b"0\r\n\r\n").await;
    connection.reply().await.refused(413, "rejected-invalid");
    assert_eq!(world.log("default").await.len(), before, "no slot was taken");
    connection.send("POST", "/v1/admissions", &[], b"").await;
    connection.reply().await.admitted();
    // Whoever asks first is told before it sends anything.
    let ask = format!(
        "POST /v1/admissions HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        limit + 1
    );
    let mut connection = Connection::open(world.addr).await;
    connection.raw(ask.as_bytes()).await;
    connection.reply().await.refused(413, "rejected-invalid");
}

/// A query changes nothing; other paths are 404 before they queue, other methods 405.
#[tokio::test]
async fn c087_paths_and_methods() {
    let world = world().await;
    for path in ["/v1/admissions", "/v1/admissions?a=1", "/v1/admissions?beta=true&x=%zz"] {
        let headers = [("x-llm-d-inference-objective", "critical")];
        let admission = world.call("POST", path, &headers, "").await.admitted();
        assert_eq!(admission["priority"], 10, "{path}");
    }
    let before = world.log("default").await.len();
    for path in ["/v1/admissions/", "/v2/admissions", "/v1/admissions/default-1/complete/x", "/", "/v1/%00"] {
        let problem = world.call("POST", path, &[], "").await.refused(404, "rejected-invalid");
        assert_eq!(problem["field"], "path", "{path}");
    }
    for (method, path, allowed) in [
        ("GET", "/v1/admissions", "POST"),
        ("PUT", "/v1/admissions/default-1", "GET, HEAD, DELETE"),
        ("DELETE", "/v1/pools/default", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("GET", "/ext-proc", "POST"),
    ] {
        let reply = world.call(method, path, &[], "").await;
        assert_eq!(reply.header("allow"), Some(allowed), "{method} {path}");
        reply.refused(405, "rejected-invalid");
    }
    assert_eq!(world.log("default").await.len(), before);
}

#[tokio::test]
async fn ids_pools_and_queries_are_refused_by_name() {
    let world = world().await;
    for (method, path, status, field) in [
        ("DELETE", "/v1/admissions/x", 400, "id"),
        ("DELETE", "/v1/admissions/default-0", 400, "id"),
        ("DELETE", "/v1/admissions/default-18446744073709551616", 400, "id"),
        ("DELETE", "/v1/admissions/default-999999", 404, "id"),
        ("POST", "/v1/admissions/nowhere-1/complete", 404, "id"),
        ("POST", "/v1/admissions/default-999999/renew", 404, "id"),
        ("GET", "/v1/admissions/default-999999", 404, "id"),
        ("GET", "/v1/admissions/default-1?wait=2m", 400, "wait"),
        ("GET", "/v1/admissions/default-1?wiat=2s", 400, "query"),
        ("DELETE", "/v1/admissions/%ff", 400, "path"),
        ("GET", "/v1/pools/%00", 404, "pool"),
        ("GET", "/v1/pools/nowhere", 404, "pool"),
        ("GET", "/v1/pools/nowhere/log", 404, "pool"),
        ("GET", "/v1/pools/default/log?from=-1", 400, "from"),
        ("GET", "/v1/pools/default/log?limit=99999999999", 400, "limit"),
        ("GET", "/v1/pools/default/log?follow=maybe", 400, "follow"),
        ("GET", "/v1/pools/default/log?form=1", 400, "query"),
        ("PUT", "/v1/pools/nowhere/endpoints", 404, "pool"),
    ] {
        let problem = world.call(method, path, &[], "").await.refused(status, "rejected-invalid");
        assert_eq!(problem["field"], field, "{method} {path}: {problem}");
    }
    let long = format!("/v1/admissions/{}", "9".repeat(400));
    world.call("DELETE", &long, &[], "").await.refused(400, "rejected-invalid");
    for body in [r#"{"usage":{"prompt":-1}}"#, r#"{"usages":{}}"#, "x"] {
        let reply = world.call("POST", "/v1/admissions/default-1/complete", &[], body).await;
        reply.refused(400, "rejected-invalid");
    }
    for body in
        ["", "{}", r#"{"saturation":-1}"#, r#"{"endpoints":[{"name":"a","kv":2,"waiting":0,"running":0}]}"#]
    {
        let reply = world.call("PUT", "/v1/pools/default/endpoints", &[], body).await;
        reply.refused(400, "rejected-invalid");
    }
}

/// Every failing stage answers at once; nothing is held, nothing is left behind.
#[tokio::test]
async fn c088_a_failing_stage_answers() {
    let world = world().await;
    // The head is cut short, is no HTTP, is too large: hyper answers by itself, and goes on serving others.
    for (raw, status) in [
        ("GARBAGE\r\n\r\n".to_owned(), 400),
        (format!("GET /healthz HTTP/1.1\r\nhost: t\r\nx: {}\r\n\r\n", "y".repeat(200 << 10)), 431),
        ("POST /v1/admissions HTTP/1.1\r\nhost: t\r\ncontent-length: x\r\n\r\n".to_owned(), 400),
    ] {
        let mut connection = Connection::open(world.addr).await;
        connection.raw(raw.as_bytes()).await;
        assert_eq!(connection.reply().await.status, status);
    }
    // The body is cut off: the caller is gone, and nothing arrived.
    let before = world.log("default").await.len();
    let mut connection = Connection::open(world.addr).await;
    connection.raw(b"POST /v1/admissions HTTP/1.1\r\nhost: t\r\ncontent-length: 10\r\n\r\n{").await;
    drop(connection);
    world.admit(json!({})).await.admitted();
    let steps = world.log("default").await;
    let arrived = steps[before..].iter().filter(|step| step["input"].get("Arrived").is_some()).count();
    assert_eq!(arrived, 1);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_408() {
    let options = Options { body_time_max: std::time::Duration::from_millis(100), ..Options::default() };
    let world = World::start(BTreeMap::from([("default", pushed(|_| {}))]), options).await;
    let mut connection = Connection::open(world.addr).await;
    connection.raw(b"POST /v1/admissions HTTP/1.1\r\nhost: t\r\ncontent-length: 10\r\n\r\n{").await;
    connection.reply().await.refused(408, "rejected-invalid");
}

/// Beyond the limit of connections the next admission is told so, and served again once there is room.
#[tokio::test]
async fn connections_are_bounded() {
    let options = Options { connections_max: 2, ..Options::default() };
    let world = World::start(BTreeMap::from([("default", pushed(|_| {}))]), options).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut connection = Connection::open(world.addr).await;
        connection.send("GET", "/healthz", &[], b"").await;
        assert_eq!(connection.reply().await.status, 200);
        open.push(connection);
    }
    let reply = world.admit(json!({"deadlineMs": 0})).await;
    assert_eq!(reply.header("connection"), Some("close"));
    assert_eq!(reply.refused(429, "rejected-saturated")["limit"], 2);
    drop(open);
    world.until("room", async || world.admit(json!({"deadlineMs": 0})).await.status != 429).await;
}
