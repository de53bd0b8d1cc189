//! Goal: what is admitted reaches the chosen endpoint as it was sent, and its answer comes back as it was given.

use crate::harness::{PATIENCE, Setup, call, pushed};
use crate::raw::{Piece, Raw, chunk, events, last, send, whole};
use crate::rig::{CHAT, Rig, Wire, ask, request};
use serde_json::{Value, json};
use weir::gateway::Options;

const ANSWER: &str = r#"{"choices":[{"text":"a"}],"usage":{"prompt_tokens":12,"completion_tokens":80}}"#;
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn a_call_goes_through_as_it_is_and_the_log_holds_what_it_was() {
    let server = Raw::start(vec![whole(ANSWER)]).await;
    let mut setup = pushed(|_| {});
    setup.objectives = vec![("chat", 7)];
    let rig = Rig::with(&[&server], |_| {}, Options::default(), setup).await;
    let body =
        "{ \"model\":\"llama\",\n \"messages\":[{\"role\":\"user\",\"content\":\"é \\u00e9\"}] ,\"n\":1.0}";
    let headers = [
        ("x-request-id", "r-1"),
        ("traceparent", TRACE),
        ("tracestate", "a=b"),
        ("authorization", "Bearer key"),
        ("x-llm-d-inference-objective", "chat"),
        ("x-llm-d-inference-fairness-id", "tenant"),
        ("x-weir-pool", "default"),
        ("x-custom", "1"),
    ];
    let reply = rig.world.call("POST", "/v1/chat/completions?beta=true&x=%20", &headers, body).await;
    assert_eq!((reply.status, reply.text()), (200, ANSWER.to_owned()));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let id = reply.header("x-weir-admission").unwrap().to_owned();

    let seen = server.seen().remove(0);
    assert_eq!(seen.line, "POST /v1/chat/completions?beta=true&x=%20 HTTP/1.1");
    assert_eq!(seen.body, body.as_bytes());
    for (name, value) in [
        ("x-request-id", "r-1"),
        ("traceparent", TRACE),
        ("tracestate", "a=b"),
        ("authorization", "Bearer key"),
        ("x-custom", "1"),
        ("via", "1.1 weir"),
        ("host", &server.addr.to_string()),
        ("content-length", &body.len().to_string()),
        ("x-weir-admission", &id),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    for name in ["x-llm-d-inference-objective", "x-llm-d-inference-fairness-id", "x-weir-pool", "connection"]
    {
        assert_eq!(seen.header(name), None, "{name}");
    }

    let arrived = rig.inputs("Arrived").await.remove(0);
    assert_eq!(arrived["face"], "Proxy");
    assert_eq!((&arrived["caller_id"], &arrived["model"]), (&json!("r-1"), &json!("llama")));
    assert_eq!((&arrived["objective"], &arrived["fairness_id"]), (&json!("chat"), &json!("tenant")));
    assert_eq!(arrived["bytes"], body.len());
    assert!(arrived["trace"].is_object(), "{arrived}");
    let usage = json!({"prompt": 12, "completion": 80});
    assert_eq!(rig.ended(1).await, ("Natural".to_owned(), usage));
    assert_eq!(rig.inputs("FirstByte").await.len(), 1);
    assert_eq!(rig.running().await, 0);
    let dispatched = rig.world.events("default", "Dispatched").await;
    assert!(dispatched[0]["endpoint"].is_number(), "the kernel chose: {}", dispatched[0]);
}

#[tokio::test]
async fn a_stream_is_passed_on_piece_by_piece() {
    let first = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let sum = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n";
    let pieces = vec![
        events(),
        Piece::Gate(1),
        chunk(first),
        Piece::Gate(2),
        chunk(sum),
        Piece::Gate(3),
        chunk("data: [DONE]\n\n"),
        last(),
    ];
    let server = Raw::start(pieces).await;
    let rig = Rig::of(&[&server]).await;
    let mut wire = rig.open(&[], &ask()).await;
    // The head comes at once, as engines send it, and each piece before the next one is there.
    let head = wire.until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/event-stream"), "{head}");
    assert!(rig.inputs("FirstByte").await.is_empty());
    server.open();
    wire.until(first).await;
    rig.world.until("the first byte", async || rig.inputs("FirstByte").await.len() == 1).await;
    server.open();
    wire.until(sum).await;
    assert_eq!(rig.running().await, 1);
    server.open();
    wire.until("data: [DONE]\n\n").await;
    wire.until("0\r\n\r\n").await;
    assert_eq!(rig.ended(1).await, ("Natural".to_owned(), json!({"prompt": 3, "completion": 2})));
    // The caller's connection and the endpoint's are both kept.
    wire.send(&request("POST", CHAT, &[], &ask())).await;
    wire.until("data: [DONE]\n\n").await;
    assert_eq!((server.seen().len(), server.connections()), (2, 1));
}

#[tokio::test]
async fn errors_of_the_endpoint_are_passed_on_as_they_are() {
    for (status, reason, more, how) in [
        (400, "Bad Request", "", "Natural"),
        (429, "Too Many Requests", "retry-after: 7\r\n", "Natural"),
        (500, "Internal Server Error", "x-why: because\r\n", "Error"),
        (503, "Service Unavailable", "", "Error"),
    ] {
        let text = format!(
            "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n{more}content-length: 15\r\n\r\n{{\"error\":\"own\"}}"
        );
        let server = Raw::start(vec![send(&text)]).await;
        let rig = Rig::of(&[&server]).await;
        let reply = rig.chat(&[], &ask()).await;
        assert_eq!((reply.status, reply.text()), (status, "{\"error\":\"own\"}".to_owned()));
        if let Some((name, value)) = more.trim().split_once(": ") {
            assert_eq!(reply.header(name), Some(value));
        }
        assert_eq!(reply.header("x-weir-dropped-reason"), None, "it is not ours");
        assert_eq!(rig.ended(1).await, (how.to_owned(), Value::Null), "{status}");
        assert_eq!(server.seen().len(), 1, "an answer is never asked for twice");
    }
}

#[tokio::test]
async fn hop_by_hop_headers_end_here_and_trailers_go_through() {
    let server = Raw::start(vec![
        send(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=9\r\n\
             transfer-encoding: chunked\r\ntrailer: x-sum, x-more\r\n\r\n",
        ),
        chunk("abc"),
        send("0\r\nx-sum: 7\r\nx-more: 8\r\n\r\n"),
    ])
    .await;
    let rig = Rig::of(&[&server]).await;
    let mut wire = Wire::to(rig.world.addr).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: t\r\nconnection: te, x-own\r\nte: trailers\r\nx-own: 1\r\nkeep-alive: timeout=1\r\n\
         transfer-encoding: chunked\r\ntrailer: x-check\r\n\r\n2\r\n{{}}\r\n0\r\nx-check: 5\r\n\r\n"
    );
    wire.send(&head).await;
    let head = wire.until("\r\n\r\n").await;
    for gone in ["x-hop", "keep-alive", "connection"] {
        assert!(!head.contains(&format!("{gone}:")), "{gone} in {head}");
    }
    assert!(head.contains("trailer: x-sum, x-more\r\n"), "{head}");
    let rest = wire.until("\r\n\r\n").await;
    assert_eq!(rest, "3\r\nabc\r\n0\r\nx-sum: 7\r\nx-more: 8\r\n\r\n");
    let seen = server.seen().remove(0);
    assert_eq!(seen.body, b"{}");
    assert_eq!(seen.trailers, [("x-check".to_owned(), "5".to_owned())]);
    assert_eq!((seen.header("x-own"), seen.header("keep-alive")), (None, None));
    assert_eq!((seen.header("te"), seen.header("connection")), (Some("trailers"), Some("te")));
    assert_eq!(seen.header("transfer-encoding"), Some("chunked"));
    assert_eq!(rig.ended(1).await.0, "Natural");

    // A caller that does not take trailers gets none, and the body all the same.
    let reply = rig.chat(&[], "{}").await;
    assert_eq!(reply.text(), "abc");
}

/// Where the body is chunked a length beside it is none.
#[tokio::test]
async fn a_chunked_answer_is_whole_whatever_length_is_said() {
    for length in ["2", "99"] {
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n");
        let server = Raw::start(vec![send(&head), chunk("abc"), chunk("def"), last()]).await;
        let rig = Rig::of(&[&server]).await;
        let reply = rig.chat(&[], &ask()).await;
        assert_eq!((reply.text(), reply.header("content-length")), ("abcdef".to_owned(), None));
        assert_eq!(rig.ended(1).await.0, "Natural");
    }
}

/// What only we say is not said by an endpoint.
#[tokio::test]
async fn our_own_headers_are_not_an_endpoints() {
    let ours = "x-weir-dropped-reason: evicted\r\nx-llm-d-request-dropped-reason: evicted\r\n\
                x-weir-admission: other-1\r\nproxy-authenticate: Basic\r\n";
    let head = format!("HTTP/1.1 429 Too Many Requests\r\n{ours}retry-after: 7\r\n");
    let server = Raw::start(vec![send(&format!(
        "{head}transfer-encoding: chunked\r\ntrailer: x-weir-admission, x-sum\r\n\r\n0\r\nx-weir-admission: other-1\r\nx-sum: 7\r\n\r\n"
    ))])
    .await;
    let rig = Rig::of(&[&server]).await;
    let mut wire = rig.open(&[("te", "trailers"), ("connection", "te")], &ask()).await;
    let head = wire.until("\r\n\r\n").await;
    assert!(head.contains("x-weir-admission: default-") && head.contains("retry-after: 7"), "{head}");
    for gone in ["other-1", "dropped-reason", "proxy-authenticate"] {
        assert!(!head.contains(gone), "{gone} in {head}");
    }
    assert_eq!(wire.until("\r\n\r\n").await, "0\r\nx-sum: 7\r\n\r\n");
    let passed = rig.world.get("/v1/models").await;
    assert_eq!((passed.status, passed.header("x-weir-admission")), (429, None));
}

#[tokio::test]
async fn what_is_only_looked_at_passes_whatever_the_pool_is() {
    let text = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n";
    let server = Raw::start(vec![send(text)]).await;
    let rig = Rig::of(&[&server]).await;
    rig.saturated(2.0).await;
    let mut wire = Wire::to(rig.world.addr).await;
    wire.send("HEAD /v1/models HTTP/1.1\r\nhost: t\r\n\r\nHEAD /v1/models/a/b HTTP/1.1\r\nhost: t\r\n\r\n")
        .await;
    for _ in 0..2 {
        let head = wire.until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("content-length: 11\r\n"), "{head}");
    }
    assert_eq!(server.seen()[1].line, "HEAD /v1/models/a/b HTTP/1.1");
    let models = Raw::start(vec![whole(r#"{"data":[]}"#)]).await;
    rig.pool_is(&[models.addr], 2.0).await;
    let reply = rig.world.get("/v1/models").await;
    assert_eq!((reply.status, reply.text()), (200, r#"{"data":[]}"#.to_owned()));
    assert!(rig.inputs("Arrived").await.is_empty());
}

/// Which status has no body is known on both sides.
#[tokio::test]
async fn answers_without_a_body_end_at_once() {
    for head in ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"] {
        let server = Raw::start(vec![send(head)]).await;
        let rig = Rig::of(&[&server]).await;
        let mut wire = rig.open(&[], &ask()).await;
        wire.until("\r\n\r\n").await;
        assert_eq!(rig.ended(1).await.0, "Natural");
        wire.send(&request("POST", CHAT, &[], &ask())).await;
        wire.until("\r\n\r\n").await;
        assert_eq!(server.connections(), 1, "{head}");
    }
}

/// An answer whose end is the end of its connection (as HTTP/1.0 has it) is whole.
#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection() {
    let server =
        Raw::start(vec![send("HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nabc"), Piece::Close]).await;
    let rig = Rig::of(&[&server]).await;
    let reply = rig.chat(&[], &ask()).await;
    assert_eq!((reply.status, reply.text()), (200, "abc".to_owned()));
    assert_eq!(rig.ended(1).await.0, "Natural");
}

/// In observe mode nobody is held, the kernel chooses nothing, and requests still go where there is least to do.
#[tokio::test]
async fn observed_requests_go_through_whatever_was_decided() {
    let servers = [Raw::start(vec![Piece::Gate(1), whole("{}")]).await, Raw::start(vec![whole("{}")]).await];
    let setup = pushed(|policy| policy.observe = true);
    let rig = Rig::with(&[&servers[0], &servers[1]], |_| {}, Options::default(), setup).await;
    rig.saturated(3.0).await;
    let first = tokio::spawn(call_chat(rig.world.addr));
    rig.world
        .until("one at an endpoint", async || servers.iter().any(|server| !server.seen().is_empty()))
        .await;
    // If the first went to the one that keeps it, all others go to the other one.
    for _ in 0..4 {
        if servers[0].seen().len() == 1 {
            assert_eq!(call_chat(rig.world.addr).await, 200);
            assert_eq!(servers[0].seen().len(), 1);
        } else {
            let more = tokio::spawn(call_chat(rig.world.addr));
            tokio::time::timeout(PATIENCE, more).await.unwrap().unwrap();
        }
    }
    servers[0].open();
    assert_eq!(first.await.unwrap(), 200);
}

async fn call_chat(addr: std::net::SocketAddr) -> u16 {
    call(addr, "POST", CHAT, &[], ask().as_bytes()).await.status
}

/// Requests of one pool spread over its servers by what runs there.
#[tokio::test]
async fn requests_go_to_the_endpoint_with_the_least_to_do() {
    let pieces = vec![Piece::Gate(1), whole("{}")];
    let servers =
        [Raw::start(pieces.clone()).await, Raw::start(pieces.clone()).await, Raw::start(pieces).await];
    let policy = weir_kernel::Policy::default();
    let setup = Setup { policy, ..Setup::default() };
    let rig = Rig::with(&[&servers[0], &servers[1], &servers[2]], |_| {}, Options::default(), setup).await;
    let addr = rig.world.addr;
    let calls: Vec<_> = (0..6).map(|_| tokio::spawn(call_chat(addr))).collect();
    rig.world.until("two at each", async || servers.iter().all(|server| server.connections() == 2)).await;
    servers.iter().for_each(Raw::open);
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
}
