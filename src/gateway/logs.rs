//! `GET /v1/pools/{pool}/log?from=SEQ&limit=N&follow=true`: the durable steps of a running server as NDJSON.
//!
//! From the log itself, sealed or hot, then live. What is no longer kept is said to be (410, with the first sequence
//! that is), never skipped. Readers are few, since each may take a thread; one that does not read is
//! ended with its connection (`socket.rs`), unfinished.

use super::history::{History, Steps};
use super::problem::{Fault, Invalid};
use super::query;
use super::segment::Segment;
use super::state::Gateway;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request};
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use weir_kernel::Step;
use weir_log::SegmentError;

/// Bytes of lines that are sent at once.
const CHUNK: usize = 64 << 10;

/// What is asked for.
struct Span {
    from: Option<u64>,
    limit: Option<u64>,
    follow: bool,
}

fn span(query: Option<&str>) -> Result<Span, Invalid> {
    let mut span = Span { from: None, limit: None, follow: false };
    for (name, value) in query::pairs(query)? {
        let number = |max, allowed| super::ask::whole(name.to_string(), value.as_bytes(), max, allowed);
        match &*name {
            "from" => span.from = Some(number(u64::MAX, "a sequence, from 1")?.max(1)),
            "limit" => span.limit = Some(number(u64::from(u32::MAX), "a whole number, up to 4294967295")?),
            "follow" => {
                span.follow = match &*value {
                    "true" | "" => true,
                    "false" => false,
                    other => return Err(Invalid::new("follow", other, "true or false")),
                };
            }
            other => return Err(Invalid::new("query", other, "from, limit and follow")),
        }
    }
    Ok(span)
}

/// The handler.
pub async fn read(
    State(gateway): State<Arc<Gateway>>,
    Segment(name): Segment,
    request: Request<Body>,
) -> Result<Response, Fault> {
    let pool = gateway.pool(Some(&name))?;
    let span = span(request.uri().query())?;
    let full = |_| Fault::GatewayFull { what: "log readers", limit: gateway.options.log_readers_max };
    // Held until all is read from the log and the reader has it, or is gone.
    let place = Arc::new(Arc::clone(&gateway.log_readers).try_acquire_owned().map_err(full)?);
    // Subscribed before the end is looked at: nothing falls between what is read and what comes live.
    let live = span.follow.then(|| pool.handle.subscribe());
    let durable = pool.handle.status().durable;
    let from = span.from.or(span.follow.then_some(durable + 1));
    let mut past = None;
    let mut next = from.unwrap_or(1);
    if from.is_none_or(|from| from <= durable) {
        let (first, rest) = open(gateway.history.clone(), name.clone(), from).await?;
        next = first.as_ref().map_or(next, |step| step.seq);
        past = Some((first, rest));
    }
    let (to, lines) = mpsc::channel(4);
    let lines_of = Lines { to, left: span.limit.unwrap_or(u64::MAX), next, buffer: Vec::new() };
    let (history, reading) = (gateway.history.clone(), Arc::clone(&place));
    tokio::spawn(async move {
        pump(lines_of, past, live, history, name).await;
        drop(reading);
    });
    let lines = ReceiverStream::new(lines).map(move |chunk| {
        let _place = &place;
        chunk
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// The first step is read before the answer begins, so that what is not to be had has a status.
async fn open(history: History, pool: String, from: Option<u64>) -> Result<(Option<Step>, Steps), Fault> {
    let opened = spawn_blocking(move || {
        let mut steps = history.steps(&pool, from)?;
        Ok((steps.next().transpose()?, steps))
    });
    match opened.await {
        Ok(Ok(opened)) => Ok(opened),
        Ok(Err(error @ SegmentError::Trimmed { .. })) => Err(Fault::Gone(error.to_string())),
        Ok(Err(error)) => Err(Fault::Internal(error.to_string())),
        Err(_) => Err(Fault::Internal("the reader of the log failed".to_owned())),
    }
}

/// The reader is gone, or has all that it asked for.
struct Enough;

struct Lines {
    to: mpsc::Sender<Result<Bytes, SegmentError>>,
    left: u64,
    /// The sequence of the next line.
    next: u64,
    buffer: Vec<u8>,
}

impl Lines {
    fn put(&mut self, step: &Step) -> Result<(), Enough> {
        if self.left == 0 {
            return Err(Enough);
        }
        self.left -= 1;
        self.next = step.seq + 1;
        line(&mut self.buffer, step);
        Ok(())
    }

    fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.buffer).into()
    }

    async fn send(&mut self) -> Result<(), Enough> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = self.take();
        self.to.send(Ok(chunk)).await.map_err(|_| Enough)
    }

    /// From the log, on a thread for that; the reader sets the pace. An error ends the body unfinished.
    fn read(&mut self, steps: impl Iterator<Item = Result<Step, SegmentError>>) -> Result<(), Enough> {
        for step in steps {
            match step {
                Ok(step) => self.put(&step)?,
                Err(error) => {
                    let _ = self.to.blocking_send(Err(error));
                    return Err(Enough);
                }
            }
            if self.buffer.len() >= CHUNK {
                let chunk = self.take();
                self.to.blocking_send(Ok(chunk)).map_err(|_| Enough)?;
            }
        }
        Ok(())
    }
}

async fn pump(
    mut lines: Lines,
    past: Option<(Option<Step>, Steps)>,
    live: Option<Receiver<Arc<Vec<Step>>>>,
    history: History,
    pool: String,
) {
    if let Some((first, rest)) = past {
        lines = from_log(lines, first, rest).await;
    }
    if lines.send().await.is_err() {
        return;
    }
    let Some(mut live) = live else { return };
    while lines.left > 0 {
        let batch = tokio::select! {
            batch = live.recv() => batch,
            () = lines.to.closed() => return,
        };
        match batch {
            Ok(batch) => {
                let next = lines.next;
                for step in batch.iter().skip_while(|step| step.seq < next) {
                    if lines.put(step).is_err() {
                        break;
                    }
                }
            }
            // A slow reader catches up from the log itself.
            Err(RecvError::Lagged(_)) => match open(history.clone(), pool.clone(), Some(lines.next)).await {
                Ok((first, rest)) => lines = from_log(lines, first, rest).await,
                Err(_) => return,
            },
            Err(RecvError::Closed) => return,
        }
        if lines.send().await.is_err() {
            return;
        }
    }
}

async fn from_log(lines: Lines, first: Option<Step>, rest: Steps) -> Lines {
    let to = lines.to.clone();
    let read = spawn_blocking(move || {
        let mut lines = lines;
        if lines.read(first.into_iter().map(Ok).chain(rest)).is_err() {
            lines.left = 0;
        }
        lines
    });
    // A reader that panicked has told all it will.
    read.await.unwrap_or(Lines { to, left: 0, next: 0, buffer: Vec::new() })
}

/// A step as one line of JSON.
fn line(buffer: &mut Vec<u8>, step: &Step) {
    // Steps are made of types that always serialize.
    let value = weir_log::describe::step_json(step).unwrap_or_default();
    let _ = serde_json::to_writer(&mut *buffer, &value);
    buffer.push(b'\n');
}
