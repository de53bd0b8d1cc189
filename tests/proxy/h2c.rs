//! Goal: callers of HTTP/2 get what callers of HTTP/1.1 get, each stream by itself.

use crate::harness::{PATIENCE, pushed};
use crate::raw::{Piece, Raw, chunk, events, last, send, whole};
use crate::rig::{CHAT, Rig, Wire, ask};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use weir::gateway::Options;

type Client = SendRequest<Full<Bytes>>;

async fn client(addr: SocketAddr) -> Client {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    client
}

fn chat(body: &str) -> Request<Full<Bytes>> {
    let request = Request::post(format!("http://weir{CHAT}")).header("cookie", "a=1").header("cookie", "b=2");
    request.header("te", "trailers").body(Full::from(body.to_owned())).unwrap()
}

/// The pieces of a response, until there are as many bytes.
async fn read(response: &mut Response<Incoming>, bytes: usize) -> String {
    let mut text = String::new();
    let reading = async {
        while text.len() < bytes {
            let frame = response.body_mut().frame().await.expect("more").unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap();
    text
}

#[tokio::test]
async fn streams_are_passed_on_piece_by_piece_with_their_trailers() {
    let event = "data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n";
    let server = Raw::start(vec![
        send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: x-hop\r\nx-hop: 1\r\ntransfer-encoding: chunked\r\n\r\n"),
        Piece::Gate(1),
        chunk(event),
        Piece::Gate(2),
        send("0\r\nx-sum: 7\r\n\r\n"),
    ])
    .await;
    let rig = Rig::of(&[&server]).await;
    let mut client = client(rig.world.addr).await;
    // Several at once on one connection.
    let mut responses = Vec::new();
    for _ in 0..8 {
        responses.push(client.send_request(chat(&ask())).await.unwrap());
    }
    assert_eq!(rig.running().await, 8);
    server.open();
    for response in &mut responses {
        assert_eq!((response.status().as_u16(), response.headers().get("x-hop")), (200, None));
        assert_eq!(read(response, event.len()).await, event);
    }
    server.open();
    for mut response in responses {
        let trailers = response.body_mut().frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers, HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]));
        assert!(response.body_mut().frame().await.is_none());
    }
    assert_eq!(rig.ended(8).await, ("Natural".to_owned(), json!({"prompt": 3, "completion": 2})));
    let seen = server.seen().remove(0);
    assert_eq!(seen.line, format!("POST {CHAT} HTTP/1.1"));
    assert_eq!((seen.header("cookie"), seen.header("via")), (Some("a=1; b=2"), Some("2 weir")));
    assert_eq!(seen.header("host"), Some(server.addr.to_string().as_str()));
    assert_eq!(seen.body, ask().as_bytes());
}

/// Where the body is chunked a length beside it is none, and trailers say nothing that only we say.
#[tokio::test]
async fn a_chunked_answer_is_whole_whatever_length_is_said() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n";
    let end = "0\r\nx-weir-dropped-reason: evicted\r\nconnection: x\r\nx-sum: 7\r\n\r\n";
    let server = Raw::start(vec![send(head), chunk("abc"), chunk("def"), send(end)]).await;
    let rig = Rig::of(&[&server]).await;
    let response = client(rig.world.addr).await.send_request(chat(&ask())).await.unwrap();
    assert_eq!(response.headers().get("content-length"), None);
    let body = response.into_body().collect().await.unwrap();
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
    assert_eq!(body.trailers(), Some(&trailers));
    assert_eq!(body.to_bytes(), "abcdef");
    assert_eq!(rig.ended(1).await.0, "Natural");
}

#[tokio::test]
async fn a_stream_that_is_reset_ends_and_its_connection_lives() {
    let server = Raw::start(vec![events(), chunk("data: 1\n\n"), Piece::Gate(1), last()]).await;
    let rig = Rig::of(&[&server]).await;
    rig.saturated(1.5).await;
    let mut client = client(rig.world.addr).await;
    let waiting = client.send_request(chat(&ask()));
    let waiting = tokio::spawn(waiting);
    rig.world.queued("default", 1).await;
    waiting.abort();
    rig.world.queued("default", 0).await;
    rig.saturated(0.0).await;
    let mut response = client.send_request(chat(&ask())).await.unwrap();
    read(&mut response, 9).await;
    assert_eq!((server.left(), rig.running().await), (0, 1));
    drop(response);
    rig.world.until("the end at the endpoint", async || server.left() == 1).await;
    assert_eq!(rig.ended(1).await.0, "ClientDisconnect");
    let models =
        client.send_request(Request::get("http://weir/healthz").body(Full::default()).unwrap()).await;
    assert_eq!(models.unwrap().status(), 200);
}

/// A caller that takes nothing on one stream is cut there, and nowhere else.
#[tokio::test]
async fn a_stream_that_nobody_reads_is_cut() {
    let flood = Raw::start(vec![events(), Piece::Flood]).await;
    let options = Options { write_stall_max: Duration::from_millis(300), ..Options::default() };
    let rig = Rig::with(&[&flood], |_| {}, options, pushed(|_| {})).await;
    let mut client = client(rig.world.addr).await;
    let mut response = client.send_request(chat(&ask())).await.unwrap();
    assert_eq!(rig.ended(1).await.0, "ClientDisconnect");
    rig.world.until("the end at the endpoint", async || flood.left() == 1).await;
    let cut = async { while response.body_mut().frame().await.expect("an error").is_ok() {} };
    tokio::time::timeout(PATIENCE, cut).await.unwrap();
    let fine = Raw::start(vec![whole("{}")]).await;
    rig.pool_is(&[fine.addr], 0.0).await;
    let mut response = client.send_request(chat(&ask())).await.unwrap();
    assert_eq!(read(&mut response, 2).await, "{}");
}

/// Streams count like connections: beyond the limit none is held, and the service can still be asked.
#[tokio::test]
async fn streams_have_the_bound_of_connections() {
    let server = Raw::start(vec![whole("{}")]).await;
    let options = Options { connections_max: 2, ..Options::default() };
    let rig = Rig::with(&[&server], |_| {}, options, pushed(|_| {})).await;
    rig.saturated(1.5).await;
    let mut client = client(rig.world.addr).await;
    let waiting: Vec<_> = (0..2).map(|_| tokio::spawn(client.send_request(chat(&ask())))).collect();
    rig.world.queued("default", 2).await;
    let refused = client.send_request(chat(&ask())).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["x-weir-dropped-reason"], "rejected-saturated");
    let look = Request::get("http://weir/v1/pools").body(Full::default()).unwrap();
    assert_eq!(client.send_request(look).await.unwrap().status(), 200);
    rig.saturated(0.0).await;
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
    }
}

/// What begins like HTTP/2 and goes on otherwise is HTTP/1.1, or nothing.
#[tokio::test]
async fn the_beginning_of_a_connection_may_come_in_pieces() {
    let rig = Rig::of(&[]).await;
    let mut wire = Wire::to(rig.world.addr).await;
    wire.send("P").await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    wire.send("OST /v1/nothing HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n").await;
    wire.until("HTTP/1.1 404").await;
    let mut wire = Wire::to(rig.world.addr).await;
    wire.send("PRI * HTTP/2.0\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    wire.send("no\r\n\r\n").await;
    wire.closed().await;
    let mut wire = Wire::to(rig.world.addr).await;
    wire.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n and no frame of it").await;
    wire.closed().await;
}
