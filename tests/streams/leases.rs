//! Goal: what a holder says of a lease that has ended is answered with how it ended, from the log.

use crate::harness::{World, pushed};
use serde_json::json;

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
