//! `graphql-transport-ws` over a WebSocket: subscriptions and questions on one connection.
//!
//! <https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md>. A subscriber that does not read is ended with its
//! connection; what waits for it is bounded. Not here: frames (`frame.rs`).

use super::Waiting;
use super::frame::{self, Broken, Message};
use crate::gateway::problem::{Fault, Invalid};
use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderValue, Request, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio_stream::{Stream, StreamExt};
use weir_graphql::{Service, Terms, encode, refusal};
use weir_projection::Work;

const PROTOCOL: &str = "graphql-transport-ws";
/// Operations of one connection at once.
const OPERATIONS_MAX: usize = 16;
/// Messages that wait to be sent.
const WAITING_MAX: usize = 64;
/// For the other side to say that it is there.
const INIT_WAIT: Duration = Duration::from_secs(10);
/// Between two pings.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Between two looks whether the service ends.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// For a message to leave.
const SEND_WAIT: Duration = Duration::from_secs(30);

/// Is this a handshake?
pub fn is_asked<B>(request: &Request<B>) -> bool {
    request.headers().get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Answers the handshake; what follows runs by itself until either side ends it.
pub fn open(
    service: Service,
    request: &mut Request<Body>,
    pools: Option<BTreeSet<String>>,
) -> Result<Response, Fault> {
    let headers = request.headers();
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    if !offered.flat_map(|value| value.split(',')).any(|name| name.trim() == PROTOCOL) {
        return Err(Invalid::new("sec-websocket-protocol", "", PROTOCOL).into());
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY).cloned() else {
        return Err(Invalid::new("sec-websocket-key", "", "the key of a handshake").into());
    };
    let place = match service.connect() {
        Ok(place) => place,
        Err(_) => return Err(Fault::GatewayFull { what: "sockets", limit: service.options().subscriptions }),
    };
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        return Err(Invalid::new("upgrade", "websocket", "a connection of HTTP/1.1").into());
    };
    let accept = [key.as_bytes(), b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    let accept = STANDARD.encode(frame::sha1(&accept));
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            run(service, upgraded, pools).await;
            drop(place);
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    let accept = HeaderValue::from_str(&accept).map_err(|_| Fault::Internal("no handshake".to_owned()))?;
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

type Input = ReadHalf<TokioIo<Upgraded>>;
type Output = WriteHalf<TokioIo<Upgraded>>;

/// A close, with its number in the protocol and its words.
struct Close(u16, String);

async fn run(service: Service, upgraded: Upgraded, pools: Option<BTreeSet<String>>) {
    let (mut input, mut output) = tokio::io::split(TokioIo::new(upgraded));
    let (to, mut outgoing) = mpsc::channel::<Value>(WAITING_MAX);
    let mut session =
        Session { service, pools, to, running: HashMap::new(), tasks: JoinSet::new(), begun: false };
    let ended = session.talk(&mut input, &mut output, &mut outgoing).await;
    session.tasks.abort_all();
    let Close(code, reason) = ended;
    let _ = send(&mut output, 8, &frame::closing(code, &reason)).await;
}

async fn send(output: &mut Output, code: u8, data: &[u8]) -> bool {
    tokio::time::timeout(SEND_WAIT, frame::write(output, code, data)).await.is_ok_and(|sent| sent.is_ok())
}

struct Session {
    service: Service,
    pools: Option<BTreeSet<String>>,
    to: mpsc::Sender<Value>,
    running: HashMap<String, AbortHandle>,
    tasks: JoinSet<String>,
    begun: bool,
}

type Results = Pin<Box<dyn Stream<Item = Vec<u8>> + Send>>;

impl Session {
    async fn talk(
        &mut self,
        input: &mut Input,
        output: &mut Output,
        outgoing: &mut mpsc::Receiver<Value>,
    ) -> Close {
        let mut partial = Vec::new();
        let deadline = tokio::time::Instant::now() + INIT_WAIT;
        let mut pings = tokio::time::interval(PING_EVERY);
        pings.tick().await;
        let mut looks = tokio::time::interval(LOOK_EVERY);
        // A message that is half read stays so while something else is done.
        let mut reading = Box::pin(next(input, std::mem::take(&mut partial)));
        loop {
            tokio::select! {
                (message, rest, input) = &mut reading => {
                    reading = Box::pin(next(input, rest));
                    match message {
                        Ok(Message::Text(text)) => {
                            if let Err(close) = self.take(&text).await { return close; }
                        }
                        Ok(Message::Ping(data)) => if !send(output, 10, &data).await { return gone() },
                        Ok(Message::Pong) => {}
                        Ok(Message::Close) => return Close(1000, String::new()),
                        Err(Broken(code)) => return Close(if code == 1006 { 1000 } else { code }, String::new()),
                    }
                }
                Some(message) = outgoing.recv() => {
                    if !send(output, 1, message.to_string().as_bytes()).await { return gone(); }
                }
                Some(Ok(id)) = self.tasks.join_next(), if !self.tasks.is_empty() => { self.running.remove(&id); }
                _ = pings.tick() => if !send(output, 9, b"").await { return gone() },
                _ = looks.tick() => if self.service.projections().is_closed() { return gone() },
                () = tokio::time::sleep_until(deadline), if !self.begun => {
                    return Close(4408, "Connection initialisation timeout".to_owned());
                }
            }
        }
    }

    async fn tell(&self, message: Value) -> Result<(), Close> {
        self.to.send(message).await.map_err(|_| gone())
    }

    async fn take(&mut self, text: &str) -> Result<(), Close> {
        let invalid = || Close(4400, "Invalid message".to_owned());
        let mut message: Value = serde_json::from_str(text).map_err(|_| invalid())?;
        let kind = message["type"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "connection_init" if self.begun => {
                Err(Close(4429, "Too many initialisation requests".to_owned()))
            }
            "connection_init" => {
                self.begun = true;
                self.tell(json!({ "type": "connection_ack" })).await
            }
            "ping" => self.tell(json!({ "type": "pong" })).await,
            "pong" => Ok(()),
            "subscribe" if !self.begun => Err(Close(4401, "Unauthorized".to_owned())),
            "subscribe" => {
                let Some(id) =
                    message["id"].as_str().filter(|id| !id.is_empty() && id.len() <= 128).map(str::to_owned)
                else {
                    return Err(invalid());
                };
                if self.running.contains_key(&id) {
                    return Err(Close(4409, format!("Subscriber for {id} already exists")));
                }
                let payload = message["payload"].take();
                self.subscribe(id, payload).await
            }
            "complete" => {
                if let Some(running) = message["id"].as_str().and_then(|id| self.running.remove(id)) {
                    running.abort();
                }
                Ok(())
            }
            _ => Err(invalid()),
        }
    }

    async fn subscribe(&mut self, id: String, payload: Value) -> Result<(), Close> {
        let terms = Terms::new(self.pools.clone(), Work::unbounded());
        let results: Results = if self.running.len() >= OPERATIONS_MAX {
            let what = "operations on this connection";
            let fault = weir_graphql::Fault::Full { what, limit: OPERATIONS_MAX };
            return self.tell(json!({ "id": id, "type": "error", "payload": errors(fault) })).await;
        } else if self.service.is_subscription(&payload) {
            match self.service.subscribe(payload, &terms) {
                Ok(results) => Box::pin(results),
                Err(fault) => {
                    return self.tell(json!({ "id": id, "type": "error", "payload": errors(fault) })).await;
                }
            }
        } else {
            Box::pin(question(self.service.clone(), payload, self.pools.clone()))
        };
        let (to, named) = (self.to.clone(), id.clone());
        let waiting = Waiting(terms.work);
        let task = self.tasks.spawn(async move {
            let _waiting = waiting;
            let mut results = results;
            while let Some(result) = results.next().await {
                let payload: Value = serde_json::from_slice(&result).unwrap_or_default();
                if to.send(json!({ "id": named, "type": "next", "payload": payload })).await.is_err() {
                    return named;
                }
            }
            let _ = to.send(json!({ "id": named, "type": "complete" })).await;
            named
        });
        self.running.insert(id, task);
        Ok(())
    }
}

fn gone() -> Close {
    Close(1001, String::new())
}

fn errors(fault: weir_graphql::Fault) -> Value {
    serde_json::to_value(refusal(fault)).map(|mut response| response["errors"].take()).unwrap_or_default()
}

fn question(
    service: Service,
    payload: Value,
    pools: Option<BTreeSet<String>>,
) -> impl Stream<Item = Vec<u8>> + Send {
    let answer = async move {
        let terms = service.terms(pools);
        let _waiting = Waiting(terms.work.clone());
        let answer = service.answer_elsewhere(payload.to_string(), terms).await;
        answer.unwrap_or_else(|| {
            let what = "a question made its thread fail".to_owned();
            encode(&refusal(weir_graphql::Fault::Internal(what)))
        })
    };
    Once(Some(Box::pin(answer)))
}

/// A stream of what one future gives.
struct Once<F>(Option<Pin<Box<F>>>);

impl<F: Future> Stream for Once<F> {
    type Item = F::Output;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let Some(answer) = &mut self.0 else { return Poll::Ready(None) };
        let given = answer.as_mut().poll(context);
        if given.is_ready() {
            self.0 = None;
        }
        given.map(Some)
    }
}

/// The next message, with what was read from, so that a reading that is waited for can be kept.
async fn next(input: &mut Input, mut partial: Vec<u8>) -> (Result<Message, Broken>, Vec<u8>, &mut Input) {
    let message = frame::read(input, &mut partial).await;
    (message, partial, input)
}
