//! Goal: a sheddable request that runs is taken back for one of a higher priority: its client hears of it as far as it
//! still can, its model server sees the abort, and the log has every step of it.

use crate::client::{post, posting};
use crate::rig::{Rig, Setup};
use crate::upstream::EVENTS;
use serde_json::json;

const EVICTING: Setup = Setup {
    weir: "pools:\n  default: { trustRequestPriority: true, eviction: { confirmationTimeout: 60s } }\n",
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
async fn a_head_that_nothing_follows_is_held_in_full_duplex_so_that_its_client_still_gets_a_plain_429() {
    let Some(reply) = taken_back("duplex", "head").await else { return };
    reply.refused(429, "evicted", "evicted");
    // With headers alone there is no telling when the body begins.
    let Some(reply) = taken_back("light", "head").await else { return };
    assert!(reply.status == 429 || (reply.status == 200 && !reply.whole), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_head_goes_on_with_the_first_event_and_all_of_it_comes_through() {
    let Some(rig) = Rig::start(EVICTING).await else { return };
    rig.pool_is(1, 0.0).await;
    for (kind, priority) in [("head", "-1"), ("head", "0"), ("events", "-1")] {
        let reply = posting(rig.at("duplex"), &[("x-weir-priority", priority), ("x-test", kind)]);
        rig.upstream.go();
        let reply = reply.await.unwrap();
        assert!(reply.status == 200 && reply.whole, "{kind} {priority}: {reply:?}");
        assert_eq!(reply.text(), EVENTS.concat(), "{kind} {priority}");
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    }
    rig.in_flight(0).await;
    let ended = rig.inputs("Ended").await;
    assert!(ended.iter().all(|end| end["usage"] == json!({"prompt": 7, "completion": 5})), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_it_has_begun_the_stream_is_cut() {
    for listener in ["light", "duplex"] {
        let Some(reply) = taken_back(listener, "hold").await else { return };
        // Where the order was quicker than the response's head, it is a plain 429 here too.
        assert!(reply.status == 429 || (reply.status == 200 && !reply.whole), "{reply:?}");
    }
}
