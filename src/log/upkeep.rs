//! Upkeep in the background: closed databases of the hot window are sealed and deleted, snapshots made, segments trimmed.
//!
//! One round does all of it; a thread of its own runs rounds. A round that fails is warned about and tried again.

use crate::error::LogError;
use crate::frame::Frame;
use crate::hot::HotWindow;
use crate::retention::{Retention, TrimReport, trim};
use crate::seal::Sealer;
use crate::segment::{SEGMENTS, SegmentError, SegmentRef, pools_under};
use crate::snapshot;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_kernel::Micros;

/// Bytes that are read from a database at once: nobody makes way meanwhile.
const READ_BYTES: usize = 256 << 10;

/// What upkeep needs to know.
pub struct Upkeep {
    data: PathBuf,
    log_id: [u8; 16],
    format: u16,
    window: Arc<HotWindow>,
    retention: Retention,
}

/// What a round did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Segments written.
    pub sealed: Vec<SegmentRef>,
    /// Databases deleted.
    pub deleted: Vec<u32>,
    /// Snapshots written, by pool.
    pub snapshots: Vec<(String, u64)>,
    /// What was trimmed.
    pub trimmed: TrimReport,
}

impl Upkeep {
    /// For a data directory whose hot window is open.
    pub fn new(
        data: &Path,
        log_id: [u8; 16],
        format: u16,
        window: Arc<HotWindow>,
        retention: Retention,
    ) -> Self {
        Upkeep { data: data.to_owned(), log_id, format, window, retention }
    }

    /// Databases of the hot window that wait to be sealed.
    pub fn closed(&self) -> usize {
        self.window.closed().len()
    }

    /// One round.
    ///
    /// # Errors
    /// Damage in what is to be sealed; a failed write. The next round takes up where this one stopped.
    pub fn round(&self, now: Micros) -> Result<Round, SegmentError> {
        let mut round = Round::default();
        let sealer = Sealer::new(&self.data, self.log_id);
        for closed in self.window.closed() {
            for (pool, (first, last)) in &closed.pools {
                let frames = generation_frames(&self.window, closed.number, pool, *first, *last);
                round.sealed.extend(sealer.seal(pool, now, frames)?);
            }
            self.window.delete(closed.number)?;
            round.deleted.push(closed.number);
        }
        for pool in pools_under(&self.data, SEGMENTS)? {
            if let Some(made) = snapshot::advance(&self.data, &pool, self.log_id, now, self.format)? {
                round.snapshots.push((pool, made.seq));
            }
        }
        round.trimmed = trim(&self.data, self.window.disk_bytes(), &self.retention, now)?;
        Ok(round)
    }

    /// Runs rounds on a thread of its own, one at once and then one per `every`, until the handle is dropped.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn spawn(self, every: Duration) -> Result<UpkeepThread, LogError> {
        let (stop, stopped) = channel();
        let path = self.data.clone();
        let thread = std::thread::Builder::new()
            .name("weir-log-upkeep".to_owned())
            .spawn(move || self.run(every, &stopped))
            .map_err(|error| LogError::io("start the upkeep of", &path, &error))?;
        Ok(UpkeepThread { stop: Some(stop), thread: Some(thread) })
    }

    fn run(&self, every: Duration, stopped: &Receiver<()>) {
        loop {
            match self.round(wall_clock()) {
                Ok(round) => {
                    if !round.sealed.is_empty() || round.trimmed.segments > 0 {
                        tracing::info!(
                            segments = round.sealed.len(),
                            snapshots = round.snapshots.len(),
                            trimmed = round.trimmed.segments,
                            disk_bytes = round.trimmed.left.total(),
                            "the log was sealed and trimmed"
                        );
                    }
                    if round.trimmed.held_back {
                        tracing::warn!(
                            "the log is over its retention, but no snapshot covers what should go"
                        );
                    }
                }
                Err(error) => tracing::warn!(%error, "sealing or trimming the log failed; trying again"),
            }
            match stopped.recv_timeout(every) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Upkeep in the background; dropping it waits for the round under way.
#[derive(Debug)]
pub struct UpkeepThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for UpkeepThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The wall clock, in microseconds since the Unix epoch.
pub fn wall_clock() -> Micros {
    Micros(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64))
}

/// The batches of one pool in one database.
fn generation_frames<'a>(
    window: &'a HotWindow,
    number: u32,
    pool: &'a str,
    first: u64,
    last: u64,
) -> impl Iterator<Item = Result<Frame, LogError>> + 'a {
    let mut next = first;
    let mut batch = Vec::new().into_iter();
    std::iter::from_fn(move || {
        loop {
            if let Some(frame) = batch.next() {
                return Some(Ok(frame));
            }
            if next > last {
                return None;
            }
            match window.read_generation(number, pool, next, READ_BYTES) {
                Ok(frames) if frames.is_empty() => {
                    next = u64::MAX;
                    let error = format!("generation {number} ends before sequence {last} of pool {pool}");
                    return Some(Err(LogError::Unavailable { error }));
                }
                Ok(frames) => {
                    next = frames.last().map_or(u64::MAX, |frame: &Frame| frame.header.last_seq() + 1);
                    batch = frames.into_iter();
                }
                Err(error) => {
                    next = u64::MAX;
                    return Some(Err(error));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests;
