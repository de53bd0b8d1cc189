//! Goal: a sheddable request that runs is taken back for one of a higher priority: its client hears of it as far as it
//! still can, its model server sees the abort, and the log has every step of it.

use crate::client::{post, posting};
use crate::rig::{Rig, Setup};
use serde_json::json;

const EVICTING: Setup = Setup {
    weir: "pools:\n  default: { trustRequestPriority: true }\n",
    envoy: "",
    flow: "  enableEviction: true\n",
    modes: None,
    filter: &[],
    few_frames: false,
};

/// One victim that is answered as `kind` says; what its client got.
async fn taken_back(listener: &str, kind: &'static str) -> Option<crate::client::Reply> {
    let rig = Rig::start(EVICTING).await?;
    let at = rig.at(listener);
    rig.pool_is(1, 0.0).await;
    let victim = posting(at, &[("x-weir-priority", "-1"), ("x-test", kind), ("x-request-id", "victim")]);
    rig.until("the victim at the upstream", async || !rig.upstream.seen().is_empty()).await;
    rig.in_flight(1).await;
    rig.pool_is(1, 1.0).await;
    let urgent = posting(at, &[("x-weir-priority", "10")]);
    let reply = victim.await.unwrap();
    rig.until("the abort at the upstream", async || rig.upstream.aborted() == 1).await;
    rig.in_flight(0).await;
    let decided = rig.events("ReclamationDecided").await.remove(0);
    assert_eq!(
        (&decided["demand"], &decided["wanted"], &decided["in_flight"]),
        (&json!(10), &json!(1), &json!(1))
    );
    assert_eq!(rig.events("RevocationEnded").await[0]["end"], "Confirmed");
    assert_eq!(rig.inputs("Ended").await[0]["termination"], "Evicted");
    assert_eq!(rig.events("LeaseEnded").await[0]["end"], "Revoked");
    rig.until("the access log", async || rig.envoy_log().contains("weir_evicted")).await;
    rig.pool_is(1, 0.0).await;
    assert_eq!(urgent.await.unwrap().status, 200);
    // Nobody else is bothered, and the listener goes on.
    assert_eq!(post(at, &[("x-weir-priority", "-1")], b"{}").await.status, 200);
    assert_eq!(rig.events("RevocationIssued").await.len(), 1);
    Some(reply)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_its_response_has_begun_the_client_gets_a_plain_429() {
    for listener in ["light", "duplex"] {
        let Some(reply) = taken_back(listener, "wait").await else { return };
        let problem = reply.refused(429, "evicted", "evicted");
        assert_eq!(problem["requestId"], "victim");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_it_has_begun_the_stream_is_cut() {
    for listener in ["light", "duplex"] {
        let Some(reply) = taken_back(listener, "hold").await else { return };
        // Where the order was quicker than the response's head, it is a plain 429 here too.
        assert!(reply.status == 429 || (reply.status == 200 && !reply.whole), "{reply:?}");
    }
}
