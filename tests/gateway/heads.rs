//! Goal: a head that is malformed or too large gets a refusal like any other, to the byte of its bound; the next caller is
//! served.

use crate::harness::{Connection, World, pushed};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir::gateway::Options;

async fn world(options: Options) -> World {
    World::start(BTreeMap::from([("default", pushed(|_| {}))]), options).await
}

/// A request of so many bytes up to and with its empty line.
fn head_of(bytes: usize) -> String {
    let frame = "GET /healthz HTTP/1.1\r\nhost: t\r\nx: \r\n\r\n";
    frame.replace("x: ", &format!("x: {}", "y".repeat(bytes - frame.len())))
}

#[tokio::test]
async fn what_hyper_refuses_by_itself_is_a_problem_as_well() {
    let world = world(Options { headers_max: 50, ..Options::default() }).await;
    let get = |rest: &str| format!("GET /healthz HTTP/1.1\r\nhost: t\r\n{rest}\r\n");
    let many: String = (0..50).map(|n| format!("x-{n}: 1\r\n")).collect();
    for (raw, status, words) in [
        ("GARBAGE\r\n\r\n".to_owned(), 400, "no HTTP/1.1"),
        ("GET /\u{1} HTTP/1.1\r\n\r\n".to_owned(), 400, "no HTTP/1.1"),
        ("GET / HTTP/3.7\r\n\r\n".to_owned(), 400, "no HTTP/1.1"),
        (get("x: a\u{1}b\r\n"), 400, "control characters"),
        (get("x\u{0}: a\r\n"), 400, "control characters"),
        (get("content-length: 1\r\ncontent-length: 2\r\n"), 400, "one content-length"),
        (get("content-length: x\r\n"), 400, "one content-length"),
        (get("content-length: 1\r\ntransfer-encoding: gzip\r\n"), 400, "one content-length"),
        (get(&many), 431, "more than 50 headers"),
        (head_of(200 << 10), 431, "over 65536 bytes"),
    ] {
        let mut connection = Connection::open(world.addr).await;
        connection.raw(raw.as_bytes()).await;
        let reply = connection.reply().await;
        let problem = reply.refused(status, "rejected-invalid");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{raw:.60}: {problem}");
        assert_eq!(reply.header("connection"), Some("close"));
        assert!(connection.is_closed().await, "{raw:.60}");
        assert_eq!(world.get("/healthz").await.status, 200);
    }
}

/// The bound is hard: a head of exactly so many bytes passes, one more does not, however they come.
#[tokio::test]
async fn the_bound_on_heads_is_exact() {
    for bound in [8_192, 10_000, 65_536] {
        let world = world(Options { head_bytes_max: bound, ..Options::default() }).await;
        for (bytes, status) in [(bound, 200), (bound + 1, 431), (2 * bound, 431)] {
            for at_once in [true, false] {
                let head = head_of(bytes);
                let mut connection = Connection::open(world.addr).await;
                let (first, last) = head.as_bytes().split_at(if at_once { 0 } else { bytes - 9 });
                connection.raw(first).await;
                if !at_once {
                    world.get("/healthz").await;
                }
                connection.raw_if_open(last).await;
                let got = connection.reply().await.status;
                assert_eq!(got, status, "{bytes} of {bound}, at once {at_once}");
            }
        }
    }
}

/// A kept connection whose first request was good is told of its second.
#[tokio::test]
async fn a_later_head_of_a_connection_is_told_too() {
    let world = world(Options::default()).await;
    let mut connection = Connection::open(world.addr).await;
    connection.send("GET", "/healthz", &[], b"").await;
    assert_eq!(connection.reply().await.status, 200);
    connection.raw(b"GARBAGE\r\n\r\n").await;
    connection.reply().await.refused(400, "rejected-invalid");
}

/// Whoever begins and stops takes no place for longer than the bound.
#[tokio::test]
async fn half_a_head_ends_with_its_time() {
    let options = Options { head_time_max: Duration::from_millis(150), ..Options::default() };
    let world = world(options).await;
    for half in ["", "G", "GET /healthz HTTP/1.1\r\nhost", "POST /v1/admissions HTTP/1.1\r\nhost: t\r\n"] {
        let mut connection = Connection::open(world.addr).await;
        connection.raw(half.as_bytes()).await;
        assert!(connection.is_closed().await, "{half:?}");
    }
}

/// The bound is for heads: a connection that waits for its answer, or asks again and again, lives on.
#[tokio::test]
async fn only_a_head_that_does_not_come_ends_a_connection() {
    let time = Duration::from_millis(200);
    let world = world(Options { head_time_max: time, ..Options::default() }).await;
    world.pool_is("default", 1, 1.2).await;
    let mut held = Connection::open(world.addr).await;
    held.send("POST", "/v1/admissions", &[], b"{}").await;
    world.queued("default", 1).await;
    let mut asking = Connection::open(world.addr).await;
    // Well over the bound in all.
    for _ in 0..15 {
        asking.send("GET", "/healthz", &[], b"").await;
        assert_eq!(asking.reply().await.status, 200);
        tokio::time::sleep(time / 4).await;
    }
    world.pool_is("default", 1, 0.2).await;
    held.reply().await.admitted();
    let answered = Instant::now();
    assert!(held.is_closed().await, "nothing more came");
    assert!(answered.elapsed() >= time * 3 / 4, "{:?}", answered.elapsed());
    assert!(asking.is_closed().await, "nothing more came");
}
