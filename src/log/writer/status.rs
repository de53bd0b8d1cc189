//! What the writer says of itself: can the log be written, and how long does it take.

use crate::error::LogError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Can the log be written?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogStatus {
    /// Yes.
    Writable,
    /// No. Nothing may be decided; the writer tries again by itself.
    Unavailable {
        /// Since when.
        since: SystemTime,
        /// Why.
        error: LogError,
    },
}

type Watcher = Box<dyn Fn(&LogStatus) + Send + Sync>;

pub(super) struct StatusCell {
    writable: AtomicBool,
    inner: Mutex<(LogStatus, Vec<Watcher>)>,
}

impl Default for StatusCell {
    fn default() -> Self {
        StatusCell { writable: AtomicBool::new(true), inner: Mutex::new((LogStatus::Writable, Vec::new())) }
    }
}

impl StatusCell {
    pub(super) fn writable(&self) -> bool {
        self.writable.load(Relaxed)
    }

    pub(super) fn get(&self) -> LogStatus {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    pub(super) fn set(&self, status: LogStatus) {
        self.writable.store(status == LogStatus::Writable, Relaxed);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for watcher in &inner.1 {
            watcher(&status);
        }
        inner.0 = status;
    }

    /// Calls the watcher now and at each change.
    pub(super) fn watch(&self, watcher: Watcher) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        watcher(&inner.0);
        inner.1.push(watcher);
    }
}

/// Upper bounds of the buckets of [`LogMetrics::flush_buckets`], in microseconds; one more bucket lies above the last.
pub const FLUSH_BOUNDS_US: [u64; 14] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000,
];

/// What the writer has done since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogMetrics {
    /// Commits: each makes everything that was ready durable, of all pools.
    pub commits: u64,
    /// Batches in them.
    pub batches: u64,
    /// Steps in them.
    pub steps: u64,
    /// Bytes of the batches, headers included.
    pub bytes: u64,
    /// Commits that failed.
    pub failures: u64,
    /// Time spent in commits (write and sync), in microseconds.
    pub flush_us: u64,
    /// Commits by how long they took; bounds in [`FLUSH_BOUNDS_US`].
    pub flush_buckets: [u64; FLUSH_BOUNDS_US.len() + 1],
}

#[derive(Default)]
pub(super) struct Counters {
    commits: AtomicU64,
    batches: AtomicU64,
    steps: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    flush_us: AtomicU64,
    buckets: [AtomicU64; FLUSH_BOUNDS_US.len() + 1],
}

impl Counters {
    pub(super) fn committed(&self, took: Duration) {
        let us = took.as_micros() as u64;
        self.commits.fetch_add(1, Relaxed);
        self.flush_us.fetch_add(us, Relaxed);
        let bucket = FLUSH_BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[bucket].fetch_add(1, Relaxed);
    }

    pub(super) fn batch(&self, steps: u32, bytes: usize) {
        self.batches.fetch_add(1, Relaxed);
        self.steps.fetch_add(u64::from(steps), Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    pub(super) fn snapshot(&self) -> LogMetrics {
        LogMetrics {
            commits: self.commits.load(Relaxed),
            batches: self.batches.load(Relaxed),
            steps: self.steps.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            failures: self.failures.load(Relaxed),
            flush_us: self.flush_us.load(Relaxed),
            flush_buckets: std::array::from_fn(|at| self.buckets[at].load(Relaxed)),
        }
    }
}
