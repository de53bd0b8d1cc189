//! The pools' logs as the gateway may read them: durable batches of the hot window, and what is sealed.
//!
//! Reading blocks; callers do it on a thread for that.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_kernel::{Micros, Step};
use weir_log::reader::{Bound, Logs};
use weir_log::store::Frames;
use weir_log::writer::{LogMetrics, WriterHandle};
use weir_log::{LogError, SegmentError};

/// Bytes that one read of the hot window may take, once it has turned out that what is looked for is far.
const FAR_BYTES: usize = 4 << 20;

/// The log of all pools.
#[derive(Clone)]
pub struct History {
    /// Where sealed batches are; none if the log lives in memory.
    dir: Option<PathBuf>,
    writer: Arc<WriterHandle>,
}

/// Steps in their order, each read when it is asked for.
pub type Steps = Box<dyn Iterator<Item = Result<Step, SegmentError>> + Send>;

impl History {
    /// Of a data directory, or of a log in memory.
    pub fn new(dir: Option<PathBuf>, writer: Arc<WriterHandle>) -> Self {
        History { dir, writer }
    }

    /// A pool's steps from a sequence on (`None`: from the oldest that is kept), as far as they are durable now.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub fn steps(&self, pool: &str, from: Option<u64>) -> Result<Steps, SegmentError> {
        self.read(pool, from.map_or(Bound::Open, Bound::Seq))
    }

    /// The same for who looks for something near: the batch that holds `from` comes alone, the next ones in ever larger
    /// reads.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub fn steps_near(&self, pool: &str, from: u64) -> Result<Steps, SegmentError> {
        let frames = self.writer.frames();
        match frames.oldest(pool) {
            Some(oldest) if oldest <= from => {
                let (history, pool) = (self.clone(), pool.to_owned());
                Ok(Box::new(Near {
                    history,
                    frames,
                    pool,
                    next: from,
                    bytes: 1,
                    batch: Vec::new().into_iter(),
                }))
            }
            _ => self.steps(pool, Some(from)),
        }
    }

    /// A pool's steps from a time on, read as near as that.
    ///
    /// # Errors
    /// The data directory cannot be read, or a batch.
    pub fn steps_at(&self, pool: &str, at: Micros) -> Result<Steps, SegmentError> {
        match first_at(self.writer.frames().as_ref(), pool, at)? {
            Some(seq) => self.steps_near(pool, seq),
            None => self.read(pool, Bound::Time(at)),
        }
    }

    fn read(&self, pool: &str, from: Bound) -> Result<Steps, SegmentError> {
        let frames = self.writer.frames();
        let logs = match &self.dir {
            Some(dir) => Logs::of_dir(dir, Some(frames))?,
            None => Logs::of_hot(frames),
        };
        Ok(Box::new(logs.reader(pool, from, Bound::Open).steps()))
    }

    /// The head of a pool's chain: its last durable step, and the first 48 bits of the hash of the batch that holds it.
    pub fn chain(&self, pool: &str) -> (u64, u64) {
        let head = self.writer.frames().head(pool);
        let hash = head.hash.iter().take(6).fold(0, |hash, byte| (hash << 8) | u64::from(*byte));
        (head.seq, hash)
    }

    /// The data directory, if there is one, and the durable batches of the hot window.
    pub fn parts(&self) -> (Option<&Path>, Arc<dyn Frames>) {
        (self.dir.as_deref(), self.writer.frames())
    }

    /// What the writer has done so far.
    pub fn metrics(&self) -> LogMetrics {
        self.writer.metrics()
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "History({:?})", self.dir)
    }
}

/// The first sequence of the batch of the hot window that holds this time; none if that time is not in it.
fn first_at(frames: &dyn Frames, pool: &str, at: Micros) -> Result<Option<u64>, LogError> {
    let Some(mut low) = frames.oldest(pool) else { return Ok(None) };
    // All batches before `low` end before `at`; the one before `high` does not.
    let mut high = frames.head(pool).seq + 1;
    let mut inside = false;
    while low < high {
        let found = frames.read(pool, low + (high - low) / 2, 1)?;
        let Some(frame) = found.first() else { return Ok(None) };
        if frame.header.at_last < at {
            low = frame.header.last_seq() + 1;
            inside = true;
        } else {
            high = frame.header.first_seq.min(high - 1);
            inside |= frame.header.at_first < at;
        }
    }
    Ok(inside.then_some(low))
}

/// Steps of the hot window from a sequence on.
struct Near {
    history: History,
    frames: Arc<dyn Frames>,
    pool: String,
    next: u64,
    bytes: usize,
    batch: std::vec::IntoIter<Step>,
}

impl Near {
    fn refill(&mut self) -> Result<bool, SegmentError> {
        let frames = match self.frames.read(&self.pool, self.next, self.bytes) {
            Ok(frames) => frames,
            Err(LogError::Trimmed { .. }) => {
                // It was sealed meanwhile: the next batch from there.
                let mut steps = self.history.steps(&self.pool, Some(self.next))?;
                let some: Result<Vec<Step>, SegmentError> = steps.by_ref().take(1_024).collect();
                self.batch = some?.into_iter();
                return Ok(!self.batch.as_slice().is_empty());
            }
            Err(error) => return Err(error.into()),
        };
        self.bytes = (self.bytes * 16).min(FAR_BYTES);
        let mut steps = Vec::new();
        for frame in frames {
            steps.extend(frame.steps().map_err(LogError::from)?);
        }
        self.batch = steps.into_iter();
        Ok(!self.batch.as_slice().is_empty())
    }
}

impl Iterator for Near {
    type Item = Result<Step, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(step) = self.batch.find(|step| step.seq >= self.next) {
                self.next = step.seq + 1;
                return Some(Ok(step));
            }
            match self.refill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
