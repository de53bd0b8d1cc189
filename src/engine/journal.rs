//! What a pool's thread needs of the log, and how the log tells it that steps are durable.

use super::inbox::Inbox;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_kernel::Step;
use weir_log::writer::{LogStatus, WriterHandle};

/// Takes a pool's steps in order. What it took it keeps until it is durable, however long the log fails.
pub(super) trait Journal: Send {
    /// Takes the next batch (never empty, sequences without a gap). Does not wait for the disk.
    fn submit(&mut self, steps: Arc<Vec<Step>>);
}

/// Where the log leaves word for a pool's thread. The thread reads it whenever it wakes.
pub(super) struct Port {
    inbox: Arc<Inbox>,
    durable: AtomicU64,
    failing: AtomicBool,
    lost: AtomicBool,
}

impl Port {
    /// `durable`: the last step that the log holds already.
    pub fn new(inbox: Arc<Inbox>, durable: u64) -> Arc<Self> {
        let port = Port {
            inbox,
            durable: AtomicU64::new(durable),
            failing: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        };
        Arc::new(port)
    }

    /// Every step up to this one is durable.
    pub fn durable_through(&self, seq: u64) {
        self.durable.fetch_max(seq, Ordering::AcqRel);
        self.inbox.poke();
    }

    /// The log cannot be written, or can again.
    pub fn failing(&self, failing: bool) {
        if self.failing.swap(failing, Ordering::AcqRel) != failing {
            self.inbox.poke();
        }
    }

    /// A batch will never be in the log: nothing can follow it.
    pub fn lost(&self) {
        self.lost.store(true, Ordering::Release);
        self.inbox.poke();
    }

    /// The last durable step.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Does the log fail?
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    /// Has a batch been lost?
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

/// The log's writer, as one pool sees it.
pub(super) struct Writing {
    writer: Arc<WriterHandle>,
    pool: Arc<str>,
    port: Arc<Port>,
}

impl Writing {
    pub fn new(writer: Arc<WriterHandle>, pool: &str, port: Arc<Port>) -> Self {
        let told = Arc::clone(&port);
        writer.watch(move |status| told.failing(*status != LogStatus::Writable));
        Writing { writer, pool: Arc::from(pool), port }
    }
}

impl Journal for Writing {
    fn submit(&mut self, steps: Arc<Vec<Step>>) {
        let port = Arc::clone(&self.port);
        let release =
            Box::new(move |result: Result<weir_log::writer::Durable, weir_log::LogError>| match result {
                Ok(durable) => port.durable_through(durable.last_seq),
                Err(error) => {
                    tracing::error!(%error, "a batch is not in the log and never will be");
                    port.lost();
                }
            });
        if let Err(error) = self.writer.submit_shared(&self.pool, steps, release) {
            tracing::error!(pool = %self.pool, %error, "the log does not take a batch");
            self.port.lost();
        }
    }
}
