//! A model server of a few lines that speaks HTTP/1.1 by hand: it notes each byte it is sent, and sends what it is told,
//! when it is told.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

/// One piece of an answer.
#[derive(Clone)]
pub enum Piece {
    /// These bytes.
    Send(Vec<u8>),
    /// Nothing, until the test has opened so many gates, or the other side has closed.
    Gate(u64),
    /// The connection is reset.
    Reset,
    /// The connection is closed.
    Close,
    /// Bytes without end, until the other side has closed.
    Flood,
}

/// A piece of text.
pub fn send(text: &str) -> Piece {
    Piece::Send(text.as_bytes().to_vec())
}

/// A whole answer of 200 with JSON.
pub fn whole(body: &str) -> Piece {
    let length = body.len();
    send(&format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    ))
}

/// The head of a streamed answer.
pub fn events() -> Piece {
    send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
}

/// One chunk.
pub fn chunk(text: &str) -> Piece {
    send(&format!("{:x}\r\n{text}\r\n", text.len()))
}

/// The end of the chunks.
pub fn last() -> Piece {
    send("0\r\n\r\n")
}

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Clone)]
pub struct Raw {
    pub addr: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Bytes of bodies that have come, of requests that may not be whole.
    bytes: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
    gates: watch::Sender<u64>,
}

impl Raw {
    /// Answers every request with these pieces.
    pub async fn start(pieces: Vec<Piece>) -> Raw {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let raw = Raw {
            addr: listener.local_addr().unwrap(),
            seen: Arc::default(),
            bytes: Arc::default(),
            connections: Arc::default(),
            left: Arc::default(),
            gates: watch::channel(0).0,
        };
        let server = raw.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                server.connections.fetch_add(1, Ordering::SeqCst);
                let (server, pieces) = (server.clone(), pieces.clone());
                tokio::spawn(async move { Conn { stream, buffer: Vec::new(), server }.serve(&pieces).await });
            }
        });
        raw
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Connections that were ever opened.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Requests whose other side closed before their answer was whole.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    pub fn body_bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Opens the next gate.
    pub fn open(&self) {
        self.gates.send_modify(|gates| *gates += 1);
    }
}

/// An address at which nobody listens, nor can anybody else while this is kept.
pub struct Nobody {
    pub addr: SocketAddr,
    _bound: TcpSocket,
}

impl Nobody {
    pub fn there() -> Nobody {
        let bound = TcpSocket::new_v4().unwrap();
        bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Nobody { addr: bound.local_addr().unwrap(), _bound: bound }
    }
}

struct Conn {
    stream: TcpStream,
    buffer: Vec<u8>,
    server: Raw,
}

impl Conn {
    async fn serve(mut self, pieces: &[Piece]) {
        while let Some(seen) = self.request().await {
            self.server.seen.lock().unwrap().push(seen);
            for piece in pieces {
                if !self.send(piece).await {
                    return;
                }
            }
        }
    }

    /// False at the end of the connection.
    async fn send(&mut self, piece: &Piece) -> bool {
        let sent = match piece {
            Piece::Send(bytes) => self.stream.write_all(bytes).await.is_ok(),
            Piece::Close => return false,
            Piece::Reset => {
                self.stream.set_zero_linger().unwrap();
                return false;
            }
            Piece::Flood => {
                let much = [b"10000\r\n".to_vec(), vec![b'x'; 0x10000], b"\r\n".to_vec()].concat();
                while self.stream.write_all(&much).await.is_ok() {}
                false
            }
            Piece::Gate(number) => {
                let mut gates = self.server.gates.subscribe();
                tokio::select! {
                    opened = gates.wait_for(|opened| opened >= number) => opened.is_ok(),
                    more = more(&mut self.stream, &mut self.buffer) => more,
                }
            }
        };
        if !sent {
            self.server.left.fetch_add(1, Ordering::SeqCst);
        }
        sent
    }

    async fn request(&mut self) -> Option<Seen> {
        let head = self.until(b"\r\n\r\n").await?;
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let line = lines.next()?.to_owned();
        let headers = pairs(lines);
        let mut seen = Seen { line, headers, ..Seen::default() };
        if seen.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = self.until(b"\r\n").await?;
                let size = usize::from_str_radix(String::from_utf8(size).unwrap().trim(), 16).unwrap();
                if size == 0 {
                    break;
                }
                let chunk = self.exactly(size + 2).await?;
                seen.body.extend_from_slice(&chunk[..size]);
            }
            loop {
                let line = String::from_utf8(self.until(b"\r\n").await?).unwrap();
                if line.trim().is_empty() {
                    return Some(seen);
                }
                seen.trailers.extend(pairs(line.lines()));
            }
        }
        let length = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
        seen.body = self.exactly(length).await?;
        Some(seen)
    }

    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return Some(self.buffer.drain(..at + end.len()).collect());
            }
            if !more(&mut self.stream, &mut self.buffer).await {
                return None;
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        self.server.bytes.fetch_add(self.buffer.len().min(length), Ordering::SeqCst);
        while self.buffer.len() < length {
            let before = self.buffer.len();
            if !more(&mut self.stream, &mut self.buffer).await {
                self.server.left.fetch_add(1, Ordering::SeqCst);
                return None;
            }
            self.server.bytes.fetch_add(self.buffer.len() - before, Ordering::SeqCst);
        }
        Some(self.buffer.drain(..length).collect())
    }
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> bool {
    let mut part = vec![0; 64 << 10];
    let read = stream.read(&mut part).await.unwrap_or(0);
    buffer.extend_from_slice(&part[..read]);
    read > 0
}

fn pairs<'l>(lines: impl Iterator<Item = &'l str>) -> Vec<(String, String)> {
    let pairs = lines.filter_map(|line| line.split_once(": "));
    pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect()
}
