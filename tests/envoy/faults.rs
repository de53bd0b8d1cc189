//! Goal: a killed Weir costs what its queue held, and nothing after it is back.

use crate::client::{Connection, post, posting};
use crate::rig::{Rig, Setup};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_started_again_it_goes_on_serving() {
    let Some(mut rig) = Rig::start(Setup::default()).await else { return };
    let all = ["light", "duplex", "authz", "http"];
    rig.pool_is(1, 0.0).await;
    let mut running =
        Connection::send(rig.at("light"), "/v1/completions", &[("x-test", "hold")], b"{}").await;
    running.begun(8).await;
    rig.in_flight(1).await;
    rig.pool_is(1, 1.0).await;
    let waiting = all.map(|listener| posting(rig.at(listener), &[]));
    rig.queued(4).await;
    // What is shown may not be durable yet, and what is not is not there after a kill.
    rig.log().await;
    rig.kill();
    for waiting in waiting {
        // Closed, as its filter is set: Envoy's own answer.
        let status = waiting.await.unwrap().status;
        assert!([500, 503].contains(&status), "{status}");
    }
    assert!(!running.reply().await.whole, "fail-closed: what runs dies with Weir");
    rig.restart().await;
    let mut evicted = Vec::new();
    rig.until("the queue's end to be said", async || {
        evicted = rig.events("Evicted").await;
        evicted.len() == 4
    })
    .await;
    assert!(evicted.iter().all(|e| e["cause"] == "Restarted"), "{evicted:?}");
    rig.until("the lease's end to be said", async || {
        let ends = rig.events("LeaseEnded").await;
        ends.len() == 1 && ends[0]["end"] == "Lost"
    })
    .await;
    rig.pool_is(1, 0.0).await;
    for listener in all {
        let addr = rig.at(listener);
        // Envoy finds its connection broken, and makes another.
        rig.until(listener, async || post(addr, &[], b"{}").await.status == 200).await;
    }
    rig.in_flight(0).await;
    assert_eq!(rig.pool().await["queue"]["requests"], json!(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_envoy_fails_open_running_requests_outlive_weir() {
    let setup = Setup {
        envoy: "    failureModeAllow: true\n",
        filter: &["failure_mode_allow: true"],
        ..Setup::default()
    };
    let Some(mut rig) = Rig::start(setup).await else { return };
    let light = rig.at("light");
    rig.pool_is(1, 0.0).await;
    let mut running = Connection::send(light, "/v1/completions", &[("x-test", "hold")], b"{}").await;
    running.begun(8).await;
    rig.in_flight(1).await;
    rig.kill();
    let unheld = post(light, &[], b"{}").await;
    assert_eq!(unheld.status, 200, "{unheld:?}");
    rig.restart().await;
    assert_eq!(rig.pool().await["leases"], json!(1), "it runs, and still counts");
    rig.upstream.go();
    let reply = running.reply().await;
    assert!(reply.status == 200 && reply.whole, "{reply:?}");
    assert_eq!(rig.inputs("Arrived").await[0]["face"], "ExtProcOpen");
}
