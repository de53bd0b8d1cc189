//! Goal: what is refused never touches an endpoint, and says why in the words of every reader.

use crate::harness::pushed;
use crate::raw::{Nobody, Piece, Raw, send, whole};
use crate::rig::{Rig, Wire, ask, request};
use serde_json::json;
use weir::gateway::Options;

#[tokio::test]
async fn a_refused_request_never_touches_an_endpoint() {
    let server = Raw::start(vec![whole("{}")]).await;
    let setup = pushed(|policy| policy.max_requests = 1);
    let rig = Rig::with(&[&server], |_| {}, Options::default(), setup).await;
    rig.saturated(1.5).await;
    let waiting = rig.open(&[], &ask()).await;
    rig.world.queued("default", 1).await;
    let reply = rig.chat(&[("x-request-id", "r")], &ask()).await;
    let problem = reply.refused(429, "rejected-saturated");
    assert_eq!((&problem["outcome"], &problem["requestId"]), (&json!("RejectedCapacity"), &json!("r")));
    let error = json!({
        "message": "a queue limit is reached while the pool is contended",
        "type": "rate_limit_error",
        "code": "rejected-saturated",
    });
    assert_eq!(problem["error"], error);
    // A caller that leaves while it waits frees its slot at once.
    drop(waiting);
    rig.world.queued("default", 0).await;
    rig.pool_is(&[], 0.0).await;
    let setup = pushed(|policy| policy.no_endpoint_budget = weir_kernel::Micros::from_millis(30));
    let empty = Rig::with(&[], |_| {}, Options::default(), setup).await;
    let reply = empty.chat(&[], &ask()).await;
    let problem = reply.refused(503, "rejected-no-endpoints");
    assert_eq!(problem["error"]["type"], "server_error");
    assert_eq!((server.connections(), rig.running().await), (0, 0));
}

#[tokio::test]
async fn c087_paths_that_are_none_take_no_slot() {
    let server = Raw::start(vec![whole("{}")]).await;
    let rig = Rig::of(&[&server]).await;
    for path in
        ["/v1/chat/completions/", "/v1/v1/chat/completions", "/v1/unknown", "/v1/load_lora_adapter", "/x"]
    {
        rig.world.call("POST", path, &[], "{}").await.refused(404, "rejected-invalid");
    }
    for (method, path) in
        [("GET", "/v1/chat/completions"), ("DELETE", "/v1/models"), ("PUT", "/v1/embeddings")]
    {
        let reply = rig.world.call(method, path, &[], "").await;
        reply.refused(405, "rejected-invalid");
        assert!(reply.header("allow").is_some());
    }
    let bad = [("x-weir-pool", "nope"), ("x-weir-priority", "ten"), ("x-weir-deadline-ms", "-1")];
    for (header, want) in bad.into_iter().zip([404, 400, 400]) {
        let reply = rig.chat(&[header], &ask()).await;
        let problem = reply.refused(want, "rejected-invalid");
        assert_eq!(problem["error"]["type"], "invalid_request_error");
    }
    assert!(rig.inputs("Arrived").await.is_empty());
    assert_eq!(server.connections(), 0);
}

/// An endpoint may resolve it to a path that nobody named.
#[tokio::test]
async fn a_path_with_a_dot_segment_is_none() {
    let server = Raw::start(vec![whole("{}")]).await;
    let more = |proxy: &mut weir::gateway::ProxyOptions| {
        proxy.pass_paths.push("/tenant/*".to_owned());
        proxy.admit_paths.push("/own/*".to_owned());
    };
    let rig = Rig::with(&[&server], more, Options::default(), pushed(|_| {})).await;
    for rest in ["../../metrics", "%2e%2e/metrics", "%2E./x", "a%2f..", "a\\..", "."] {
        for (method, stem) in [("GET", "/v1/models"), ("POST", "/own"), ("DELETE", "/tenant")] {
            let mut wire = Wire::to(rig.world.addr).await;
            wire.send(&request(method, &format!("{stem}/{rest}"), &[], "")).await;
            wire.until("HTTP/1.1 404").await;
        }
    }
    assert!(rig.inputs("Arrived").await.is_empty());
    assert_eq!(server.connections(), 0);
    assert_eq!(rig.world.get("/v1/models/Qwen2.5...x").await.status, 200);
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_reached_is_said_so() {
    let rig = Rig::of(&[]).await;
    let nobody = Nobody::there();
    rig.pool_is(&[nobody.addr], 0.0).await;
    let reply = rig.chat(&[("x-request-id", "r")], &ask()).await;
    let problem = reply.refused(502, "upstream-unreachable");
    assert_eq!(
        (&problem["requestId"], &problem["error"]["code"]),
        (&json!("r"), &json!("upstream-unreachable"))
    );
    assert_eq!(problem["pool"], "default");
    assert_eq!(rig.ended(1).await.0, "Error");
    let reply = rig.world.get("/v1/models").await;
    reply.refused(502, "upstream-unreachable");
    let metrics = rig.world.get("/metrics").await.text();
    assert!(metrics.contains("weir_gateway_proxy_unreachable_total 2\n"), "{metrics}");
    assert!(metrics.contains("weir_gateway_proxied 0.0\n"), "{metrics}");
}

/// Where no connection came about nothing was sent, so another endpoint is asked: a server that is gone must not draw all
/// requests to itself by failing fast.
#[tokio::test]
async fn another_endpoint_is_asked_once_where_nothing_was_sent() {
    let server = Raw::start(vec![whole("{}")]).await;
    let rig = Rig::of(&[]).await;
    let (nobody, nor_there) = (Nobody::there(), Nobody::there());
    rig.pool_is(&[nobody.addr, server.addr, nor_there.addr], 0.0).await;
    for _ in 0..6 {
        let reply = rig.chat(&[], &ask()).await;
        match reply.status {
            200 => {}
            // Once, and no more.
            _ => drop(reply.refused(502, "upstream-unreachable")),
        }
    }
    rig.pool_is(&[nobody.addr, server.addr], 0.0).await;
    for _ in 0..6 {
        assert_eq!(rig.chat(&[], &ask()).await.status, 200);
    }
    assert!(server.seen().iter().all(|seen| seen.body == ask().as_bytes()));
}

/// What was sent is never sent twice: it may run.
#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_again() {
    let switched =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nbytes";
    for piece in [
        Piece::Close,
        Piece::Reset,
        send("nonsense\r\n\r\n"),
        send("HTTP/1.1 200 OK\r\nconte"),
        send(switched),
        // Right behind its head.
        send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
    ] {
        let server = Raw::start(vec![piece, Piece::Close]).await;
        let other = Raw::start(vec![Piece::Close]).await;
        let rig = Rig::of(&[&server, &other]).await;
        let reply = rig.chat(&[], &ask()).await;
        reply.refused(502, "upstream-broken");
        assert_eq!(rig.ended(1).await.0, "Error");
        assert_eq!(server.seen().len() + other.seen().len(), 1);
    }
}
