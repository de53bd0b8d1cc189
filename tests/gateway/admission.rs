//! Goal: admissions are answered once, with what the log holds, and their leases end as their holders say.

use crate::harness::{Connection, Setup, World, call, pushed};
use serde_json::json;
use std::collections::BTreeMap;
use weir_kernel::{ConcurrencyMode, Detector, Micros, Policy, Ratio};

#[tokio::test]
async fn an_open_pool_admits_and_says_everything() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 0.0).await;
    let headers = [("x-request-id", "r-1"), ("x-llm-d-inference-fairness-id", "tenant")];
    let body = json!({"requestId": "mine", "model": "m", "bytes": 7});
    let reply = world.call("POST", "/v1/admissions", &headers, &body.to_string()).await;
    let admission = reply.admitted();
    assert_eq!(admission["requestId"], "mine", "the body's word goes first");
    assert_eq!(admission["flow"], "tenant");
    assert_eq!((&admission["pool"], &admission["outcome"]), (&json!("default"), &json!("Dispatched")));
    assert_eq!((&admission["priority"], &admission["queuedMs"]), (&json!(0), &json!(0)));
    let id = admission["id"].as_str().unwrap();
    let sequence = admission["sequence"].as_u64().unwrap();
    assert_eq!(id, format!("default-{sequence}"));
    assert!(admission.get("endpoint").is_none(), "chosen only when asked");

    let shown = world.get(&format!("/v1/admissions/{id}")).await.json();
    assert_eq!(shown["state"], "admitted");
    assert_eq!(world.pool("default").await["leases"], 1);
    let usage = r#"{"usage":{"prompt":3,"completion":9}}"#;
    let done = world.call("POST", &format!("/v1/admissions/{id}/complete"), &[], usage).await;
    assert_eq!((done.status, done.json()["state"].clone()), (200, json!("completed")), "{}", done.text());
    assert_eq!(world.pool("default").await["leases"], 0);
    let again = world.call("POST", &format!("/v1/admissions/{id}/complete"), &[], "").await;
    let again = again.json();
    assert_eq!((&again["state"], &again["end"]), (&json!("ended"), &json!("Completed")), "{again}");
    assert_eq!(again["sequence"], done.json()["sequence"], "the end that counted");
    let shown = world.get(&format!("/v1/admissions/{id}")).await.json();
    assert_eq!((&shown["end"], &shown["admission"]), (&json!("Completed"), &admission));
    world.get("/v1/admissions/default-999999").await.refused(404, "rejected-invalid");
    assert_eq!(world.events("default", "LeaseEnded").await.len(), 1);
}

#[tokio::test]
async fn an_endpoint_is_chosen_when_asked() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 2, 0.0).await;
    let admission = world.admit(json!({"chooseEndpoint": true})).await.admitted();
    assert!(["e0", "e1"].contains(&admission["endpoint"].as_str().unwrap()), "{admission}");
}

#[tokio::test]
async fn a_held_request_is_answered_when_the_pool_opens() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.2).await;
    let waiting = world.admitting(json!({"requestId": "w"}));
    world.queued("default", 1).await;
    let view = world.pool("default").await;
    assert_eq!(view["queue"]["heldBy"], "band 0 closed, 1.2 >= 1");
    world.pool_is("default", 1, 0.2).await;
    let admission = waiting.await.unwrap().admitted();
    assert_eq!(admission["requestId"], "w");
    assert_eq!(world.pool("default").await["queue"]["requests"], 0);
}

/// Endpoints are counted by our own leases: two may run, the third waits for one to end.
#[tokio::test]
async fn c042_the_gate_sees_what_was_admitted() {
    let detector = Detector::Concurrency {
        mode: ConcurrencyMode::Requests,
        max_requests: 2,
        max_tokens: 1_000_000,
        headroom: Ratio::ZERO,
        output_estimate: None,
    };
    let policy = Policy { detector, ..Policy::default() };
    let world = World::one(Setup { policy, ..Setup::default() }).await;
    let body = json!({"endpoints": [{"name": "e"}]}).to_string();
    assert_eq!(world.call("PUT", "/v1/pools/default/endpoints", &[], &body).await.status, 200);
    let first = world.admit(json!({})).await.admitted();
    assert_eq!(world.pool("default").await["saturation"]["effective"], 0.5);
    world.admit(json!({})).await.admitted();
    assert_eq!(world.pool("default").await["saturation"]["effective"], 1);
    let third = world.admitting(json!({}));
    world.queued("default", 1).await;
    let path = format!("/v1/admissions/{}/complete", first["id"].as_str().unwrap());
    assert_eq!(world.call("POST", &path, &[], "").await.status, 200);
    third.await.unwrap().admitted();
    assert_eq!(world.pool("default").await["saturation"]["effective"], 1);
}

/// A caller that closes its socket while queued leaves at once, and is not dispatched later.
#[tokio::test]
async fn c025_a_caller_that_leaves_is_gone_at_once() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.5).await;
    let mut connection = Connection::open(world.addr).await;
    connection.send("POST", "/v1/admissions", &[], b"{}").await;
    world.queued("default", 1).await;
    drop(connection);
    world.queued("default", 0).await;
    world.pool_is("default", 1, 0.0).await;
    let evicted = world.events("default", "Evicted").await;
    assert_eq!(evicted.len(), 1);
    assert_eq!(evicted[0]["outcome"], "EvictedContextCancelled");
    assert_eq!(evicted[0]["cause"], "ClientDisconnect");
    assert!(evicted[0]["waited"].as_u64().unwrap() < 50_000_000, "not at its budget of a minute");
    assert!(world.events("default", "Dispatched").await.is_empty());
    assert_eq!(world.pool("default").await["leases"], 0);
}

#[tokio::test]
async fn a_cancelled_admission_answers_its_caller() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.5).await;
    let waiting = world.admitting(json!({}));
    world.queued("default", 1).await;
    let arrived = world.log("default").await.into_iter().find(|step| step["input"].get("Arrived").is_some());
    let id = format!("default-{}", arrived.unwrap()["seq"]);
    assert_eq!(world.get(&format!("/v1/admissions/{id}")).await.json()["state"], "queued");
    let cancelled = world.call("DELETE", &format!("/v1/admissions/{id}"), &[], "").await;
    assert_eq!(cancelled.json()["state"], "cancelled");
    let problem = waiting.await.unwrap().refused(503, "rejected-context-cancelled");
    assert_eq!(problem["outcome"], "EvictedContextCancelled");
    assert_eq!(problem["id"], json!(id));
}

/// Two requests with the same caller's id are two requests.
#[tokio::test]
async fn c081_the_callers_id_is_a_label() {
    let mut setup = pushed(|_| {});
    setup.objectives = vec![("batch", -5)];
    let world = World::one(setup).await;
    world.pool_is("default", 1, 0.0).await;
    let headers = [("x-request-id", "id")];
    let batch = [("x-request-id", "id"), ("x-llm-d-inference-objective", "batch")];
    let first = world.call("POST", "/v1/admissions", &batch, "").await.admitted();
    let second = world.call("POST", "/v1/admissions", &headers, "").await.admitted();
    assert_eq!((&first["requestId"], &second["requestId"]), (&json!("id"), &json!("id")));
    assert_ne!(first["id"], second["id"]);
    assert_eq!((&first["priority"], &second["priority"]), (&json!(-5), &json!(0)));
    for (admission, left) in [(&second, 1), (&first, 0)] {
        let path = format!("/v1/admissions/{}/complete", admission["id"].as_str().unwrap());
        assert_eq!(world.call("POST", &path, &[], "").await.status, 200);
        assert_eq!(world.pool("default").await["leases"], left);
    }
}

#[tokio::test]
async fn a_key_makes_two_calls_one() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.5).await;
    let (addr, key) = (world.addr, [("idempotency-key", "k1")]);
    let call_once = move || async move { call(addr, "POST", "/v1/admissions", &key, b"{\"bytes\":1}").await };
    let first = tokio::spawn(call_once());
    world.queued("default", 1).await;
    let second = tokio::spawn(call_once());
    let mismatch = world.call("POST", "/v1/admissions", &key, "{\"bytes\":2}").await;
    mismatch.refused(422, "rejected-idempotency-mismatch");
    world.pool_is("default", 1, 0.0).await;
    let (first, second) = (first.await.unwrap().admitted(), second.await.unwrap().admitted());
    assert_eq!(first["id"], second["id"]);
    assert_eq!(world.pool("default").await["leases"], 1);
    let third = call_once().await.admitted();
    assert_eq!(first["id"], third["id"], "answered again from what was decided");
}

#[tokio::test]
async fn a_lease_that_nobody_renews_is_lost() {
    let world = World::one(pushed(|policy| policy.lease_timeout = Micros::from_millis(2_500))).await;
    world.pool_is("default", 1, 0.0).await;
    let id = world.admit(json!({})).await.admitted()["id"].as_str().unwrap().to_owned();
    let renewed = world.call("POST", &format!("/v1/admissions/{id}/renew"), &[], "").await;
    assert_eq!((renewed.status, renewed.json()["state"].clone()), (200, json!("renewed")));
    let seen = world.get(&format!("/v1/admissions/{id}?wait=50s")).await.json();
    assert_eq!((&seen["state"], &seen["end"]), (&json!("ended"), &json!("Lost")), "{seen}");
    assert_eq!(world.pool("default").await["leases"], 0);
    let late = world.call("POST", &format!("/v1/admissions/{id}/renew"), &[], "").await;
    let problem = late.refused(409, "rejected-invalid");
    assert_eq!((&problem["end"], &problem["sequence"]), (&json!("Lost"), &seen["sequence"]));
    let late = world.call("POST", &format!("/v1/admissions/{id}/complete"), &[], "").await;
    late.refused(409, "rejected-invalid");
    let late = world.call("DELETE", &format!("/v1/admissions/{id}"), &[], "").await;
    assert_eq!((late.status, late.json()["end"].clone()), (200, json!("Lost")));
}

#[tokio::test]
async fn pools_are_told_apart_and_found() {
    let setups = BTreeMap::from([("a", pushed(|_| {})), ("default", pushed(|_| {}))]);
    let world = World::start(setups, weir::gateway::Options::default()).await;
    world.pool_is("a", 1, 0.0).await;
    world.pool_is("default", 1, 0.0).await;
    for (body, header, want) in
        [(json!({"pool": "a"}), "default", "a"), (json!({}), "a", "a"), (json!({}), "", "default")]
    {
        let headers = [("x-weir-pool", header)];
        let headers = if header.is_empty() { &headers[..0] } else { &headers[..] };
        let reply = world.call("POST", "/v1/admissions", headers, &body.to_string()).await;
        assert_eq!(reply.admitted()["pool"], want);
    }
    let problem = world.admit(json!({"pool": "b"})).await.refused(404, "rejected-invalid");
    assert_eq!((&problem["field"], &problem["value"]), (&json!("pool"), &json!("b")));
    assert_eq!(problem["allowed"], "a, default");
    let list = world.get("/v1/pools").await.json();
    assert_eq!(list["pools"].as_array().unwrap().len(), 2);
}

/// In observe mode nobody is held or refused, while the log says what would have been decided.
#[tokio::test]
async fn observe_mode_holds_nobody() {
    let world = World::one(pushed(|policy| {
        policy.observe = true;
        policy.max_requests = 1;
    }))
    .await;
    world.pool_is("default", 1, 1.5).await;
    let first = world.admit(json!({})).await.admitted();
    let second = world.admit(json!({})).await.admitted();
    assert_eq!((&first["outcome"], &second["outcome"]), (&json!("Observed"), &json!("Observed")));
    let view = world.pool("default").await;
    assert_eq!((&view["queue"]["requests"], &view["mode"]), (&json!(1), &json!("observe")));
    assert_eq!(world.events("default", "Rejected").await.len(), 1);
}

/// What is found without the router is answered as by it, whose handlers an encoded id still reaches.
#[tokio::test]
async fn a_completion_is_the_same_however_its_id_is_written() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 0.0).await;
    let mut answers = Vec::new();
    for encode in [false, true] {
        let admission = world.admit(json!({})).await.admitted();
        let id = admission["id"].as_str().unwrap();
        let written = if encode { id.replace('-', "%2D") } else { id.to_owned() };
        let path = format!("/v1/admissions/{written}/complete");
        let first = world.call("POST", &path, &[], r#"{"usage":{"prompt":3}}"#).await;
        assert_eq!((first.status, &first.json()["id"]), (200, &json!(id)));
        let bad = world.call("POST", &path, &[("x-request-id", "mine")], r#"{"usage":7}"#).await;
        bad.refused(400, "rejected-invalid");
        assert_eq!(bad.json()["requestId"], "mine", "{}", bad.text());
        let again = world.call("POST", &path, &[], "").await;
        let names = |reply: &crate::harness::Reply| {
            reply.headers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        answers.push((names(&first), names(&bad), again.status, bad.json()));
    }
    assert_eq!(answers[0], answers[1]);
    for (written, status) in [("default", 400), ("default%2d", 400), ("other-1", 404), ("other%2D1", 404)] {
        let reply = world.call("POST", &format!("/v1/admissions/{written}/complete"), &[], "").await;
        reply.refused(status, "rejected-invalid");
    }
}
