//! Goal: whoever leaves, stalls or breaks off in the middle ends the other side at once, and the lease with it.

use crate::harness::pushed;
use crate::raw::{Nobody, Piece, Raw, chunk, events, last, send, whole};
use crate::rig::{CHAT, Rig, Wire, ask, request};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use weir::gateway::Options;

const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const USED: &str = "data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";

#[tokio::test]
async fn a_caller_that_leaves_ends_its_request_at_the_endpoint() {
    // Before the head, after the head, after a piece: what has been used by then is known.
    let pieces: [(Vec<Piece>, &str, Value); 3] = [
        (vec![Piece::Gate(1)], "", Value::Null),
        (vec![events(), Piece::Gate(1)], "\r\n\r\n", Value::Null),
        (vec![events(), chunk(USED), Piece::Gate(1)], USED, json!({"prompt": 3, "completion": 1})),
    ];
    for (pieces, until, usage) in pieces {
        for reset in [false, true] {
            let server = Raw::start(pieces.clone()).await;
            let rig = Rig::of(&[&server]).await;
            let mut wire = rig.open(&[], &ask()).await;
            if !until.is_empty() {
                wire.until(until).await;
            }
            rig.world.until("the request", async || server.seen().len() == 1).await;
            assert_eq!((server.left(), rig.running().await), (0, 1));
            if reset {
                wire.stream.set_zero_linger().unwrap();
            }
            let left = Instant::now();
            drop(wire);
            rig.world.until("the end at the endpoint", async || server.left() == 1).await;
            assert!(left.elapsed() < Duration::from_secs(20), "{:?}", left.elapsed());
            assert_eq!(
                rig.ended(1).await,
                ("ClientDisconnect".to_owned(), usage.clone()),
                "{until:?} {reset}"
            );
            assert_eq!(rig.running().await, 0);
        }
    }
}

#[tokio::test]
async fn a_caller_that_leaves_while_it_waits_frees_its_slot() {
    let server = Raw::start(vec![last()]).await;
    let rig = Rig::of(&[&server]).await;
    rig.saturated(1.5).await;
    let mut callers = Vec::new();
    for _ in 0..20 {
        callers.push(rig.open(&[], &ask()).await);
    }
    rig.world.queued("default", 20).await;
    callers.truncate(5);
    rig.world.queued("default", 5).await;
    drop(callers);
    rig.world.queued("default", 0).await;
    rig.saturated(0.0).await;
    assert_eq!((server.connections(), rig.inputs("Ended").await.len()), (0, 0));
}

/// An answer that breaks off is cut for the caller as well: it must not look whole.
#[tokio::test]
async fn an_answer_that_breaks_off_does_not_look_whole() {
    let length = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"usage\":";
    for (pieces, before) in [
        (vec![events(), chunk(USED), Piece::Close], USED),
        (vec![events(), chunk(USED), send("zz\r\n"), Piece::Close], USED),
        (vec![send(length), Piece::Close], "{\"usage\":"),
        // What came in one piece with the break as well.
        (vec![send(&format!("{EVENTS}{:x}\r\n{USED}\r\nzz\r\n", USED.len())), Piece::Close], USED),
    ] {
        let server = Raw::start(pieces).await;
        let rig = Rig::of(&[&server]).await;
        let mut wire = rig.open(&[], &ask()).await;
        wire.until(before).await;
        let rest = wire.closed().await;
        assert!(!rest.contains("0\r\n\r\n"), "{rest:?}");
        assert_eq!(rig.ended(1).await.0, "Error");
        let metrics = rig.world.get("/metrics").await.text();
        assert!(metrics.contains("weir_gateway_proxy_broken_total 1\n"), "{metrics}");
    }
}

/// A caller that takes nothing is cut after a while, and with it an endpoint that would fill any buffer.
#[tokio::test]
async fn a_caller_that_does_not_read_is_cut() {
    let server = Raw::start(vec![events(), Piece::Flood]).await;
    let options = Options { write_stall_max: Duration::from_millis(300), ..Options::default() };
    let rig = Rig::with(&[&server], |_| {}, options, pushed(|_| {})).await;
    let wire = rig.open(&[], &ask()).await;
    assert_eq!(rig.ended(1).await.0, "ClientDisconnect");
    rig.world.until("the end at the endpoint", async || server.left() == 1).await;
    drop(wire);
}

/// However requests end, nothing of them is left, and a second time is like the first.
#[tokio::test]
async fn c032_every_way_to_fail_gives_the_slot_back() {
    let silent = Raw::start(vec![Piece::Gate(1)]).await;
    let resets = Raw::start(vec![events(), chunk(USED), Piece::Reset]).await;
    let closes = Raw::start(vec![Piece::Close]).await;
    let fine = Raw::start(vec![whole("{}")]).await;
    let nobody = Nobody::there();
    let rig = Rig::of(&[&fine]).await;
    for round in 1..=2 {
        for (address, count) in
            [(nobody.addr, 30), (silent.addr, 20), (resets.addr, 20), (closes.addr, 15), (fine.addr, 15)]
        {
            rig.pool_is(&[address], 0.0).await;
            let addr = rig.world.addr;
            let mut calls = Vec::new();
            for _ in 0..count {
                calls.push(tokio::spawn(async move {
                    let mut wire = Wire::to(addr).await;
                    wire.send(&request("POST", CHAT, &[("connection", "close")], &ask())).await;
                    wire.closed().await
                }));
            }
            if address == silent.addr {
                let all = count * round;
                rig.world.until("all at the endpoint", async || silent.seen().len() == all).await;
                calls.iter().for_each(|call| call.abort());
            } else {
                for call in calls {
                    call.await.unwrap();
                }
            }
            rig.world.until("no lease", async || rig.running().await == 0).await;
        }
        assert_eq!(rig.ends().await.len(), 100 * round, "one end each");
        assert_eq!(rig.world.events("default", "LeaseEnded").await.len(), 100 * round);
        let metrics = rig.world.get("/metrics").await.text();
        assert!(metrics.contains("weir_gateway_proxied 0.0\n"), "{metrics}");
    }
    let mut how = std::collections::BTreeMap::new();
    for (termination, _) in rig.ends().await {
        *how.entry(termination).or_insert(0) += 1;
    }
    assert_eq!(
        how,
        [("ClientDisconnect", 40), ("Error", 130), ("Natural", 30)].map(|(k, v)| (k.to_owned(), v)).into()
    );
}
