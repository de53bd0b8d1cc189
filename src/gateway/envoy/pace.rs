//! Releases at a pace that Envoy bears.
//!
//! A release may end a stream, and Envoy answers that with a reset. A thousand of those within one turn of its loop are
//! over its default bound of outbound control frames, and it drops the connection with every stream on it. So only so
//! many releases of one connection are under way at once: each until Envoy reacts to it, or for a moment where nothing
//! is to be expected.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Releases under way on one connection, at most; a quarter of what Envoy bears by default.
const WINDOW: usize = 256;

/// How long a release counts as under way where Envoy may show no reaction before the response does.
pub const MOMENT: Duration = Duration::from_millis(25);

/// The same where a reaction is sure to come, since the release ends the stream: a busy Envoy is waited for.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The pace of one connection.
#[derive(Clone, Debug)]
pub struct Pace(Arc<Semaphore>);

/// One release under way, until it is dropped.
#[derive(Debug)]
pub struct UnderWay(#[allow(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>);

impl Pace {
    /// Of a new connection.
    pub fn new() -> Self {
        Pace(Arc::new(Semaphore::new(WINDOW)))
    }

    /// Waits for this release's turn.
    pub async fn turn(&self) -> UnderWay {
        // Never closed, so that this never fails; if it were, nothing would have to wait.
        UnderWay(Arc::clone(&self.0).acquire_owned().await.ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_than_a_window_is_under_way() {
        let pace = Pace::new();
        let mut under_way = Vec::new();
        for _ in 0..WINDOW {
            under_way.push(pace.turn().await);
        }
        let mut next = std::pin::pin!(pace.turn());
        let full = tokio::time::timeout(Duration::from_millis(1), next.as_mut()).await;
        assert!(full.is_err(), "one more than the window");
        under_way.pop();
        next.await;
    }
}
