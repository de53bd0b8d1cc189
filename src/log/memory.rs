//! The log's twin in memory, for tests of whatever stands on it: the same rules, and faults on demand.

use crate::chain::Head;
use crate::error::LogError;
use crate::frame::Frame;
use crate::hot::admit;
use crate::store::{Frames, Heads, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Pools = BTreeMap<Arc<str>, Vec<Frame>>;

#[derive(Debug, Default)]
struct Disk {
    /// What survives a loss of power.
    durable: Pools,
    /// What was written since the last sync.
    written: Vec<Frame>,
    fail_writes: u32,
    fail_syncs: u32,
    fail_reopens: u32,
    failing: bool,
}

/// What a [`MemoryStore`] writes to; outlives it, and breaks when told to.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    disk: Arc<Mutex<Disk>>,
    heads: Arc<Heads>,
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next `count` writes fail, and leave nothing behind.
    pub fn fail_writes(&self, count: u32) {
        self.lock().fail_writes = count;
    }

    /// The next `count` syncs fail; whether what they should have synced is there afterwards is open: here it is not.
    pub fn fail_syncs(&self, count: u32) {
        self.lock().fail_syncs = count;
    }

    /// The next `count` reopenings fail.
    pub fn fail_reopens(&self, count: u32) {
        self.lock().fail_reopens = count;
    }

    /// Everything fails until this is called with `false` (a full disk, say).
    pub fn fail_all(&self, failing: bool) {
        self.lock().failing = failing;
    }

    /// Everything that was not synced is gone.
    pub fn lose_power(&self) {
        self.lock().written.clear();
    }

    /// Every durable batch of a pool.
    pub fn batches(&self, pool: &str) -> Vec<Frame> {
        self.lock().durable.get(pool).cloned().unwrap_or_default()
    }
}

/// The log's twin in memory, writing side.
#[derive(Debug)]
pub struct MemoryStore {
    disk: MemoryDisk,
    heads: BTreeMap<Arc<str>, Head>,
    broken: bool,
}

impl MemoryStore {
    /// Opens the log that is on the disk.
    pub fn open(disk: &MemoryDisk) -> MemoryStore {
        let mut store = MemoryStore { disk: disk.clone(), heads: BTreeMap::new(), broken: false };
        store.read_heads();
        store
    }

    fn read_heads(&mut self) {
        let mut disk = self.disk.lock();
        disk.written.clear();
        let last = |(pool, frames): (&Arc<str>, &Vec<Frame>)| Some((pool.clone(), Head::of(frames.last()?)));
        self.heads = disk.durable.iter().filter_map(last).collect();
        self.disk.heads.set(&self.heads);
    }

    fn fails(&mut self, pick: fn(&mut Disk) -> &mut u32) -> Result<(), LogError> {
        let mut disk = self.disk.lock();
        let failing = disk.failing;
        let left = pick(&mut disk);
        if self.broken || failing || *left > 0 {
            *left = left.saturating_sub(1);
            self.broken = true;
            return Err(LogError::Unavailable { error: "a fault on demand".to_owned() });
        }
        Ok(())
    }
}

impl Store for MemoryStore {
    fn format(&self) -> u16 {
        weir_migrations::CURRENT
    }

    fn head(&self, pool: &str) -> Head {
        self.heads.get(pool).copied().unwrap_or_default()
    }

    fn write(&mut self, frames: &[Frame]) -> Result<(), LogError> {
        admit(&self.heads, frames)?;
        self.fails(|disk| &mut disk.fail_writes)?;
        for frame in frames {
            self.heads.insert(frame.header.pool.clone(), Head::of(frame));
        }
        self.disk.lock().written.extend_from_slice(frames);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.fails(|disk| &mut disk.fail_syncs)?;
        let mut disk = self.disk.lock();
        for frame in std::mem::take(&mut disk.written) {
            disk.durable.entry(frame.header.pool.clone()).or_default().push(frame);
        }
        self.disk.heads.set(&self.heads);
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), LogError> {
        self.broken = false;
        self.fails(|disk| &mut disk.fail_reopens)?;
        self.read_heads();
        Ok(())
    }

    fn frames(&self) -> Arc<dyn Frames> {
        Arc::new(self.disk.clone())
    }
}

impl Frames for MemoryDisk {
    fn pools(&self) -> Vec<Arc<str>> {
        self.heads.pools()
    }

    fn head(&self, pool: &str) -> Head {
        self.heads.head(pool)
    }

    fn oldest(&self, pool: &str) -> Option<u64> {
        self.lock().durable.get(pool)?.first().map(|frame| frame.header.first_seq)
    }

    fn read(&self, pool: &str, from: u64, bytes_max: usize) -> Result<Vec<Frame>, LogError> {
        let disk = self.lock();
        let frames = disk.durable.get(pool).map(Vec::as_slice).unwrap_or_default();
        if let Some(first) = frames.first()
            && from < first.header.first_seq
        {
            let oldest = first.header.first_seq;
            return Err(LogError::Trimmed { pool: Arc::from(pool), wanted: from, oldest });
        }
        let start = frames.partition_point(|frame| frame.header.last_seq() < from);
        let mut bytes = 0;
        let fits = |frame: &&Frame| {
            bytes += frame.bytes.len();
            bytes == frame.bytes.len() || bytes <= bytes_max
        };
        Ok(frames[start..].iter().take_while(fits).cloned().collect())
    }

    fn wait(&self, pool: &str, past: u64, timeout: Duration) -> Head {
        self.heads.wait(pool, past, timeout)
    }
}
