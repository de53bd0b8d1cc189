//! The log's keeping in the background: older batches are sealed, snapshots made, what is too old trimmed.
//!
//! Snapshots are folded here from what is durable, so that no pool's thread ever stops for one.

use super::service::EngineError;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_background::Turns;
use weir_log::SegmentError;
use weir_log::reader::Logs;
use weir_log::snapshot::{self, Snapshot};
use weir_log::store::Frames;
use weir_log::upkeep::{Upkeep, wall_clock};

/// What is to be kept, and how.
pub(super) struct Keeping {
    pub data: PathBuf,
    pub log_id: [u8; 16],
    pub format: u16,
    pub frames: Arc<dyn Frames>,
    pub upkeep: Upkeep,
    pub pools: Vec<String>,
    pub every: Duration,
    /// Steps of a pool after its newest snapshot, at which the next one is made.
    pub snapshot_every: u64,
}

/// After each half millisecond of work under full load, where at most one database waits to be sealed. Half a millisecond
/// of ten and a half: what takes a second of a processor is spread over twenty.
const REST: Duration = Duration::from_millis(10);

/// The same where more databases wait, since the disk is to be given back: with two of them a sixth of a processor, with
/// three near a third.
fn rest(closed: usize) -> Duration {
    let closed = u32::try_from(closed).unwrap_or(u32::MAX).max(1);
    REST / closed.saturating_mul(closed)
}

/// The thread; dropping it waits for the round under way.
#[derive(Debug)]
pub(super) struct KeepingThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeping {
    /// Starts the thread: one round at once, then one per `every`.
    pub fn spawn(self) -> Result<KeepingThread, EngineError> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("weir-log-keeping".to_owned())
            .spawn(move || self.run(&stopped))
            .map_err(|error| EngineError::Keeping { error: error.to_string() })?;
        Ok(KeepingThread { stop: Some(stop), thread: Some(thread) })
    }

    fn run(&self, stopped: &Receiver<()>) {
        // Sealing 64 MiB and a snapshot take up to a second of a processor, and have time.
        weir_background::give_way();
        loop {
            Turns::resting(1, rest(self.upkeep.closed())).during(|| self.round());
            match stopped.recv_timeout(self.every) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// One round. What fails is tried again in the next one.
    fn round(&self) {
        match self.upkeep.round(wall_clock()) {
            Ok(round) => {
                let trimmed = round.trimmed;
                if !round.sealed.is_empty() || trimmed.segments > 0 {
                    let (sealed, disk_bytes) = (round.sealed.len(), trimmed.left.total());
                    tracing::info!(
                        sealed,
                        trimmed = trimmed.segments,
                        disk_bytes,
                        "the log was sealed and trimmed"
                    );
                }
                if trimmed.held_back {
                    tracing::warn!("the log is over its retention, but no snapshot covers what should go");
                }
            }
            Err(error) => tracing::warn!(%error, "sealing or trimming the log failed; it is tried again"),
        }
        for pool in &self.pools {
            match self.snapshot(pool) {
                Ok(Some(seq)) => tracing::info!(pool, seq, "a snapshot was made"),
                Ok(None) => {}
                Err(error) => tracing::warn!(pool, %error, "a snapshot failed; it is tried again"),
            }
        }
    }

    /// A snapshot of the pool at its durable end, if enough has come since the last one.
    fn snapshot(&self, pool: &str) -> Result<Option<u64>, SegmentError> {
        let newest = snapshot::list(&self.data, pool)?.last().map_or(0, |newest| newest.seq);
        if self.frames.head(pool).seq < newest.saturating_add(self.snapshot_every) {
            return Ok(None);
        }
        let logs = Logs::of_dir(&self.data, Some(Arc::clone(&self.frames)))?;
        let recovered = snapshot::recover(&logs, pool)?;
        let made = Snapshot::of(&recovered.state, pool, self.log_id, recovered.head);
        Ok(Some(snapshot::save(&self.data, &made, wall_clock(), self.format)?.seq))
    }
}

impl Drop for KeepingThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Its rounds catch what fails; there is nothing left to tell.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_waits_to_be_sealed_the_shorter_is_the_rest() {
        let rests = [0, 1, 2, 3, 10, usize::MAX].map(|closed| rest(closed).as_micros());
        assert_eq!(rests, [10_000, 10_000, 2_500, 1_111, 100, 0]);
    }
}
