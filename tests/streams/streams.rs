//! Goal: a stream tells what happens to its request in order, once, in either form, and is its lease.

use crate::client::{Events, NDJSON, SSE};
use crate::harness::{Setup, World, call, pushed};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use weir::gateway::Options;
use weir_kernel::Micros;

fn id(event: &Value) -> String {
    event["admission"]["id"].as_str().unwrap().to_owned()
}

async fn leases(world: &World) -> u64 {
    world.pool("default").await["leases"].as_u64().unwrap()
}

async fn no_lease(world: &World) {
    world.until("no lease", async || leases(world).await == 0).await;
}

#[tokio::test]
async fn a_stream_tells_everything_in_order_in_both_forms() {
    for form in [NDJSON, SSE] {
        let world = World::one(pushed(|_| {})).await;
        world.pool_is("default", 1, 1.5).await;
        let before = world.admitting(json!({"requestId": "first"}));
        world.queued("default", 1).await;
        let body = r#"{"requestId":"mine","fairnessId":"tenant","deadlineMs":30000}"#;
        let mut events = Events::open(world.addr, form, &[], body).await;
        let queued = events.expect("queued").await;
        assert_eq!((&queued["position"], &queued["depth"]), (&json!(2), &json!(2)), "{queued}");
        assert_eq!((&queued["requestId"], &queued["flow"]), (&json!("mine"), &json!("tenant")));
        assert_eq!((&queued["regime"], &queued["priority"]), (&json!("HasEndpoints"), &json!(0)));
        assert_eq!(
            (&queued["budget"]["kind"], &queued["budget"]["ms"]),
            (&json!("saturation"), &json!(60_000))
        );
        assert!(queued["budget"]["leftMs"].as_u64().unwrap() <= 60_000);
        assert!(queued["budget"]["endsAt"].as_u64().unwrap() > 1_700_000_000_000_000, "{queued}");
        let left = queued["deadlineLeftMs"].as_u64().unwrap();
        assert!((20_000..=30_000).contains(&left), "{queued}");
        let name = events.headers.iter().find(|(name, _)| name == "x-weir-admission").unwrap().1.clone();
        assert_eq!(queued["id"], json!(name));

        world.pool_is("default", 0, 1.5).await;
        let regime = events.expect("regime").await;
        assert_eq!((&regime["from"], &regime["to"]), (&json!("HasEndpoints"), &json!("NoEndpoints")));
        assert_eq!(regime["budget"]["kind"], "no-endpoint", "{regime}");
        world.pool_is("default", 1, 0.0).await;
        let regime = events.expect("regime").await;
        assert_eq!((&regime["from"], &regime["to"]), (&json!("NoEndpoints"), &json!("HasEndpoints")));
        let admitted = events.expect("admitted").await;
        assert_eq!(id(&admitted), name);
        assert!(admitted["admission"]["sequence"].as_u64().unwrap() >= regime["sequence"].as_u64().unwrap());
        assert_eq!(admitted["admission"]["outcome"], "Dispatched");
        assert!(admitted["admission"].get("endpoint").is_none(), "chosen only when asked");
        before.await.unwrap().admitted();

        assert_eq!(leases(&world).await, 2);
        let usage = r#"{"usage":{"prompt":3,"completion":9}}"#;
        let done = world.call("POST", &format!("/v1/admissions/{name}/complete"), &[], usage).await;
        assert_eq!(done.json()["state"], "completed");
        let ended = events.expect("ended").await;
        assert_eq!((&ended["id"], &ended["end"]), (&json!(name), &json!("Completed")));
        assert_eq!(ended["sequence"], done.json()["sequence"]);
        events.over().await;
        let ends = world.events("default", "LeaseEnded").await;
        assert_eq!(ends.len(), 1, "the stream's own end says nothing new");
    }
}

#[tokio::test]
async fn what_is_decided_at_once_needs_no_queue() {
    let world = World::one(pushed(|policy| policy.max_requests = 1)).await;
    world.pool_is("default", 2, 0.0).await;
    let mut events = Events::open(world.addr, NDJSON, &[], r#"{"chooseEndpoint":true}"#).await;
    let admitted = events.expect("admitted").await;
    assert!(admitted["admission"]["endpoint"].is_string(), "{admitted}");
    world.pool_is("default", 2, 1.0).await;
    let _waiting = world.admitting(json!({}));
    world.queued("default", 1).await;
    // Before anything was sent a refusal has its ordinary status.
    let refused = world.call("POST", "/v1/admissions", &[("accept", NDJSON)], "{}").await;
    refused.refused(429, "rejected-saturated");
    let refused = world.call("POST", "/v1/admissions", &[("accept", SSE)], "{\"ttl\":7}").await;
    refused.refused(400, "rejected-invalid");
}

/// After the stream has begun a refusal is its last event, with what the problem would have held.
#[tokio::test]
async fn a_later_refusal_is_an_event() {
    let world = World::one(pushed(|policy| policy.saturation_budget = Micros::from_millis(2_500))).await;
    world.pool_is("default", 1, 1.5).await;
    let mut events = Events::open(world.addr, SSE, &[], r#"{"requestId":"late"}"#).await;
    let queued = events.expect("queued").await;
    assert_eq!(queued["budget"]["ms"], 2_500);
    let refused = events.expect("refused").await;
    assert_eq!((&refused["status"], &refused["reason"]), (&json!(429), &json!("rejected-ttl-expired")));
    assert_eq!((&refused["outcome"], &refused["requestId"]), (&json!("EvictedTTL"), &json!("late")));
    assert_eq!(refused["id"], queued["id"]);
    events.over().await;
}

#[tokio::test]
async fn a_stream_that_ends_frees_its_place_and_its_lease_at_once() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.5).await;
    let mut waiting = Events::open(world.addr, NDJSON, &[], "{}").await;
    waiting.expect("queued").await;
    world.queued("default", 1).await;
    drop(waiting);
    world.queued("default", 0).await;
    let evicted = world.events("default", "Evicted").await;
    assert_eq!(evicted[0]["cause"], "ClientDisconnect");

    world.pool_is("default", 1, 0.0).await;
    let mut running = Events::open(world.addr, NDJSON, &[], "{}").await;
    running.expect("admitted").await;
    assert_eq!(leases(&world).await, 1);
    drop(running);
    no_lease(&world).await;
    let ends = world.events("default", "LeaseEnded").await;
    assert_eq!((ends.len(), &ends[0]["end"]), (1, &json!("Completed")));
}

/// Silence is filled with signs of life, and a lease with an open stream never times out.
#[tokio::test]
async fn c031_an_open_stream_is_never_reaped_and_shows_that_it_lives() {
    let setup = pushed(|policy| policy.lease_timeout = Micros::from_millis(100));
    let options = Options { heartbeat: Duration::from_millis(20), ..Options::default() };
    let world = World::start(BTreeMap::from([("default", setup)]), options).await;
    world.pool_is("default", 1, 0.0).await;
    for form in [NDJSON, SSE] {
        let mut events = Events::open(world.addr, form, &[], "{}").await;
        let id = id(&events.expect("admitted").await);
        let path = format!("/v1/admissions/{id}");
        // Four times as long as a lease lasts that nobody renews.
        tokio::time::sleep(Duration::from_millis(400)).await;
        events.beats(8).await;
        let done = world.call("POST", &format!("{path}/complete"), &[], "").await;
        assert_eq!((done.status, &events.expect("ended").await["end"]), (200, &json!("Completed")));
    }
}

#[tokio::test]
async fn a_cancelled_stream_hears_how_it_ended() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.5).await;
    let mut waiting = Events::open(world.addr, NDJSON, &[], "{}").await;
    let queued = waiting.expect("queued").await;
    let path = format!("/v1/admissions/{}", queued["id"].as_str().unwrap());
    assert_eq!(world.call("DELETE", &path, &[], "").await.status, 200);
    let refused = waiting.expect("refused").await;
    assert_eq!((&refused["status"], &refused["reason"]), (&json!(503), &json!("rejected-context-cancelled")));
    waiting.over().await;
    world.pool_is("default", 1, 0.0).await;
    let mut running = Events::open(world.addr, NDJSON, &[], "{}").await;
    let path = format!("/v1/admissions/{}", id(&running.expect("admitted").await));
    assert_eq!(world.call("DELETE", &path, &[], "").await.status, 200);
    let ended = running.expect("ended").await;
    assert_eq!((&ended["end"], &ended["cause"]), (&json!("Completed"), &json!("client-disconnect")));
    running.over().await;
}

/// Streams with one key hold one lease together: it ends with the last of them.
#[tokio::test]
async fn streams_with_one_key_share_their_lease() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.5).await;
    let key = [("idempotency-key", "k")];
    let mut first = Events::open(world.addr, NDJSON, &key, "{}").await;
    let queued = first.expect("queued").await;
    let mut second = Events::open(world.addr, SSE, &key, "{}").await;
    let again = second.expect("queued").await;
    assert_eq!((&again["id"], &again["position"]), (&queued["id"], &json!(1)));
    drop(first);
    world.pool_is("default", 1, 0.0).await;
    let admitted = second.expect("admitted").await;
    assert_eq!(admitted["admission"]["id"], queued["id"]);
    let mut third = Events::open(world.addr, NDJSON, &key, "{}").await;
    assert_eq!(third.expect("admitted").await["admission"]["id"], queued["id"], "answered again");
    drop(second);
    let fourth = world.call("POST", "/v1/admissions", &[key[0], ("accept", NDJSON)], "{\"bytes\":1}").await;
    fourth.refused(422, "rejected-idempotency-mismatch");
    assert_eq!(leases(&world).await, 1);
    drop(third);
    no_lease(&world).await;
    let mut late = Events::open(world.addr, NDJSON, &key, "{}").await;
    late.expect("admitted").await;
    let ended = late.expect("ended").await;
    assert_eq!((&ended["end"], &ended["id"]), (&json!("Completed"), &queued["id"]), "as the log has it");
    late.over().await;
}

/// A held call's lease is its holder's, also where a stream comes with the same key.
#[tokio::test]
async fn a_stream_does_not_end_the_lease_of_a_held_call() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 0.0).await;
    let key = [("idempotency-key", "k")];
    let held = call(world.addr, "POST", "/v1/admissions", &key, b"{}").await.admitted();
    let mut stream = Events::open(world.addr, NDJSON, &key, "{}").await;
    assert_eq!(stream.expect("admitted").await["admission"]["id"], held["id"]);
    drop(stream);
    let mut stream = Events::open(world.addr, NDJSON, &key, "{}").await;
    stream.expect("admitted").await;
    assert_eq!(leases(&world).await, 1);
    let path = format!("/v1/admissions/{}/complete", held["id"].as_str().unwrap());
    assert_eq!(world.call("POST", &path, &[], "").await.status, 200);
    assert_eq!(stream.expect("ended").await["end"], "Completed");
}

#[tokio::test]
async fn in_observe_mode_a_stream_begins_at_once() {
    let world = World::one(pushed(|policy| policy.observe = true)).await;
    world.pool_is("default", 1, 1.5).await;
    let mut events = Events::open(world.addr, NDJSON, &[], "{}").await;
    assert_eq!(events.expect("admitted").await["admission"]["outcome"], "Observed");
    world.queued("default", 1).await;
    drop(events);
    world.queued("default", 0).await;
    assert_eq!(world.events("default", "Evicted").await[0]["cause"], "EndedInPool");
}

/// Thousands of streams: each change of regime is told to all of them, and so is what becomes of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_hear_every_change() {
    const MANY: usize = 1_000;
    let mut setup = pushed(|_| {});
    setup.policy.max_requests = 0;
    // Thousands are opened one after the other.
    setup.policy.saturation_budget = Micros::from_secs(3_600);
    setup.policy.no_endpoint_budget = Micros::from_secs(3_600);
    let world = World::one(Setup { ..setup }).await;
    world.pool_is("default", 0, 0.0).await;
    let mut all = Vec::with_capacity(MANY);
    for at in 0..MANY {
        let mut events = Events::open(world.addr, NDJSON, &[], "{}").await;
        let queued = events.expect("queued").await;
        assert_eq!(queued["position"], json!(at + 1));
        all.push(events);
    }
    let began = std::time::Instant::now();
    world.pool_is("default", 1, 1.5).await;
    for events in &mut all {
        let regime = events.expect("regime").await;
        assert_eq!(
            (&regime["to"], &regime["budget"]["kind"]),
            (&json!("HasEndpoints"), &json!("saturation"))
        );
    }
    let changed = began.elapsed();
    world.pool_is("default", 1, 0.0).await;
    let mut last = 0;
    for events in &mut all {
        let sequence = events.expect("admitted").await["admission"]["sequence"].as_u64().unwrap();
        assert!(sequence >= last, "in the order they came");
        last = sequence;
    }
    println!(
        "{MANY} streams: regime told in {changed:?}, all admitted {:?} after",
        began.elapsed() - changed
    );
    drop(all);
    no_lease(&world).await;
}
