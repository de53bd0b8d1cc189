//! Goal: callers that leave, that do not read, or that are too many take nothing from the others.

use crate::harness::{Connection, Setup, World, pushed};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir::gateway::Options;

const ADMISSION: &[u8] = b"POST /v1/admissions HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n{}";

async fn world(options: Options) -> World {
    let pools: BTreeMap<&str, Setup> = BTreeMap::from([("default", pushed(|_| {}))]);
    World::start(pools, options).await
}

/// A caller that left is noticed whatever it has sent behind its request, and however it left.
#[tokio::test]
async fn c029_callers_that_sent_more_and_left_hold_no_places() {
    let world = world(Options::default()).await;
    world.pool_is("default", 1, 1.0).await;
    let much = [ADMISSION; 400].concat();
    let cases: [(&str, &[u8]); 4] =
        [("nothing", b""), ("a line end", b"\r\n"), ("a request", ADMISSION), ("24 KB", &much)];
    let mut left = 0;
    for (what, more) in cases {
        for reset in [false, true] {
            let mut caller = TcpStream::connect(world.addr).await.unwrap();
            caller.write_all(&[ADMISSION, more].concat()).await.unwrap();
            world.queued("default", 1).await;
            if reset {
                caller.set_zero_linger().unwrap();
            }
            drop(caller);
            left += 1;
            world
                .until(&format!("an end after {what}, reset {reset}"), async || {
                    world.pool("default").await["queue"]["requests"] == json!(0)
                })
                .await;
        }
    }
    // What comes after a while, behind bytes that are not read.
    let mut caller = TcpStream::connect(world.addr).await.unwrap();
    caller.write_all(ADMISSION).await.unwrap();
    world.queued("default", 1).await;
    for _ in 0..3 {
        caller.write_all(ADMISSION).await.unwrap();
        world.pool("default").await;
    }
    drop(caller);
    world.queued("default", 0).await;
    let evicted = world.events("default", "Evicted").await;
    assert_eq!(evicted.len(), left + 1);
    for event in evicted {
        assert_eq!(
            (&event["reason"], &event["cause"]),
            (&json!("ContextCancelled"), &json!("ClientDisconnect"))
        );
    }
    assert!(world.events("default", "Dispatched").await.is_empty());
}

/// A caller that sends its next requests ahead and stays gets every answer, in order.
#[tokio::test]
async fn requests_sent_ahead_are_all_answered() {
    let world = world(Options::default()).await;
    world.pool_is("default", 1, 1.0).await;
    let mut caller = Connection::open(world.addr).await;
    caller.raw(&[ADMISSION; 300].concat()).await;
    world.queued("default", 1).await;
    // Longer than the look at a socket with unread bytes takes to come round.
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.pool_is("default", 1, 0.0).await;
    let mut last = 0;
    for _ in 0..300 {
        let admission = caller.reply().await.admitted();
        let id = admission["id"].as_str().unwrap().rsplit('-').next().unwrap().parse::<u64>().unwrap();
        assert!(id > last);
        last = id;
    }
}

/// Where connections hold all that they may, only what would be held is refused.
#[tokio::test]
async fn a_full_gateway_can_be_asked_and_steered() {
    let world = world(Options { connections_max: 2, ..Options::default() }).await;
    // Before any other call, whose place might not be free yet.
    let mut held = [Connection::open(world.addr).await, Connection::open(world.addr).await];
    for caller in &mut held {
        caller.raw(ADMISSION).await;
    }
    world.queued("default", 2).await;
    world.pool_is("default", 1, 1.0).await;
    for path in ["/v1/admissions", "/ext-proc"] {
        let reply = world.call("POST", path, &[], "{}").await;
        assert_eq!(reply.header("connection"), Some("close"));
        let problem = reply.refused(429, "rejected-saturated");
        assert_eq!(problem["limit"], 2);
        assert!(problem["detail"].as_str().unwrap().contains("connections"), "{problem}");
    }
    world.until("ready", async || world.get("/readyz").await.status == 200).await;
    for path in ["/healthz", "/readyz", "/metrics", "/v1/pools", "/v1/pools/default", "/v1/pools/default/log"]
    {
        let reply = world.get(path).await;
        assert_eq!((reply.status, reply.header("connection")), (200, Some("close")), "{path}");
    }
    let text = world.get("/metrics").await.text();
    assert!(text.contains("weir_gateway_connections_refused_total 2\n"), "{text}");
    let steps = world.log("default").await;
    let arrived: Vec<_> = steps.iter().filter(|step| step["input"].get("Arrived").is_some()).collect();
    let id = |n: usize| format!("default-{}", arrived[n]["seq"]);
    let shown = world.get(&format!("/v1/admissions/{}", id(0))).await;
    assert_eq!(shown.status, 200, "{}", shown.text());
    let gone = world.call("DELETE", &format!("/v1/admissions/{}", id(0)), &[], "").await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    // Its pusher opens the pool, and the running one is renewed and completed.
    world.pool_is("default", 1, 0.0).await;
    let mut answers = Vec::new();
    for caller in &mut held {
        answers.push(caller.reply().await.status);
    }
    answers.sort_unstable();
    assert_eq!(answers, [200, 503]);
    for action in ["renew", "complete"] {
        let reply = world.call("POST", &format!("/v1/admissions/{}/{action}", id(1)), &[], "").await;
        let close = reply.header("connection");
        assert_eq!((reply.status, close), (200, Some("close")), "{action}: {}", reply.text());
    }
}

/// Readers of a log are bounded; a place is free again once its reader is gone.
#[tokio::test]
async fn readers_of_a_log_are_bounded() {
    let world = world(Options { log_readers_max: 2, ..Options::default() }).await;
    world.pool_is("default", 1, 0.0).await;
    let follow = b"GET /v1/pools/default/log?from=1&follow=true HTTP/1.1\r\nhost: t\r\n\r\n";
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut reader = Connection::open(world.addr).await;
        reader.raw(follow).await;
        readers.push(reader);
    }
    let log = "/v1/pools/default/log";
    world.until("both to read", async || world.get(log).await.status == 429).await;
    let problem = world.get(log).await.refused(429, "rejected-saturated");
    assert_eq!((&problem["limit"], &problem["status"]), (&json!(2), &json!(429)));
    assert!(problem["detail"].as_str().unwrap().contains("log readers"), "{problem}");
    assert_eq!(world.get("/healthz").await.status, 200);
    readers.pop();
    world.until("a place", async || world.get(log).await.status == 200).await;
    // One that sent a byte past its ask is no exception.
    readers[0].raw(b"\r\n").await;
    drop(readers);
    world.until("both places", async || world.gateway.log_readers.available_permits() == 2).await;
}

/// A reader that does not read is ended, and never told that what it got is all.
#[tokio::test]
async fn a_reader_that_does_not_read_is_ended() {
    let patience = Duration::from_millis(1_500);
    let world = world(Options { log_readers_max: 1, write_stall_max: patience, ..Options::default() }).await;
    for _ in 0..100 {
        world.pool_is("default", 20, 0.0).await;
    }
    let log = "/v1/pools/default/log";
    let size = world.get(log).await.body.len();
    // More than sockets hold.
    let asks = (64 << 20) / size;
    let mut reader = TcpStream::connect(world.addr).await.unwrap();
    let ask = format!("GET {log} HTTP/1.1\r\nhost: t\r\n\r\n");
    reader.write_all(ask.repeat(asks.min(1_000)).as_bytes()).await.unwrap();
    world.until("it to hold the place", async || world.get(log).await.status == 429).await;
    let alone = "weir_gateway_connections 1.0\n";
    world.until("its end", async || world.get("/metrics").await.text().contains(alone)).await;
    world.until("its place to be free", async || world.get(log).await.status == 200).await;
    let (mut got, mut part) = (0, vec![0; 1 << 20]);
    while let Ok(read @ 1..) = reader.read(&mut part).await {
        got += read;
    }
    assert!(got < asks.min(1_000) * size, "{got} of {asks} times {size}");
}
