//! A reader of event streams, in both forms.

use crate::harness::{Connection, PATIENCE};
use serde_json::Value;
use std::net::SocketAddr;

/// An open stream.
pub struct Events {
    connection: Connection,
    /// Server-sent events, or lines.
    sse: bool,
    text: String,
    pub headers: Vec<(String, String)>,
    pub heartbeats: usize,
}

pub const NDJSON: &str = "application/x-ndjson";
pub const SSE: &str = "text/event-stream";

impl Events {
    /// Asks for admission as a stream, which has to begin.
    pub async fn open(addr: SocketAddr, form: &str, headers: &[(&str, &str)], body: &str) -> Events {
        let connection = Connection::open(addr).await;
        Events::begin(connection, form, headers, body).await
    }

    pub async fn begin(
        mut connection: Connection,
        form: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Events {
        let mut all = vec![("accept", form)];
        all.extend(headers);
        connection.send("POST", "/v1/admissions", &all, body.as_bytes()).await;
        let head = tokio::time::timeout(PATIENCE, connection.read_head());
        let (status, headers) = head.await.expect("no answer in time");
        assert_eq!(status, 200, "{headers:?}");
        let sse = form == SSE;
        assert!(headers.contains(&("content-type".to_owned(), form.to_owned())), "{headers:?}");
        Events { connection, sse, text: String::new(), headers, heartbeats: 0 }
    }

    /// The next event that is no heartbeat; none at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("no event in time")
    }

    /// The next event, which has to be of this kind.
    #[track_caller]
    pub fn expect<'e>(&'e mut self, kind: &'e str) -> impl Future<Output = Value> + 'e {
        let at = std::panic::Location::caller();
        async move {
            let event = self.next().await.unwrap_or_else(|| panic!("{at}: the stream has ended"));
            assert_eq!(event["event"], kind, "{at}: {event}");
            event
        }
    }

    /// The stream ends here.
    pub async fn over(&mut self) {
        let next = self.next().await;
        assert_eq!(next, None);
    }

    /// Reads until so many signs of life have come, before anything else does.
    pub async fn beats(&mut self, want: usize) {
        let all = async {
            while self.heartbeats < want {
                assert_eq!(self.heard(), None, "no heartbeat");
                assert!(self.heartbeats >= want || self.more().await, "the stream has ended");
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("too few heartbeats");
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.heard() {
                return Some(event);
            }
            if !self.more().await {
                assert_eq!(self.text, "", "cut off within an event");
                return None;
            }
        }
    }

    /// The next event of what has come, after the heartbeats before it.
    fn heard(&mut self) -> Option<Value> {
        let (end, length) = if self.sse { ("\n\n", 2) } else { ("\n", 1) };
        while let Some(at) = self.text.find(end) {
            let frame: String = self.text.drain(..at + length).collect();
            match self.event(frame.trim_end()) {
                Some(event) => return Some(event),
                None => self.heartbeats += 1,
            }
        }
        None
    }

    async fn more(&mut self) -> bool {
        let chunk = self.connection.chunk().await;
        self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        !chunk.is_empty()
    }

    fn event(&self, frame: &str) -> Option<Value> {
        if !self.sse {
            let value: Value = serde_json::from_str(frame).unwrap();
            return (value["event"] != "heartbeat").then_some(value);
        }
        if frame.starts_with(": ") {
            return None;
        }
        let (event, data) = frame.split_once('\n').unwrap();
        let value: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(event.strip_prefix("event: "), value["event"].as_str());
        Some(value)
    }
}
