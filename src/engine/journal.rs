//! What a pool's thread needs of the log, and how the log tells it that steps are durable.

use super::inbox::Inbox;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_kernel::Step;

/// Takes a pool's steps in order. What it took it keeps until it is durable, however long the log fails.
pub(super) trait Journal: Send {
    /// Takes the next batch (never empty, sequences without a gap). Does not wait for the disk.
    fn submit(&mut self, steps: Arc<[Step]>);
}

/// Where the log leaves word for a pool's thread. The thread reads it whenever it wakes.
pub(super) struct Port {
    inbox: Arc<Inbox>,
    durable: AtomicU64,
    failing: AtomicBool,
}

impl Port {
    /// `durable`: the last step that the log holds already.
    pub fn new(inbox: Arc<Inbox>, durable: u64) -> Arc<Self> {
        Arc::new(Port { inbox, durable: AtomicU64::new(durable), failing: AtomicBool::new(false) })
    }

    /// Every step up to this one is durable.
    pub fn durable_through(&self, seq: u64) {
        self.durable.fetch_max(seq, Ordering::AcqRel);
        self.inbox.poke();
    }

    /// The log cannot be written, or can again.
    #[allow(dead_code, reason = "memory never fails")]
    pub fn failing(&self, failing: bool) {
        if self.failing.swap(failing, Ordering::AcqRel) != failing {
            self.inbox.poke();
        }
    }

    /// The last durable step.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Does the log fail?
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }
}

/// Keeps nothing: every batch is at once as durable as it will ever be.
pub(super) struct InMemory(pub Arc<Port>);

impl Journal for InMemory {
    fn submit(&mut self, steps: Arc<[Step]>) {
        if let Some(last) = steps.last() {
            self.0.durable_through(last.seq);
        }
    }
}
