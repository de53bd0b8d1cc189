//! Goal: a request that is taken back ends at its endpoint at once, and its caller hears what it was, in the words that are
//! left to it.

use crate::harness::{Setup, pushed};
use crate::raw::{Piece, Raw, chunk, events, last, send};
use crate::rig::{Rig, Wire, ask};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use weir::engine::Revoking;
use weir::gateway::Options;
use weir_kernel::RequestId;

const EVENT: &str = "data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";

async fn rig(server: &Raw) -> Rig {
    let mut setup: Setup = pushed(|_| {});
    setup.objectives = vec![("batch", -5)];
    Rig::with(&[server], |_| {}, Options::default(), setup).await
}

/// An operator takes back the one request that runs.
async fn revoke(rig: &Rig) {
    let steps = rig.world.log("default").await;
    let arrived = steps.iter().rev().find(|step| step["input"].get("Arrived").is_some()).unwrap();
    let request = RequestId(arrived["seq"].as_u64().unwrap());
    let pool = rig.world.gateway.pool(None).unwrap();
    let revoking = pool.handle.revoke(request, "test", "why not").await;
    assert!(matches!(revoking, Revoking::Issued { .. }), "{revoking:?}");
}

/// The lease ended as revoked, once.
async fn ended(rig: &Rig, usage: Value) {
    assert_eq!(rig.ended(1).await, ("Evicted".to_owned(), usage));
    let ended = rig.world.events("default", "LeaseEnded").await;
    assert_eq!((ended.len(), &ended[0]["end"]), (1, &json!("Revoked")), "{ended:?}");
}

const BATCH: (&str, &str) = ("x-llm-d-inference-objective", "batch");

#[tokio::test]
async fn before_its_first_byte_the_caller_hears_evicted() {
    // Before the head came, and after: engines send it long before they have anything to say.
    for pieces in [vec![Piece::Gate(1)], vec![events(), Piece::Gate(1)]] {
        let server = Raw::start(pieces).await;
        let rig = rig(&server).await;
        let mut wire = rig.open(&[BATCH, ("x-request-id", "r")], &ask()).await;
        rig.world.until("the request", async || server.seen().len() == 1).await;
        // Whether the head has come by now is not to be seen from here; either way nothing may have been said.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        revoke(&rig).await;
        let head = wire.until("\r\n\r\n").await;
        assert!(
            head.starts_with("HTTP/1.1 429 ") && head.contains("x-weir-dropped-reason: evicted\r\n"),
            "{head}"
        );
        let body: Value = serde_json::from_str(&wire.until("}}").await).unwrap();
        assert_eq!((&body["reason"], &body["requestId"]), (&json!("evicted"), &json!("r")));
        assert_eq!((&body["error"]["code"], &body["priority"]), (&json!("evicted"), &json!(-5)));
        rig.world.until("the end at the endpoint", async || server.left() == 1).await;
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        ended(&rig, Value::Null).await;
    }
}

#[tokio::test]
async fn a_stream_ends_with_an_event_that_says_so() {
    // At the end of an event, within its last line, between its two newlines; however they are cut.
    for (pieces, between) in [
        (vec![EVENT], ""),
        (vec![EVENT, "data: {\"x\":"], "\n\n"),
        (vec![EVENT, ": ping\n"], "\n"),
        (vec![EVENT.trim_end(), "\n", "\n"], ""),
        (vec![EVENT, "data: 1\r\n\r\n"], ""),
    ] {
        let script = [events()]
            .into_iter()
            .chain(pieces.iter().map(|piece| chunk(piece)))
            .chain([Piece::Gate(1), last()]);
        let server = Raw::start(script.collect()).await;
        let rig = rig(&server).await;
        let mut wire = rig.open(&[BATCH], &ask()).await;
        let head = wire.until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        wire.passed(pieces.iter().map(|piece| piece.len()).sum()).await;
        revoke(&rig).await;
        let text = wire.until("\r\n0\r\n\r\n").await;
        let event = text.rsplit_once("data: ").unwrap();
        assert!(event.0.ends_with(&format!("\r\n{between}")), "{text:?}");
        let said: Value = serde_json::from_str(event.1.trim_end_matches("\r\n0\r\n\r\n").trim_end()).unwrap();
        assert_eq!(
            (&said["error"]["code"], &said["error"]["type"]),
            (&json!("evicted"), &json!("rate_limit_error"))
        );
        rig.world.until("the end at the endpoint", async || server.left() == 1).await;
        ended(&rig, json!({"prompt": 3, "completion": 1})).await;
        // The caller's connection is as good as before.
        wire.send("GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").await;
        wire.until("HTTP/1.1 200 OK").await;
    }
}

/// What is no stream of events cannot say so in the middle: it does not look whole.
#[tokio::test]
async fn an_answer_that_has_begun_is_cut() {
    let length = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"half\":";
    let server = Raw::start(vec![send(length), Piece::Gate(1)]).await;
    let rig = rig(&server).await;
    // An operator may take back what no pool would.
    let mut wire: Wire = rig.open(&[], &ask()).await;
    wire.until("{\"half\":").await;
    revoke(&rig).await;
    assert_eq!(wire.closed().await, "");
    rig.world.until("the end at the endpoint", async || server.left() == 1).await;
    ended(&rig, Value::Null).await;
}

/// A caller that does not read holds nothing up.
#[tokio::test]
async fn a_caller_that_does_not_read_keeps_nothing_back() {
    let server = Raw::start(vec![events(), Piece::Flood]).await;
    let rig = rig(&server).await;
    let _wire = rig.open(&[BATCH], &ask()).await;
    rig.world.until("a standstill", async || rig.inputs("FirstByte").await.len() == 1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    revoke(&rig).await;
    rig.world.until("the end at the endpoint", async || server.left() == 1).await;
    ended(&rig, Value::Null).await;
}

/// Two streams of one caller's id are two requests: the order for one leaves the other as it is.
#[tokio::test]
async fn c081_of_two_requests_with_one_id_one_is_taken_back() {
    let server = Raw::start(vec![events(), chunk(EVENT), Piece::Gate(1), last()]).await;
    let rig = rig(&server).await;
    let headers = [BATCH, ("x-request-id", "same")];
    let mut first = rig.open(&headers, &ask()).await;
    first.until(EVENT).await;
    let mut second = rig.open(&headers, &ask()).await;
    second.until(EVENT).await;
    revoke(&rig).await;
    let text = second.until("\r\n0\r\n\r\n").await;
    assert!(text.contains("\"code\":\"evicted\""), "{text}");
    rig.world.until("the end at the endpoint", async || server.left() == 1).await;
    assert_eq!(rig.running().await, 1);
    server.open();
    first.until("\r\n0\r\n\r\n").await;
    rig.ended(2).await;
    let ends = rig.world.events("default", "LeaseEnded").await;
    let ends: Vec<&Value> = ends.iter().map(|end| &end["end"]).collect();
    assert_eq!(ends, ["Revoked", "Completed"]);
}
