//! Goal: thousands that wait at once are all released and answered, on connections that stay.

use crate::client::{Connection, posting};
use crate::rig::{Rig, Setup};
use serde_json::json;
use std::collections::BTreeMap;

/// More than Envoy's default bounds: that of waiting requests is raised, that of control frames is met by the pace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_wait_at_once_than_envoy_takes_by_default() {
    all_are_answered(1_200, Setup { few_frames: true, ..Setup::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 15,000 descriptors and half a gigabyte"]
async fn five_thousand_wait_at_once_and_are_answered() {
    all_are_answered(5_000, Setup::default()).await;
}

/// Each answer of Weir's ends its stream here, which is what floods a connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 15,000 descriptors and half a gigabyte"]
async fn five_thousand_streams_that_end_at_once_leave_the_connections_alone() {
    let modes = Some(&["request_header_mode: SEND", "response_header_mode: SKIP"][..]);
    all_are_answered(5_000, Setup { modes, few_frames: true, ..Setup::default() }).await;
}

/// Thousands of resets within a moment are no attack where a proxy sends them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_leave_at_once_leave_the_others_waiting() {
    let flow = "  maxRequests: 10000\n  defaultRequestTTL: 10m\n";
    let Some(rig) = Rig::start(Setup { flow, ..Setup::default() }).await else { return };
    let light = rig.at("light");
    rig.pool_is(1, 1.0).await;
    let staying = posting(light, &[("x-request-id", "stays")]);
    rig.queued(1).await;
    let mut leaving = Vec::new();
    for _ in 0..1_500 {
        leaving.push(Connection::send(light, "/v1/completions", &[], b"{}").await);
    }
    rig.queued(1_501).await;
    drop(leaving);
    rig.queued(1).await;
    let evicted = rig.events("Evicted").await;
    assert!(evicted.iter().all(|e| e["cause"] == "ClientDisconnect"), "{evicted:?}");
    assert_eq!(rig.stat("cluster.weir_grpc.upstream_cx_protocol_error").await, 0);
    rig.pool_is(1, 0.0).await;
    assert_eq!(staying.await.unwrap().status, 200);
}

async fn all_are_answered(many: usize, setup: Setup) {
    let flow = "  maxRequests: 10000\n  defaultRequestTTL: 10m\n";
    let Some(rig) = Rig::start(Setup { flow, ..setup }).await else { return };
    let light = rig.at("light");
    rig.pool_is(1, 1.0).await;
    let waiting: Vec<_> = (0..many).map(|_| posting(light, &[])).collect();
    rig.queued(many as u64).await;
    rig.pool_is(1, 0.0).await;
    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
    for waiting in waiting {
        *statuses.entry(waiting.await.unwrap().status).or_default() += 1;
    }
    let mut details: BTreeMap<String, usize> = BTreeMap::new();
    for line in rig.envoy_log().lines() {
        *details.entry(line.split(' ').skip(1).take(3).collect::<Vec<_>>().join(" ")).or_default() += 1;
    }
    assert_eq!(statuses, BTreeMap::from([(200, many)]), "{details:?}\n{}", rig.weir_log());
    rig.in_flight(0).await;
    assert_eq!(rig.pool().await["queue"]["requests"], json!(0));
    assert_eq!(rig.events("Dispatched").await.len(), many);
    assert_eq!(rig.stat("outbound_control_flood").await, 0);
    assert_eq!(rig.stat("cluster.weir_grpc.upstream_cx_protocol_error").await, 0);
}
