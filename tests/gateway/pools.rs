//! Goal: a pool is shown as it is, pushed as it is said, and its log is served without a silent gap.

use crate::harness::{Connection, PATIENCE, World, pushed};
use serde_json::{Value, json};

#[tokio::test]
async fn a_pushed_set_replaces_the_one_before() {
    let world = World::one(pushed(|_| {})).await;
    let body = json!({"endpoints": [
        {"name": "a", "role": "prefill", "waiting": 3, "running": 7, "kv": 0.42},
        {"name": "b", "role": "decode"},
    ]});
    let reply = world.call("PUT", "/v1/pools/default/endpoints", &[], &body.to_string()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let view = world.get("/v1/pools/default/endpoints").await.json();
    let endpoints = view["endpoints"].as_array().unwrap();
    assert_eq!(endpoints.len(), 2);
    let (a, b) = (&endpoints[0], &endpoints[1]);
    assert_eq!((&a["name"], &a["role"], &a["fresh"]), (&json!("a"), &json!("prefill"), &json!(true)));
    assert_eq!((&a["waiting"], &a["running"], &a["kv"]), (&json!(3), &json!(7), &json!(0.42)));
    assert_eq!((&b["fresh"], b.get("waiting")), (&json!(false), None), "never sampled is not idle");
    let want = json!({"count": 2, "stale": 1});
    world.until("both", async || world.pool("default").await["endpoints"] == want).await;
    let reply = world.call("PUT", "/v1/pools/default/endpoints", &[], r#"{"endpoints":[]}"#).await;
    assert_eq!(reply.json()["endpoints"], json!([]));
    world.until("none", async || world.pool("default").await["regime"] == "NoEndpoints").await;
    assert_eq!(world.events("default", "RegimeChanged").await.len(), 2);
}

/// A request that waits in an empty pool is admitted when an endpoint appears.
#[tokio::test]
async fn c048_scale_from_zero() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 0, 0.0).await;
    let waiting = world.admitting(json!({}));
    world.queued("default", 1).await;
    assert_eq!(world.pool("default").await["queue"]["heldBy"], "regime NoEndpoints");
    world.pool_is("default", 1, 0.0).await;
    world.pool_is("default", 0, 0.0).await;
    world.pool_is("default", 1, 0.0).await;
    waiting.await.unwrap().admitted();
}

/// Saturation above 1 is shown as it is, as a gauge and in the view.
#[tokio::test]
async fn c043_values_above_one_are_real() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.7).await;
    let want = json!({"raw": 1.7, "effective": 1.7});
    world.until("1.7", async || world.pool("default").await["saturation"] == want).await;
    let text = world.get("/metrics").await.text();
    let line = "weir_flow_control_pool_saturation{inference_pool=\"default\",stage=\"effective\"} 1.7\n";
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn the_log_is_followed_and_its_end_is_said() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 0.0).await;
    let mut follow = Connection::open(world.addr).await;
    follow.raw(b"GET /v1/pools/default/log?follow=true&limit=3 HTTP/1.1\r\nhost: t\r\n\r\n").await;
    // It follows once its answer has begun.
    let (status, headers) = follow.read_head().await;
    let mut admitted = Vec::new();
    for _ in 0..8 {
        let sequence = world.admit(json!({})).await.admitted()["sequence"].as_u64().unwrap();
        admitted.push(sequence);
    }
    let reply =
        tokio::time::timeout(PATIENCE, follow.read_body(status, headers)).await.expect("no end in time");
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<Value> = reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    let seqs: Vec<u64> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");

    let head = *admitted.last().unwrap();
    let reply = world.get(&format!("/v1/pools/default/log?from={}&limit=2", head - 2)).await;
    let lines: Vec<Value> = reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect::<Vec<_>>(),
        [head - 2, head - 1]
    );
    let first = world.get("/v1/pools/default/log?from=1&limit=1").await.json();
    assert_eq!((&first["seq"], first["input"].get("Started").is_some()), (&json!(1), true));
    let reply = world.get(&format!("/v1/pools/default/log?from={}", head + 1_000)).await;
    assert_eq!((reply.status, reply.body.len()), (200, 0), "still to come");
}

/// The sum of the counters is the number of arrivals, however they ended.
#[tokio::test]
async fn c134_each_request_is_counted_once() {
    let world = World::one(pushed(|policy| policy.max_requests = 3)).await;
    world.pool_is("default", 1, 0.0).await;
    for _ in 0..4 {
        world.admit(json!({})).await.admitted();
    }
    world.pool_is("default", 1, 1.0).await;
    let waiting: Vec<_> = (0..3).map(|_| world.admitting(json!({}))).collect();
    world.queued("default", 3).await;
    for _ in 0..5 {
        world.admit(json!({})).await.refused(429, "rejected-saturated");
    }
    waiting.iter().for_each(|task| task.abort());
    world.queued("default", 0).await;
    let outcomes = world.pool("default").await["outcomes"].clone();
    let total: u64 = outcomes.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(total, 12);
    world
        .until("the same sums", async || {
            let text = world.get("/metrics").await.text();
            let sum = |start: &str| -> f64 {
                let lines = text.lines().filter(|line| line.starts_with(start));
                lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
            };
            sum("weir_flow_control_requests_total{") == 12.0
                && sum("weir_flow_control_arrivals_total{") == 12.0
                && sum("weir_flow_control_request_queue_duration_seconds_count{") == 12.0
                && sum("weir_flow_control_queue_size{") == 0.0
                && sum("weir_flow_control_in_flight{") == 4.0
        })
        .await;
}

#[tokio::test]
async fn health_is_true_until_the_end() {
    let world = World::one(pushed(|_| {})).await;
    assert_eq!(world.get("/healthz").await.status, 200);
    world.pool_is("default", 1, 0.0).await;
    world.until("ready", async || world.get("/readyz").await.status == 200).await;
    world.gateway.begin_stop();
    let ready = world.get("/readyz").await;
    assert_eq!((ready.status, ready.json()["reasons"][0]["reason"].clone()), (503, json!("stopping")));
    assert_eq!(world.get("/healthz").await.status, 200);
    world.close().await;
}
