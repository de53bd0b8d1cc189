//! The body of a request on its way to an endpoint: whole and held since before its admission, or passed on as it comes.
//!
//! JSON is read whole first: its size counts, its model is a label, its priority may be set, and a second endpoint can be
//! tried. Forms (uploads of audio) are passed on as they come. Either has its bounds.

use super::head::Carried;
use crate::gateway::body::{Bounds, Whole, read_whole};
use crate::gateway::problem::Fault;
use crate::gateway::room::{Room, Share};
use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use hyper::body::{Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::time::Sleep;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Reads a body that is to be held, within its bounds and the room there is.
///
/// # Errors
/// Too large, too slow, cut off, or no room.
pub async fn hold(parts: &Parts, body: Body, bounds: Bounds, room: &Arc<Room>) -> Result<Held, Fault> {
    let mut share = Share::of(room);
    let whole = read_whole(parts, body, bounds, |bytes| share.take(bytes)).await?;
    Ok(Held { whole, share })
}

/// Is a body of this kind passed on as it comes?
pub fn is_passed_on(parts: &Parts) -> bool {
    const FORM: &[u8] = b"multipart/";
    let kind = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    kind.len() >= FORM.len() && kind[..FORM.len()].eq_ignore_ascii_case(FORM)
}

/// A body that is held.
#[derive(Debug)]
pub struct Held {
    /// All of it.
    pub whole: Whole,
    share: Share,
}

/// A body as an endpoint gets it. Clones are one body: one of which nothing was sent can be sent again.
#[derive(Clone, Debug)]
pub struct Payload(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    source: Mutex<Source>,
    fault: OnceLock<Fault>,
    whole: bool,
}

#[derive(Debug)]
enum Source {
    Whole { bytes: Option<Bytes>, trailers: Option<HeaderMap>, share: Share },
    Passing { body: Body, left: u64, bounds: Bounds, end: Pin<Box<Sleep>> },
}

impl Payload {
    /// Of a body that is held.
    pub fn held(held: Held) -> Self {
        let Held { whole: Whole { bytes, trailers }, share } = held;
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        Payload::new(Source::Whole { bytes, trailers, share }, true)
    }

    /// Of a body that comes.
    pub fn passing(body: Body, bounds: Bounds) -> Self {
        let end = Box::pin(tokio::time::sleep(bounds.time_max));
        Payload::new(Source::Passing { body, left: bounds.bytes_max, bounds, end }, false)
    }

    fn new(source: Source, whole: bool) -> Self {
        Payload(Arc::new(Shared { source: Mutex::new(source), fault: OnceLock::new(), whole }))
    }

    /// How it goes on, for the headers before it.
    pub fn carried(&self) -> Carried {
        let trailers = match &*self.lock() {
            Source::Whole { trailers, .. } => trailers.is_some(),
            Source::Passing { .. } => true,
        };
        Carried { length: self.0.whole, trailers }
    }

    /// What was wrong with the caller's side of it, if the sending failed because of that.
    pub fn fault(&self) -> Option<Fault> {
        self.0.fault.get().cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Source> {
        self.0.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, fault: Fault) -> Option<Result<Frame<Bytes>, Error>> {
        // The first one counts.
        let _ = self.0.fault.set(fault.clone());
        Some(Err(fault.into()))
    }
}

impl hyper::body::Body for Payload {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut source = self.lock();
        let (body, left, bounds, end) = match &mut *source {
            Source::Whole { bytes, trailers, share } => {
                // From here on it is the connection's, which sends it as fast as the endpoint takes it.
                share.give_back();
                let data = bytes.take().map(Frame::data);
                return Poll::Ready(data.or_else(|| trailers.take().map(Frame::trailers)).map(Ok));
            }
            Source::Passing { body, left, bounds, end } => (body, left, bounds, end),
        };
        let frame = match Pin::new(body).poll_frame(cx) {
            Poll::Pending => {
                ready!(end.as_mut().poll(cx));
                let millis = u64::try_from(bounds.time_max.as_millis()).unwrap_or(u64::MAX);
                return Poll::Ready(self.failed(Fault::BodySlow(millis)));
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Err(error))) => {
                let shown = crate::gateway::json::shown(error.to_string().as_bytes());
                return Poll::Ready(self.failed(Fault::BodyBroken(shown)));
            }
            Poll::Ready(Some(Ok(frame))) => frame,
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        match left.checked_sub(bytes) {
            Some(less) => *left = less,
            None => return Poll::Ready(self.failed(Fault::BodyTooLarge { limit: bounds.bytes_max })),
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match &*self.lock() {
            Source::Whole { bytes, trailers, .. } => bytes.is_none() && trailers.is_none(),
            Source::Passing { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.lock() {
            // What trailers follow is sent in chunks.
            Source::Whole { trailers: Some(_), .. } => SizeHint::default(),
            Source::Whole { bytes, trailers: None, .. } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Source::Passing { body, .. } => body.size_hint(),
        }
    }
}
