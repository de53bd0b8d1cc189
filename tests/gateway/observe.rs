//! Goal: in observe mode nobody waits and nobody is refused, the log says what would have been decided, and what it costs
//! is the flush. The figures are printed; nothing is asserted about times.

use crate::binary::{Served, settings};
use crate::harness::{Reply, call};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

fn median(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

async fn timed(addr: SocketAddr, body: &str) -> (Reply, Duration) {
    let began = Instant::now();
    let reply = call(addr, "POST", "/v1/admissions", &[], body.as_bytes()).await;
    (reply, began.elapsed())
}

/// The mean of a histogram of the exposition, in microseconds.
fn mean(text: &str, name: &str) -> f64 {
    let value = |suffix: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{suffix} "))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    value("_sum") / value("_count").max(1.0) * 1e6
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_observe_mode_nobody_waits_and_the_log_says_what_would_have_been() {
    let text = settings("{drainTimeout: 0s}", "maxRequests: 3, defaultRequestTTL: 2s");
    let mut served = Served::start(&(text + "pools: {default: {mode: observe}}\n"));
    // Full: enforced, the first three would wait for two seconds, and the others would be refused.
    served.pool_is(1.5).await;
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    for n in 0..200 {
        let (reply, took) = timed(served.addr, &json!({"requestId": format!("r{n}")}).to_string()).await;
        let admission = reply.admitted();
        assert_eq!((&admission["outcome"], &admission["queuedMs"]), (&json!("Observed"), &json!(0)));
        ids.push(admission["id"].as_str().unwrap().to_owned());
        times.push(took);
    }
    // One of those that the shadow still queues, or has ended, ends in the real pool: no fault either way.
    let done = call(served.addr, "POST", &format!("/v1/admissions/{}/complete", ids[199]), &[], b"").await;
    assert!(matches!(done.status, 200 | 404 | 409), "{}", done.text());
    served.queued(0).await;
    let mut plain = Vec::new();
    for _ in 0..200 {
        let began = Instant::now();
        assert_eq!(served.get("/healthz").await.status, 200);
        plain.push(began.elapsed());
    }
    let flush = mean(&served.get("/metrics").await.text(), "weir_log_commit_duration_seconds");
    let ((p50, p99), (bare, bare_p99)) = (median(times), median(plain));
    println!(
        "observed {} us (p99 {} us), a bare answer {} us (p99 {} us), a commit of the log {flush:.0} us on average",
        p50.as_micros(),
        p99.as_micros(),
        bare.as_micros(),
        bare_p99.as_micros()
    );
    served.signal("TERM");
    assert_eq!(served.ended(), Some(0));
    let log = served.log();
    let events = |kind: &str| -> Vec<Value> {
        let all = log.iter().flat_map(|step| step["events"].as_array().unwrap());
        all.filter_map(|event| event.get(kind).cloned()).collect()
    };
    let rejected = events("Rejected").iter().filter(|e| e["outcome"] == "RejectedCapacity").count();
    assert_eq!(rejected + events("Enqueued").len(), 200, "each of them is in the log");
    assert!(rejected > 100, "{rejected} would have been refused");
    assert!(events("Dispatched").is_empty());
    assert!(
        events("Evicted").iter().any(|e| e["outcome"] == "EvictedTTL"),
        "and some would have waited in vain"
    );
    assert!(log.iter().filter_map(|step| step["input"].get("Arrived")).all(|a| a["caller_id"] != ""));
}
