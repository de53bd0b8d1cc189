//! `GET /v1/pools/{pool}/log?from=SEQ&limit=N&follow=true`: the durable steps of a running server as NDJSON.
//!
//! Served from memory, as far back as the ring goes. What is older is said to be (410, with the first sequence that is
//! to be had), never skipped: it is in the data directory, which `weir log cat` reads once the server has stopped.

use super::problem::{Fault, Invalid};
use super::query;
use super::ring::{Read, Ring, line};
use super::state::Gateway;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Steps of one answer without `follow`, at most.
const LIMIT_MAX: u64 = 100_000;

/// Steps read at once.
const CHUNK: usize = 256;

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
            "limit" => span.limit = Some(number(LIMIT_MAX, "a whole number from 0 to 100000")?),
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
    Path(name): Path<String>,
    request: Request<Body>,
) -> Result<Response, Fault> {
    let pool = gateway.pool(Some(&name))?;
    let span = span(request.uri().query())?;
    let durable = pool.handle.status().durable;
    let ring = Arc::clone(&pool.ring);
    // Without a start: whatever the ring holds, or with `follow` only what is still to come.
    let from = match span.from {
        Some(from) => from,
        None if span.follow => durable + 1,
        None => match ring.read(0, 1, durable) {
            Read::From(first) => first,
            Read::Steps(_) => 1,
        },
    };
    if let Read::From(first) = ring.read(from, 1, durable) {
        return Err(Fault::Gone(format!(
            "steps before {first} are not in memory; `weir log cat` reads them from the data directory of a stopped server"
        )));
    }
    let mut response = Response::new(stream(ring, from, span, durable));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// Lines as they can be sent; the reader sets the pace, and one that falls out of the ring is told so and ended.
fn stream(ring: Arc<Ring>, mut from: u64, span: Span, durable: u64) -> Body {
    let (to, lines) = mpsc::channel::<Result<Bytes, Infallible>>(4);
    let mut left = span.limit.unwrap_or(if span.follow { u64::MAX } else { LIMIT_MAX });
    tokio::spawn(async move {
        let mut head = ring.head();
        while left > 0 {
            head.borrow_and_update();
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK);
            let steps = match ring.read(from, most, durable) {
                Read::Steps(steps) => steps,
                Read::From(first) => {
                    let text =
                        format!("{{\"gap\":{{\"from\":{from},\"to\":{}}}}}\n", first.saturating_sub(1));
                    let _ = to.send(Ok(text.into())).await;
                    return;
                }
            };
            if steps.is_empty() {
                let come = span.follow
                    && tokio::select! {
                        changed = head.changed() => changed.is_ok(),
                        () = to.closed() => false,
                    };
                if !come {
                    return;
                }
                continue;
            }
            let mut chunk = BytesMut::new();
            for step in &steps {
                chunk.extend_from_slice(&line(step));
                from = step.seq + 1;
            }
            left -= steps.len() as u64;
            if to.send(Ok(chunk.freeze())).await.is_err() {
                return;
            }
        }
    });
    Body::from_stream(ReceiverStream::new(lines))
}
