//! What the process as a whole was told to do, and how the last reload of its settings went.

use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;
use weir_kernel::Micros;

use crate::engine::Clock;

/// How a reload ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// When, by the wall clock.
    pub at: Micros,
    /// Reloads so far, this one with them.
    pub count: u64,
    /// Why it changed nothing (or not all), if it failed.
    pub error: Option<String>,
}

/// Shared by the handlers and whoever runs the service.
#[derive(Debug)]
pub struct Upkeep {
    drain: watch::Sender<bool>,
    reload: Mutex<Option<Reload>>,
}

impl Default for Upkeep {
    fn default() -> Self {
        Upkeep { drain: watch::Sender::new(false), reload: Mutex::new(None) }
    }
}

impl Upkeep {
    /// An operator ordered the end.
    pub fn order_drain(&self) {
        self.drain.send_replace(true);
    }

    /// Waits for that order.
    pub async fn drain_ordered(&self) {
        let mut ordered = self.drain.subscribe();
        // The sender lives as long as this does.
        let _ = ordered.wait_for(|ordered| *ordered).await;
    }

    /// Notes how a reload ended.
    pub fn note_reload(&self, outcome: Result<(), String>) {
        let mut last = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let count = last.as_ref().map_or(0, |reload| reload.count) + 1;
        *last = Some(Reload { at: Clock::wall(), count, error: outcome.err() });
    }

    /// The last reload, if there was one.
    pub fn last_reload(&self) -> Option<Reload> {
        self.reload.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
