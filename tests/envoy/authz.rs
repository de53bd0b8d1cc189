//! Goal: the listeners that see nothing after their answer: ext_authz over gRPC, and ext_proc over HTTP.

use crate::client::{Connection, post, posting};
use crate::rig::{Rig, Setup};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_authz_queues_admits_and_refuses_with_reasons() {
    queues_admits_and_refuses("authz").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_proc_over_http_queues_admits_and_refuses_with_reasons() {
    queues_admits_and_refuses("http").await;
}

async fn queues_admits_and_refuses(listener: &str) {
    let Some(rig) = Rig::start(Setup { flow: "  maxRequests: 1\n", ..Setup::default() }).await else {
        return;
    };
    let at = rig.at(listener);
    let waiting = posting(
        at,
        &[("x-request-id", "caller"), ("x-weir-model", "m"), ("x-llm-d-inference-objective", "o")],
    );
    rig.queued(1).await;
    post(at, &[], b"{}").await.refused(503, "rejected-not-ready", "rejected-no-endpoints");
    rig.pool_is(1, 1.0).await;
    let reply = post(at, &[("x-request-id", "second")], b"{}").await;
    let problem = reply.refused(429, "rejected-saturated", "rejected-saturated");
    assert_eq!(problem["requestId"], "second");
    assert!(rig.upstream.seen().is_empty());
    rig.pool_is(1, 0.0).await;
    assert_eq!(waiting.await.unwrap().status, 200);
    let seen = rig.upstream.seen().remove(0).headers;
    assert!(seen["x-weir-admission"].starts_with("default-"), "{seen:?}");
    assert!(
        !seen.contains_key("x-weir-model") && !seen.contains_key("x-llm-d-inference-objective"),
        "{seen:?}"
    );
    let arrived = rig.inputs("Arrived").await.remove(0);
    assert_eq!((&arrived["caller_id"], &arrived["face"]), (&json!("caller"), &json!("Untracked")));
    assert_eq!(arrived["bytes"], json!(2));
    assert_eq!(rig.events("LeaseEnded").await[0]["end"], "Untracked");
    // A client that leaves frees its place.
    rig.pool_is(1, 1.0).await;
    let leaving = Connection::send(at, "/v1/completions", &[], b"{}").await;
    rig.queued(1).await;
    drop(leaving);
    rig.queued(0).await;
    assert_eq!(rig.events("Evicted").await.last().unwrap()["cause"], "ClientDisconnect");
    post(at, &[("x-weir-deadline-ms", "soon")], b"{}").await.refused(
        400,
        "rejected-invalid",
        "rejected-invalid",
    );
}
