//! The bounded queue in front of the writer: producers wait when it is full, the writer takes all that is there.

use super::Release;
use crate::codec::Codec;
use crate::error::LogError;
use crate::frame::Draft;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_kernel::Step;

/// About the bytes of a step, for batches that are not encoded yet.
const STEP_BYTES: usize = 128;

/// A batch on its way to the writer.
pub(super) enum Batch {
    Encoded(Draft),
    /// Encoded by the writer, beside what the submitter does next.
    Steps(Arc<str>, Arc<Vec<Step>>),
}

impl Batch {
    fn len(&self) -> usize {
        match self {
            Batch::Encoded(draft) => draft.len(),
            Batch::Steps(_, steps) => STEP_BYTES * steps.len(),
        }
    }

    pub(super) fn draft(self, format: u16, codec: Codec) -> Result<Draft, LogError> {
        match self {
            Batch::Encoded(draft) => Ok(draft),
            Batch::Steps(pool, steps) => Ok(Draft::encode(format, codec, &pool, &steps)?),
        }
    }
}

pub(super) struct Item {
    pub(super) batch: Batch,
    pub(super) release: Release,
}

#[derive(Default)]
struct Inner {
    items: VecDeque<Item>,
    closed: bool,
    /// The writer waits on an empty queue; nobody else needs waking.
    idle: bool,
    /// Producers that wait on a full one.
    waiting: usize,
}

pub(super) struct Queue {
    inner: Mutex<Inner>,
    filled: Condvar,
    emptied: Condvar,
    capacity: usize,
}

impl Queue {
    pub(super) fn new(capacity: usize) -> Queue {
        Queue {
            inner: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            capacity: capacity.max(1),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an item in, waiting for room; false if the queue is closed.
    pub(super) fn push(&self, item: Item) -> bool {
        let mut inner = self.lock();
        while inner.items.len() >= self.capacity && !inner.closed {
            inner.waiting += 1;
            inner = self.emptied.wait(inner).unwrap_or_else(PoisonError::into_inner);
            inner.waiting -= 1;
        }
        if inner.closed {
            return false;
        }
        inner.items.push_back(item);
        if inner.idle {
            inner.idle = false;
            self.filled.notify_one();
        }
        true
    }

    pub(super) fn len(&self) -> usize {
        self.lock().items.len()
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    /// Takes what is there, in order, up to `bytes_max` (at least one item). Waits for the first one until `until`
    /// (for ever if there is none); empty when that comes, or when the queue is closed and nothing is left.
    pub(super) fn take(&self, bytes_max: usize, until: Option<Instant>, to: &mut Vec<Item>) {
        let mut inner = self.lock();
        while inner.items.is_empty() && !inner.closed {
            inner.idle = true;
            inner = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => break,
                Some(left) => match self.filled.wait_timeout(inner, left) {
                    Ok((inner, _)) => inner,
                    Err(poisoned) => poisoned.into_inner().0,
                },
                None => self.filled.wait(inner).unwrap_or_else(PoisonError::into_inner),
            };
        }
        inner.idle = false;
        let mut bytes = 0;
        while let Some(item) = inner.items.front() {
            bytes += item.batch.len();
            if bytes > bytes_max && !to.is_empty() {
                break;
            }
            to.extend(inner.items.pop_front());
        }
        if inner.waiting > 0 {
            self.emptied.notify_all();
        }
    }

    /// Waits until the queue is closed, at most until then; is it?
    pub(super) fn closed_by(&self, until: Instant) -> bool {
        let mut inner = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if inner.closed || left.is_zero() {
                return inner.closed;
            }
            inner = match self.filled.wait_timeout(inner, left) {
                Ok((inner, _)) => inner,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}
