//! The reverse proxy in front of a model server that answers at once, beside a pass-through proxy on the same client
//! library.

use super::held::{serve, whole};
use super::turn;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use http::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A model server's answer of a few words, with what was used.
const ANSWER: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"It depends on who asks, and when."},"finish_reason":"stop"}],"usage":{"prompt_tokens":24,"completion_tokens":8,"total_tokens":32}}"#;

/// The model server behind both; it ends with the runtime.
pub async fn upstream() -> io::Result<SocketAddr> {
    let answer = post(|_: Bytes| async { ([("content-type", "application/json")], ANSWER) });
    serve(Router::new().route("/v1/chat/completions", answer)).await
}

/// The twin; it ends with the runtime.
pub async fn bare(upstream: SocketAddr) -> io::Result<SocketAddr> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    serve(Router::new().fallback(pass).with_state(Pass { client, upstream })).await
}

#[derive(Clone)]
struct Pass {
    client: Client<HttpConnector, Body>,
    upstream: SocketAddr,
}

async fn pass(State(to): State<Pass>, mut request: Request) -> Result<Response, (StatusCode, Json<String>)> {
    let bad = |error: &dyn std::fmt::Display| (StatusCode::BAD_GATEWAY, Json(error.to_string()));
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = format!("http://{}{path}", to.upstream).parse::<Uri>().map_err(|e| bad(&e))?;
    let response = to.client.request(request).await.map_err(|e| bad(&e))?;
    Ok(response.map(Body::new))
}

/// Callers of a proxy.
pub struct Callers(pub SocketAddr);

impl turn::Callers for Callers {
    const REQUESTS: f64 = 1.0;
    type Caller = Caller;

    async fn open(&self, number: usize) -> io::Result<Caller> {
        let stream = TcpStream::connect(self.0).await?;
        stream.set_nodelay(true)?;
        let body = r#"{"model":"m","messages":[{"role":"user","content":"What is a fair share of a pool?"}],"max_tokens":8}"#;
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
             x-request-id: bench-{number:08}\r\nx-llm-d-inference-fairness-id: tenant-{:02}\r\n\
             content-length: {}\r\n\r\n{body}",
            number % 16,
            body.len()
        );
        Ok(Caller { stream, buffer: Vec::with_capacity(4_096), request: request.into_bytes() })
    }
}

/// One connection, a completion after the other.
pub struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
    request: Vec<u8>,
}

impl turn::Caller for Caller {
    async fn round(&mut self) -> io::Result<Instant> {
        self.stream.write_all(&self.request).await?;
        while whole(&self.buffer)?.is_none() {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed within an answer"));
            }
        }
        self.buffer.clear();
        Ok(Instant::now())
    }
}
