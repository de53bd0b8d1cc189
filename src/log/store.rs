//! The narrow seam behind which the log is kept: append batches where the log ends, read from a sequence, follow.
//!
//! Two keep it here: the hot window in sled (`hot/`) and a twin in memory for tests (`memory.rs`). A replicated log
//! would take their place.

use crate::chain::Head;
use crate::error::LogError;
use crate::frame::Frame;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The writing side; one owner.
///
/// After an error every call fails until [`Store::reopen`] succeeds.
pub trait Store: Send {
    /// The format in which batches are to be written.
    fn format(&self) -> u16;

    /// Where a pool's log ends, counting what is written but not yet durable.
    fn head(&self, pool: &str) -> Head;

    /// Writes batches, each of which must follow the head of its pool. Not durable before [`Store::sync`] returns.
    ///
    /// # Errors
    /// A batch that does not follow (nothing is written then), and what the storage says.
    fn write(&mut self, frames: &[Frame]) -> Result<(), LogError>;

    /// Makes all that was written durable, and shows it to the readers.
    ///
    /// # Errors
    /// What the storage says; what was written since the last sync is then in doubt.
    fn sync(&mut self) -> Result<(), LogError>;

    /// Opens the storage afresh after an error and reads back where each pool's log ends: at the last durable batch,
    /// or after some of those that were in doubt.
    ///
    /// # Errors
    /// What the storage says; a durable batch that is gone.
    fn reopen(&mut self) -> Result<(), LogError>;

    /// The reading side.
    fn frames(&self) -> Arc<dyn Frames>;

    /// Called once at the end, after the last sync.
    ///
    /// # Errors
    /// What the storage says.
    fn close(&mut self) -> Result<(), LogError> {
        Ok(())
    }
}

/// The reading side: durable batches only, from any thread.
pub trait Frames: Send + Sync {
    /// Every pool that the log knows, in order of name.
    fn pools(&self) -> Vec<Arc<str>>;

    /// Where a pool's log ends.
    fn head(&self, pool: &str) -> Head;

    /// The first sequence that is here (older batches may be in sealed segments); `None` if there is no batch.
    fn oldest(&self, pool: &str) -> Option<u64>;

    /// Batches in order, beginning with the one that holds `from`: at least one if there is one, then as many as
    /// fit into `bytes_max`. Empty if `from` is beyond the head.
    ///
    /// # Errors
    /// [`LogError::Trimmed`] if `from` is older than what is here; a damaged batch; what the storage says.
    fn read(&self, pool: &str, from: u64, bytes_max: usize) -> Result<Vec<Frame>, LogError>;

    /// Waits until a pool's log ends after `past`, at most for `timeout`; gives the head then.
    fn wait(&self, pool: &str, past: u64, timeout: Duration) -> Head;
}

/// Where each pool's durable log ends, to be waited on.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    heads: Mutex<BTreeMap<Arc<str>, Head>>,
    moved: Condvar,
}

impl Heads {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Head>> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, heads: &BTreeMap<Arc<str>, Head>) {
        self.lock().clone_from(heads);
        self.moved.notify_all();
    }

    pub(crate) fn pools(&self) -> Vec<Arc<str>> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) fn head(&self, pool: &str) -> Head {
        self.lock().get(pool).copied().unwrap_or_default()
    }

    pub(crate) fn wait(&self, pool: &str, past: u64, timeout: Duration) -> Head {
        let until = Instant::now() + timeout;
        let mut heads = self.lock();
        loop {
            let head = heads.get(pool).copied().unwrap_or_default();
            let left = until.saturating_duration_since(Instant::now());
            if head.seq > past || left.is_zero() {
                return head;
            }
            heads = match self.moved.wait_timeout(heads, left) {
                Ok((heads, _)) => heads,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}
