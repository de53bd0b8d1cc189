//! Reading a body to its end, within a size and a time.
//!
//! A body over the limit is read past before it is refused, so that the caller gets the answer and keeps its
//! connection; it takes no memory, and no slot of any queue.

use super::problem::Fault;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::EXPECT;
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

/// How much of an oversized body is read past, as a multiple of the limit and at least this many bytes.
const PAST_MIN: u64 = 64 << 20;

/// What a body may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Size in bytes.
    pub bytes_max: u64,
    /// Time from the first read to the end.
    pub time_max: Duration,
}

/// All of a body.
#[derive(Debug, Default)]
pub struct Whole {
    /// Its bytes.
    pub bytes: Bytes,
    /// What followed them.
    pub trailers: Option<HeaderMap>,
}

/// What is there of a body when it is first looked at.
#[derive(Debug)]
pub enum Begun {
    /// All of it: the usual body came with its head.
    Whole(Bytes),
    /// Not all: [`rest`] goes on from there.
    Part(Bytes),
    /// It was cut off.
    Broken(Fault),
}

/// Looks at a body without waiting for more of it.
pub fn begin<B>(context: &mut Context<'_>, body: &mut B, bounds: Bounds) -> Begun
where
    B: HttpBody<Data = Bytes, Error: Display + Send> + Unpin,
{
    let within = |bytes: u64| bytes <= bounds.bytes_max;
    if body.is_end_stream() {
        return Begun::Whole(Bytes::new());
    }
    if !body.size_hint().exact().is_none_or(within) {
        return Begun::Part(Bytes::new());
    }
    match Pin::new(&mut *body).poll_frame(context) {
        Poll::Pending => Begun::Part(Bytes::new()),
        Poll::Ready(None) => Begun::Whole(Bytes::new()),
        Poll::Ready(Some(Err(error))) => Begun::Broken(broken(&error)),
        Poll::Ready(Some(Ok(frame))) => {
            // Trailers are nobody's here.
            let data = frame.into_data().unwrap_or_default();
            match body.is_end_stream() && within(data.len() as u64) {
                true => Begun::Whole(data),
                false => Begun::Part(data),
            }
        }
    }
}

/// Reads on where [`begin`] ended.
///
/// # Errors
/// Too large, too slow, or cut off.
pub fn rest<'a, B>(
    parts: &'a Parts,
    begun: Bytes,
    body: B,
    bounds: Bounds,
) -> Pin<Box<dyn Future<Output = Result<Bytes, Fault>> + Send + 'a>>
where
    B: HttpBody<Data = Bytes, Error: Display + Send> + Send + Unpin + 'a,
{
    Box::pin(async move {
        let whole = read_bounded(parts, begun, body, bounds.bytes_max, |_| Ok(()));
        let whole = tokio::time::timeout(bounds.time_max, whole).await;
        Ok(whole.map_err(|_| slow(bounds))??.bytes)
    })
}

/// Reads all of it.
///
/// # Errors
/// Too large, too slow, or cut off.
pub async fn read(parts: &Parts, mut body: Body, bounds: Bounds) -> Result<Bytes, Fault> {
    match poll_fn(|context| Poll::Ready(begin(context, &mut body, bounds))).await {
        Begun::Whole(bytes) => Ok(bytes),
        Begun::Part(begun) => rest(parts, begun, body, bounds).await,
        Begun::Broken(fault) => Err(fault),
    }
}

/// Reads all of it and its trailers; `take` is told of each piece, and may refuse it.
///
/// # Errors
/// Too large, too slow, cut off, or refused.
pub async fn read_whole(
    parts: &Parts,
    body: Body,
    bounds: Bounds,
    take: impl FnMut(u64) -> Result<(), Fault>,
) -> Result<Whole, Fault> {
    if body.is_end_stream() {
        return Ok(Whole::default());
    }
    let mut whole = pin!(read_bounded(parts, Bytes::new(), body, bounds.bytes_max, take));
    // The usual body came with its head, and needs no timer.
    if let Poll::Ready(read) = poll_fn(|context| Poll::Ready(whole.as_mut().poll(context))).await {
        return read;
    }
    tokio::time::timeout(bounds.time_max, whole).await.map_err(|_| slow(bounds))?
}

fn slow(bounds: Bounds) -> Fault {
    Fault::BodySlow(u64::try_from(bounds.time_max.as_millis()).unwrap_or(u64::MAX))
}

fn broken(error: &dyn Display) -> Fault {
    Fault::BodyBroken(super::json::shown(error.to_string().as_bytes()))
}

/// `whole` is what came before; `take` was told of it.
async fn read_bounded<B>(
    parts: &Parts,
    mut whole: Bytes,
    mut body: B,
    limit: u64,
    mut take: impl FnMut(u64) -> Result<(), Fault>,
) -> Result<Whole, Fault>
where
    B: HttpBody<Data = Bytes, Error: Display + Send> + Unpin,
{
    let announced = body.size_hint().exact();
    if whole.len() as u64 > limit || announced.is_some_and(|bytes| bytes > limit) {
        // A caller that asks first is told at once, and sends nothing.
        if !parts.headers.contains_key(EXPECT) {
            read_past(body, limit).await;
        }
        return Err(Fault::BodyTooLarge { limit });
    }
    let mut many: Option<BytesMut> = None;
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        let data = match frame.map_err(|error| broken(&error))?.into_data() {
            Ok(data) => data,
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                continue;
            }
        };
        let held = many.as_ref().map_or(whole.len(), BytesMut::len);
        if (held + data.len()) as u64 > limit {
            drop((whole, many));
            read_past(body, limit).await;
            return Err(Fault::BodyTooLarge { limit });
        }
        if let Err(fault) = take(data.len() as u64) {
            drop((whole, many));
            read_past(body, limit).await;
            return Err(fault);
        }
        match &mut many {
            Some(buffer) => buffer.extend_from_slice(&data),
            // The usual body is one frame, which is never copied.
            None if whole.is_empty() => whole = data,
            None => {
                let mut buffer = BytesMut::with_capacity(held + 2 * data.len());
                buffer.extend_from_slice(&whole);
                buffer.extend_from_slice(&data);
                many = Some(buffer);
            }
        }
    }
    Ok(Whole { bytes: many.map_or(whole, BytesMut::freeze), trailers })
}

async fn read_past(mut body: impl HttpBody<Data = Bytes> + Unpin, limit: u64) {
    let mut left = limit.saturating_mul(2).max(PAST_MIN);
    while let Some(frame) = body.frame().await {
        // Cut off or endless: the answer is the same, only the connection is not kept.
        let Ok(frame) = frame else { break };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        left = left.saturating_sub(bytes);
        if left == 0 {
            break;
        }
    }
}
