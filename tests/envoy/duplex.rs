//! Goal: the listener `duplex`: bodies pass whole both ways, Weir picks the endpoint and reads what was used.

use crate::client::{Connection, post, posting};
use crate::rig::{Rig, Setup};
use crate::upstream::EVENTS;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_pass_whole_and_the_endpoint_and_usage_are_known() {
    let Some(rig) = Rig::start(Setup::default()).await else { return };
    let duplex = rig.at("duplex");
    rig.pool_is(1, 1.0).await;
    let mut body = br#"{"model":"big","prompt":""#.to_vec();
    body.extend((0..700_000_u32).map(|at| b'a' + u8::try_from(at % 26).unwrap()));
    body.extend(b"\"}");
    let sent = body.clone();
    let headers = [("x-test", "events"), ("x-gateway-destination-endpoint", "127.0.0.1:1")];
    let waiting = tokio::spawn(async move { post(duplex, &headers, &sent).await });
    rig.queued(1).await;
    rig.pool_is(1, 0.0).await;
    let reply = waiting.await.unwrap();
    assert!(reply.status == 200 && reply.whole, "{reply:?}");
    assert_eq!(reply.text(), EVENTS.concat());
    let seen = rig.upstream.seen().remove(0);
    assert!(seen.body == body, "{} bytes of {} came through", seen.body.len(), body.len());
    let to = &seen.headers["x-gateway-destination-endpoint"];
    assert_eq!(*to, rig.upstream.addr.to_string(), "not where the caller wanted to go");
    rig.in_flight(0).await;
    let arrived = rig.inputs("Arrived").await.remove(0);
    assert_eq!((&arrived["bytes"], &arrived["model"]), (&json!(body.len()), &json!("big")));
    assert_eq!(arrived["choose_endpoint"], true);
    let ended = rig.inputs("Ended").await.remove(0);
    assert_eq!(ended["usage"], json!({"prompt": 7, "completion": 5}));
    assert_eq!(ended["termination"], "Natural");
    assert_eq!(rig.inputs("FirstByte").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_queues_refuses_and_notices_who_leaves() {
    let Some(rig) = Rig::start(Setup { flow: "  maxRequests: 1\n", ..Setup::default() }).await else {
        return;
    };
    let duplex = rig.at("duplex");
    let waiting = posting(duplex, &[]);
    rig.queued(1).await;
    post(duplex, &[], b"{}").await.refused(503, "rejected-not-ready", "rejected-no-endpoints");
    rig.pool_is(1, 1.0).await;
    post(duplex, &[], b"{}").await.refused(429, "rejected-saturated", "rejected-saturated");
    rig.pool_is(1, 0.0).await;
    let reply = waiting.await.unwrap();
    assert_eq!((reply.status, reply.json()["usage"]["completion_tokens"].clone()), (200, json!(5)));
    // No body at all, and a body in chunks whose size nobody announced.
    assert_eq!(post(duplex, &[], b"").await.status, 200);
    let chunked = b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
    assert_eq!(post(duplex, &[("transfer-encoding", "chunked")], chunked).await.status, 200);
    assert_eq!(rig.upstream.seen().last().unwrap().body, "abcdefg");
    rig.in_flight(0).await;
    assert_eq!(rig.inputs("Arrived").await.last().unwrap()["bytes"], json!(7));
    // Queued, then gone.
    rig.pool_is(1, 1.0).await;
    let leaving = Connection::send(duplex, "/v1/completions", &[], b"{}").await;
    rig.queued(1).await;
    drop(leaving);
    rig.queued(0).await;
    // Running, then gone.
    rig.pool_is(1, 0.0).await;
    let mut leaving = Connection::send(duplex, "/v1/completions", &[("x-test", "hold")], b"{}").await;
    leaving.begun(8).await;
    rig.in_flight(1).await;
    drop(leaving);
    rig.in_flight(0).await;
    let ended = rig.inputs("Ended").await;
    assert_eq!(ended.last().unwrap()["termination"], "ClientDisconnect", "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_envoy_answers_by_itself_ends_the_lease_as_an_error() {
    let Some(rig) = Rig::start(Setup::default()).await else { return };
    let duplex = rig.at("duplex");
    // An endpoint where nobody listens.
    let endpoint = json!({"name": "127.0.0.1:1", "waiting": 0, "running": 0, "kv": 0});
    rig.push(&json!({"endpoints": [endpoint], "saturation": 0.0})).await;
    let reply = post(duplex, &[], b"{}").await;
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(reply.header("x-weir-dropped-reason"), None, "Envoy's own");
    rig.in_flight(0).await;
    assert_eq!(rig.inputs("Ended").await[0]["termination"], "Error");
    // An endpoint whose name is no address: nowhere to go, and the caller's wish does not count.
    let endpoint = json!({"name": "e0", "waiting": 0, "running": 0, "kv": 0});
    rig.push(&json!({"endpoints": [endpoint], "saturation": 0.0})).await;
    let wish = Box::leak(rig.upstream.addr.to_string().into_boxed_str());
    let reply = post(duplex, &[("x-gateway-destination-endpoint", wish)], b"{}").await;
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(rig.upstream.seen().is_empty());
    assert!(rig.weir_log().contains("no address of the form ip:port"), "{}", rig.weir_log());
    rig.in_flight(0).await;
}
