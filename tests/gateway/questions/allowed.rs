//! Goal: with tokens on, only `read` asks, by every way that there is, and only about its own pools; the explorer page alone
//! is for everybody. Method: the binary with a tokens file; POST, GET, SSE, the handshake of a WebSocket.

use crate::binary::{Served, settings};
use crate::harness::{Reply, call};
use serde_json::{Value, json};
use weir::gateway::auth::Digest;

fn served() -> Served {
    let dir = crate::kept::tempdir().unwrap();
    let entry = |token: &str, rest: &str| {
        let name = token.trim_start_matches("weir_");
        format!("- {{name: {name}, sha256: \"{}\", {rest}}}\n", Digest::of(token.as_bytes()))
    };
    let tokens = [
        entry("weir_read", "scopes: [read]"),
        entry("weir_chat", "scopes: [read], pools: [chat]"),
        entry("weir_admit", "scopes: [admit]"),
    ];
    std::fs::write(dir.path().join("tokens.yaml"), format!("tokens:\n{}", tokens.concat())).unwrap();
    let settings = settings("{drainTimeout: 0s, auth: {tokensFile: tokens.yaml}}", "");
    Served::start_in(dir, &(settings + "pools: {default: {}, chat: {}}\n"), &[])
}

/// Names and values.
type Headers<'a> = &'a [(&'a str, &'a str)];

async fn ask(served: &Served, method: &str, path: &str, token: &str, more: &[(&str, &str)]) -> Reply {
    let bearer = format!("Bearer {token}");
    let mut headers = more.to_vec();
    if !token.is_empty() {
        headers.push(("authorization", &bearer));
    }
    let body =
        if method == "POST" { json!({ "query": "{ pools { name } }" }).to_string() } else { String::new() };
    call(served.addr, method, path, &headers, body.as_bytes()).await
}

const GET: &str = "/graphql?query=%7B%20pools%20%7B%20name%20%7D%20%7D";
const SOCKET: [(&str, &str); 5] = [
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-protocol", "graphql-transport-ws"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
const SSE: [(&str, &str); 1] = [("accept", "text/event-stream")];
const BROWSER: [(&str, &str); 1] = [("accept", "text/html,application/xhtml+xml")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_scope_read_asks_and_only_the_page_is_for_everybody() {
    let served = served();
    let ways: [(&str, &str, Headers<'_>); 4] = [
        ("POST", "/graphql", &[]),
        ("GET", GET, &[]),
        ("POST", "/graphql", &SSE),
        ("GET", "/graphql", &SOCKET),
    ];
    for (method, path, headers) in ways {
        for (token, status) in [("", 401), ("weir_wrong", 401), ("weir_admit", 403)] {
            let reply = ask(&served, method, path, token, headers).await;
            assert_eq!(reply.status, status, "{method} {path} {headers:?} with {token:?}: {}", reply.text());
        }
        if headers.len() < 5 {
            let reply = ask(&served, method, path, "weir_read", headers).await;
            assert_eq!(
                reply.json(),
                json!({ "data": { "pools": [{ "name": "chat" }, { "name": "default" }] } })
            );
        }
    }
    // The page holds no data, so it is open: by its exact path, by GET, for who takes HTML, and for nothing else.
    for token in ["", "weir_wrong", "weir_admit", "weir_read"] {
        let page = ask(&served, "GET", "/graphql", token, &BROWSER).await;
        assert_eq!(
            (page.status, page.header("content-type")),
            (200, Some("text/html; charset=utf-8")),
            "{token}"
        );
        assert!(page.text().contains("what-went-wrong"));
    }
    for (method, path) in [("POST", "/graphql"), ("GET", GET), ("GET", "/graphql/"), ("GET", "/metrics")] {
        let reply = ask(&served, method, path, "", &BROWSER).await;
        assert_eq!(reply.status, 401, "{method} {path} is not the page: {}", reply.text());
    }
    let mut asks_for_both = SOCKET.to_vec();
    asks_for_both.extend(BROWSER);
    let reply = ask(&served, "GET", "/graphql", "", &asks_for_both).await;
    assert!(reply.status != 101, "no socket for a stranger who takes HTML as well: {}", reply.status);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_for_one_pool_asks_about_that_pool() {
    let served = served();
    let reply = ask(&served, "POST", "/graphql", "weir_chat", &[]).await;
    assert_eq!(reply.json(), json!({ "data": { "pools": [{ "name": "chat" }] } }));
    for field in [
        "pool(pool: \"default\") { regime }",
        "request(id: \"default-1\") { id }",
        "requests(pool: \"default\") { nodes { id } }",
        "events(pool: \"default\") { endCursor }",
        "stateAt(pool: \"default\") { digest }",
        "incidents(pool: \"default\") { kind }",
        "waits(pool: \"default\") { from }",
    ] {
        let body = json!({ "query": format!("{{ {field} }}") }).to_string();
        let headers = [("authorization", "Bearer weir_chat")];
        let reply = call(served.addr, "POST", "/graphql", &headers, body.as_bytes()).await.json();
        assert_eq!(reply["errors"][0]["extensions"]["code"], "FORBIDDEN", "{field}: {reply}");
    }
    let body = json!({ "query": "subscription { events(pool: \"default\") { kind } }" }).to_string();
    let headers = [("authorization", "Bearer weir_chat"), ("accept", "text/event-stream")];
    let reply = call(served.addr, "POST", "/graphql", &headers, body.as_bytes()).await;
    assert!(reply.text().contains("FORBIDDEN"), "{}", reply.text());
    let projection = json!({ "query": "{ projection { pool } }" }).to_string();
    let reply = call(served.addr, "POST", "/graphql", &headers[..1], projection.as_bytes()).await.json();
    assert_eq!(reply, json!({ "data": { "projection": [{ "pool": "chat" }] } }) as Value);
}
