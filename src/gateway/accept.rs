//! Taking connections until the service ends: what the listeners of HTTP and of gRPC have in common.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long the loop rests when the system has no descriptor left.
const REST: Duration = Duration::from_millis(20);

/// Connections that may wait to be taken, as far as the system allows it (`net.core.somaxconn`). Callers come in bursts
/// (thousands wait while a pool scales from zero, or come back after a restart), and one that finds no room waits a
/// second for its next try, or is cut off.
const BACKLOG: u32 = 16_384;

/// Listens there.
///
/// # Errors
/// What the system says: in use, not ours, not permitted.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart need not wait for what is left of the connections of the run before.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Serves each connection by what `serve` makes of it (nothing: it is closed at once), until `closing` turns true and
/// every connection has ended, or `patience` has passed since. How many were cut off then.
pub async fn all<F>(
    listener: TcpListener,
    mut closing: watch::Receiver<bool>,
    patience: Duration,
    mut serve: impl FnMut(TcpStream) -> Option<F>,
) -> usize
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            () = closed(&mut closing) => break,
        };
        if let Some(connection) = serve(stream) {
            connections.spawn(connection);
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(patience, all).await.is_ok() {
        return 0;
    }
    let cut = connections.len();
    connections.shutdown().await;
    cut
}

/// Waits for the end of the service (whose sender may be gone by then).
pub async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Waits for what seldom comes. It is asked only when it is first waited for, when somebody else waits, and when it is
/// `due`: asking a channel that all connections share takes a lock, and a connection is woken with every request.
pub async fn seldom<F: Future>(awaited: Pin<&mut F>, due: impl Fn() -> bool) -> F::Output {
    // Once asked it is waited for: no budget of the task's may be in the way.
    let mut awaited = pin!(tokio::task::unconstrained(awaited));
    let mut waits: Option<Waker> = None;
    poll_fn(|context| {
        if !due() && waits.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            return Poll::Pending;
        }
        waits = Some(context.waker().clone());
        awaited.as_mut().poll(context)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::Context;

    /// Asked at first, when it is due, and when somebody else waits; not otherwise.
    #[test]
    fn what_seldom_comes_is_seldom_asked() {
        let (asked, due) = (AtomicUsize::new(0), AtomicBool::new(false));
        let awaited = poll_fn(|_| match asked.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Poll::Pending,
            _ => Poll::Ready(7),
        });
        let awaited = pin!(awaited);
        let mut waiting = pin!(seldom(awaited, || due.load(Ordering::Relaxed)));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..5 {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let other = Waker::from(std::sync::Arc::new(Other));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&other)).is_pending());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        due.store(true, Ordering::Relaxed);
        assert_eq!(waiting.as_mut().poll(&mut Context::from_waker(&other)), Poll::Ready(7));
    }

    struct Other;

    impl std::task::Wake for Other {
        fn wake(self: std::sync::Arc<Self>) {}
    }
}
