//! The writer's thread: seal, write, sync, release; and the way back after a failure.

use super::queue::{Item, Queue};
use super::{Durability, Durable, LogStatus, Release, Shared, WriterOptions};
use crate::chain::{Break, Head};
use crate::error::LogError;
use crate::fault::{FrameError, FrameFault};
use crate::frame::Frame;
use crate::store::Store;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_kernel::Micros;

/// With [`Durability::Interval`]: written but not synced beyond this, and the sync does not wait for its time.
const UNSYNCED_BYTES_MAX: usize = 8 << 20;

struct Run<'a> {
    store: Box<dyn Store>,
    options: WriterOptions,
    shared: &'a Shared,
    /// Where each pool's log will end once all that is kept is in it.
    heads: HashMap<Arc<str>, Head>,
    /// Batches that are not durable yet, in order, and who waits for each.
    kept: Vec<Frame>,
    releases: Vec<Option<Release>>,
    /// How many of them are written.
    written: usize,
    synced_at: Instant,
}

/// Whatever ends the thread, nobody waits for it any more.
struct CloseAtEnd<'a>(&'a Queue);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
        let mut left = Vec::new();
        self.0.take(usize::MAX, None, &mut left);
        for item in left {
            (item.release)(Err(LogError::Closed));
        }
    }
}

pub(super) fn run(store: Box<dyn Store>, options: WriterOptions, shared: &Shared) -> Box<dyn Store> {
    let _close = CloseAtEnd(&shared.queue);
    let mut run = Run {
        store,
        options,
        shared,
        heads: HashMap::new(),
        kept: Vec::new(),
        releases: Vec::new(),
        written: 0,
        synced_at: Instant::now(),
    };
    let mut items = Vec::new();
    loop {
        shared.queue.take(run.options.commit_bytes_max, run.sync_due(), &mut items);
        if items.is_empty() && run.kept.is_empty() {
            break; // Closed, and nothing is left.
        }
        let ending = items.is_empty() && run.sync_due().is_none_or(|due| Instant::now() < due);
        run.accept(items.drain(..));
        if !run.kept.is_empty() && !run.commit(ending) && !run.recover() {
            break;
        }
    }
    run.end()
}

impl Run<'_> {
    /// With [`Durability::Interval`], when what is written has to be synced.
    fn sync_due(&self) -> Option<Instant> {
        match self.options.durability {
            Durability::Interval(interval) if !self.kept.is_empty() => Some(self.synced_at + interval),
            _ => None,
        }
    }

    fn head(&mut self, pool: &Arc<str>) -> Head {
        let store = &self.store;
        *self.heads.entry(pool.clone()).or_insert_with(|| store.head(pool))
    }

    /// Gives each batch its place in its pool's chain.
    fn accept(&mut self, items: impl Iterator<Item = Item>) {
        let wall = now();
        for Item { batch, release } in items {
            let draft = match batch.draft(self.store.format(), self.options.codec) {
                Ok(draft) => draft,
                Err(error) => {
                    release(Err(error));
                    continue;
                }
            };
            let header = draft.header();
            let (pool, first) = (header.pool.clone(), header.first_seq);
            let head = self.head(&pool);
            let expected = head.seq + 1;
            let broken = if first != expected {
                Some(Break::Sequence { found: first, expected })
            } else if header.at_first < head.at {
                Some(Break::Time { found: header.at_first.0, before: head.at.0 })
            } else {
                None
            };
            if let Some(broken) = broken {
                let fault = FrameFault::Chain(broken);
                release(Err(FrameError { pool: Some(pool), seq: Some(first), fault }.into()));
                continue;
            }
            let frame = draft.seal(head.hash, wall);
            self.shared.counters.batch(frame.header.count, frame.bytes.len());
            self.heads.insert(pool, Head::of(&frame));
            self.kept.push(frame);
            self.releases.push(Some(release));
        }
    }

    /// Writes what is not written yet, syncs when it is time, releases. False if the store failed.
    fn commit(&mut self, ending: bool) -> bool {
        let begun = Instant::now();
        match self.try_commit(ending) {
            Ok(synced) => {
                self.shared.counters.committed(begun.elapsed());
                self.release();
                if synced {
                    self.kept.clear();
                    self.releases.clear();
                    self.written = 0;
                }
                true
            }
            Err(error) => {
                self.shared.counters.failed();
                tracing::error!(%error, "the log cannot be written: nothing is decided until it can");
                self.shared.status.set(LogStatus::Unavailable { since: SystemTime::now(), error });
                false
            }
        }
    }

    fn try_commit(&mut self, ending: bool) -> Result<bool, LogError> {
        if self.written < self.kept.len() {
            self.store.write(&self.kept[self.written..])?;
            self.written = self.kept.len();
        }
        let unsynced = || self.kept.iter().map(|frame| frame.bytes.len()).sum::<usize>();
        let due = match self.options.durability {
            Durability::Group => true,
            Durability::Interval(interval) => {
                ending || self.synced_at.elapsed() >= interval || unsynced() > UNSYNCED_BYTES_MAX
            }
        };
        if due {
            self.store.sync()?;
            self.synced_at = Instant::now();
        }
        Ok(due)
    }

    fn release(&mut self) {
        for (frame, release) in self.kept.iter().zip(&mut self.releases).take(self.written) {
            if let Some(release) = release.take() {
                release(Ok(Durable {
                    first_seq: frame.header.first_seq,
                    last_seq: frame.header.last_seq(),
                    hash: frame.hash,
                    bytes: frame.bytes.len(),
                }));
            }
        }
    }

    /// Opens the store again and again until everything that was kept is durable. False if the writer is to stop.
    fn recover(&mut self) -> bool {
        let mut wait = self.options.retry_min;
        loop {
            let closed = self.shared.queue.closed_by(Instant::now() + wait);
            wait = (wait * 2).min(self.options.retry_max).max(Duration::from_millis(1));
            match self.try_again() {
                Ok(()) => {
                    tracing::info!(batches = self.kept.len(), "the log can be written again");
                    self.shared.status.set(LogStatus::Writable);
                    self.release();
                    self.kept.clear();
                    self.releases.clear();
                    self.written = 0;
                    return true;
                }
                Err(error) => {
                    self.shared.counters.failed();
                    tracing::warn!(%error, "the log still cannot be written");
                    if let LogStatus::Unavailable { since, .. } = self.shared.status.get() {
                        self.shared.status.set(LogStatus::Unavailable { since, error });
                    }
                }
            }
            if closed {
                return false;
            }
        }
    }

    /// Reads back where each pool's log ends, and appends what is missing there: the same bytes as before.
    fn try_again(&mut self) -> Result<(), LogError> {
        self.store.reopen()?;
        let mut missing = Vec::new();
        let mut reached: HashMap<Arc<str>, Head> = HashMap::new();
        for frame in &self.kept {
            let pool = &frame.header.pool;
            let there = self.store.head(pool);
            if frame.header.last_seq() <= there.seq {
                reached.insert(pool.clone(), Head::of(frame));
                continue;
            }
            if let Some(head) = reached.remove(pool)
                && head != there
            {
                return Err(differs(pool, there.seq));
            }
            missing.push(frame.clone());
        }
        for (pool, head) in reached {
            if self.store.head(&pool) != head {
                return Err(differs(&pool, head.seq));
            }
        }
        self.store.write(&missing)?;
        self.store.sync()?;
        self.written = self.kept.len();
        self.synced_at = Instant::now();
        Ok(())
    }

    fn end(mut self) -> Box<dyn Store> {
        for release in self.releases.iter_mut().filter_map(Option::take) {
            release(Err(LogError::Closed));
        }
        if let Err(error) = self.store.close() {
            tracing::warn!(%error, "the log did not close cleanly");
        }
        self.store
    }
}

fn differs(pool: &Arc<str>, seq: u64) -> LogError {
    let error = format!("after opening it again, the log of pool {pool} ends otherwise at sequence {seq}");
    LogError::Unavailable { error }
}

fn now() -> Micros {
    Micros(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64))
}
