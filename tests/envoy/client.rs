//! A plain HTTP/1.1 client that shows everything, a connection per request.

use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// What is waited for comes within this, or the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What came back.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// The body came to its announced end.
    pub whole: bool,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let of = |line: &&str| line.split_once(": ").is_some_and(|(key, _)| key.eq_ignore_ascii_case(name));
        self.head.lines().find(of).and_then(|line| line.split_once(": ")).map(|(_, value)| value)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A refusal of Weir's, in headers and body alike.
    #[track_caller]
    pub fn refused(&self, status: u16, reason: &str, llm_d: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("x-weir-dropped-reason"), Some(reason), "{self:?}");
        assert_eq!(self.header("x-llm-d-request-dropped-reason"), Some(llm_d), "{self:?}");
        let problem = self.json();
        assert_eq!((&problem["reason"], &problem["status"]), (&reason.into(), &status.into()));
        problem
    }
}

/// A request on its way.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects and posts.
    pub async fn send(addr: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Connection {
        Connection::open(addr, "POST", path, headers, body).await.unwrap()
    }

    /// Connects and sends a whole request.
    pub async fn open(
        addr: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Connection> {
        let mut stream = TcpStream::connect(addr).await?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: t\r\n");
        if !headers.iter().any(|(name, _)| *name == "transfer-encoding") {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        Ok(Connection { stream, buffer: Vec::new() })
    }

    /// Waits for the answer, whole or cut off.
    pub async fn reply(mut self) -> Reply {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("no answer in time")
    }

    /// Waits until the answer's head and so much of its body have come.
    pub async fn begun(&mut self, bytes: usize) {
        let all = async {
            while self.end_of_head().is_none_or(|end| self.buffer.len() < end + bytes) {
                assert!(self.more().await, "closed: {}", String::from_utf8_lossy(&self.buffer));
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("no answer in time");
    }

    fn end_of_head(&self) -> Option<usize> {
        self.buffer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
    }

    async fn read(&mut self) -> Reply {
        let end = loop {
            match self.end_of_head() {
                Some(end) => break end,
                None => assert!(self.more().await, "closed without an answer"),
            }
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new(), whole: false };
        reply.whole = match reply.header("content-length").map(|length| length.parse::<usize>().unwrap()) {
            Some(length) => self.fixed(length, &mut reply.body).await,
            None => self.chunks(&mut reply.body).await,
        };
        reply
    }

    async fn fixed(&mut self, length: usize, body: &mut Vec<u8>) -> bool {
        while self.buffer.len() < length {
            if !self.more().await {
                return false;
            }
        }
        body.extend(self.buffer.drain(..length));
        true
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let line = loop {
                match self.buffer.windows(2).position(|window| window == b"\r\n") {
                    Some(end) => break self.buffer.drain(..end + 2).collect::<Vec<u8>>(),
                    None if self.more().await => {}
                    None => return false,
                }
            };
            let size = usize::from_str_radix(String::from_utf8(line).unwrap().trim(), 16).unwrap();
            if !self.fixed(size, body).await {
                return false;
            }
            while self.buffer.len() < 2 {
                if !self.more().await {
                    return false;
                }
            }
            self.buffer.drain(..2);
            if size == 0 {
                return true;
            }
        }
    }

    async fn more(&mut self) -> bool {
        let mut part = vec![0; 16 << 10];
        let read = self.stream.read(&mut part).await.unwrap_or(0);
        self.buffer.extend_from_slice(&part[..read]);
        read > 0
    }
}

/// One request, and its answer.
pub async fn post(addr: SocketAddr, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    Connection::send(addr, "/v1/completions", headers, body).await.reply().await
}

/// The same in the background.
pub fn posting(addr: SocketAddr, headers: &[(&'static str, &'static str)]) -> JoinHandle<Reply> {
    let headers = headers.to_vec();
    tokio::spawn(async move { post(addr, &headers, b"{}").await })
}
