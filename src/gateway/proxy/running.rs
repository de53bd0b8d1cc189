//! A response on its way to the caller: each piece is passed on as it comes, what it says of its tokens is read as it
//! passes, and its lease ends with it, however it ends.
//!
//! A caller that stops reading, or a request that is taken back, must not wait for anybody to look: a second task stands by
//! where hyper would not look (a stream of HTTP/2 without room, a socket without room) and drops the endpoint's connection.
//! Not here: what happens before the response begins (`forward.rs`).

use super::head;
use super::refusal;
use super::upstream::Place;
use crate::gateway::lease::Lease;
use crate::gateway::metrics::{GatewayCounters, Metrics};
use crate::gateway::usage::UsageReader;
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use weir_kernel::Termination;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Why a response is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Cut {
    #[error("the request was revoked while it ran")]
    Evicted,
    #[error("the caller has taken nothing for too long")]
    Stalled,
    #[error("the endpoint broke off within its answer")]
    Broken,
}

/// The body of a response.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    /// Dropped with the body: whoever stands by need not any more.
    _ended: Option<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Shared(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    /// The endpoint's body; dropped, its connection is closed unless it has ended.
    from: Option<Incoming>,
    /// A piece that was waited for before the response began.
    first: Option<Frame<Bytes>>,
    lease: Option<Lease>,
    place: Option<Place>,
    usage: Option<UsageReader>,
    metrics: Arc<Metrics>,
    begun: bool,
    /// The endpoint, or a gateway before it, failed.
    failed: bool,
    events: bool,
    /// The newlines that would end the event under way: fewer, the more of them have come.
    missing: &'static str,
    cut: Option<Cut>,
    /// Since when the caller has not asked for more.
    untaken: Option<Instant>,
    waker: Option<Waker>,
}

impl Running {
    /// Of a response whose head has come. Without a lease where none was needed.
    pub fn new(
        from: Incoming,
        status: u16,
        headers: &HeaderMap,
        lease: Option<Lease>,
        place: Place,
        metrics: Arc<Metrics>,
    ) -> Self {
        let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        let encoded = headers.get(CONTENT_ENCODING).is_some_and(|value| value != "identity");
        let inner = Inner {
            from: Some(from),
            first: None,
            usage: (lease.is_some() && !encoded).then(|| UsageReader::new(kind)),
            events: !encoded && kind.starts_with(b"text/event-stream"),
            lease,
            place: Some(place),
            metrics,
            begun: false,
            failed: status >= 500,
            missing: "",
            cut: None,
            untaken: None,
            waker: None,
        };
        let running = Running { shared: Arc::new(Shared(Mutex::new(inner))), _ended: None };
        if running.is_end_stream() {
            running.shared.lock().end(Termination::Natural);
        }
        running
    }

    /// Waits for the first piece, which then is the first to be passed on: until it has come, the caller can still be given
    /// another answer. False if the endpoint broke off instead.
    pub async fn wait(&mut self) -> bool {
        std::future::poll_fn(|cx| {
            let mut inner = self.shared.lock();
            if inner.first.is_some() {
                return Poll::Ready(true);
            }
            let Some(from) = &mut inner.from else { return Poll::Ready(true) };
            if from.is_end_stream() {
                return Poll::Ready(true);
            }
            match ready!(Pin::new(from).poll_frame(cx)) {
                Some(Ok(frame)) => inner.first = Some(frame),
                Some(Err(_)) => {
                    inner.broken();
                    return Poll::Ready(false);
                }
                None => inner.end(Termination::Natural),
            }
            Poll::Ready(true)
        })
        .await
    }

    /// Like `wait`, but takes only what is there: false if the endpoint broke off right behind the head.
    pub async fn look(&mut self) -> bool {
        let mut wait = std::pin::pin!(self.wait());
        std::future::poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx) != Poll::Ready(false))).await
    }

    /// Ends it before it began.
    pub fn evict(self) {
        self.shared.lock().cut(Cut::Evicted);
    }

    /// Lets a task stand by: it cuts the response when its request is `revoked`, or when the caller has taken nothing for
    /// `patience`.
    pub fn stand_by(&mut self, revoked: impl Future<Output = ()> + Send + 'static, patience: Duration) {
        let (ended, mut over) = oneshot::channel::<()>();
        self._ended = Some(ended);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let mut revoked = std::pin::pin!(revoked);
            let mut look = std::pin::pin!(tokio::time::sleep(patience));
            loop {
                tokio::select! {
                    biased;
                    _ = &mut over => return,
                    () = &mut revoked => return shared.lock().cut(Cut::Evicted),
                    () = &mut look => {
                        let untaken = shared.lock().untaken;
                        let since = untaken.unwrap_or_else(Instant::now);
                        if since.elapsed() >= patience {
                            return shared.lock().cut(Cut::Stalled);
                        }
                        look.as_mut().reset(since + patience);
                    }
                }
            }
        });
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Ends the lease. What comes after changes nothing.
    fn end(&mut self, termination: Termination) {
        let termination = match termination {
            Termination::Natural if self.failed => Termination::Error,
            other => other,
        };
        let usage = self.usage.as_ref().and_then(UsageReader::found);
        self.from = None;
        self.place = None;
        if let Some(lease) = self.lease.take() {
            lease.end(termination, usage);
        }
    }

    fn broken(&mut self) {
        GatewayCounters::add(&self.metrics.gateway.proxy_broken);
        self.cut = Some(Cut::Broken);
        self.end(Termination::Error);
    }

    /// Ends it from outside of its own task.
    fn cut(&mut self, cut: Cut) {
        if self.from.is_none() {
            return;
        }
        self.cut = Some(cut);
        self.first = None;
        self.end(match cut {
            Cut::Evicted => Termination::Evicted,
            Cut::Stalled => Termination::ClientDisconnect,
            Cut::Broken => Termination::Error,
        });
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The last that a caller gets of a response that was cut: an event that says so, where it reads events.
    fn last(&mut self) -> Option<Result<Frame<Bytes>, Error>> {
        let cut = self.cut.take()?;
        if cut == Cut::Evicted && self.events {
            return Some(Ok(Frame::data(refusal::evicted_event(self.missing).into())));
        }
        Some(Err(cut.into()))
    }

    fn see(&mut self, data: &Bytes) {
        if data.is_empty() {
            return;
        }
        if !self.begun {
            self.begun = true;
            if let Some(lease) = &self.lease {
                lease.first_byte();
            }
        }
        if let Some(usage) = &mut self.usage {
            usage.feed(data);
        }
        if self.events {
            self.missing = match &data[..] {
                data if data.ends_with(b"\n\n") || data.ends_with(b"\n\r\n") => "",
                [b'\n'] | [b'\r', b'\n'] if self.missing == "\n" => "",
                data if data.ends_with(b"\n") => "\n",
                _ => "\n\n",
            };
        }
    }
}

impl hyper::body::Body for Running {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut inner = self.shared.lock();
        inner.untaken = None;
        let frame = match inner.first.take() {
            Some(frame) => Some(Ok(frame)),
            None => {
                let Some(from) = &mut inner.from else { return Poll::Ready(inner.last()) };
                match Pin::new(from).poll_frame(cx) {
                    Poll::Ready(frame) => frame,
                    Poll::Pending => {
                        if !inner.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                            inner.waker = Some(cx.waker().clone());
                        }
                        return Poll::Pending;
                    }
                }
            }
        };
        Poll::Ready(match frame {
            Some(Ok(mut frame)) => {
                if let Some(data) = frame.data_ref() {
                    inner.see(data);
                }
                if let Some(trailers) = frame.trailers_mut() {
                    head::trailers(trailers);
                }
                // Where nothing can follow, hyper does not ask again.
                if frame.is_trailers() || inner.from.as_ref().is_some_and(Incoming::is_end_stream) {
                    inner.end(Termination::Natural);
                } else {
                    inner.untaken = Some(Instant::now());
                }
                Some(Ok(frame))
            }
            Some(Err(_)) => {
                inner.broken();
                // hyper writes what came before, and then asks again.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            None => {
                inner.end(Termination::Natural);
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        let inner = self.shared.lock();
        let over = inner.from.as_ref().is_none_or(Incoming::is_end_stream);
        over && inner.cut.is_none() && inner.first.is_none()
    }

    /// Not told, unless it is none: the length is in the headers, and what is not known in advance is watched to its end (`socket.rs`).
    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended, or the caller left.
        self.shared.lock().end(Termination::ClientDisconnect);
    }
}
