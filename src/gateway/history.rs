//! The pools' logs as the gateway may read them: durable batches of the hot window, and what is sealed.
//!
//! Reading blocks; callers do it on a thread for that.

use std::path::PathBuf;
use std::sync::Arc;
use weir_kernel::Step;
use weir_log::SegmentError;
use weir_log::reader::{Bound, Logs};
use weir_log::writer::{LogMetrics, WriterHandle};

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
        let frames = self.writer.frames();
        let logs = match &self.dir {
            Some(dir) => Logs::of_dir(dir, Some(frames))?,
            None => Logs::of_hot(frames),
        };
        let from = from.map_or(Bound::Open, Bound::Seq);
        Ok(Box::new(logs.reader(pool, from, Bound::Open).steps()))
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
