//! Envoy's ext_proc over gRPC as a light Envoy speaks it (headers, then the response's trailers), beside a processor on
//! the same libraries that answers everything with nothing to change.

use super::{CALLERS, Failure, turn};
use crate::gateway::ext_proc_messages::{
    Answer, Common, HttpHeaders, Part, ProcessingRequest, ProcessingResponse, Trailers, TrailersResponse,
};
use crate::gateway::grpc_messages::{HeaderMap, HeaderValue, framed};
use bytes::Bytes;
use h2::client::SendRequest;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::server::{Grpc, StreamingService};
use tonic::{Response, Status, Streaming};
use tonic_prost::ProstCodec;

const PATH: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
/// Connections of an Envoy with two workers.
const CONNECTIONS: usize = 2;

/// The twin; it ends with the runtime.
pub async fn bare() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let service = service_fn(|request| async move {
                let codec = ProstCodec::<ProcessingResponse, ProcessingRequest>::default();
                Ok::<_, Infallible>(Grpc::new(codec).streaming(Bare, request).await)
            });
            let connection = http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(2 * CALLERS as u32)
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    Ok(addr)
}

struct Bare;

impl StreamingService<ProcessingRequest> for Bare {
    type Response = ProcessingResponse;
    type ResponseStream = ReceiverStream<Result<ProcessingResponse, Status>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<ProcessingRequest>>) -> Self::Future {
        let (to, answers) = mpsc::channel(4);
        let mut inbound = request.into_inner();
        tokio::spawn(async move {
            while let Some(Ok(message)) = inbound.next().await {
                let answer = match message.request {
                    Some(Part::RequestHeaders(_)) => Answer::RequestHeaders(Common { response: None }),
                    _ => Answer::ResponseTrailers(TrailersResponse {}),
                };
                let answer = ProcessingResponse { response: Some(answer), ..ProcessingResponse::default() };
                if to.send(Ok(answer)).await.is_err() {
                    break;
                }
            }
        });
        ready(Ok(Response::new(ReceiverStream::new(answers))))
    }
}

/// Streams over a few connections that last.
pub struct Callers {
    connections: Vec<SendRequest<Bytes>>,
    addr: SocketAddr,
}

impl Callers {
    pub async fn connect(addr: SocketAddr) -> Result<Callers, Failure> {
        let mut connections = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(addr).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = h2::client::handshake(stream).await?;
            tokio::spawn(connection);
            connections.push(sender);
        }
        Ok(Callers { connections, addr })
    }
}

impl turn::Callers for Callers {
    const REQUESTS: f64 = 1.0;
    type Caller = Caller;

    async fn open(&self, number: usize) -> io::Result<Caller> {
        let sender = self.connections[number % self.connections.len()].clone();
        let (headers, trailers) = messages(number);
        Ok(Caller { sender, uri: format!("http://{}{PATH}", self.addr), headers, trailers })
    }
}

/// One stream after the other.
pub struct Caller {
    sender: SendRequest<Bytes>,
    uri: String,
    headers: Bytes,
    trailers: Bytes,
}

impl turn::Caller for Caller {
    async fn round(&mut self) -> io::Result<Instant> {
        let request = http::Request::post(&self.uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .map_err(io::Error::other)?;
        let mut sender = self.sender.clone().ready().await.map_err(io::Error::other)?;
        let (response, mut stream) = sender.send_request(request, false).map_err(io::Error::other)?;
        stream.send_data(self.headers.clone(), false).map_err(io::Error::other)?;
        let mut body = response.await.map_err(io::Error::other)?.into_body();
        match answer(&mut body).await?.response {
            Some(Answer::RequestHeaders(_)) => {}
            other => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("not admitted: {other:?}")));
            }
        }
        let answered = Instant::now();
        stream.send_data(self.trailers.clone(), false).map_err(io::Error::other)?;
        answer(&mut body).await?;
        stream.send_data(Bytes::new(), true).map_err(io::Error::other)?;
        while let Some(chunk) = body.data().await {
            chunk.map_err(io::Error::other)?;
        }
        body.trailers().await.map_err(io::Error::other)?;
        Ok(answered)
    }
}

/// The next message: small enough to come in one frame.
async fn answer(body: &mut h2::RecvStream) -> io::Result<ProcessingResponse> {
    let frame = body.data().await.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let frame = frame.map_err(io::Error::other)?;
    body.flow_control().release_capacity(frame.len()).map_err(io::Error::other)?;
    ProcessingResponse::decode(frame.get(5..).unwrap_or_default()).map_err(io::Error::other)
}

/// What Envoy shows of a request: its headers, and the trailers of its response.
fn messages(number: usize) -> (Bytes, Bytes) {
    let header = |(key, value): (&str, String)| HeaderValue {
        key: key.to_owned(),
        value: String::new(),
        raw_value: Bytes::from(value),
    };
    let headers = [
        (":method", "POST".to_owned()),
        (":path", "/v1/completions".to_owned()),
        (":authority", "bench".to_owned()),
        (":scheme", "http".to_owned()),
        ("content-type", "application/json".to_owned()),
        ("content-length", "1024".to_owned()),
        ("x-request-id", format!("bench-{number:08}")),
        ("x-llm-d-inference-fairness-id", format!("tenant-{:02}", number % 16)),
    ];
    let headers = HeaderMap { headers: headers.into_iter().map(header).collect() };
    let headers = HttpHeaders { headers: Some(headers), end_of_stream: false };
    (message(Part::RequestHeaders(headers)), message(Part::ResponseTrailers(Trailers {})))
}

fn message(part: Part) -> Bytes {
    framed(&ProcessingRequest { request: Some(part), ..ProcessingRequest::default() })
}
