//! Goal: a ticket is told at once that it waits, can be asked for, lives as long as it is asked for, and is then a lease.

use crate::harness::{Reply, World, call, pushed};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use weir_kernel::Micros;

const PREFER: (&str, &str) = ("prefer", "respond-async");

async fn ticket(world: &World, body: Value) -> Reply {
    world.call("POST", "/v1/admissions", &[PREFER], &body.to_string()).await
}

/// Where a ticket is asked for.
#[track_caller]
fn location(reply: &Reply) -> String {
    assert_eq!(reply.status, 202, "{}", reply.text());
    assert_eq!(reply.header("preference-applied"), Some("respond-async"));
    let location = reply.header("location").unwrap().to_owned();
    assert_eq!(location, format!("/v1/admissions/{}", reply.json()["id"].as_str().unwrap()));
    location
}

async fn shown(world: &World, path: &str) -> Value {
    let reply = world.get(path).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[tokio::test]
async fn a_ticket_waits_is_admitted_and_is_then_a_lease() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.5).await;
    let other = ticket(&world, json!({})).await;
    let mine = ticket(&world, json!({"requestId": "mine", "chooseEndpoint": true})).await;
    let path = location(&mine);
    let body = mine.json();
    assert_eq!((&body["state"], &body["position"]), (&json!("queued"), &json!(2)), "{body}");
    assert_eq!((&body["requestId"], &body["budget"]["kind"]), (&json!("mine"), &json!("saturation")));

    let now = shown(&world, &path).await;
    assert_eq!(
        (&now["state"], &now["requestId"], &now["position"]),
        (&json!("queued"), &json!("mine"), &json!(2))
    );
    world.call("DELETE", &location(&other), &[], "").await;
    assert_eq!(shown(&world, &path).await["position"], 1);
    let began = Instant::now();
    assert_eq!(shown(&world, &format!("{path}?wait=100ms")).await["state"], "queued");
    assert!(began.elapsed() >= Duration::from_millis(100));

    let (addr, asked) = (world.addr, format!("{path}?wait=30s"));
    let polling = tokio::spawn(async move { call(addr, "GET", &asked, &[], b"").await });
    tokio::task::yield_now().await;
    world.pool_is("default", 1, 0.0).await;
    let admitted = polling.await.unwrap().json();
    assert_eq!(admitted["state"], "admitted");
    let admission = &admitted["admission"];
    assert_eq!(
        (&admission["requestId"], &admission["endpoint"]),
        (&json!("mine"), &json!("e0")),
        "{admitted}"
    );
    assert_eq!(format!("/v1/admissions/{}", admission["id"].as_str().unwrap()), path);
    let again = shown(&world, &path).await;
    assert_eq!((&again["state"], &again["admission"]), (&json!("admitted"), admission));
    assert!(again["leftMs"].as_u64().unwrap() > 500_000, "a held lease: {again}");

    let renewed = world.call("POST", &format!("{path}/renew"), &[], "").await;
    assert_eq!(renewed.json()["state"], "renewed");
    let asked = format!("{path}?wait=30s");
    let polling = tokio::spawn(async move { call(addr, "GET", &asked, &[], b"").await });
    let done = world.call("POST", &format!("{path}/complete"), &[], "").await;
    assert_eq!(done.json()["state"], "completed");
    let ended = polling.await.unwrap().json();
    assert_eq!((&ended["state"], &ended["end"]), (&json!("ended"), &json!("Completed")), "{ended}");
    let after = shown(&world, &path).await;
    assert_eq!((&after["end"], &after["admission"]["requestId"]), (&json!("Completed"), &json!("mine")));
}

/// Its holder was not asking when it was admitted: the first answer after that comes at once, the next one waits.
#[tokio::test]
async fn the_first_answer_after_an_admission_does_not_wait() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.5).await;
    let path = location(&ticket(&world, json!({})).await);
    world.pool_is("default", 1, 0.0).await;
    world.until("a lease", async || world.pool("default").await["leases"] == json!(1)).await;
    let began = Instant::now();
    assert_eq!(shown(&world, &format!("{path}?wait=50s")).await["state"], "admitted");
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    let began = Instant::now();
    assert_eq!(shown(&world, &format!("{path}?wait=200ms")).await["state"], "admitted");
    assert!(began.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn what_is_decided_at_once_is_answered_at_once() {
    let world = World::one(pushed(|policy| policy.max_requests = 1)).await;
    world.pool_is("default", 1, 0.0).await;
    let reply = ticket(&world, json!({})).await;
    assert_eq!((reply.status, reply.header("location")), (200, None));
    let id = reply.admitted()["id"].as_str().unwrap().to_owned();
    assert_eq!(shown(&world, &format!("/v1/admissions/{id}")).await["state"], "admitted");
    world.pool_is("default", 1, 1.5).await;
    location(&ticket(&world, json!({})).await);
    ticket(&world, json!({})).await.refused(429, "rejected-saturated");
    ticket(&world, json!({"ttl": 3})).await.refused(400, "rejected-invalid");
}

/// `wait` is how long its caller would rather be held.
#[tokio::test]
async fn a_ticket_may_be_held_for_a_while_first() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.5).await;
    let addr = world.addr;
    let prefer = [("prefer", "respond-async, wait=20")];
    let held = tokio::spawn(async move { call(addr, "POST", "/v1/admissions", &prefer, b"{}").await });
    world.queued("default", 1).await;
    world.pool_is("default", 1, 0.0).await;
    held.await.unwrap().admitted();
    world.pool_is("default", 1, 1.5).await;
    let began = Instant::now();
    let prefer = [("prefer", "respond-async, wait=1")];
    let reply = call(addr, "POST", "/v1/admissions", &prefer, b"{}").await;
    location(&reply);
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!(reply.json()["queuedMs"].as_u64().unwrap() >= 900, "{}", reply.text());
    // While it is held like that, who leaves has left.
    let mut gone = crate::harness::Connection::open(addr).await;
    gone.send("POST", "/v1/admissions", &[("prefer", "respond-async, wait=20")], b"{}").await;
    world.queued("default", 2).await;
    drop(gone);
    world.queued("default", 1).await;
}

#[tokio::test]
async fn a_ticket_that_nobody_asks_for_is_given_up_and_asking_keeps_it() {
    let world = World::one(pushed(|policy| policy.ticket_timeout = Micros::from_millis(1_500))).await;
    world.pool_is("default", 1, 1.5).await;
    let forgotten = location(&ticket(&world, json!({"requestId": "forgotten"})).await);
    let asked = location(&ticket(&world, json!({})).await);
    let waited = location(&ticket(&world, json!({})).await);
    let (addr, long) = (world.addr, format!("{waited}?wait=6s"));
    let polling = tokio::spawn(async move { call(addr, "GET", &long, &[], b"").await });
    // Asked for again and again over three times as long as nobody asks for the first.
    let began = Instant::now();
    world
        .until("the forgotten one to be given up", async || {
            assert_eq!(shown(&world, &asked).await["state"], "queued");
            began.elapsed() > Duration::from_millis(4_500)
                && world.events("default", "Evicted").await.len() == 1
        })
        .await;
    let gone = world.get(&forgotten).await;
    assert_eq!(gone.header("x-weir-dropped-reason"), Some("rejected-context-cancelled"));
    let gone = gone.json();
    assert_eq!(
        (&gone["state"], &gone["refusal"]["cause"]),
        (&json!("refused"), &json!("ticket-abandoned")),
        "{gone}"
    );
    assert_eq!(
        (&gone["refusal"]["status"], &gone["refusal"]["requestId"]),
        (&json!(503), &json!("forgotten"))
    );
    assert_eq!(polling.await.unwrap().json()["state"], "queued", "its holder lived while it waited");
}

#[tokio::test]
async fn a_ticket_hears_why_it_was_refused_then_or_later() {
    let world = World::one(pushed(|policy| policy.saturation_budget = Micros::from_millis(2_500))).await;
    world.pool_is("default", 1, 1.5).await;
    let path = location(&ticket(&world, json!({"requestId": "t"})).await);
    let heard = world.get(&format!("{path}?wait=30s")).await;
    assert_eq!(heard.header("x-weir-dropped-reason"), Some("rejected-ttl-expired"));
    let heard = heard.json();
    assert_eq!((&heard["state"], &heard["refusal"]["status"]), (&json!("refused"), &json!(429)), "{heard}");
    assert_eq!(heard["refusal"]["requestId"], "t");
    assert_eq!(shown(&world, &path).await, heard, "and again");
    let renewed = world.call("POST", &format!("{path}/renew"), &[], "").await;
    assert_eq!(renewed.refused(409, "rejected-invalid")["end"], "EvictedTTL");
}

#[tokio::test]
async fn a_key_finds_the_ticket_again() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.5).await;
    let headers = [PREFER, ("idempotency-key", "k")];
    let first = location(&world.call("POST", "/v1/admissions", &headers, "{}").await);
    let second = location(&world.call("POST", "/v1/admissions", &headers, "{}").await);
    assert_eq!(first, second);
    world.queued("default", 1).await;
    // A held call with the same key shares its fate, and leaving takes nothing from the ticket.
    let mut held = crate::harness::Connection::open(world.addr).await;
    held.send("POST", "/v1/admissions", &[("idempotency-key", "k")], b"{}").await;
    world.until("a repeated call", async || world.events("default", "Repeated").await.len() == 2).await;
    drop(held);
    world.pool_is("default", 1, 0.0).await;
    assert_eq!(shown(&world, &format!("{first}?wait=30s")).await["state"], "admitted");
    let third = world.call("POST", "/v1/admissions", &headers, "{}").await.admitted();
    assert_eq!(format!("/v1/admissions/{}", third["id"].as_str().unwrap()), first);
}

#[tokio::test]
async fn a_ticket_that_is_given_back_is_gone() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 1.5).await;
    let path = location(&ticket(&world, json!({})).await);
    let (addr, asked) = (world.addr, format!("{path}?wait=30s"));
    let polling = tokio::spawn(async move { call(addr, "GET", &asked, &[], b"").await });
    world.queued("default", 1).await;
    let cancelled = world.call("DELETE", &path, &[], "").await;
    assert_eq!(cancelled.json()["state"], "cancelled");
    assert_eq!(polling.await.unwrap().json()["refusal"]["cause"], "client-disconnect");
    world.queued("default", 0).await;
    assert_eq!(world.call("DELETE", &path, &[], "").await.json()["state"], "refused");
}
