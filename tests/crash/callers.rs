//! Callers over plain HTTP/1.1: admissions that are completed, kept, or left while they wait.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CALLERS: u64 = 12;

/// What a caller heard, whole.
#[derive(Clone, Debug)]
pub enum Heard {
    /// Status, outcome and sequence of an admission's answer.
    Decision { status: u16, outcome: String, sequence: u64, request: String },
    /// A completion that counted.
    Completed { id: String },
}

pub struct Callers {
    threads: Vec<JoinHandle<()>>,
    heard: Arc<Mutex<Vec<Heard>>>,
    count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Callers {
    pub fn start(addr: SocketAddr, round: u64) -> Callers {
        let (heard, count) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..CALLERS)
            .map(|who| {
                let (heard, count, stop) = (Arc::clone(&heard), Arc::clone(&count), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let mut turn = 0;
                    while !stop.load(Ordering::SeqCst) {
                        turn += 1;
                        let name = format!("{round}-{who}-{turn}");
                        // A connection that breaks is the kill (or a leaving of our own): begin another.
                        if call_once(addr, &name, (round + who * 7 + turn) % 11, &heard, &count).is_none() {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                })
            })
            .collect();
        Callers { threads, heard, count, stop }
    }

    /// Until so many decisions were heard.
    pub fn wait_for(&self, decisions: u64, at_most: Duration) {
        let until = Instant::now() + at_most;
        while self.count.load(Ordering::SeqCst) < decisions {
            assert!(Instant::now() < until, "only {} decisions", self.count.load(Ordering::SeqCst));
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub fn finish(self) -> Vec<Heard> {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().unwrap();
        }
        let heard = self.heard.lock().unwrap();
        heard.clone()
    }
}

/// One caller's turn: `None` if the connection broke.
fn call_once(
    addr: SocketAddr,
    name: &str,
    kind: u64,
    heard: &Mutex<Vec<Heard>>,
    count: &AtomicU64,
) -> Option<()> {
    let body = json!({"requestId": name, "fairnessId": format!("f{}", kind % 3), "bytes": 100}).to_string();
    let key = (kind == 4).then(|| format!("Idempotency-Key: {name}\r\n"));
    let mut stream = connect(addr)?;
    send(&mut stream, "POST", "/v1/admissions", key.as_deref().unwrap_or(""), &body)?;
    if kind == 7 {
        // Leaves while it waits (or just after its answer was sent).
        stream.set_read_timeout(Some(Duration::from_millis(3))).ok()?;
        let mut byte = [0];
        let _ = stream.read(&mut byte);
        return Some(());
    }
    let (status, answer) = receive(&mut stream)?;
    let admission = if status == 200 { answer["admission"].clone() } else { answer };
    let Some(sequence) = admission["sequence"].as_u64() else {
        assert!(status >= 500, "an answer without a sequence: {status} {admission}");
        return Some(());
    };
    let outcome = admission["outcome"].as_str().unwrap().to_owned();
    let request = admission["requestId"].as_str().unwrap().to_owned();
    heard.lock().unwrap().push(Heard::Decision { status, outcome, sequence, request });
    count.fetch_add(1, Ordering::SeqCst);
    // Some never say that they are done: their leases lapse.
    if status == 200 && kind != 9 {
        std::thread::sleep(Duration::from_millis(kind % 3));
        let id = admission["id"].as_str().unwrap().to_owned();
        send(&mut stream, "POST", &format!("/v1/admissions/{id}/complete"), "", "{}")?;
        let (status, _) = receive(&mut stream)?;
        if (200..300).contains(&status) {
            heard.lock().unwrap().push(Heard::Completed { id });
        }
    }
    Some(())
}

/// One GET that must succeed.
pub fn get(addr: SocketAddr, path: &str) -> Value {
    let mut stream = connect(addr).unwrap();
    send(&mut stream, "GET", path, "", "").unwrap();
    let (status, body) = receive(&mut stream).unwrap();
    assert_eq!(status, 200, "{body}");
    body
}

pub fn connect(addr: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(30)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    stream.set_nodelay(true).ok()?;
    Some(stream)
}

pub fn send(stream: &mut TcpStream, method: &str, path: &str, headers: &str, body: &str) -> Option<()> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).ok()
}

/// A whole answer with a length; anything less is none.
pub fn receive(stream: &mut TcpStream) -> Option<(u16, Value)> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4_096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = std::str::from_utf8(&bytes[..end]).unwrap().to_ascii_lowercase();
            let status = head.get(9..12)?.parse().ok()?;
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"))
                .map_or(0, |n| n.trim().parse().unwrap());
            if bytes.len() >= end + 4 + length {
                let body = &bytes[end + 4..end + 4 + length];
                return Some((status, serde_json::from_slice(body).unwrap_or(Value::Null)));
            }
        }
        let read = stream.read(&mut chunk).ok()?;
        if read == 0 {
            return None;
        }
        bytes.extend_from_slice(&chunk[..read]);
    }
}
