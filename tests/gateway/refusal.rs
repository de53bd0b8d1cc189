//! Goal: each way of not being admitted has its own status and reason, in header, body and log alike.

use crate::harness::{World, pushed};
use serde_json::{Value, json};
use weir_kernel::{BandSettings, Micros, Policy};

/// Of requests whose budget ends within a test: longer than what the test does meanwhile on a machine that is busy.
const BUDGET: Micros = Micros::from_secs(3);

fn band(policy: &mut Policy, priority: i32, requests: u64, bytes: u64) {
    let settings = BandSettings { max_requests: requests, max_bytes: bytes, ..BandSettings::default() };
    policy.bands.insert(priority, settings);
}

/// The value of a counter, over all series that start so.
async fn metric(world: &World, start: &str) -> f64 {
    let text = world.get("/metrics").await.text();
    let lines = text.lines().filter(|line| line.starts_with(start));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// The same pool, the same status class, whether a queue slot was won or not.
#[tokio::test]
async fn c012_a_busy_pool_is_429_before_and_after_waiting() {
    let world = World::one(pushed(|policy| {
        band(policy, 0, 1, 1_000);
        policy.saturation_budget = BUDGET;
    }))
    .await;
    world.pool_is("default", 1, 1.4).await;
    let first = world.admitting(json!({"requestId": "r1"}));
    world.queued("default", 1).await;
    let second = world.admit(json!({"requestId": "r2"})).await.refused(429, "rejected-saturated");
    assert_eq!((&second["outcome"], &second["regime"]), (&json!("RejectedCapacity"), &json!("HasEndpoints")));
    assert_eq!((&second["queuedMs"], &second["requestId"]), (&json!(0), &json!("r2")));
    assert_eq!((&second["limit"], &second["held"]), (&json!("band maxRequests"), &json!(1)));
    let first = first.await.unwrap();
    assert_eq!(first.header("retry-after"), None, "none on a budget that ended");
    let first = first.refused(429, "rejected-ttl-expired");
    assert_eq!((&first["outcome"], &first["requestId"]), (&json!("EvictedTTL"), &json!("r1")));
    assert!(first["queuedMs"].as_u64().unwrap() >= BUDGET.0 / 1_000, "{first}");
    world
        .until("two outcomes", async || metric(&world, "weir_flow_control_requests_total{").await == 2.0)
        .await;
    assert_eq!(metric(&world, "weir_flow_control_dropped_total{reason=\"rejected-ttl-expired\"").await, 1.0);
    assert_eq!(metric(&world, "weir_flow_control_dropped_total{reason=\"rejected-saturated\"").await, 1.0);
}

#[tokio::test]
async fn c013_a_full_waiting_room_before_an_empty_pool_is_503() {
    let world = World::one(pushed(|policy| band(policy, 0, 2, 1_000))).await;
    world.pool_is("default", 0, 1.0).await;
    let waiting = [world.admitting(json!({})), world.admitting(json!({}))];
    world.queued("default", 2).await;
    for _ in 0..3 {
        let reply = world.admit(json!({})).await;
        assert_eq!(reply.header("retry-after"), None);
        let problem = reply.refused(503, "rejected-no-endpoints");
        assert_eq!(problem["outcome"], "RejectedNoEndpoints");
    }
    world.pool_is("default", 1, 1.0).await;
    world.admit(json!({})).await.refused(429, "rejected-saturated");
    assert_eq!(world.pool("default").await["queue"]["requests"], 2);
    let outcomes = world.pool("default").await["outcomes"].clone();
    assert_eq!((&outcomes["RejectedNoEndpoints"], &outcomes["RejectedCapacity"]), (&json!(3), &json!(1)));
    world.pool_is("default", 1, 0.0).await;
    for reply in waiting {
        reply.await.unwrap().admitted();
    }
}

/// Without a budget in the settings the documented default is in force, and shown.
#[tokio::test]
async fn c001_the_default_budget_is_in_force() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.0).await;
    let waiting = world.admitting(json!({}));
    world.queued("default", 1).await;
    let budgets = world.pool("default").await["budgets"].clone();
    assert_eq!(budgets, json!({"defaultRequestTtlMs": 60_000, "noEndpointRequestTtlMs": 60_000}));
    let enqueued = world.events("default", "Enqueued").await;
    assert_eq!(enqueued[0]["saturation_budget"], 60_000_000);
    waiting.abort();
}

#[tokio::test]
async fn an_empty_pool_ends_the_wait_with_503() {
    let world = World::one(pushed(|policy| policy.no_endpoint_budget = Micros::from_millis(100))).await;
    world.pool_is("default", 0, 0.0).await;
    let problem = world.admit(json!({})).await.refused(503, "rejected-no-endpoints");
    assert_eq!(
        (&problem["outcome"], &problem["regime"]),
        (&json!("EvictedNoEndpoints"), &json!("NoEndpoints"))
    );
}

#[tokio::test]
async fn c018_bytes_are_a_limit_and_the_refusal_says_the_figures() {
    let world = World::one(pushed(|policy| band(policy, 0, 100, 1_000))).await;
    world.pool_is("default", 1, 1.0).await;
    let waiting = world.admitting(json!({"bytes": 600}));
    world.queued("default", 1).await;
    let problem = world.admit(json!({"bytes": 600})).await.refused(429, "rejected-saturated");
    assert_eq!(problem["limit"], "band maxBytes");
    assert_eq!((&problem["held"], &problem["limitValue"]), (&json!(600), &json!(1_000)));
    let bands = world.pool("default").await["bands"].clone();
    assert_eq!(bands[0]["bytes"], 600);
    waiting.abort();
}

/// Exactly at each of the four limits, and one over it.
#[tokio::test]
async fn c027_at_a_limit_and_one_over_it() {
    struct Case {
        global: (u64, u64),
        band: (u64, u64),
        held: &'static [u64],
        next: u64,
        limit: Option<&'static str>,
    }
    let cases = [
        Case { global: (10, 1_000), band: (5, 500), held: &[100, 100, 200], next: 100, limit: None },
        Case {
            global: (10, 1_000),
            band: (5, 500),
            held: &[100, 100, 200, 100],
            next: 1,
            limit: Some("band maxBytes"),
        },
        Case { global: (10, 1_000), band: (5, 500), held: &[1, 1, 1, 1], next: 1, limit: None },
        Case { global: (10, 1_000), band: (5, 500), held: &[1; 5], next: 1, limit: Some("band maxRequests") },
        Case { global: (3, 0), band: (5, 500), held: &[1, 1, 1], next: 1, limit: Some("maxRequests") },
        Case { global: (0, 250), band: (5, 500), held: &[100, 100], next: 50, limit: None },
        Case { global: (0, 250), band: (5, 500), held: &[100, 100], next: 51, limit: Some("maxBytes") },
    ];
    for (index, case) in cases.into_iter().enumerate() {
        let world = World::one(pushed(|policy| {
            (policy.max_requests, policy.max_bytes) = case.global;
            band(policy, 0, case.band.0, case.band.1);
        }))
        .await;
        world.pool_is("default", 1, 1.0).await;
        let mut waiting: Vec<_> =
            case.held.iter().map(|bytes| world.admitting(json!({"bytes": bytes}))).collect();
        world.queued("default", case.held.len() as u64).await;
        match case.limit {
            Some(limit) => {
                let problem =
                    world.admit(json!({"bytes": case.next})).await.refused(429, "rejected-saturated");
                assert_eq!(problem["limit"], limit, "case {index}");
            }
            None => {
                waiting.push(world.admitting(json!({"bytes": case.next})));
                world.queued("default", waiting.len() as u64).await;
            }
        }
        waiting.iter().for_each(|task| task.abort());
    }
}

/// No limit at zero over all bands; the default where a band says nothing.
#[tokio::test]
async fn c091_zero_means_unlimited_over_all_bands_only() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.0).await;
    let view = world.pool("default").await;
    assert_eq!((&view["queue"]["maxRequests"], &view["queue"]["maxBytes"]), (&json!(0), &json!(0)));
    assert_eq!(view["bands"][0]["maxRequests"], 5_000);
    assert_eq!(view["bands"][0]["maxBytes"], 1_000_000_000);
    let waiting: Vec<_> = (0..50).map(|_| world.admitting(json!({}))).collect();
    world.queued("default", 50).await;
    waiting.iter().for_each(|task| task.abort());
}

/// A hint only on capacity refusals, once the band has been seen to drain.
#[tokio::test]
async fn c019_retry_after_needs_a_rate() {
    let world = World::one(pushed(|policy| {
        band(policy, 0, 1, 1_000);
        policy.saturation_budget = BUDGET;
    }))
    .await;
    world.pool_is("default", 1, 1.0).await;
    let waiting = world.admitting(json!({}));
    world.queued("default", 1).await;
    let reply = world.admit(json!({})).await;
    assert_eq!(reply.header("retry-after"), None, "no rate is known yet: {}", reply.text());
    reply.refused(429, "rejected-saturated");
    // One dispatch in 30 s is a rate of 1/30 per second.
    world.pool_is("default", 1, 0.0).await;
    waiting.await.unwrap().admitted();
    world.pool_is("default", 1, 1.0).await;
    let waiting = world.admitting(json!({}));
    world.queued("default", 1).await;
    let reply = world.admit(json!({})).await;
    let hint: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&hint), "{hint}");
    assert_eq!(reply.refused(429, "rejected-saturated")["retryAfterSeconds"], hint);
    let expired = waiting.await.unwrap();
    assert_eq!(expired.header("retry-after"), None);
    expired.refused(429, "rejected-ttl-expired");
}

/// Full, too late, given up: three reasons, the same word in header, body, log and metric.
#[tokio::test]
async fn c020_each_drop_has_its_own_word() {
    let world = World::one(pushed(|policy| {
        band(policy, 0, 1, 1_000);
        policy.saturation_budget = BUDGET;
    }))
    .await;
    world.pool_is("default", 1, 1.0).await;
    let late = world.admitting(json!({}));
    world.queued("default", 1).await;
    world.admit(json!({})).await.refused(429, "rejected-saturated");
    late.await.unwrap().refused(429, "rejected-ttl-expired");
    let reply = world.admit(json!({"deadlineMs": 1_500})).await;
    let problem = reply.refused(503, "rejected-context-cancelled");
    assert_eq!(
        (&problem["outcome"], &problem["cause"]),
        (&json!("EvictedContextCancelled"), &json!("client-deadline"))
    );
    let words = |kind: &'static str| {
        let world = &world;
        async move {
            let events = world.events("default", kind).await;
            events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(words("Rejected").await, ["Saturated"]);
    assert_eq!(words("Evicted").await, ["TtlExpired", "ContextCancelled"]);
    for word in ["rejected-saturated", "rejected-ttl-expired", "rejected-context-cancelled"] {
        let series = format!("weir_flow_control_dropped_total{{reason=\"{word}\"");
        world.until(word, async || metric(&world, &series).await == 1.0).await;
    }
}

/// The sooner of two deadlines wins, and is named; the record holds both.
#[tokio::test]
async fn c008_the_deadline_that_fired_is_the_one_that_is_named() {
    let world = World::one(pushed(|policy| policy.saturation_budget = BUDGET)).await;
    world.pool_is("default", 1, 1.0).await;
    let headers = [("x-weir-deadline-ms", "1500")];
    world.call("POST", "/v1/admissions", &headers, "").await.refused(503, "rejected-context-cancelled");
    world.admit(json!({"deadlineMs": 50_000})).await.refused(429, "rejected-ttl-expired");
    let evicted = world.events("default", "Evicted").await;
    assert_eq!(evicted[0]["cause"], "ClientDeadline");
    assert!(evicted[0]["deadline"].is_u64());
    assert!(evicted[1]["deadline"].is_u64() && evicted[1]["budget"].is_object(), "{}", evicted[1]);
    let past = world.admit(json!({"deadlineMs": 0})).await.refused(503, "rejected-context-cancelled");
    assert_eq!(past["outcome"], "RejectedOther", "never queued");
}

/// What was sent is what is recorded: a caller's own timeout, and nothing after it.
#[tokio::test]
async fn c023_the_answer_sent_is_the_one_recorded() {
    let world = World::one(pushed(|policy| policy.saturation_budget = BUDGET)).await;
    world.pool_is("default", 1, 1.0).await;
    let headers = [("x-envoy-expected-rq-timeout-ms", "1500")];
    let problem =
        world.call("POST", "/v1/admissions", &headers, "").await.refused(503, "rejected-context-cancelled");
    // The queue's own budget would end now; it must find nothing.
    let later = world.admit(json!({})).await.refused(429, "rejected-ttl-expired");
    let evicted = world.events("default", "Evicted").await;
    let of = |problem: &Value| {
        let number = problem["id"].as_str().unwrap().rsplit('-').next().unwrap().parse::<u64>().unwrap();
        evicted.iter().filter(|event| event["request"] == number).cloned().collect::<Vec<_>>()
    };
    for (problem, reason) in [(&problem, "ContextCancelled"), (&later, "TtlExpired")] {
        let records = of(problem);
        assert_eq!(records.len(), 1);
        assert_eq!(records[0]["reason"], reason);
        assert_eq!(records[0]["outcome"], problem["outcome"]);
    }
}

/// Before the first view of the pool requests wait; overflow says that the pool is not known, not that it is empty.
#[tokio::test]
async fn c148_before_the_first_view_requests_wait() {
    let world = World::one(pushed(|policy| band(policy, 0, 2, 1_000))).await;
    let ready = world.get("/readyz").await;
    assert_eq!(ready.status, 503);
    assert_eq!(ready.json()["reasons"][0], json!({"pool": "default", "reason": "not-seen"}));
    let waiting = [world.admitting(json!({})), world.admitting(json!({}))];
    world.queued("default", 2).await;
    let problem = world.admit(json!({})).await.refused(503, "rejected-not-ready");
    assert_eq!(problem["regime"], "Unknown");
    world.pool_is("default", 3, 0.0).await;
    for reply in waiting {
        reply.await.unwrap().admitted();
    }
    world.until("ready", async || world.get("/readyz").await.status == 200).await;
}

/// Negative priorities keep their sign in every place where they are shown.
#[tokio::test]
async fn c060_a_negative_priority_is_shown_as_such() {
    let mut setup = pushed(|_| {});
    setup.objectives = vec![("low", -1), ("lowest", i32::MIN)];
    let world = World::one(setup).await;
    world.pool_is("default", 1, 0.0).await;
    for (objective, priority) in [("low", -1), ("lowest", i32::MIN)] {
        let admission = world.admit(json!({"objective": objective})).await.admitted();
        assert_eq!(admission["priority"], priority);
        let series =
            format!("weir_flow_control_requests_total{{outcome=\"Dispatched\",priority=\"{priority}\"");
        world.until(&series, async || metric(&world, &series).await == 1.0).await;
    }
    let enqueued = world.events("default", "Enqueued").await;
    assert_eq!((&enqueued[0]["priority"], &enqueued[1]["priority"]), (&json!(-1), &json!(i32::MIN)));
    let bands = world.pool("default").await["bands"].clone();
    let shown: Vec<i64> =
        bands.as_array().unwrap().iter().map(|band| band["priority"].as_i64().unwrap()).collect();
    assert_eq!(shown, [0, -1, i64::from(i32::MIN)]);
}

/// The legacy path: no queue; only sheddable requests are refused, and with a reason.
#[tokio::test]
async fn c099_with_the_gate_off_only_saturation_decides() {
    let mut setup = pushed(|policy| policy.flow_control = false);
    setup.objectives = vec![("low", -1)];
    let world = World::one(setup).await;
    world.pool_is("default", 1, 1.0).await;
    assert_eq!(world.pool("default").await["flowControl"], false);
    world.admit(json!({})).await.admitted();
    world.admit(json!({"objective": "low"})).await.refused(429, "rejected-saturated");
    world.pool_is("default", 1, 0.5).await;
    world.admit(json!({"objective": "low"})).await.admitted();
}
