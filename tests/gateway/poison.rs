//! Goal: an input that makes the kernel fail costs its caller an answer and nobody else anything.

use crate::harness::{World, pushed};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir::engine::Place;
use weir::gateway::Options;
use weir_kernel::{Event, Input, Micros, State};

fn faulty(state: &mut State, at: Micros, input: &Input) -> Vec<Event> {
    let events = weir_kernel::decide(state, at, input);
    if let Input::Arrived(arrival) = input {
        assert_ne!(arrival.bytes, 666, "the number of the beast");
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_makes_the_kernel_fail_is_kept_aside_and_refused_from_then_on() {
    let dir = crate::kept::tempdir().unwrap();
    let setups = || BTreeMap::from([("a", pushed(|_| ())), ("b", pushed(|_| ()))]);
    let place = || Place::Directory(dir.path().to_owned());
    let world = World::deciding(setups(), Options::default(), place(), faulty).await;
    world.pool_is("a", 1, 1.5).await;
    world.pool_is("b", 1, 0.0).await;
    let held = world.admitting(json!({"pool": "a", "requestId": "patient"}));
    world.queued("a", 1).await;
    let bad = json!({"pool": "a", "requestId": "bad", "bytes": 666});
    let problem = world.admit(bad.clone()).await.refused(500, "rejected-internal");
    assert!(problem["detail"].as_str().unwrap().contains("kept aside"), "{problem}");
    world.until("readiness", async || world.get("/readyz").await.status == 200).await;

    let files: Vec<_> =
        std::fs::read_dir(dir.path().join("poison/a")).unwrap().map(|f| f.unwrap().path()).collect();
    let kept: Value = serde_json::from_slice(&std::fs::read(&files[0]).unwrap()).unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!((&kept["pool"], &kept["input"]["Arrived"]["caller_id"]), (&json!("a"), &json!("bad")));
    assert!(kept["panic"].as_str().unwrap().contains("the number of the beast"), "{kept}");
    assert!(kept["sequence"].as_u64().unwrap() > 0);

    // Again: refused, and the kernel has not seen it.
    world.admit(bad.clone()).await.refused(500, "rejected-internal");
    let text = world.get("/metrics").await.text();
    assert!(text.contains("weir_pool_faults_total{inference_pool=\"a\"} 1"), "{text}");
    assert!(text.contains("weir_pool_poison_refused_total{inference_pool=\"a\"} 1"), "{text}");
    // The other pool goes on, this one as well, and whoever waited is served.
    world.admit(json!({"pool": "b", "requestId": "bad"})).await.admitted();
    world.pool_is("a", 1, 0.0).await;
    assert_eq!(held.await.unwrap().admitted()["requestId"], "patient");
    world.close().await;

    // A restart remembers it; without the fault and the file it is served like any other.
    let world = World::deciding(setups(), Options::default(), place(), faulty).await;
    world.pool_is("a", 1, 0.0).await;
    world.admit(bad.clone()).await.refused(500, "rejected-internal");
    assert!(world.get("/metrics").await.text().contains("weir_pool_faults_total{inference_pool=\"a\"} 0"));
    world.close().await;
    std::fs::remove_file(&files[0]).unwrap();
    let world = World::deciding(setups(), Options::default(), place(), weir_kernel::decide).await;
    world.pool_is("a", 1, 0.0).await;
    world.admit(bad).await.admitted();
    world.close().await;
}

/// A round of observation is lost with the fault: the next one tells the pool all there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_that_is_lost_is_told_again() {
    fn blinking(state: &mut State, at: Micros, input: &Input) -> Vec<Event> {
        let first = state.endpoint_count() == 1;
        let events = weir_kernel::decide(state, at, input);
        assert!(!(first && state.endpoint_count() == 3), "one and three");
        events
    }
    let place = Place::Memory(weir_log::memory::MemoryDisk::new());
    let setups = BTreeMap::from([("default", pushed(|_| ()))]);
    let world = World::deciding(setups, Options::default(), place, blinking).await;
    world.pool_is("default", 1, 1.5).await;
    world.until("the first", async || world.pool("default").await["endpoints"]["count"] == 1).await;
    world.pool_is("default", 3, 0.2).await;
    world
        .until("the fault", async || {
            world
                .get("/metrics")
                .await
                .text()
                .contains("weir_pool_faults_total{inference_pool=\"default\"} 1")
        })
        .await;
    // A view that the kernel bears: told as a whole, although all of it but one endpoint was told before.
    world.pool_is("default", 2, 0.2).await;
    world
        .until("the new view", async || {
            let pool = world.pool("default").await;
            pool["endpoints"]["count"] == 2 && pool["saturation"]["raw"].as_f64() == Some(0.2)
        })
        .await;
    world.admit(json!({})).await.admitted();
    world.close().await;
}

/// A pool that goes on failing stays down and says so; the process and the other pool go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_goes_on_failing_stays_down_alone() {
    let setups = BTreeMap::from([("a", pushed(|_| ())), ("b", pushed(|_| ()))]);
    let place = Place::Memory(weir_log::memory::MemoryDisk::new());
    let world = World::deciding(setups, Options::default(), place, faulty).await;
    world.pool_is("a", 1, 1.5).await;
    world.pool_is("b", 1, 0.0).await;
    let held = world.admitting(json!({"pool": "a"}));
    world.queued("a", 1).await;
    for n in 0..5 {
        let bad = json!({"pool": "a", "bytes": 666, "requestId": format!("r{n}"), "promptTokens": n});
        world.admit(bad).await.refused(500, "rejected-internal");
    }
    held.await.unwrap().refused(500, "rejected-internal");
    world.admit(json!({"pool": "a"})).await.refused(500, "rejected-internal");
    let ready = world.get("/readyz").await;
    assert_eq!(ready.status, 503);
    assert_eq!(ready.json()["reasons"], json!([{"pool": "a", "reason": "failed"}]));
    assert!(world.get("/metrics").await.text().contains("weir_pool_faults_total{inference_pool=\"a\"} 5"));
    world.admit(json!({"pool": "b"})).await.admitted();
    assert_eq!(world.get("/healthz").await.status, 200);
}
