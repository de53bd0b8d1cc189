//! Goal: faults that users of such systems reported, replayed at the outside of this one.

use crate::harness::{Connection, World, pushed};
use serde_json::json;
use weir_kernel::{BandSettings, Detector, Micros, Policy};

/// A lone request ends at its budget without any other traffic, and is not dispatched once that is over.
#[tokio::test]
async fn c010_a_lone_request_ends_at_its_budget() {
    let world = World::one(pushed(|policy| policy.saturation_budget = Micros::from_millis(100))).await;
    world.pool_is("default", 1, 1.0).await;
    let problem = world.admit(json!({})).await.refused(429, "rejected-ttl-expired");
    let waited = problem["queuedMs"].as_u64().unwrap();
    assert!((100..30_000).contains(&waited), "{waited} ms: not at the default of a minute");
    world.pool_is("default", 1, 0.0).await;
    assert!(world.events("default", "Dispatched").await.is_empty());
    assert_eq!(world.events("default", "Evicted").await[0]["budget"]["which"], "Saturation");
}

/// Places of callers that left are free at once.
#[tokio::test]
async fn c029_callers_that_left_hold_no_places() {
    let world = World::one(pushed(|policy| {
        policy.bands.insert(0, BandSettings { max_requests: 3, ..BandSettings::default() });
    }))
    .await;
    world.pool_is("default", 1, 1.0).await;
    let mut callers = Vec::new();
    for _ in 0..3 {
        let mut connection = Connection::open(world.addr).await;
        connection.send("POST", "/v1/admissions", &[], b"{}").await;
        callers.push(connection);
    }
    world.queued("default", 3).await;
    world.admit(json!({})).await.refused(429, "rejected-saturated");
    drop(callers);
    world.queued("default", 0).await;
    let next = world.admitting(json!({}));
    world.queued("default", 1).await;
    next.abort();
}

/// What was booked when it was queued is what is given back, to the byte.
#[tokio::test]
async fn c035_bytes_end_at_zero() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.0).await;
    let waiting: Vec<_> = (0..40).map(|n| world.admitting(json!({"bytes": 500 + n}))).collect();
    world.queued("default", 40).await;
    assert_eq!(world.pool("default").await["queue"]["bytes"], 40 * 500 + 39 * 40 / 2);
    world.pool_is("default", 1, 0.0).await;
    for reply in waiting {
        reply.await.unwrap().admitted();
    }
    let view = world.pool("default").await;
    assert_eq!((&view["queue"]["bytes"], &view["bands"][0]["bytes"]), (&json!(0), &json!(0)));
}

/// The gauge of stale endpoints follows the pool to empty, and does not blame a scrape for it.
#[tokio::test]
async fn c040_an_empty_pool_has_no_stale_endpoints() {
    let policy = Policy { detector: Detector::utilization(), ..Policy::default() };
    let world = World::one(crate::harness::Setup { policy, ..Default::default() }).await;
    let stale = async |want: &str| {
        let line = format!(
            "weir_flow_control_stale_endpoints{{detector=\"pushed\",inference_pool=\"default\"}} {want}\n"
        );
        world
            .until(&line, async || world.get("/metrics").await.text().replace(".0\n", "\n").contains(&line))
            .await;
    };
    let body = json!({"endpoints": [{"name": "a"}, {"name": "b"}]}).to_string();
    world.call("PUT", "/v1/pools/default/endpoints", &[], &body).await;
    stale("2").await;
    world.call("PUT", "/v1/pools/default/endpoints", &[], r#"{"endpoints":[]}"#).await;
    stale("0").await;
    assert_eq!(world.pool("default").await["regime"], "NoEndpoints");
}

/// A band that starves under a higher one says so in each of its records.
#[tokio::test]
async fn c062_what_held_a_request_is_in_its_record() {
    let mut setup = pushed(|policy| {
        policy.bands.insert(10, BandSettings::default());
        policy.bands.insert(
            0,
            BandSettings { saturation_budget: Some(Micros::from_millis(150)), ..BandSettings::default() },
        );
    });
    setup.objectives = vec![("top", 10)];
    let world = World::one(setup).await;
    world.pool_is("default", 1, 1.25).await;
    let top = world.admitting(json!({"objective": "top"}));
    world.queued("default", 1).await;
    world.admit(json!({})).await.refused(429, "rejected-ttl-expired");
    let evicted = world.events("default", "Evicted").await;
    let held = &evicted[0]["held_by"]["Band"];
    assert_eq!((&held["priority"], &held["saturation"]), (&json!(10), &json!(1_250_000)), "{evicted:?}");
    assert_eq!(world.pool("default").await["queue"]["heldBy"], "band 10 closed, 1.25 >= 1");
    top.abort();
}
