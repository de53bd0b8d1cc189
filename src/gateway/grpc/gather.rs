//! What one connection has to say in one turn of the runtime goes out in one write.
//!
//! A commit of the log releases hundreds of streams at once. The first of them to answer wakes the connection, which
//! would write that one answer and come back for the next: a call of the system for each. So before it writes, a
//! connection lets the tasks that are ready have their say.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that stands back once before the writes of a flush.
#[derive(Debug)]
pub struct Gathering<S> {
    inner: S,
    stood_back: bool,
}

impl<S> Gathering<S> {
    /// Over a connection.
    pub fn new(inner: S) -> Self {
        Gathering { inner, stood_back: false }
    }

    /// Is it time to write? If not, the task is woken behind those that are ready now.
    fn stands_back(&mut self, cx: &Context<'_>) -> bool {
        let first = !std::mem::replace(&mut self.stood_back, true);
        if first {
            cx.waker().wake_by_ref();
        }
        first
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathering<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathering<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.stands_back(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut this.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.stands_back(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut this.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// All that was to be written is: the next write is another flush's.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.stood_back = false;
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Once before each flush, and it is woken for it; what follows in the same flush goes through.
    #[test]
    fn it_stands_back_once_before_each_flush() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut stream = Gathering::new(io::Cursor::new(Vec::new()));
        for flush in 1..=2 {
            assert!(Pin::new(&mut stream).poll_write(&mut cx, b"ab").is_pending());
            assert_eq!(woken.0.load(Ordering::Relaxed), flush, "else nobody would come back");
            assert!(matches!(Pin::new(&mut stream).poll_write(&mut cx, b"ab"), Poll::Ready(Ok(2))));
            assert!(matches!(Pin::new(&mut stream).poll_write(&mut cx, b"cd"), Poll::Ready(Ok(2))));
            assert!(Pin::new(&mut stream).poll_flush(&mut cx).is_ready());
        }
        assert_eq!(stream.inner.into_inner(), b"abcdabcd");
    }
}
