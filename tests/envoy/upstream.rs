//! A model server of a few lines: it notes what it is sent and answers as it is told.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpSocket;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

/// What one request was.
#[derive(Clone, Debug)]
pub struct Seen {
    pub headers: BTreeMap<String, String>,
    pub body: Bytes,
}

/// The server.
#[derive(Clone)]
pub struct Upstream {
    pub addr: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    go: watch::Sender<bool>,
    aborted: Arc<AtomicUsize>,
}

/// A request that was cut short, unless it is let go first.
struct Cut(Option<Arc<AtomicUsize>>);

impl Cut {
    /// It was answered to its end.
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if let Some(aborted) = &self.0 {
            aborted.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Events of a streamed answer, the last with its usage.
pub const EVENTS: [&str; 3] = [
    "data: {\"choices\":[{\"text\":\"a\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}\n\n",
    "data: [DONE]\n\n",
];

impl Upstream {
    pub async fn start() -> Upstream {
        // Thousands may connect at once.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(8_192).unwrap();
        let addr = listener.local_addr().unwrap();
        let upstream =
            Upstream { addr, seen: Arc::default(), go: watch::channel(false).0, aborted: Arc::default() };
        let app = Router::new().fallback(answer).with_state(upstream.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        upstream
    }

    /// Everything that has come so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Requests of `x-test: hold`, `head` and `wait` whose connection was closed before they were answered.
    pub fn aborted(&self) -> usize {
        self.aborted.load(Ordering::SeqCst)
    }

    /// Lets the answers of `x-test: hold` and `head` go on.
    pub fn go(&self) {
        self.go.send_replace(true);
    }
}

async fn answer(State(upstream): State<Upstream>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 64 << 20).await.unwrap_or_default();
    let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let headers: BTreeMap<String, String> =
        parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    let kind = headers.get("x-test").cloned().unwrap_or_default();
    upstream.seen.lock().unwrap().push(Seen { headers, body });
    match kind.as_str() {
        "events" => events(None, Cut(None)),
        // Its head and first event at once, the rest when told.
        "hold" => events(Some((1, upstream.go.subscribe())), Cut(Some(upstream.aborted))),
        // Its head at once, as vLLM does for a request that waits in its own queue; the events when told.
        "head" => events(Some((0, upstream.go.subscribe())), Cut(Some(upstream.aborted))),
        // Nothing until told.
        "wait" => {
            let cut = Cut(Some(upstream.aborted));
            let _ = upstream.go.subscribe().wait_for(|go| *go).await;
            cut.answered();
            Response::new(Body::from("late"))
        }
        "fail" => Response::builder().status(500).body(Body::from("no")).unwrap(),
        _ => Response::builder()
            .header("content-type", "application/json")
            .body(Body::from(r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}}"#))
            .unwrap(),
    }
}

/// The events; from a certain one on when told.
fn events(go: Option<(usize, watch::Receiver<bool>)>, cut: Cut) -> Response {
    let (to, stream) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    tokio::spawn(async move {
        for (at, event) in EVENTS.into_iter().enumerate() {
            if let Some((first, mut go)) = go.clone()
                && at == first
            {
                tokio::select! {
                    _ = go.wait_for(|go| *go) => {}
                    () = to.closed() => return,
                }
            }
            if to.send(Ok(Bytes::from_static(event.as_bytes()))).await.is_err() {
                return;
            }
        }
        cut.answered();
    });
    let body = Body::from_stream(ReceiverStream::new(stream));
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}
