//! Goal: `/graphql` of a running server answers questions, pushes subscriptions over SSE and `graphql-transport-ws`, and shows
//! its page to browsers. Not here: who may ask (`access.rs`). Method: the binary itself, plain HTTP, frames by hand.

use crate::binary::{Served, settings};
use crate::harness::{PATIENCE, call};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn ask(served: &Served, query: &str) -> Value {
    let body = json!({ "query": query }).to_string();
    let reply =
        call(served.addr, "POST", "/graphql", &[("content-type", "application/json")], body.as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_are_answered_while_the_log_grows() {
    let served = Served::start(&settings("{drainTimeout: 0s}", "maxRequests: 40"));
    served.pool_is(0.2).await;
    let admitted =
        call(served.addr, "POST", "/v1/admissions", &[], b"{\"fairnessId\": \"tenant-a\"}").await.json();
    let id = admitted["admission"]["id"].as_str().unwrap().to_owned();
    let query = format!("{{ request(id: \"{id}\") {{ flow outcome phase explanation {{ text }} }} }}");
    served
        .until("the request to be known", async || {
            ask(&served, &query).await["data"]["request"]["outcome"] == "DISPATCHED"
        })
        .await;
    let found = ask(&served, &query).await["data"]["request"].clone();
    assert_eq!((&found["flow"], &found["phase"]), (&json!("tenant-a"), &json!("RUNNING")));
    let pools = ask(&served, "{ pools { name regime inFlight } projection { pool fault } }").await;
    assert_eq!(
        pools["data"]["pools"][0],
        json!({ "name": "default", "regime": "HAS_ENDPOINTS", "inFlight": 1 })
    );
    assert_eq!(pools["data"]["projection"][0]["fault"], Value::Null);
    // By GET, and what is no question.
    let reply =
        call(served.addr, "GET", "/graphql?query=%7B%20pools%20%7B%20name%20%7D%20%7D", &[], b"").await;
    assert_eq!(reply.json(), json!({ "data": { "pools": [{ "name": "default" }] } }));
    let reply = call(served.addr, "POST", "/graphql", &[], b"[").await;
    assert_eq!(reply.json()["errors"][0]["extensions"]["code"], "BAD_REQUEST");
    let reply = call(served.addr, "POST", "/graphql", &[], &vec![b' '; 200_000]).await;
    assert_eq!(reply.json()["errors"][0]["extensions"]["code"], "REQUEST_TOO_LARGE");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_gets_a_page_that_needs_nothing_from_elsewhere() {
    let served = Served::start(&settings("{drainTimeout: 0s}", "maxRequests: 40"));
    let reply =
        call(served.addr, "GET", "/graphql", &[("accept", "text/html,application/xhtml+xml")], b"").await;
    let text = reply.text();
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(text.contains("what-went-wrong") && !text.contains("PLAYBOOK*/[]"), "the playbook is in it");
    for elsewhere in ["http://", "https://", "src=", "@import", "<link"] {
        assert!(!text.contains(elsewhere), "{elsewhere}");
    }
    assert!(reply.header("content-security-policy").unwrap().contains("default-src 'none'"));
    let reply = call(served.addr, "GET", "/graphql", &[("accept", "text/html;q=0, */*")], b"").await;
    assert_ne!(reply.header("content-type"), Some("text/html; charset=utf-8"), "the page is not wanted");
}

/// What comes until `enough`.
async fn read(stream: &mut TcpStream, seen: &mut Vec<u8>, enough: &str) {
    let all = async {
        let mut buffer = [0; 4_096];
        while !seen.windows(enough.len()).any(|part| part == enough.as_bytes()) {
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "it ended before {enough}: {}", String::from_utf8_lossy(seen));
            seen.extend_from_slice(&buffer[..count]);
        }
    };
    let heard = tokio::time::timeout(PATIENCE, all).await;
    assert!(heard.is_ok(), "waited in vain for {enough}: {}", String::from_utf8_lossy(seen));
}

/// Reads an admission's event. Until the subscriber is there events pass it by, so admissions go on until one is heard.
async fn read_while_admitting(served: &Served, stream: &mut TcpStream, seen: &mut Vec<u8>) {
    let admitting = async {
        loop {
            call(served.addr, "POST", "/v1/admissions", &[], b"{}").await;
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    tokio::select! {
        () = read(stream, seen, "\"kind\":\"Dispatched\"") => {}
        () = admitting => {}
    }
}

const EVENTS: &str = "subscription { events(kinds: [\"Dispatched\"]) { kind requestId ... on Dispatched { waitedMs ceiling } } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_pushed_over_sse() {
    let served = Served::start(&settings("{drainTimeout: 0s}", "maxRequests: 40"));
    served.pool_is(0.2).await;
    let body = json!({ "query": EVENTS }).to_string();
    let mut stream = TcpStream::connect(served.addr).await.unwrap();
    let head = format!(
        "POST /graphql HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    read(&mut stream, &mut seen, "text/event-stream").await;
    read_while_admitting(&served, &mut stream, &mut seen).await;
    let text = String::from_utf8_lossy(&seen).into_owned();
    assert!(text.contains("event: next\ndata: {\"data\":{\"events\":{"), "{text}");
    assert!(text.contains("\"requestId\":\"default-"), "{text}");
}

/// A text as a client of a WebSocket sends it.
fn masked(text: &str) -> Vec<u8> {
    let length = text.len();
    let mut out = vec![0x81];
    if length < 126 {
        out.push(0x80 | length as u8);
    } else {
        out.push(0x80 | 126);
        out.extend_from_slice(&(length as u16).to_be_bytes());
    }
    let mask = [7, 1, 200, 33];
    out.extend_from_slice(&mask);
    out.extend(text.bytes().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_and_questions_go_over_one_socket() {
    let served = Served::start(&settings("{drainTimeout: 0s}", "maxRequests: 40"));
    served.pool_is(0.2).await;
    let mut socket = TcpStream::connect(served.addr).await.unwrap();
    let head = "GET /graphql HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                sec-websocket-protocol: graphql-transport-ws\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    read(&mut socket, &mut seen, "\r\n\r\n").await;
    let text = String::from_utf8_lossy(&seen).to_lowercase();
    // RFC 6455 section 1.3.
    assert!(text.starts_with("http/1.1 101"), "{text}");
    assert!(text.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{text}");
    socket.write_all(&masked("{\"type\":\"connection_init\"}")).await.unwrap();
    read(&mut socket, &mut seen, "connection_ack").await;
    let question = json!({ "id": "q", "type": "subscribe", "payload": { "query": "{ pools { name } }" } });
    socket.write_all(&masked(&question.to_string())).await.unwrap();
    read(&mut socket, &mut seen, "\"name\":\"default\"").await;
    let events = json!({ "id": "e", "type": "subscribe", "payload": { "query": EVENTS } });
    socket.write_all(&masked(&events.to_string())).await.unwrap();
    read_while_admitting(&served, &mut socket, &mut seen).await;
    let wrong = json!({ "id": "w", "type": "subscribe", "payload": { "query": "subscription { nothing }" } });
    socket.write_all(&masked(&wrong.to_string())).await.unwrap();
    read(&mut socket, &mut seen, "GRAPHQL_VALIDATION_FAILED").await;
    // What is no message of the protocol ends it, with the number that the protocol has for that.
    socket.write_all(&masked("{\"type\":\"nonsense\"}")).await.unwrap();
    read(&mut socket, &mut seen, "Invalid message").await;
}
