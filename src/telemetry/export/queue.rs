//! The queue before the export, and what became of the spans.

use super::settings::Settings;
use super::worker;
use crate::span::Span;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// What became of spans so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Taken by the receiver.
    exported: AtomicU64,
    /// Dropped, since the queue was full.
    full: AtomicU64,
    /// Dropped, since the receiver did not take them.
    failed: AtomicU64,
    /// Requests whose spans were given up, since the steps of the log came too fast.
    lagged: AtomicU64,
}

/// The same as plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Taken by the receiver.
    pub exported: u64,
    /// Dropped, since the queue was full.
    pub full: u64,
    /// Dropped, since the receiver did not take them.
    pub failed: u64,
    /// Requests whose spans were given up, since the steps of the log came too fast.
    pub lagged: u64,
}

impl Counters {
    /// As they are now.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            exported: read(&self.exported),
            full: read(&self.full),
            failed: read(&self.failed),
            lagged: read(&self.lagged),
        }
    }

    /// So many requests' spans were given up.
    pub fn add_lagged(&self, requests: u64) {
        self.lagged.fetch_add(requests, Ordering::Relaxed);
    }

    pub(super) fn add_exported(&self, spans: usize) {
        self.exported.fetch_add(spans as u64, Ordering::Relaxed);
    }

    pub(super) fn add_failed(&self, spans: usize) {
        self.failed.fetch_add(spans as u64, Ordering::Relaxed);
    }
}

/// What the queue and its thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub settings: Settings,
    pub counters: Counters,
    /// Spans that wait or are on their way.
    pub waiting: AtomicUsize,
}

/// Takes spans and sends them on from a thread of its own.
#[derive(Debug)]
pub struct Exporter {
    shared: Arc<Shared>,
    queue: Mutex<Option<mpsc::UnboundedSender<Vec<Span>>>>,
    /// True once the thread is through.
    ended: watch::Receiver<bool>,
    /// When the thread must be through.
    stop: watch::Sender<Option<tokio::time::Instant>>,
}

impl Exporter {
    /// Starts the thread. The receiver need not be there.
    ///
    /// # Errors
    /// The endpoint or a header is not one; or there is no thread to be had.
    pub fn start(settings: Settings) -> Result<Arc<Self>, String> {
        let shared =
            Arc::new(Shared { settings, counters: Counters::default(), waiting: AtomicUsize::new(0) });
        // The number of spans is bounded, and with it that of the batches.
        let (queue, batches) = mpsc::unbounded_channel();
        let (ended_to, ended) = watch::channel(false);
        let (stop, stopping) = watch::channel(None);
        worker::start(Arc::clone(&shared), batches, stopping, ended_to)?;
        Ok(Arc::new(Exporter { shared, queue: Mutex::new(Some(queue)), ended, stop }))
    }

    /// Takes spans, as far as there is room. Never waits.
    pub fn take(&self, mut spans: Vec<Span>) {
        if spans.is_empty() {
            return;
        }
        let most = self.shared.settings.queue_max;
        let mut room = 0;
        let reserve = |waiting: usize| {
            room = most.saturating_sub(waiting).min(spans.len());
            Some(waiting + room)
        };
        // Cannot fail: the closure always gives a value.
        let _ = self.shared.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, reserve);
        if room < spans.len() {
            self.drop_full(spans.len() - room);
            spans.truncate(room);
        }
        if spans.is_empty() {
            return;
        }
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = queue.as_ref().is_some_and(|queue| queue.send(spans).is_ok());
        if !sent {
            self.drop_full(room);
            self.shared.waiting.fetch_sub(room, Ordering::AcqRel);
        }
    }

    /// Is there no room at all?
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Spans that there is room for now.
    pub fn room(&self) -> usize {
        self.shared.settings.queue_max.saturating_sub(self.shared.waiting.load(Ordering::Acquire))
    }

    /// As [`Exporter::shutdown`], where nothing asynchronous runs.
    ///
    /// # Errors
    /// There is no runtime to be had.
    pub fn finish(&self, patience: Duration) -> std::io::Result<Counts> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(runtime.block_on(self.shutdown(patience)))
    }

    /// What is exported while it runs.
    pub fn sampler(&self) -> crate::Sampler {
        self.shared.settings.sampler
    }

    /// Where it all goes, in a few words.
    pub fn destination(&self) -> String {
        format!("{} ({:?})", self.shared.settings.endpoint, self.shared.settings.protocol)
    }

    /// What became of spans so far.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Sends what waits, for so long at most. What is left then is dropped and counted.
    pub async fn shutdown(&self, patience: Duration) -> Counts {
        let until = tokio::time::Instant::now() + patience;
        // Nobody listens if it is through already.
        let _ = self.stop.send(Some(until));
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut ended = self.ended.clone();
        if tokio::time::timeout_at(until, ended.wait_for(|ended| *ended)).await.is_err() {
            let left = self.shared.waiting.swap(0, Ordering::AcqRel);
            self.shared.counters.add_failed(left);
        }
        self.shared.counters.counts()
    }

    fn drop_full(&self, spans: usize) {
        self.shared.counters.full.fetch_add(spans as u64, Ordering::Relaxed);
    }
}
