//! Group commit: one thread owns the store, and makes durable in one flush whatever is ready, of all pools.
//!
//! A producer hands over a batch with a call-back and goes on building the next one; encoding is done on its own
//! thread, the chain, the flush and the call-backs on the writer's. A batch is released once it is durable (or, with
//! [`Durability::Interval`], once it is written). When the log cannot be written nothing is released: the writer keeps
//! every batch, opens the storage again and again, reads back where it ends, and appends what is missing there.
//!
//! Not here: what a caller hears meanwhile (the engine's business, which watches [`LogStatus`]).

mod queue;
mod run;
mod status;

use crate::chain::Hash;
use crate::codec::Codec;
use crate::error::LogError;
use crate::frame::Draft;
use crate::store::{Frames, Store};
use queue::{Batch, Item, Queue};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_kernel::Step;

use status::{Counters, StatusCell};
pub use status::{FLUSH_BOUNDS_US, LogMetrics, LogStatus};

/// When a batch is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once it is durable: nothing that was answered is ever missing.
    #[default]
    Group,
    /// Once it is written; made durable at the latest after this long. A loss of power (not a kill) can take the
    /// answers of that time with it.
    Interval(Duration),
}

/// How the writer works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// When a batch is released. Default `Group`.
    pub durability: Durability,
    /// Batches that may wait for the writer before producers do. Default 64.
    pub queue_batches: usize,
    /// Bytes that one commit takes at most (but always one batch). Default 1 MiB.
    pub commit_bytes_max: usize,
    /// How batches are packed in the hot window. Default plain: segments are packed anyhow.
    pub codec: Codec,
    /// First wait before opening a failed store again; doubled each time. Default 50 ms.
    pub retry_min: Duration,
    /// The longest such wait. Default 1 s.
    pub retry_max: Duration,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions {
            durability: Durability::Group,
            queue_batches: 64,
            commit_bytes_max: 1 << 20,
            codec: Codec::Plain,
            retry_min: Duration::from_millis(50),
            retry_max: Duration::from_secs(1),
        }
    }
}

/// A batch is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durable {
    /// Sequence of its first step.
    pub first_seq: u64,
    /// Sequence of its last step.
    pub last_seq: u64,
    /// Its hash: the head of the pool's chain now.
    pub hash: Hash,
    /// Its bytes in the log.
    pub bytes: usize,
}

/// Called once, on the writer's thread, in the order of submission: must be quick and must not wait for the writer.
/// An error means that the batch is not in the log and never will be (the writer stopped, or it did not follow).
pub type Release = Box<dyn FnOnce(Result<Durable, LogError>) + Send>;

struct Shared {
    queue: Queue,
    status: StatusCell,
    counters: Counters,
}

/// The way to the writer. Dropping it writes what is left and stops the thread.
pub struct WriterHandle {
    shared: Arc<Shared>,
    frames: Arc<dyn Frames>,
    format: u16,
    codec: Codec,
    thread: Mutex<Option<JoinHandle<Box<dyn Store>>>>,
}

impl std::fmt::Debug for WriterHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriterHandle").field("status", &self.status()).finish()
    }
}

/// Starts writers.
#[derive(Debug)]
pub struct Writer;

impl Writer {
    /// Starts the thread that owns the store.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn spawn(store: Box<dyn Store>, options: WriterOptions) -> Result<WriterHandle, LogError> {
        let shared = Arc::new(Shared {
            queue: Queue::new(options.queue_batches),
            status: StatusCell::default(),
            counters: Counters::default(),
        });
        let (frames, format, codec) = (store.frames(), store.format(), options.codec);
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("weir-log".to_owned())
            .spawn(move || run::run(store, options, &theirs))
            .map_err(|error| LogError::Unavailable { error: format!("no thread for the writer: {error}") })?;
        Ok(WriterHandle { shared, frames, format, codec, thread: Mutex::new(Some(thread)) })
    }
}

impl WriterHandle {
    /// Encodes the next steps of a pool and hands them over; waits only while the queue is full.
    ///
    /// # Errors
    /// Steps that cannot be encoded, or a writer that has stopped: then `release` is not called.
    pub fn submit(&self, pool: &Arc<str>, steps: &[Step], release: Release) -> Result<(), LogError> {
        let draft = Draft::encode(self.format, self.codec, pool, steps)?;
        self.push(Batch::Encoded(draft), release)
    }

    /// Hands over the next steps of a pool, to be encoded on the writer's thread; waits only while the queue is full.
    ///
    /// # Errors
    /// A writer that has stopped: then `release` is not called. Steps that cannot be encoded are an error of `release`.
    pub fn submit_shared(
        &self,
        pool: &Arc<str>,
        steps: Arc<Vec<Step>>,
        release: Release,
    ) -> Result<(), LogError> {
        self.push(Batch::Steps(pool.clone(), steps), release)
    }

    fn push(&self, batch: Batch, release: Release) -> Result<(), LogError> {
        if self.shared.queue.push(Item { batch, release }) { Ok(()) } else { Err(LogError::Closed) }
    }

    /// Batches that wait for the writer now.
    pub fn queued(&self) -> usize {
        self.shared.queue.len()
    }

    /// Can the log be written?
    pub fn status(&self) -> LogStatus {
        self.shared.status.get()
    }

    /// [`WriterHandle::status`] as a mere yes or no, at no cost.
    pub fn writable(&self) -> bool {
        self.shared.status.writable()
    }

    /// Calls the watcher now, and on the writer's thread whenever the status changes. It must not call this handle.
    pub fn watch(&self, watcher: impl Fn(&LogStatus) + Send + Sync + 'static) {
        self.shared.status.watch(Box::new(watcher));
    }

    /// What the writer has done so far.
    pub fn metrics(&self) -> LogMetrics {
        self.shared.counters.snapshot()
    }

    /// The reading side of the store.
    pub fn frames(&self) -> Arc<dyn Frames> {
        self.frames.clone()
    }

    /// Writes what is left, stops the thread, and gives the store back; `None` if that was done before.
    pub fn close(&self) -> Option<Box<dyn Store>> {
        self.shared.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        thread.join().ok()
    }
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        self.close();
    }
}
