//! A caller's socket, watched where hyper does not look: a caller that left, and one that does not read.
//!
//! hyper notices the end of a connection as long as it reads. While a request is being decided it stops reading once
//! a byte past that request has come (a pipelined request, a stray line end), and a caller that leaves then would keep
//! its place to the end of its budget. As with hyper, a caller that closes its sending side has left.
//! And a caller whose next head does not come: hyper would set a timer for each head, all of them in one wheel that every
//! connection has to lock; here each connection looks up four times within that time.
//! Not here: HTTP.

use axum::body::Body;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// How often a socket whose unread bytes hide what follows is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

struct Shared {
    inner: Mutex<Inner>,
    /// Requests being decided and answers being produced.
    busy: AtomicUsize,
    /// Requests so far.
    called: AtomicUsize,
}

struct Inner {
    stream: TcpStream,
    /// hyper waits for bytes, and so for their end.
    reading: bool,
    /// Since when the other side has taken nothing of what it is owed.
    blocked: Option<Instant>,
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// hyper's side of the socket.
pub struct Socket(Arc<Shared>);

/// Our side of it.
#[derive(Clone)]
pub struct Watch(Arc<Shared>);

/// What a connection is ended for.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// So long nothing is taken of what is owed.
    pub stall: Duration,
    /// So long no head comes, or not all of it (up to a quarter more); where that is watched here.
    pub head: Option<Duration>,
}

/// How often it is looked up within the time of a head whether one has come.
const LOOKS: u32 = 4;

/// The wait for a head, in so many looks that found nothing new.
struct HeadWait {
    look: Pin<Box<Sleep>>,
    every: Duration,
    called: usize,
    /// At the last look something was being done, or owed.
    busy: bool,
    in_vain: u32,
}

impl HeadWait {
    fn new(head: Duration) -> Self {
        let every = head / LOOKS;
        HeadWait { look: Box::pin(tokio::time::sleep(every)), every, called: 0, busy: false, in_vain: 0 }
    }
}

/// A request of this connection is being decided, or its answer produced, while this lives.
pub struct Busy(Arc<Shared>);

/// Splits a connection into what hyper serves and what watches it.
pub fn watched(stream: TcpStream) -> (Socket, Watch) {
    let inner = Mutex::new(Inner { stream, reading: false, blocked: None });
    let shared = Arc::new(Shared { inner, busy: AtomicUsize::new(0), called: AtomicUsize::new(0) });
    (Socket(Arc::clone(&shared)), Watch(shared))
}

impl Watch {
    /// A request begins.
    pub fn busy(&self) -> Busy {
        self.0.busy.fetch_add(1, Ordering::Relaxed);
        self.0.called.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(&self.0))
    }

    /// Drives the connection until it has ended, its caller has left a request of its own behind, or it is beyond a bound.
    pub async fn attend<C: Future>(&self, mut connection: Pin<&mut C>, bounds: Bounds) {
        let patience = bounds.stall;
        bound(&self.0.inner().stream, patience);
        let (mut look, mut stall) = (None, None);
        let mut head = bounds.head.map(HeadWait::new);
        poll_fn(|cx| {
            self.0.inner().reading = false;
            if connection.as_mut().poll(cx).is_ready()
                || self.left(cx, &mut look)
                || self.stalled(cx, patience, &mut stall)
                || head.as_mut().is_some_and(|head| self.headless(cx, head))
            {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }

    /// Has the caller left, where hyper does not see it?
    fn left(&self, cx: &mut Context<'_>, look: &mut Option<Pin<Box<Sleep>>>) -> bool {
        let inner = self.0.inner();
        if inner.reading || self.0.busy.load(Ordering::Relaxed) == 0 {
            *look = None;
            return false;
        }
        loop {
            if let Some(next) = look {
                if next.as_mut().poll(cx).is_pending() {
                    return false;
                }
                *look = None;
            }
            // hyper does not read now, so that the one place of who is woken is free.
            match inner.stream.poll_read_ready(cx) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => return true,
                Poll::Ready(Ok(())) if ended(&inner.stream, cx) => return true,
                // Bytes that nobody reads yet: what follows them wakes nobody.
                Poll::Ready(Ok(())) => *look = Some(Box::pin(tokio::time::sleep(LOOK_EVERY))),
            }
        }
    }

    /// Has no head come for so long, with nothing being done or owed meanwhile?
    fn headless(&self, cx: &mut Context<'_>, head: &mut HeadWait) -> bool {
        while head.look.as_mut().poll(cx).is_ready() {
            let called = self.0.called.load(Ordering::Relaxed);
            let owes = self.0.busy.load(Ordering::Relaxed) > 0 || self.0.inner().blocked.is_some();
            // Where anything was done since the last look, this wait began after that.
            let anew = owes || head.busy || called != head.called;
            head.in_vain = if anew { 0 } else { head.in_vain + 1 };
            (head.called, head.busy) = (called, owes);
            if head.in_vain >= LOOKS {
                return true;
            }
            let next = head.look.deadline().max(Instant::now()) + head.every;
            head.look.as_mut().reset(next);
        }
        false
    }

    /// Has nothing been taken for so long?
    fn stalled(
        &self,
        cx: &mut Context<'_>,
        patience: Duration,
        stall: &mut Option<(Instant, Pin<Box<Sleep>>)>,
    ) -> bool {
        let Some(since) = self.0.inner().blocked else {
            *stall = None;
            return false;
        };
        if stall.as_ref().is_none_or(|(began, _)| *began != since) {
            *stall = Some((since, Box::pin(tokio::time::sleep_until(since + patience))));
        }
        stall.as_mut().is_some_and(|(_, end)| end.as_mut().poll(cx).is_ready())
    }
}

/// A peer whose host is gone, or whose buffers are full, takes nothing for as long before its connection ends: what is
/// small (a heartbeat) would fit into our own buffers for hours.
fn bound(stream: &TcpStream, patience: Duration) {
    #[cfg(target_os = "linux")]
    {
        let patience = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX).max(1);
        // Where it cannot be set, the end comes with our own buffers.
        let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, patience);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, patience);
}

/// Has the other side closed its sending side, or reset? What it sent before may be unread.
fn ended(stream: &TcpStream, cx: &mut Context<'_>) -> bool {
    match pin!(stream.ready(Interest::READABLE)).poll(cx) {
        Poll::Ready(Ok(ready)) => ready.is_read_closed(),
        Poll::Ready(Err(_)) => true,
        Poll::Pending => false,
    }
}

impl Busy {
    /// Until the answer has been produced: an answer of known length already is.
    pub fn until(self, response: Response) -> Response {
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _busy = &self;
                frame
            }))
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.inner();
        let read = Pin::new(&mut inner.stream).poll_read(cx, buf);
        inner.reading = read.is_pending();
        read
    }
}

impl Socket {
    fn write(
        &self,
        write: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.0.inner();
        let written = write(Pin::new(&mut inner.stream));
        if written.is_pending() {
            inner.blocked.get_or_insert_with(Instant::now);
        }
        let written = ready!(written);
        inner.blocked = None;
        Poll::Ready(written)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.write(|stream| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(|stream| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.inner().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.inner().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.inner().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::net::TcpListener;

    const HEAD: Duration = Duration::from_secs(8);

    async fn accepted() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (caller, listener.accept().await.unwrap().0)
    }

    async fn attended(connection: impl Future<Output = ()>, watch: &Watch) -> Duration {
        let began = Instant::now();
        let bounds = Bounds { stall: HEAD * 100, head: Some(HEAD) };
        watch.attend(pin!(connection), bounds).await;
        began.elapsed()
    }

    /// Never earlier than its time, and a quarter later at most, wherever between two looks the wait began.
    #[tokio::test(start_paused = true)]
    async fn a_caller_without_a_head_is_cut_in_time() {
        let (_caller, stream) = accepted().await;
        let (_socket, watch) = watched(stream);
        let cut = attended(pending(), &watch).await;
        assert!(cut >= HEAD && cut <= HEAD.mul_f64(1.25), "{cut:?}");
        for called_after in [0.01, 1.0, 1.99, 2.01, 5.0, 7.9] {
            let called_after = Duration::from_secs_f64(called_after);
            let connection = async {
                tokio::time::sleep(called_after).await;
                drop(watch.busy());
                pending().await
            };
            let waited = attended(connection, &watch).await - called_after;
            assert!(waited >= HEAD && waited <= HEAD.mul_f64(1.25) + Duration::from_millis(1), "{waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_is_served_owes_no_head() {
        let (_caller, stream) = accepted().await;
        let (_socket, watch) = watched(stream);
        let served = HEAD * 3;
        let connection = async {
            let busy = watch.busy();
            tokio::time::sleep(served).await;
            drop(busy);
            pending().await
        };
        let waited = attended(connection, &watch).await - served;
        assert!(waited >= HEAD && waited <= HEAD.mul_f64(1.25) + Duration::from_millis(1), "{waited:?}");
    }
}
