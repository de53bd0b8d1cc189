//! Goal: the listener `light`: headers only, the end of each response seen.

use crate::client::{Connection, post, posting};
use crate::rig::{Rig, Setup};
use serde_json::json;

const ONE_AT_A_TIME: &str = "  maxRequests: 1\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_queues_goes_on_and_ends_with_its_response() {
    let Some(rig) = Rig::start(Setup::default()).await else { return };
    let light = rig.at("light");
    rig.pool_is(1, 1.0).await;
    let waiting = posting(
        light,
        &[
            ("x-request-id", "caller"),
            ("x-llm-d-inference-fairness-id", "tenant"),
            ("x-weir-model", "m"),
            ("x-test", "hold"),
        ],
    );
    rig.queued(1).await;
    assert!(rig.upstream.seen().is_empty(), "nothing goes upstream while it is queued");
    rig.pool_is(1, 0.0).await;
    rig.in_flight(1).await;
    rig.until("the request at the upstream", async || !rig.upstream.seen().is_empty()).await;
    let seen = rig.upstream.seen().remove(0).headers;
    assert!(seen["x-weir-admission"].starts_with("default-"), "{seen:?}");
    assert_eq!(seen["x-request-id"], "caller");
    for gone in ["x-llm-d-inference-fairness-id", "x-weir-model"] {
        assert!(!seen.contains_key(gone), "{gone} went upstream");
    }
    // Its head and first event have passed, and still it holds its lease.
    assert_eq!(rig.pool().await["leases"], json!(1));
    rig.upstream.go();
    let reply = waiting.await.unwrap();
    assert!(reply.status == 200 && reply.whole, "{reply:?}");
    rig.in_flight(0).await;
    let arrived = rig.inputs("Arrived").await.remove(0);
    assert_eq!((&arrived["caller_id"], &arrived["model"]), (&json!("caller"), &json!("m")));
    assert_eq!((&arrived["face"], &arrived["bytes"]), (&json!("ExtProcClosed"), &json!(2)));
    assert_eq!(rig.inputs("Ended").await[0]["termination"], "Natural");
    assert_eq!(rig.events("LeaseEnded").await[0]["end"], "Completed");
    // And so do many: this listener is never taken for one that shows no ends.
    for _ in 0..20 {
        assert_eq!(post(light, &[], b"{}").await.status, 200);
    }
    let faces = rig.inputs("Arrived").await;
    assert!(faces.iter().all(|arrived| arrived["face"] == "ExtProcClosed"), "{}", rig.weir_log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_name_their_reasons_and_a_pool_comes_up_from_zero() {
    let Some(rig) = Rig::start(Setup { flow: ONE_AT_A_TIME, ..Setup::default() }).await else { return };
    let light = rig.at("light");
    // Not seen yet: one may wait, the next is told.
    let first = posting(light, &[]);
    rig.queued(1).await;
    post(light, &[], b"{}").await.refused(503, "rejected-not-ready", "rejected-no-endpoints");
    // Seen, and empty.
    rig.pool_is(0, 0.0).await;
    post(light, &[], b"{}").await.refused(503, "rejected-no-endpoints", "rejected-no-endpoints");
    // From zero to one.
    rig.pool_is(1, 0.0).await;
    assert_eq!(first.await.unwrap().status, 200);
    rig.in_flight(0).await;
    // Full.
    rig.pool_is(1, 1.0).await;
    let second = posting(light, &[]);
    rig.queued(1).await;
    let problem = post(light, &[("x-request-id", "third")], b"{}").await;
    let problem = problem.refused(429, "rejected-saturated", "rejected-saturated");
    assert_eq!((&problem["requestId"], &problem["outcome"]), (&json!("third"), &json!("RejectedCapacity")));
    // A header that is not allowed.
    let reply = post(light, &[("x-weir-deadline-ms", "soon")], b"{}").await;
    assert_eq!(reply.refused(400, "rejected-invalid", "rejected-invalid")["field"], "x-weir-deadline-ms");
    rig.pool_is(1, 0.0).await;
    assert_eq!(second.await.unwrap().status, 200);
    rig.until("the access log", async || rig.envoy_log().contains("weir_rejected-saturated")).await;
    assert!(rig.envoy_log().contains("weir_rejected-no-endpoints"), "{}", rig.envoy_log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_end_a_wait_with_the_status_of_the_regime() {
    let flow = "  defaultRequestTTL: 300ms\n  noEndpointRequestTTL: 200ms\n";
    let Some(rig) = Rig::start(Setup { flow, ..Setup::default() }).await else { return };
    let light = rig.at("light");
    rig.pool_is(1, 1.0).await;
    let reply = post(light, &[], b"{}").await;
    reply.refused(429, "rejected-ttl-expired", "rejected-ttl-expired");
    assert_eq!(reply.header("retry-after"), None, "a spent budget has no figure");
    rig.pool_is(0, 0.0).await;
    post(light, &[], b"{}").await.refused(503, "rejected-no-endpoints", "rejected-no-endpoints");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_frees_its_place_at_once() {
    let Some(rig) = Rig::start(Setup { flow: ONE_AT_A_TIME, ..Setup::default() }).await else { return };
    let light = rig.at("light");
    rig.pool_is(1, 1.0).await;
    let leaving = Connection::send(light, "/v1/completions", &[], b"{}").await;
    rig.queued(1).await;
    drop(leaving);
    rig.queued(0).await;
    let evicted = rig.events("Evicted").await;
    assert_eq!(evicted[0]["outcome"], "EvictedContextCancelled", "{evicted:?}");
    assert_eq!(evicted[0]["cause"], "ClientDisconnect", "{evicted:?}");
    // The place is there for the next, and a client that leaves while it is served ends its lease.
    let mut next = Connection::send(light, "/v1/completions", &[("x-test", "hold")], b"{}").await;
    rig.queued(1).await;
    rig.pool_is(1, 0.0).await;
    next.begun(8).await;
    rig.in_flight(1).await;
    drop(next);
    rig.in_flight(0).await;
    assert_eq!(rig.pool().await["queue"]["requests"], json!(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_serves_what_it_can_and_tells_the_rest() {
    let weir = "  drainTimeout: 6s\n";
    let Some(rig) = Rig::start(Setup { weir, ..Setup::default() }).await else { return };
    let light = rig.at("light");
    rig.pool_is(1, 0.0).await;
    let mut running = Connection::send(light, "/v1/completions", &[("x-test", "hold")], b"{}").await;
    running.begun(8).await;
    rig.pool_is(1, 1.0).await;
    let waiting = posting(light, &[]);
    rig.queued(1).await;
    rig.terminate();
    rig.until("the stop to begin", async || rig.weir_log().contains("stopping")).await;
    post(light, &[], b"{}").await.refused(503, "rejected-shutting-down", "rejected-shutting-down");
    waiting.await.unwrap().refused(503, "rejected-shutting-down", "rejected-shutting-down");
    // What runs may end by itself while the service still stands.
    rig.upstream.go();
    let reply = running.reply().await;
    assert!(reply.status == 200 && reply.whole, "{reply:?}");
    rig.until("the end", async || rig.weir_log().contains("stopped")).await;
}
