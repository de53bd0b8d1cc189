//! The hot window, reading side: its databases from oldest to newest, and the durable end of each pool's log.

use super::generation::Generation;
use super::recover::{discard, sweep};
use crate::chain::Head;
use crate::error::LogError;
use crate::frame::Frame;
use crate::store::{Frames, Heads};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Shared by the writer, the readers and whoever seals.
pub struct HotWindow {
    generations: RwLock<Vec<Arc<Generation>>>,
    heads: Heads,
    /// Generations before this one are never written again, and the next one's beginning is durable.
    left: AtomicU32,
}

/// A database that is no longer written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedGeneration {
    /// Its number; they are sealed and deleted in order.
    pub number: u32,
    /// Its bytes on disk.
    pub disk_bytes: u64,
    /// First and last sequence per pool that has batches in it.
    pub pools: BTreeMap<Arc<str>, (u64, u64)>,
}

impl HotWindow {
    pub(super) fn new(generations: Vec<Arc<Generation>>) -> HotWindow {
        let left = generations.last().map_or(0, |generation| generation.number);
        HotWindow {
            generations: RwLock::new(generations),
            heads: Heads::default(),
            left: AtomicU32::new(left),
        }
    }

    fn list(&self) -> Vec<Arc<Generation>> {
        self.generations.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn current(&self) -> Option<Arc<Generation>> {
        self.list().pop()
    }

    pub(super) fn begin(&self, next: Generation) -> Arc<Generation> {
        let next = Arc::new(next);
        self.generations.write().unwrap_or_else(PoisonError::into_inner).push(next.clone());
        next
    }

    pub(super) fn left(&self, current: u32) {
        self.left.store(current, Ordering::Release);
    }

    pub(super) fn durable(&self, heads: &BTreeMap<Arc<str>, Head>) {
        self.heads.set(heads);
    }

    pub(super) fn close_all(&self) {
        for generation in self.list() {
            generation.close();
        }
    }

    pub(super) fn replace(&self, generations: Vec<Arc<Generation>>) {
        *self.generations.write().unwrap_or_else(PoisonError::into_inner) = generations;
    }

    /// The databases that are no longer written, oldest first: to be sealed, then deleted.
    pub fn closed(&self) -> Vec<ClosedGeneration> {
        let left = self.left.load(Ordering::Acquire);
        let closed = self.list().into_iter().filter(|generation| generation.number < left);
        closed
            .map(|generation| ClosedGeneration {
                number: generation.number,
                disk_bytes: generation.disk_bytes(),
                pools: generation
                    .held()
                    .into_iter()
                    .filter(|(_, held)| held.first > 0)
                    .map(|(pool, held)| (pool, (held.first, held.last)))
                    .collect(),
            })
            .collect()
    }

    /// Bytes that all databases use of their files, to a segment of 512 KiB each: without what was set aside for them.
    pub fn used_bytes(&self) -> u64 {
        self.list().iter().map(|generation| generation.used_bytes().0).sum()
    }

    /// Bytes of all databases on disk.
    pub fn disk_bytes(&self) -> u64 {
        self.list().iter().map(|generation| generation.disk_bytes()).sum()
    }

    fn read_list(
        &self,
        list: &[Arc<Generation>],
        pool: &str,
        from: u64,
        bytes_max: usize,
    ) -> Result<Vec<Frame>, LogError> {
        let upto = self.heads.head(pool).seq;
        if from > upto {
            return Ok(Vec::new());
        }
        let oldest = oldest(list, pool, upto).unwrap_or(upto + 1);
        if from < oldest {
            return Err(LogError::Trimmed { pool: Arc::from(pool), wanted: from, oldest });
        }
        let mut frames = Vec::new();
        for generation in list {
            let Some(held) = generation.held_of(pool).filter(|held| held.last >= from) else { continue };
            generation.read(pool, from, upto, bytes_max, &mut frames)?;
            // The limit was reached inside this one: going on would leave a gap.
            if frames.last().is_none_or(|last| last.header.last_seq() < held.last) {
                break;
            }
        }
        Ok(frames)
    }

    /// Reads batches of one pool out of one database, from the one that holds `from`.
    ///
    /// # Errors
    /// A damaged batch; what the storage says. A generation that is not there has no batches.
    pub fn read_generation(
        &self,
        number: u32,
        pool: &str,
        from: u64,
        bytes_max: usize,
    ) -> Result<Vec<Frame>, LogError> {
        let mut frames = Vec::new();
        if let Some(generation) = self.list().into_iter().find(|generation| generation.number == number) {
            generation.read(pool, from, self.heads.head(pool).seq, bytes_max, &mut frames)?;
        }
        Ok(frames)
    }

    /// Deletes a database whose batches are all sealed, and gives its space back to the disk.
    ///
    /// # Errors
    /// A generation that is still written, or is not the oldest; what the system says.
    pub fn delete(&self, number: u32) -> Result<(), LogError> {
        let mut list = self.generations.write().unwrap_or_else(PoisonError::into_inner);
        let oldest = list.first().map(|generation| generation.number);
        if oldest != Some(number) || number >= self.left.load(Ordering::Acquire) {
            let error = format!("generation {number} is still in use (the oldest is {oldest:?})");
            return Err(LogError::Unavailable { error });
        }
        let gone = list.remove(0);
        drop(list);
        gone.close();
        discard(gone.path())?;
        gone.path().parent().map_or(Ok(()), sweep)
    }
}

impl Frames for HotWindow {
    fn pools(&self) -> Vec<Arc<str>> {
        self.heads.pools()
    }

    fn head(&self, pool: &str) -> Head {
        self.heads.head(pool)
    }

    fn oldest(&self, pool: &str) -> Option<u64> {
        oldest(&self.list(), pool, self.heads.head(pool).seq)
    }

    fn read(&self, pool: &str, from: u64, bytes_max: usize) -> Result<Vec<Frame>, LogError> {
        loop {
            let list = self.list();
            let result = self.read_list(&list, pool, from, bytes_max);
            // A database that was deleted, or opened again, under way: what is there now counts.
            let same = self.list().iter().map(Arc::as_ptr).eq(list.iter().map(Arc::as_ptr));
            if result.is_ok() || same {
                return result;
            }
        }
    }

    fn wait(&self, pool: &str, past: u64, timeout: Duration) -> Head {
        self.heads.wait(pool, past, timeout)
    }
}

fn oldest(list: &[Arc<Generation>], pool: &str, upto: u64) -> Option<u64> {
    let firsts = list.iter().filter_map(|generation| generation.held_of(pool)).map(|held| held.first);
    firsts.into_iter().find(|first| *first > 0 && *first <= upto)
}
