//! Goal: what operators do by hand takes effect, is in the log with who and why, and is refused with the field to blame.

use crate::binary::{Served, settings};
use crate::harness::{PATIENCE, Reply, World, call, pushed};
use serde_json::{Value, json};
use std::process::{Command, Output};

async fn order(world: &World, path: &str, body: Value) -> Reply {
    world.call("POST", path, &[], &body.to_string()).await
}

#[tokio::test]
async fn a_pool_is_paused_and_resumed_with_who_and_why() {
    let world = World::one(pushed(|_| ())).await;
    world.pool_is("default", 1, 0.0).await;
    world.admit(json!({})).await.admitted();
    let paused = order(&world, "/admin/pools/default/pause", json!({"why": "moving it", "by": "ops"})).await;
    assert_eq!(paused.status, 200, "{}", paused.text());
    assert_eq!(
        (&paused.json()["state"], &paused.json()["changed"]),
        (&json!("paused"), &json!(true)),
        "{}",
        paused.text()
    );
    let held = world.admitting(json!({}));
    world.queued("default", 1).await;
    let shown = world.pool("default").await;
    assert_eq!(shown["queue"]["heldBy"], "paused by an operator");
    assert_eq!((&shown["paused"]["by"], &shown["paused"]["why"]), (&json!("ops"), &json!("moving it")));
    assert!(world.get("/metrics").await.text().contains("weir_pool_paused{inference_pool=\"default\"} 1"));
    let again = order(&world, "/admin/pools/default/pause", json!({"why": "once more"})).await;
    assert_eq!((again.status, &again.json()["changed"]), (200, &json!(false)));
    let headers = [("x-weir-actor", "night shift")];
    let resumed = world.call("POST", "/admin/pools/default/resume", &headers, r#"{"why": "moved"}"#).await;
    assert_eq!(resumed.json()["by"], "night shift", "{}", resumed.text());
    held.await.unwrap().admitted();
    assert_eq!(world.pool("default").await.get("paused"), None);
    let orders: Vec<Value> =
        world.log("default").await.iter().filter_map(|s| s["input"].get("Admin").cloned()).collect();
    let said: Vec<(&str, &str)> =
        orders.iter().map(|o| (o["by"].as_str().unwrap(), o["why"].as_str().unwrap())).collect();
    assert_eq!(said, [("ops", "moving it"), ("loopback", "once more"), ("night shift", "moved")]);
    let figure = "weir_flow_control_admin_orders_total{action=\"pause\",inference_pool=\"default\"} 2";
    world.until(figure, async || world.get("/metrics").await.text().contains(figure)).await;
}

#[tokio::test]
async fn a_queued_request_or_a_flow_is_purged_and_its_callers_hear_it() {
    let world = World::one(pushed(|_| ())).await;
    world.pool_is("default", 1, 0.0).await;
    let running = world.admit(json!({})).await.admitted()["id"].as_str().unwrap().to_owned();
    world.pool_is("default", 1, 1.5).await;
    let one = world.admitting(json!({"fairnessId": "b"}));
    world.queued("default", 1).await;
    let seq = world.log("default").await.iter().rev().find(|s| s["input"].get("Arrived").is_some()).unwrap()
        ["seq"]
        .clone();
    let many: Vec<_> = (0..100).map(|_| world.admitting(json!({"fairnessId": "a"}))).collect();
    world.queued("default", 101).await;

    let path = "/admin/pools/default/purge";
    let done = order(&world, path, json!({"why": "a drill", "id": format!("default-{seq}")})).await;
    assert_eq!((done.status, &done.json()["purged"]), (200, &json!(1)), "{}", done.text());
    let problem = one.await.unwrap().refused(503, "rejected-purged");
    assert_eq!((&problem["outcome"], &problem["cause"]), (&json!("EvictedOther"), &json!("purged")));

    let done = order(&world, path, json!({"why": "a loop", "fairnessId": "a", "priority": 0})).await;
    assert_eq!((done.status, &done.json()["purged"]), (200, &json!(100)), "{}", done.text());
    for one in many {
        one.await.unwrap().refused(503, "rejected-purged");
    }
    let none = order(&world, path, json!({"why": "a loop", "fairnessId": "a", "priority": 0})).await;
    assert_eq!((none.status, &none.json()["purged"]), (200, &json!(0)), "{}", none.text());
    // What runs is in no queue; what never was is not known.
    order(&world, path, json!({"why": "w", "id": running})).await.refused(409, "rejected-invalid");
    order(&world, path, json!({"why": "w", "id": "default-99999"})).await.refused(404, "rejected-invalid");
    assert_eq!(world.pool("default").await["queue"]["requests"], 0);
}

#[tokio::test]
async fn an_order_without_a_reason_is_refused_and_names_the_field() {
    let world = World::one(pushed(|_| ())).await;
    let before = world.pool("default").await["log"]["sequence"].clone();
    for (path, body, field) in [
        ("/admin/pools/default/pause", json!({}), "why"),
        ("/admin/pools/default/pause", json!({"why": "x".repeat(257)}), "why"),
        ("/admin/pools/default/resume", json!({"why": "w", "by": "a\nb"}), "by"),
        ("/admin/pools/default/purge", json!({"why": "w"}), "id"),
        ("/admin/pools/default/purge", json!({"why": "w", "id": "other-1"}), "id"),
        ("/admin/pools/default/purge", json!({"why": "w", "fairnessId": "a"}), "priority"),
        ("/admin/drain", json!({"by": "me"}), "why"),
    ] {
        let problem = order(&world, path, body.clone()).await.refused(400, "rejected-invalid");
        assert_eq!(problem["field"], field, "{path} {body}");
    }
    let problem =
        order(&world, "/admin/pools/nope/pause", json!({"why": "w"})).await.refused(404, "rejected-invalid");
    assert_eq!(problem["field"], "pool");
    world.get("/admin/drain").await.refused(405, "rejected-invalid");
    assert_eq!(world.pool("default").await["log"]["sequence"], before, "nothing was ordered");
}

fn weir_admin(url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("admin").args(args).args(["--url", url]).env("USER", "tester").output().unwrap()
}

fn ok(url: &str, args: &[&str]) -> String {
    let output = weir_admin(url, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// What runs is taken back where somebody is there to be told, and the log says by whom and why.
#[tokio::test]
async fn a_running_request_is_revoked_by_hand() {
    let world = World::one(pushed(|_| ())).await;
    world.pool_is("default", 1, 0.0).await;
    let id = world.admit(json!({})).await.admitted()["id"].as_str().unwrap().to_owned();
    let path = "/admin/pools/default/revoke";
    // Nobody polls for it: the order is in the log, and the lease runs on.
    let nobody = order(&world, path, json!({"why": "a drill", "id": id, "by": "ops"})).await;
    assert_eq!((nobody.status, &nobody.json()["state"]), (200, &json!("undeliverable")), "{}", nobody.text());
    assert_eq!(world.pool("default").await["leases"], 1);
    let orders: Vec<Value> =
        world.log("default").await.iter().filter_map(|step| step["input"].get("Revoke").cloned()).collect();
    assert_eq!((&orders[0]["by"], &orders[0]["why"]), (&json!("ops"), &json!("a drill")));
    // A queued one is purged, not revoked; one that never was is not known; a reason is asked for.
    world.pool_is("default", 1, 1.5).await;
    let held = world.admitting(json!({}));
    world.queued("default", 1).await;
    let steps = world.log("default").await;
    let seq = &steps.iter().rev().find(|step| step["input"].get("Arrived").is_some()).unwrap()["seq"];
    let queued = format!("default-{seq}");
    order(&world, path, json!({"why": "w", "id": queued})).await.refused(409, "rejected-invalid");
    order(&world, path, json!({"why": "w", "id": "default-99999"})).await.refused(404, "rejected-invalid");
    let problem = order(&world, path, json!({"id": id})).await.refused(400, "rejected-invalid");
    assert_eq!(problem["field"], "why");
    held.abort();
}

/// The whole way from the command line; the drain serves what is queued and then ends the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c144_the_command_line_pauses_purges_and_drains() {
    let mut served = Served::start(&settings("{drainTimeout: 60s}", ""));
    let url = format!("http://{}", served.addr);
    served.pool_is(0.0).await;
    assert!(ok(&url, &["pause", "--why", "a drill"]).starts_with("default is paused since step "));
    assert_eq!(ok(&url, &["pause", "--why", "a drill"]), "default was paused already\n");
    let held = served.admitting(2);
    served.queued(2).await;
    let pools = ok(&url, &["pools"]);
    assert!(pools.contains("HELD BY") && pools.contains("paused by tester: a drill"), "{pools}");
    let refused = weir_admin(&url, &["purge", "--request", "default-99999", "--why", "w"]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && error.contains("404") && error.contains("no admission"), "{error}");
    let nothing = ok(&url, &["purge", "--flow", "nobody", "--priority", "-5", "--why", "w"]);
    assert_eq!(nothing, "default: nothing of it was queued\n");

    let drained: Value =
        serde_json::from_str(&ok(&url, &["drain", "--why", "an upgrade", "--json"])).unwrap();
    assert_eq!((&drained["changed"], &drained["by"]), (&json!(true), &json!("tester")));
    assert_eq!(drained["left"][0]["queued"], 2);
    served.until("not ready", async || served.get("/readyz").await.status == 503).await;
    served.admit().await.refused(503, "rejected-shutting-down");
    let again = ok(&url, &["drain", "--why", "an upgrade"]);
    assert!(again.starts_with("draining already") && again.contains("default: 2 queued"), "{again}");
    assert!(ok(&url, &["resume", "--why", "let them go"]).starts_with("default is resumed since step "));
    for reply in held {
        reply.await.unwrap().admitted();
    }
    assert_eq!(served.ended(), Some(0));
    let log = served.log();
    let drains: Vec<&Value> =
        log.iter().filter(|s| s["input"]["Admin"]["action"].get("Drain").is_some()).collect();
    assert_eq!(drains.len(), 1, "asked again, it is the same drain");
    assert_eq!(drains[0]["input"]["Admin"]["why"], "an upgrade");
    assert!(log.iter().all(|step| step["input"].get("Stopping").is_none()));
    assert_eq!(log.last().unwrap()["input"], "Stopped");
    let error = weir_admin(&url, &["pools"]);
    assert!(!error.status.success(), "nobody is there any more");
}

/// A pause is state: a process that is killed finds it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_outlives_the_process() {
    let text = settings("{drainTimeout: 0s}", "");
    let mut served = Served::start(&text);
    served.pool_is(0.0).await;
    let body = json!({"why": "a long night", "by": "ops"}).to_string();
    let paused = call(served.addr, "POST", "/admin/pools/default/pause", &[], body.as_bytes()).await;
    assert_eq!(paused.status, 200, "{}", paused.text());
    served.signal("KILL");
    assert_eq!(served.ended(), None);
    served.again();
    served.pool_is(0.0).await;
    let shown = served.get("/v1/pools/default").await.json();
    assert_eq!(shown["paused"]["why"], "a long night", "{shown}");
    let held = served.admitting(1);
    served.queued(1).await;
    tokio::time::timeout(PATIENCE, async {
        let body = json!({"why": "morning"}).to_string();
        let resumed = call(served.addr, "POST", "/admin/pools/default/resume", &[], body.as_bytes()).await;
        assert_eq!(resumed.json()["changed"], true);
        for reply in held {
            reply.await.unwrap().admitted();
        }
    })
    .await
    .unwrap();
    served.signal("TERM");
    assert_eq!(served.ended(), Some(0));
}

#[test]
fn the_help_names_the_scope_that_the_pools_take() {
    let help = Command::new(env!("CARGO_BIN_EXE_weir")).args(["admin", "pools", "--help"]).output();
    let text = String::from_utf8(help.unwrap().stdout).unwrap();
    assert!(
        text.split_whitespace().collect::<Vec<_>>().join(" ").contains("the scope `read` to show the pools"),
        "{text}"
    );
}
