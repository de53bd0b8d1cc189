//! Holders of sheddable leases who can be told to end them: a long poll on a held lease, and an event stream.

use super::callers::{connect, receive, send};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One call that must be answered.
pub fn call(addr: SocketAddr, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let mut stream = connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send(&mut stream, method, path, "", &body).unwrap();
    receive(&mut stream).unwrap()
}

/// A held admission that must be answered at once; its id.
pub fn held(addr: SocketAddr, name: &str, priority: i32) -> String {
    let (status, answer) =
        call(addr, "POST", "/v1/admissions", &json!({"requestId": name, "priority": priority}));
    assert_eq!(status, 200, "{answer}");
    answer["admission"]["id"].as_str().unwrap().to_owned()
}

/// A long poll on a lease.
pub struct Poll(TcpStream);

impl Poll {
    /// `wait` in the words of the face, below `PATIENCE`: a lease that nobody revokes is answered with its state then.
    pub fn begin(addr: SocketAddr, id: &str, wait: &str) -> Poll {
        let mut stream = connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        send(&mut stream, "GET", &format!("/v1/admissions/{id}?wait={wait}"), "", "").unwrap();
        Poll(stream)
    }

    /// What it is answered, if the service lives so long.
    pub fn answer(mut self) -> Option<Value> {
        receive(&mut self.0).map(|(_, answer)| answer)
    }
}

/// An event stream that must be admitted at once.
pub struct Events {
    stream: TcpStream,
    text: String,
}

impl Events {
    pub fn open(addr: SocketAddr, name: &str, priority: i32) -> Events {
        let mut stream = connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = json!({"requestId": name, "priority": priority}).to_string();
        let accept = "Accept: application/x-ndjson\r\n";
        send(&mut stream, "POST", "/v1/admissions", accept, &body).unwrap();
        let mut events = Events { stream, text: String::new() };
        assert!(events.hears("admitted"), "{}", events.text);
        events
    }

    /// Reads until an event of this kind has come; false if the stream ends before.
    pub fn hears(&mut self, kind: &str) -> bool {
        let wanted = format!("\"event\":\"{kind}\"");
        let mut chunk = [0; 1_024];
        while !self.text.contains(&wanted) {
            match self.stream.read(&mut chunk) {
                Ok(read) if read > 0 => self.text.push_str(&String::from_utf8_lossy(&chunk[..read])),
                _over => return false,
            }
        }
        true
    }
}

/// Sends a held admission and leaves its answer unread: whoever drops it has left.
pub fn waiting(addr: SocketAddr, name: &str, priority: i32) -> TcpStream {
    let mut stream = connect(addr).unwrap();
    send(
        &mut stream,
        "POST",
        "/v1/admissions",
        "",
        &json!({"requestId": name, "priority": priority}).to_string(),
    )
    .unwrap();
    stream.flush().unwrap();
    stream
}

/// Waits until the log as the service shows it is as asked for.
pub fn until(addr: SocketAddr, what: &str, mut so: impl FnMut(&[Value]) -> bool) {
    let began = Instant::now();
    loop {
        let events = events(addr);
        if so(&events) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for {what}: {events:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All events so far that are durable.
pub fn events(addr: SocketAddr) -> Vec<Value> {
    let mut stream = connect(addr).unwrap();
    let request = "GET /v1/pools/default/log HTTP/1.0\r\nHost: weir\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let steps = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    steps.flat_map(|step| step["events"].as_array().cloned().unwrap_or_default()).collect()
}
