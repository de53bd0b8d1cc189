//! A gateway over real engines in memory, on a port of its own, and a plain HTTP/1.1 client that shows everything.

use crate::kept::KeptMemory;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir::engine::{Engine, EngineOptions, INBOX_ARRIVALS_MAX, Place, PoolOptions};
use weir::gateway::{Gateway, History, Options, PoolFace};
use weir::observer::{Feed, Observer, ObserverOptions, ScrapeOptions};
use weir_kernel::{Detector, Micros, Policy};
use weir_log::memory::MemoryDisk;

/// What is waited for comes within this, or the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A pool's settings in a test.
#[derive(Clone, Default)]
pub struct Setup {
    pub policy: Policy,
    pub objectives: Vec<(&'static str, i32)>,
    pub trust_priority: bool,
}

/// A pool whose saturation is pushed: what the test says, it is.
pub fn pushed(change: impl FnOnce(&mut Policy)) -> Setup {
    let mut policy = Policy { detector: Detector::Pushed, ..Policy::default() };
    change(&mut policy);
    Setup { policy, ..Setup::default() }
}

pub struct World {
    pub addr: SocketAddr,
    pub gateway: Arc<Gateway>,
    engine: Engine,
    closing: watch::Sender<bool>,
    server: JoinHandle<()>,
    kept: Option<KeptMemory>,
}

impl World {
    /// One pool called `default`.
    pub async fn one(setup: Setup) -> World {
        World::start(BTreeMap::from([("default", setup)]), Options::default()).await
    }

    pub async fn start(setups: BTreeMap<&str, Setup>, options: Options) -> World {
        let disk = MemoryDisk::new();
        let place = Place::Memory(disk.clone());
        let mut world = World::deciding(setups, options, place, weir_kernel::decide).await;
        world.kept = Some(KeptMemory(disk));
        world
    }

    /// With another kernel in place of ours, which may have a fault.
    pub async fn deciding(
        setups: BTreeMap<&str, Setup>,
        options: Options,
        place: Place,
        decide: weir::engine::Decide,
    ) -> World {
        let pools = setups.iter().map(|(name, setup)| {
            let objectives = setup.objectives.iter().map(|(name, p)| ((*name).to_owned(), *p)).collect();
            (
                (*name).to_owned(),
                PoolOptions { policy: setup.policy.clone(), objectives, keep_objectives: false },
            )
        });
        let options_of_engine = EngineOptions {
            pools: pools.collect(),
            place,
            log: weir::engine::LogOptions::default(),
            clock: None,
            inbox_arrivals_max: INBOX_ARRIVALS_MAX,
        };
        let engine = Engine::open_deciding(options_of_engine, decide).unwrap();
        let mut faces = Vec::new();
        for (name, setup) in &setups {
            let handle = engine.pool(name).unwrap().clone();
            let staleness = Micros::from_secs(3_600);
            let scrape = ScrapeOptions::default();
            let observing = ObserverOptions { feed: Feed::Pushed, scrape, staleness };
            let observer = Observer::start(handle.clone(), observing).await;
            let face = PoolFace::new(handle, observer, "pushed".to_owned());
            face.set_trust_priority(setup.trust_priority);
            faces.push(face);
        }
        let gateway = Arc::new(Gateway::new(faces, History::new(None, engine.log_writer()), options.clone()));
        weir::gateway::follow_all(&gateway);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (closing, closed) = watch::channel(false);
        let server = tokio::spawn(weir::gateway::serve(Arc::clone(&gateway), listener, closed));
        World { addr, gateway, engine, closing, server, kept: None }
    }

    /// Stops in order: the engine first, then the listener.
    pub async fn close(self) {
        self.engine.shutdown(Duration::ZERO).await.unwrap();
        self.closing.send(true).unwrap();
        self.server.await.unwrap();
    }

    pub async fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        call(self.addr, method, path, headers, body.as_bytes()).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, &[], "").await
    }

    pub async fn admit(&self, body: Value) -> Reply {
        self.call("POST", "/v1/admissions", &[], &body.to_string()).await
    }

    /// An admission in the background.
    pub fn admitting(&self, body: Value) -> JoinHandle<Reply> {
        let addr = self.addr;
        tokio::spawn(
            async move { call(addr, "POST", "/v1/admissions", &[], body.to_string().as_bytes()).await },
        )
    }

    /// Says what the pool is: so many endpoints, so saturated.
    pub async fn pool_is(&self, pool: &str, endpoints: usize, saturation: f64) {
        let list: Vec<Value> = (0..endpoints)
            .map(|e| json!({"name": format!("e{e}"), "waiting": 0, "running": 0, "kv": 0}))
            .collect();
        let body = json!({"endpoints": list, "saturation": saturation}).to_string();
        let reply = self.call("PUT", &format!("/v1/pools/{pool}/endpoints"), &[], &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// The pool as it is shown.
    pub async fn pool(&self, pool: &str) -> Value {
        self.get(&format!("/v1/pools/{pool}")).await.json()
    }

    /// Waits until so many are queued.
    pub async fn queued(&self, pool: &str, want: u64) {
        self.until(&format!("{want} queued"), async || {
            self.pool(pool).await["queue"]["requests"] == json!(want)
        })
        .await;
    }

    /// Waits until something is so.
    pub async fn until(&self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        let all = async {
            while !so().await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("waited in vain for: {what}"));
    }

    /// Every durable step that the server still shows, as JSON.
    pub async fn log(&self, pool: &str) -> Vec<Value> {
        let durable = self.pool(pool).await["log"]["sequence"].as_u64().unwrap();
        let mut steps = Vec::new();
        self.until("the log to be shown", async || {
            let reply = self.get(&format!("/v1/pools/{pool}/log")).await;
            steps =
                reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
            steps.last().is_some_and(|step: &Value| step["seq"].as_u64().unwrap() >= durable)
        })
        .await;
        steps
    }

    /// The events of one kind in the log.
    pub async fn events(&self, pool: &str, kind: &str) -> Vec<Value> {
        let steps = self.log(pool).await;
        let events = steps.iter().flat_map(|step| step["events"].as_array().unwrap().clone());
        events.filter_map(|event| event.get(kind).cloned()).collect()
    }
}

/// What came back.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// A refusal with this status and reason, in header and body alike.
    #[track_caller]
    pub fn refused(&self, status: u16, reason: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("x-weir-dropped-reason"), Some(reason), "{}", self.text());
        assert!(self.header("x-llm-d-request-dropped-reason").is_some());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["reason"], reason);
        assert_eq!(problem["status"], status);
        problem
    }

    /// An admission's own object.
    #[track_caller]
    pub fn admitted(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()["admission"].clone()
    }
}

/// One request on a connection of its own.
pub async fn call(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let mut connection = Connection::open(addr).await;
    connection.send(method, path, headers, body).await;
    connection.reply().await
}

/// A connection that is kept.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub async fn open(addr: SocketAddr) -> Connection {
        Connection::over(TcpStream::connect(addr).await.unwrap())
    }

    pub fn over(stream: TcpStream) -> Connection {
        // Head and body are written apart.
        stream.set_nodelay(true).unwrap();
        Connection { stream, buffer: Vec::new() }
    }

    pub async fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.raw(head.as_bytes()).await;
        self.raw(body).await;
    }

    pub async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The same where the other side may have had enough already.
    pub async fn raw_if_open(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Waits for its end, with nothing more to read.
    pub async fn is_closed(&mut self) -> bool {
        let more = tokio::time::timeout(PATIENCE, self.more()).await.expect("not closed in time");
        !more
    }

    pub async fn reply(&mut self) -> Reply {
        tokio::time::timeout(PATIENCE, self.read_reply()).await.expect("no answer in time")
    }

    /// The status and the headers of an answer whose body is read afterwards.
    pub async fn read_head(&mut self) -> (u16, Vec<(String, String)>) {
        let end = loop {
            match self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end,
                None => assert!(self.more().await, "closed without an answer"),
            }
        };
        let head = String::from_utf8(self.buffer.drain(..end + 4).collect()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        (status, headers)
    }

    async fn read_reply(&mut self) -> Reply {
        let (status, headers) = self.read_head().await;
        self.read_body(status, headers).await
    }

    /// The rest of an answer.
    pub async fn read_body(&mut self, status: u16, headers: Vec<(String, String)>) -> Reply {
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let body = match length {
            Some((_, length)) => {
                let length: usize = length.parse().unwrap();
                while self.buffer.len() < length {
                    assert!(self.more().await, "closed within the body");
                }
                self.buffer.drain(..length).collect()
            }
            None => self.chunks().await,
        };
        Reply { status, headers, body }
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let chunk = self.chunk().await;
            if chunk.is_empty() {
                return body;
            }
            body.extend(chunk);
        }
    }

    /// The next chunk of a chunked body; empty at its end. Whoever gives up in between loses nothing: what is not whole
    /// stays in the buffer.
    pub async fn chunk(&mut self) -> Vec<u8> {
        let end = loop {
            match self.buffer.windows(2).position(|window| window == b"\r\n") {
                Some(end) => break end,
                None => assert!(self.more().await, "closed within a chunk"),
            }
        };
        let line = std::str::from_utf8(&self.buffer[..end]).unwrap();
        let (start, size) = (end + 2, usize::from_str_radix(line.trim(), 16).unwrap());
        while self.buffer.len() < start + size + 2 {
            assert!(self.more().await, "closed within a chunk");
        }
        let chunk = self.buffer[start..start + size].to_vec();
        self.buffer.drain(..start + size + 2);
        chunk
    }

    async fn more(&mut self) -> bool {
        let mut part = vec![0; 64 << 10];
        let read = self.stream.read(&mut part).await.unwrap_or(0);
        self.buffer.extend_from_slice(&part[..read]);
        read > 0
    }
}
