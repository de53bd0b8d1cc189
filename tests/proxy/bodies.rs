//! Goal: bodies of any allowed size arrive byte for byte, what is over a bound is refused before it takes a slot, and the
//! priority is the only thing that is ever put in.

use crate::harness::{Connection, PATIENCE, pushed};
use crate::raw::{Raw, whole};
use crate::rig::{CHAT, Rig, Wire, ask, request};
use serde_json::{Value, json};
use std::time::Duration;
use weir::gateway::Options;

/// JSON of exactly so many bytes.
fn of_size(size: usize) -> Vec<u8> {
    let mut body = br#"{"model":"m","prompt":""#.to_vec();
    let left = size - body.len() - 2;
    let text = b"a text of which no part looks like the part before it, 0123456789 ".repeat(left / 64 + 1);
    body.extend_from_slice(&text[..left]);
    body.extend_from_slice(b"\"}");
    body
}

#[tokio::test]
async fn c085_large_bodies_arrive_byte_for_byte_or_are_refused_before_they_queue() {
    const LIMIT: usize = 32 << 20;
    let server = Raw::start(vec![whole("{}")]).await;
    for saturated in [false, true] {
        let rig = Rig::of(&[&server]).await;
        let mut done = server.seen().len();
        for size in [127 << 10, 129 << 10, 4 << 20, LIMIT, LIMIT + 1] {
            for chunked in [false, true] {
                rig.saturated(if saturated { 1.5 } else { 0.0 }).await;
                let body = of_size(size);
                let mut connection = Connection::open(rig.world.addr).await;
                let sent = async {
                    if chunked {
                        let head = format!(
                            "POST {CHAT} HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"
                        );
                        connection.raw(head.as_bytes()).await;
                        for part in body.chunks(1 << 20) {
                            let chunk = [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
                            connection.raw(&chunk).await;
                        }
                        connection.raw(b"0\r\nx-sum: 1\r\n\r\n").await;
                    } else {
                        connection.send("POST", CHAT, &[], &body).await;
                    }
                };
                tokio::time::timeout(6 * PATIENCE, sent).await.unwrap();
                if size > LIMIT {
                    let problem = connection.reply().await.refused(413, "rejected-invalid");
                    assert_eq!(problem["limit"], LIMIT);
                    // The connection is still good.
                    connection.send("GET", "/healthz", &[], b"").await;
                    assert_eq!(connection.reply().await.status, 200);
                    continue;
                }
                if saturated {
                    rig.world.queued("default", 1).await;
                    assert_eq!(rig.world.pool("default").await["queue"]["bytes"], size);
                    rig.saturated(0.0).await;
                }
                // A build without optimization takes its time over these.
                let arrives = async {
                    while server.seen().len() == done {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                tokio::time::timeout(6 * PATIENCE, arrives).await.expect("it does not arrive");
                assert_eq!(connection.reply().await.status, 200, "{size} {chunked}");
                let seen = server.seen().pop().unwrap();
                done += 1;
                assert!(seen.body == body, "{size} {chunked} {saturated}");
                assert_eq!(seen.trailers.len(), usize::from(chunked));
            }
        }
        assert_eq!(server.seen().len(), done);
        assert_eq!(rig.inputs("Arrived").await.len(), 8, "what is too large never arrived");
    }
}

#[tokio::test]
async fn a_caller_that_asks_first_sends_nothing_in_vain() {
    let server = Raw::start(vec![whole("{}")]).await;
    let rig =
        Rig::with(&[&server], |proxy| proxy.body_bytes_max = 4_096, Options::default(), pushed(|_| {})).await;
    let mut wire = Wire::to(rig.world.addr).await;
    let head = |length| {
        format!("POST {CHAT} HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n")
    };
    wire.send(&head(2)).await;
    wire.until("HTTP/1.1 100 Continue\r\n\r\n").await;
    wire.send("{}").await;
    wire.until("HTTP/1.1 200 OK\r\n").await;
    wire.until("{}").await;
    assert_eq!(server.seen()[0].header("expect"), None);
    wire.send(&head(5_000)).await;
    wire.until("HTTP/1.1 413").await;
}

#[tokio::test]
async fn bodies_that_wait_have_a_bound_together() {
    let server = Raw::start(vec![whole("{}")]).await;
    let rig =
        Rig::with(&[&server], |proxy| proxy.held_bytes_max = 10_000, Options::default(), pushed(|_| {}))
            .await;
    rig.saturated(1.5).await;
    let body = String::from_utf8(of_size(6_000)).unwrap();
    let mut waiting = rig.open(&[], &body).await;
    rig.world.queued("default", 1).await;
    let problem = rig.chat(&[], &body).await.refused(429, "rejected-saturated");
    assert_eq!(problem["limit"], 10_000);
    assert_eq!(rig.world.pool("default").await["queue"]["requests"], 1);
    rig.saturated(0.0).await;
    waiting.until("{}").await;
    assert_eq!(rig.chat(&[], &body).await.status, 200, "the room is given back");
}

/// Forms are not held: they go on as they come, once they are admitted.
#[tokio::test]
async fn an_upload_is_passed_on_as_it_comes() {
    let server = Raw::start(vec![whole("{}")]).await;
    let rig =
        Rig::with(&[&server], |proxy| proxy.body_bytes_max = 100_000, Options::default(), pushed(|_| {}))
            .await;
    let kind = "content-type: multipart/form-data; boundary=x";
    let path = "/v1/audio/transcriptions";
    let mut wire = Wire::to(rig.world.addr).await;
    wire.send(&format!("POST {path} HTTP/1.1\r\nhost: t\r\n{kind}\r\ncontent-length: 8\r\n\r\nabcd")).await;
    rig.world.until("half of it", async || server.body_bytes() == 4).await;
    assert_eq!((rig.running().await, server.seen().len()), (1, 0));
    wire.send("efgh").await;
    wire.until("{}").await;
    let seen = server.seen().remove(0);
    assert_eq!(
        (seen.body, seen.headers.iter().any(|(n, v)| n == "content-length" && v == "8")),
        (b"abcdefgh".to_vec(), true)
    );
    assert_eq!(rig.inputs("Arrived").await[0]["bytes"], 8);

    // Too much, as it is said, takes no slot; as it comes, it ends there and then.
    let said = request("POST", path, &[("content-type", "multipart/form-data")], &"x".repeat(100_001));
    let mut wire = Wire::to(rig.world.addr).await;
    wire.send(&said).await;
    wire.until("HTTP/1.1 413").await;
    assert_eq!(rig.inputs("Arrived").await.len(), 1);
    let mut wire = Wire::to(rig.world.addr).await;
    wire.send(&format!("POST {path} HTTP/1.1\r\nhost: t\r\n{kind}\r\ntransfer-encoding: chunked\r\n\r\n"))
        .await;
    for _ in 0..2 {
        wire.send(&format!("{:x}\r\n{}\r\n", 60_000, "x".repeat(60_000))).await;
    }
    wire.until("HTTP/1.1 413").await;
    assert_eq!(rig.ended(2).await.0, "ClientDisconnect");
    assert_eq!(server.seen().len(), 1, "no half of a body counts as one");

    // A caller that leaves in the middle ends it at the endpoint.
    let server = Raw::start(vec![whole("{}")]).await;
    rig.pool_is(&[server.addr], 0.0).await;
    let mut wire = Wire::to(rig.world.addr).await;
    wire.send(&format!("POST {path} HTTP/1.1\r\nhost: t\r\n{kind}\r\ncontent-length: 8\r\n\r\nabcd")).await;
    rig.world.until("half of it", async || server.body_bytes() == 4).await;
    drop(wire);
    rig.world.until("the end at the endpoint", async || server.left() == 1).await;
    assert_eq!(rig.ended(3).await.0, "ClientDisconnect");
}

#[tokio::test]
async fn the_band_is_the_priority_of_the_engine() {
    let server = Raw::start(vec![whole("{}")]).await;
    let mut setup = pushed(|_| {});
    setup.objectives = vec![("chat", 10), ("batch", -3), ("lowest", i32::MIN)];
    let rig =
        Rig::with(&[&server], |proxy| proxy.engine_priority_vllm = true, Options::default(), setup).await;
    for (objective, body, want) in [
        ("chat", r#"{"a": 1.50,"b":[]}"#, r#"{"priority":-10,"a": 1.50,"b":[]}"#),
        ("batch", r#"{"priority": -99}"#, r#"{"priority": 3}"#),
        ("lowest", "{}", r#"{"priority":2147483648}"#),
        ("none", " {}", r#" {"priority":0}"#),
    ] {
        let reply = rig.chat(&[("x-llm-d-inference-objective", objective)], body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let seen = server.seen().pop().unwrap();
        assert_eq!(String::from_utf8(seen.body).unwrap(), want);
    }
    // What cannot be read cannot be trusted to say nothing.
    for body in ["", "[]", "{\"priority\":1", "\u{feff}{}"] {
        let problem = rig.chat(&[], body).await.refused(400, "rejected-invalid");
        assert_eq!(problem["field"], "body");
    }
    let reply = rig.world.call("POST", "/v1/messages", &[], "{}").await;
    assert_eq!((reply.status, server.seen().pop().unwrap().json()), (200, json!({})));

    let plain = Rig::of(&[&server]).await;
    for body in [ask(), "not JSON".to_owned(), String::new()] {
        assert_eq!(plain.chat(&[], &body).await.status, 200);
        assert_eq!(server.seen().pop().unwrap().body, body.as_bytes());
    }
    assert_eq!(plain.inputs("Arrived").await[0]["priority"], Value::Null);
}
