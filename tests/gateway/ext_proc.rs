//! Goal: Envoy's ext_proc over plain HTTP is answered in its own words, held while the request is queued.

use crate::harness::{Connection, Reply, World, call, pushed};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::net::SocketAddr;
use weir_kernel::{BandSettings, Policy};

/// As Envoy sends it: names in lower case, values in base64.
fn headers(list: &[(&str, &str)]) -> String {
    let base = [(":path", "/v1/chat/completions"), (":method", "POST"), ("x-request-id", "caller")];
    let all = base.iter().chain(list);
    let list: Vec<Value> =
        all.map(|(key, value)| json!({"key": key, "raw_value": STANDARD.encode(value)})).collect();
    let message = json!({
        "request_headers": {"headers": {"headers": list}, "end_of_stream": true},
        "metadata_context": {},
        "protocol_config": {},
    });
    message.to_string()
}

async fn process(addr: SocketAddr, path: &str, body: &str) -> Reply {
    call(addr, "POST", path, &[("content-type", "application/json")], body.as_bytes()).await
}

fn decoded(value: &Value) -> String {
    String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap()
}

/// Status, reason header and problem of an immediate response.
fn immediate(reply: &Reply) -> (u64, String, Value) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer = reply.json()["immediateResponse"].clone();
    let list = answer["headers"]["setHeaders"].as_array().unwrap().clone();
    let header = |name: &str| {
        let found = list.iter().find(|item| item["header"]["key"] == name);
        decoded(&found.unwrap()["header"]["rawValue"])
    };
    assert_eq!(header("content-type"), "application/problem+json");
    let problem = serde_json::from_str(&decoded(&answer["body"])).unwrap();
    (answer["status"]["code"].as_u64().unwrap(), header("x-weir-dropped-reason"), problem)
}

#[tokio::test]
async fn an_admitted_request_goes_on_without_its_control_headers() {
    let mut setup = pushed(|_| {});
    setup.objectives = vec![("batch", -3)];
    let world = World::one(setup).await;
    world.pool_is("default", 1, 0.0).await;
    let body = headers(&[
        ("x-llm-d-inference-objective", "batch"),
        ("x-llm-d-inference-fairness-id", "tenant"),
        ("x-weir-deadline-ms", "5000"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("content-length", "512"),
    ]);
    let reply = process(world.addr, "/ext-proc", &body).await;
    let mutation = reply.json()["requestHeaders"]["response"]["headerMutation"].clone();
    let removed =
        json!(["x-llm-d-inference-objective", "x-llm-d-inference-fairness-id", "x-weir-deadline-ms"]);
    assert_eq!(mutation["removeHeaders"], removed);
    let set = &mutation["setHeaders"][0]["header"];
    assert_eq!(set["key"], "x-weir-admission");
    assert!(decoded(&set["rawValue"]).starts_with("default-"));
    let steps = world.log("default").await;
    let arrived = steps.iter().find_map(|step| step["input"].get("Arrived")).unwrap();
    assert_eq!((&arrived["face"], &arrived["bytes"]), (&json!("Untracked"), &json!(512)));
    assert_eq!((&arrived["caller_id"], &arrived["fairness_id"]), (&json!("caller"), &json!("tenant")));
    assert_eq!(arrived["trace"]["flags"], 1);
    let ends = world.events("default", "LeaseEnded").await;
    assert_eq!(ends[0]["end"], "Untracked", "its end cannot be seen");
    assert_eq!(world.pool("default").await["leases"], 0);
}

#[tokio::test]
async fn a_refused_request_is_ended_with_status_and_reason() {
    let world = World::one(pushed(|policy: &mut Policy| {
        policy.bands.insert(0, BandSettings { max_requests: 1, ..BandSettings::default() });
    }))
    .await;
    world.pool_is("default", 1, 1.0).await;
    let held = tokio::spawn({
        let addr = world.addr;
        async move { process(addr, "/ext-proc", &headers(&[])).await }
    });
    world.queued("default", 1).await;
    let (status, reason, problem) = immediate(&process(world.addr, "/ext-proc", &headers(&[])).await);
    assert_eq!((status, &*reason), (429, "rejected-saturated"));
    assert_eq!((&problem["requestId"], &problem["outcome"]), (&json!("caller"), &json!("RejectedCapacity")));
    world.pool_is("default", 1, 0.0).await;
    assert!(held.await.unwrap().json().get("requestHeaders").is_some());
    let bad = headers(&[("x-weir-deadline-ms", "soon")]);
    let (status, reason, problem) = immediate(&process(world.addr, "/ext-proc", &bad).await);
    assert_eq!((status, &*reason), (400, "rejected-invalid"));
    assert_eq!(problem["field"], "x-weir-deadline-ms");
    let (status, reason, _) = immediate(&process(world.addr, "/ext-proc?pool=nowhere", &headers(&[])).await);
    assert_eq!((status, &*reason), (404, "rejected-invalid"));
}

/// Envoy's patience is a deadline of the caller; and when its client goes away, Envoy closes the call.
#[tokio::test]
async fn a_held_call_ends_with_its_caller() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.0).await;
    let patience = [("x-envoy-expected-rq-timeout-ms", "1500")];
    let reply = call(world.addr, "POST", "/ext-proc", &patience, headers(&[]).as_bytes()).await;
    let (status, reason, problem) = immediate(&reply);
    assert_eq!((status, &*reason), (503, "rejected-context-cancelled"));
    assert_eq!(problem["cause"], "client-deadline");
    let mut connection = Connection::open(world.addr).await;
    connection.send("POST", "/ext-proc", &[], headers(&[]).as_bytes()).await;
    world.queued("default", 1).await;
    drop(connection);
    world.queued("default", 0).await;
    let evicted = world.events("default", "Evicted").await;
    assert_eq!(evicted[1]["cause"], "ClientDisconnect");
}

#[tokio::test]
async fn other_phases_pass_and_other_messages_are_refused() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.0).await;
    for (message, want) in [
        (json!({"response_headers": {"headers": {}}}), json!({"responseHeaders": {}})),
        (json!({"requestTrailers": {}}), json!({"requestTrailers": {}})),
        (
            json!({"request_headers": {"headers": {"headers": []}}, "observability_mode": true}),
            json!({"requestHeaders": {}}),
        ),
    ] {
        let reply = process(world.addr, "/ext-proc", &message.to_string()).await;
        assert_eq!(reply.json(), want);
    }
    for body in
        ["", "{}", "[]", r#"{"request_headers":{"headers":{"headers":[{"key":"a","raw_value":"%"}]}}}"#]
    {
        process(world.addr, "/ext-proc", body).await.refused(400, "rejected-invalid");
    }
    process(world.addr, "/ext-proc?pol=x", &headers(&[])).await.refused(400, "rejected-invalid");
}
