//! Goal: in a flood that the log counts together, every figure is exact and every caller hears its own answer.

use crate::harness::{World, pushed};
use serde_json::{Value, json};
use weir::engine::Decision;
use weir_kernel::{Arrival, Reason};

/// The sum of the series that begin so.
fn sum(text: &str, start: &str) -> u64 {
    let values = text.lines().filter(|line| line.starts_with(start));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c138_figures_are_exact_whatever_is_counted_together() {
    const FLOOD: u64 = 6_000;
    let world = World::one(pushed(|policy| policy.max_requests = 1)).await;
    world.pool_is("default", 1, 1.5).await;
    let held = world.admitting(json!({}));
    world.queued("default", 1).await;
    let handle = world.gateway.pool(None).unwrap().handle.clone();
    let arrival = |n: u64| Arrival {
        caller_id: format!("r{n}"),
        objective: n.is_multiple_of(3).then(|| "unknown".to_owned()),
        received_at: handle.clock().now(),
        ..Arrival::default()
    };
    let mut waiting = Vec::new();
    for n in 0..FLOOD {
        waiting.push(handle.admit(arrival(n)).unwrap());
    }
    for one in waiting {
        assert!(matches!(one.await, Decision::Refused(refused) if refused.reason == Reason::Saturated));
    }
    let log = world.log("default").await;
    let many: Vec<u64> =
        log.iter().filter_map(|step| step["input"]["ArrivedMany"]["count"].as_u64()).collect();
    assert!(!many.is_empty(), "nothing was counted together");
    let alone = world.events("default", "Rejected").await.len() as u64;
    assert_eq!(alone + many.iter().sum::<u64>(), FLOOD);
    assert_eq!(world.pool("default").await["outcomes"]["RejectedCapacity"], json!(FLOOD));
    let mut text = String::new();
    world
        .until("the figures", async || {
            text = world.get("/metrics").await.text();
            sum(&text, "weir_flow_control_arrivals_total{") == FLOOD + 1
        })
        .await;
    for (series, want) in [
        ("weir_flow_control_requests_total{outcome=\"RejectedCapacity\"", FLOOD),
        ("weir_flow_control_dropped_total{reason=\"rejected-saturated\"", FLOOD),
        ("weir_flow_control_objective_unknown_total{", FLOOD / 3),
        ("weir_flow_control_request_queue_duration_seconds_count{", FLOOD),
        ("weir_flow_control_request_enqueue_duration_seconds_count{", FLOOD + 1),
    ] {
        assert_eq!(sum(&text, series), want, "{series}");
    }
    // A caller of the flood by HTTP: its id is that of the step that counts it.
    let problem: Value = world.admit(json!({"requestId": "late"})).await.refused(429, "rejected-saturated");
    assert_eq!(problem["id"], format!("default-{}", problem["sequence"]));
    world.pool_is("default", 1, 0.0).await;
    held.await.unwrap().admitted();
    world.close().await;
}
