//! Goal: what a holder says of a lease that has ended is answered with how it ended, from the log.

use crate::client::{Events, NDJSON, SSE};
use crate::harness::{World, call, pushed};
use serde_json::{Value, json};

#[tokio::test]
async fn a_lease_that_has_ended_is_told_of_from_the_log() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 0.0).await;
    let id = world.admit(json!({"requestId": "r"})).await.admitted()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/admissions/{id}");
    // What comes in between is passed over.
    for _ in 0..50 {
        let other = world.admit(json!({})).await.admitted()["id"].as_str().unwrap().to_owned();
        world.call("POST", &format!("/v1/admissions/{other}/complete"), &[], "").await;
    }
    assert_eq!(world.call("DELETE", &path, &[], "").await.json()["state"], "cancelled");
    let seen = world.get(&path).await.json();
    assert_eq!((&seen["state"], &seen["cause"]), (&json!("ended"), &json!("client-disconnect")), "{seen}");
    assert_eq!(seen["admission"]["requestId"], "r");
    let done = world.call("POST", &format!("{path}/complete"), &[], "").await;
    assert_eq!((done.status, done.json()["sequence"].clone()), (200, seen["sequence"].clone()));
    let renewed = world.call("POST", &format!("{path}/renew"), &[], "").await;
    assert_eq!(renewed.refused(409, "rejected-invalid")["end"], "Completed");
    // Numbers that are no request's: another step's, and none's.
    for id in ["default-1", "default-99999999"] {
        for call in ["complete", "renew"] {
            let reply = world.call("POST", &format!("/v1/admissions/{id}/{call}"), &[], "").await;
            reply.refused(404, "rejected-invalid");
        }
        world.get(&format!("/v1/admissions/{id}")).await.refused(404, "rejected-invalid");
    }
}

async fn revoke(world: &World, id: &str, state: &str) -> Value {
    let order = json!({"id": id, "by": "test", "why": "asked"}).to_string();
    let reply = world.call("POST", "/admin/pools/default/revoke", &[], &order).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["state"], state, "{}", reply.text());
    reply.json()
}

async fn ended(world: &World) -> Vec<(Value, Value)> {
    let events = world.events("default", "LeaseEnded").await;
    events.iter().map(|e| (e["end"].clone(), e["cause"].clone())).collect()
}

/// A stream hears that its lease is taken back; its end is the confirmation.
#[tokio::test]
async fn a_stream_that_is_revoked_confirms_by_its_end() {
    for form in [NDJSON, SSE] {
        let world = World::one(pushed(|_| {})).await;
        world.pool_is("default", 1, 0.0).await;
        let mut stream = Events::open(world.addr, form, &[], r#"{"requestId":"victim"}"#).await;
        let id = stream.expect("admitted").await["admission"]["id"].as_str().unwrap().to_owned();
        let order = revoke(&world, &id, "revoking").await;
        let revoked = stream.expect("revoked").await;
        assert_eq!((&revoked["status"], &revoked["reason"]), (&json!(429), &json!("evicted")), "{revoked}");
        assert_eq!((&revoked["id"], &revoked["requestId"]), (&json!(id), &json!("victim")));
        assert_eq!(revoked["sequence"], order["sequence"]);
        assert_eq!(world.pool("default").await["leases"], 1, "it counts until its stream has ended");
        drop(stream);
        world.until("a confirmation", async || world.pool("default").await["leases"] == json!(0)).await;
        assert_eq!(ended(&world).await, [(json!("Revoked"), json!(null))]);
        let seen = world.get(&format!("/v1/admissions/{id}")).await.json();
        assert_eq!(seen["end"], "Revoked", "{seen}");
    }
}

/// It may also say what was used, and then hears its own end.
#[tokio::test]
async fn a_stream_that_is_revoked_may_complete() {
    let world = World::one(pushed(|_| {})).await;
    world.pool_is("default", 1, 0.0).await;
    let mut stream = Events::open(world.addr, NDJSON, &[], "{}").await;
    let id = stream.expect("admitted").await["admission"]["id"].as_str().unwrap().to_owned();
    revoke(&world, &id, "revoking").await;
    stream.expect("revoked").await;
    for _ in 0..2 {
        let done = world.call("POST", &format!("/v1/admissions/{id}/complete"), &[], "").await;
        assert_eq!(done.status, 200, "{}", done.text());
    }
    assert_eq!(stream.expect("ended").await["end"], "Revoked");
    stream.over().await;
    assert_eq!(ended(&world).await.len(), 1);
}

/// A held lease and a ticket can be taken back while their holder asks with a wait, and only then.
#[tokio::test]
async fn a_holder_that_waits_hears_that_its_lease_is_revoked() {
    for prefer in ["", "respond-async"] {
        let world = World::one(pushed(|_| {})).await;
        world.pool_is("default", 1, 0.0).await;
        let headers = [("prefer", prefer)];
        let admission = world.call("POST", "/v1/admissions", &headers, "{}").await.admitted();
        let id = admission["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/admissions/{id}");
        // A ticket's first answer does not wait.
        assert_eq!(world.get(&path).await.json()["state"], "admitted");
        revoke(&world, &id, "undeliverable").await;
        let (addr, asked) = (world.addr, format!("{path}?wait=30s"));
        let polling = tokio::spawn(async move { call(addr, "GET", &asked, &[], b"").await });
        world
            .until("a holder that waits", async || world.events("default", "WatchNoted").await.len() == 1)
            .await;
        revoke(&world, &id, "revoking").await;
        let reply = polling.await.unwrap();
        assert_eq!(reply.header("x-weir-dropped-reason"), Some("evicted"));
        let heard = reply.json();
        assert_eq!((&heard["state"], &heard["reason"]), (&json!("revoked"), &json!("evicted")), "{heard}");
        assert_eq!(world.get(&path).await.json()["state"], "revoked", "until it has ended");
        let done = world.call("POST", &format!("{path}/complete"), &[], "").await;
        assert_eq!(done.json()["state"], "completed");
        assert_eq!(ended(&world).await, [(json!("Revoked"), json!(null))]);
    }
}
