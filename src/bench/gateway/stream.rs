//! The event stream over HTTP/1.1, ended by a completion on another connection, beside an axum handler that streams as
//! many bytes and ends in the same way.

use super::held::{admission, broken, completion, find, id, serve, whole};
use super::turn;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::post;
use bytes::Bytes;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

/// What begins the line after which a caller goes on.
const ADMITTED: &[u8] = br#"{"event":"admitted""#;
/// The last chunk.
const LAST: &[u8] = b"\r\n0\r\n\r\n";
const BARE_COMPLETION: &str = r#"{"id":"default-1234567","state":"completed","sequence":1234568}"#;

/// What the twin knows: who waits for which completion.
#[derive(Default)]
struct Open {
    next: u64,
    streams: HashMap<String, oneshot::Sender<()>>,
}

type Shared = Arc<Mutex<Open>>;

/// The twin; it ends with the runtime.
pub async fn bare() -> io::Result<SocketAddr> {
    let app = Router::new()
        .route("/v1/admissions", post(admit))
        .route("/v1/admissions/{id}/complete", post(complete))
        .with_state(Shared::default());
    serve(app).await
}

async fn admit(State(open): State<Shared>, _: Bytes) -> ([(&'static str, &'static str); 1], Body) {
    let (ended, end) = oneshot::channel();
    let id = {
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        open.next += 1;
        let id = format!("default-{}", 1_000_000 + open.next);
        open.streams.insert(id.clone(), ended);
        id
    };
    let (to, lines) = mpsc::channel(2);
    tokio::spawn(async move {
        let admitted = format!(
            r#"{{"event":"admitted","admission":{{"id":"{id}","requestId":"bench-00000000","pool":"default","outcome":"Dispatched","sequence":1234567,"queuedMs":0,"priority":0,"flow":"tenant-00"}}}}"#
        );
        let _gone = to.send(admitted + "\n").await;
        let _closed = end.await;
        let ended =
            format!(r#"{{"event":"ended","id":"{id}","end":"Completed","sequence":1234568,"ranMs":0}}"#);
        let _gone = to.send(ended + "\n").await;
    });
    let lines = ReceiverStream::new(lines).map(Ok::<_, Infallible>);
    ([("content-type", "application/x-ndjson")], Body::from_stream(lines))
}

async fn complete(
    State(open): State<Shared>,
    Path(id): Path<String>,
    _: Bytes,
) -> ([(&'static str, &'static str); 1], &'static str) {
    let ended = open.lock().unwrap_or_else(PoisonError::into_inner).streams.remove(&id);
    let _gone = ended.map(|ended| ended.send(()));
    ([("content-type", "application/json")], BARE_COMPLETION)
}

/// Callers of a server.
pub struct Callers(pub SocketAddr);

impl turn::Callers for Callers {
    /// The stream and its completion.
    const REQUESTS: f64 = 2.0;
    type Caller = Caller;

    async fn open(&self, number: usize) -> io::Result<Caller> {
        let mut connections = [TcpStream::connect(self.0).await?, TcpStream::connect(self.0).await?];
        connections.iter_mut().try_for_each(|stream| stream.set_nodelay(true))?;
        let [stream, second] = connections;
        let admission = admission(number, "application/x-ndjson");
        Ok(Caller { stream, second, buffer: Vec::with_capacity(4_096), admission, completion: Vec::new() })
    }
}

/// Two connections: one streams, the other completes.
pub struct Caller {
    stream: TcpStream,
    second: TcpStream,
    buffer: Vec<u8>,
    admission: Vec<u8>,
    completion: Vec<u8>,
}

impl turn::Caller for Caller {
    async fn round(&mut self) -> io::Result<Instant> {
        self.stream.write_all(&self.admission).await?;
        let at = read_until(&mut self.stream, &mut self.buffer, |buffer| {
            let at = find(buffer, ADMITTED)?;
            find(&buffer[at..], b"\n").map(|_| at)
        });
        let at = at.await?;
        let answered = Instant::now();
        completion(id(&self.buffer[at..])?, &mut self.completion);
        self.second.write_all(&self.completion).await?;
        read_until(&mut self.stream, &mut self.buffer, |buffer| buffer.ends_with(LAST).then_some(0)).await?;
        self.buffer.clear();
        while whole(&self.buffer)?.is_none() {
            more(&mut self.second, &mut self.buffer).await?;
        }
        self.buffer.clear();
        Ok(answered)
    }
}

async fn read_until(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    done: impl Fn(&[u8]) -> Option<usize>,
) -> io::Result<usize> {
    loop {
        if let Some(at) = done(buffer) {
            return Ok(at);
        }
        more(stream, buffer).await?;
        if !buffer.is_empty() && buffer.len() >= 12 && !buffer.starts_with(b"HTTP/1.1 200") {
            return Err(broken("not admitted", buffer));
        }
    }
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(buffer).await? {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed within an answer")),
        _ => Ok(()),
    }
}
