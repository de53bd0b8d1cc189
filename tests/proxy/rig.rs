//! A gateway with the proxy on, in front of servers of the test's own.

use crate::harness::{PATIENCE, Reply, Setup, World, pushed};
use crate::raw::Raw;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir::gateway::{Options, ProxyOptions};

pub const CHAT: &str = "/v1/chat/completions";

/// A body that the servers of these tests do not read.
pub fn ask() -> String {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true}).to_string()
}

pub struct Rig {
    pub world: World,
}

impl Rig {
    /// In front of these servers, of which none is saturated.
    pub async fn of(servers: &[&Raw]) -> Rig {
        Rig::with(servers, |_| {}, Options::default(), pushed(|_| {})).await
    }

    pub async fn with(
        servers: &[&Raw],
        proxy: impl FnOnce(&mut ProxyOptions),
        options: Options,
        setup: Setup,
    ) -> Rig {
        let mut on = ProxyOptions::default();
        proxy(&mut on);
        let options = Options { proxy: Some(on), ..options };
        let rig = Rig { world: World::start(BTreeMap::from([("default", setup)]), options).await };
        let addresses: Vec<SocketAddr> = servers.iter().map(|raw| raw.addr).collect();
        rig.pool_is(&addresses, 0.0).await;
        rig
    }

    /// Says where the pool's servers are, and how saturated they all are.
    pub async fn pool_is(&self, addresses: &[SocketAddr], saturation: f64) {
        let list: Vec<Value> = addresses
            .iter()
            .map(|address| json!({"name": address, "waiting": 0, "running": 0, "kv": 0}))
            .collect();
        let body = json!({"endpoints": list, "saturation": saturation}).to_string();
        let reply = self.world.call("PUT", "/v1/pools/default/endpoints", &[], &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// Says how saturated they are.
    pub async fn saturated(&self, saturation: f64) {
        let body = json!({"saturation": saturation}).to_string();
        let reply = self.world.call("PUT", "/v1/pools/default/endpoints", &[], &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    pub async fn chat(&self, headers: &[(&str, &str)], body: &str) -> Reply {
        self.world.call("POST", CHAT, headers, body).await
    }

    /// A chat completion whose answer is read by the test, piece by piece.
    pub async fn open(&self, headers: &[(&str, &str)], body: &str) -> Wire {
        let mut wire = Wire::to(self.world.addr).await;
        wire.send(&request("POST", CHAT, headers, body)).await;
        wire
    }

    /// The ends of streams as they were told to the kernel: termination and usage.
    pub async fn ends(&self) -> Vec<(String, Value)> {
        let steps = self.world.log("default").await;
        let ends = steps.iter().filter_map(|step| step["input"].get("Ended").cloned());
        ends.map(|end| (end["termination"].as_str().unwrap().to_owned(), end["usage"].clone())).collect()
    }

    /// Waits until so many have ended; how the last did.
    pub async fn ended(&self, count: usize) -> (String, Value) {
        self.world.until(&format!("{count} ends"), async || self.ends().await.len() >= count).await;
        let mut ends = self.ends().await;
        assert_eq!(ends.len(), count, "{ends:?}");
        ends.pop().unwrap()
    }

    /// Requests that are running, by the kernel's count.
    pub async fn running(&self) -> u64 {
        self.world.pool("default").await["leases"].as_u64().unwrap()
    }

    /// Inputs of one kind.
    pub async fn inputs(&self, kind: &str) -> Vec<Value> {
        let steps = self.world.log("default").await;
        steps.iter().filter_map(|step| step["input"].get(kind).cloned()).collect()
    }
}

/// A request with a body, as text.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text + "\r\n" + body
}

/// A connection whose bytes the test looks at as they come.
pub struct Wire {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub async fn to(addr: SocketAddr) -> Wire {
        Wire { stream: TcpStream::connect(addr).await.unwrap(), buffer: Vec::new() }
    }

    pub async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Waits for this text; it and all before it, which then is behind us.
    pub async fn until(&mut self, text: &str) -> String {
        let find = async {
            loop {
                let found = self.buffer.windows(text.len()).position(|window| window == text.as_bytes());
                if let Some(at) = found {
                    let taken = self.buffer.drain(..at + text.len()).collect::<Vec<u8>>();
                    return String::from_utf8(taken).unwrap();
                }
                assert!(
                    self.more().await,
                    "closed before {text:?}: {}",
                    String::from_utf8_lossy(&self.buffer)
                );
            }
        };
        match tokio::time::timeout(PATIENCE, find).await {
            Ok(found) => found,
            Err(_) => panic!("waited in vain for {text:?}: {}", String::from_utf8_lossy(&self.buffer)),
        }
    }

    /// Waits for so many bytes of a chunked body, however they are cut; they are behind us then.
    pub async fn passed(&mut self, mut bytes: usize) {
        let pass = async {
            while bytes > 0 {
                let line = self.buffer.windows(2).position(|window| window == b"\r\n");
                let size = line.map(|end| std::str::from_utf8(&self.buffer[..end]).unwrap());
                let size = size.map(|size| usize::from_str_radix(size.trim(), 16).unwrap());
                match line.zip(size) {
                    Some((end, size)) if self.buffer.len() >= end + 2 + size + 2 => {
                        bytes = bytes.checked_sub(size).expect("no more than was asked for");
                        self.buffer.drain(..end + 2 + size + 2);
                    }
                    _ => assert!(self.more().await, "closed {bytes} bytes before"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, pass).await.expect("the body does not come");
    }

    /// Waits for the end of the connection; what came before it.
    pub async fn closed(&mut self) -> String {
        let end = async { while self.more().await {} };
        tokio::time::timeout(PATIENCE, end).await.expect("the connection stays open");
        String::from_utf8_lossy(&std::mem::take(&mut self.buffer)).into_owned()
    }

    async fn more(&mut self) -> bool {
        let mut part = vec![0; 64 << 10];
        let read = self.stream.read(&mut part).await.unwrap_or(0);
        self.buffer.extend_from_slice(&part[..read]);
        read > 0
    }
}
