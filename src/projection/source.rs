//! The log as the projections read it: what is sealed of a data directory, and the hot window where it is at hand.
//!
//! Reading never holds the log up: durable batches are read from any thread, and nothing waits for their reader.

use crate::error::ProjectionError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weir_kernel::Step;
use weir_log::reader::{Bound, LogReader, Logs};
use weir_log::store::Frames;
use weir_log::{Frame, Head, LogError, SegmentError};

/// Bytes of batches that are read from the hot window at once.
const READ_BYTES: usize = 1 << 20;

/// Where the log is.
#[derive(Clone)]
pub struct Source {
    data: Option<PathBuf>,
    hot: Option<Arc<dyn Frames>>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({:?})", self.data)
    }
}

impl Source {
    /// A data directory (none: a log in memory) and the hot window that its holder has open.
    pub fn new(data: Option<&Path>, hot: Option<Arc<dyn Frames>>) -> Source {
        Source { data: data.map(Path::to_owned), hot }
    }

    /// What there is to read now.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub fn logs(&self) -> Result<Logs, SegmentError> {
        match (&self.data, &self.hot) {
            (Some(data), hot) => Logs::of_dir(data, hot.clone()),
            (None, Some(hot)) => Ok(Logs::of_hot(hot.clone())),
            (None, None) => Logs::of_files(&[]),
        }
    }

    /// The pools of the log.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub fn pools(&self) -> Result<Vec<String>, SegmentError> {
        Ok(self.logs()?.pools())
    }

    /// The last sequence of a pool.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub fn head(&self, pool: &str) -> Result<u64, SegmentError> {
        if let Some(hot) = &self.hot {
            let head = hot.head(pool).seq;
            if head > 0 {
                return Ok(head);
            }
        }
        Ok(self.logs()?.head(pool)?.map_or(0, |head| head.seq))
    }

    /// The first sequence of a pool that is kept; none if there is none.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub fn oldest(&self, pool: &str) -> Result<Option<u64>, SegmentError> {
        let logs = self.logs()?;
        let sealed =
            logs.library().shelf(pool).and_then(|shelf| shelf.pieces.first()).map(|piece| piece.first_seq);
        let hot = self.hot.as_ref().and_then(|hot| hot.oldest(pool));
        Ok(sealed.into_iter().chain(hot).min())
    }

    /// The steps of a pool from a sequence to another, both included.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub fn steps(
        &self,
        pool: &str,
        from: Bound,
        to: Bound,
    ) -> Result<impl Iterator<Item = Result<Step, SegmentError>> + use<>, SegmentError> {
        Ok(self.logs()?.reader(pool, from, to).steps())
    }

    /// Waits until a pool's log goes on after `past`; false if it does not within the time.
    pub fn wait(&self, pool: &str, past: u64, timeout: Duration) -> bool {
        match &self.hot {
            Some(hot) => hot.wait(pool, past, timeout).seq > past,
            None => false,
        }
    }
}

/// The batches of a pool, one read after the other.
pub struct Feed {
    source: Source,
    pool: String,
    /// Where what is not in the hot window any more is read.
    far: Option<LogReader>,
}

impl Feed {
    /// Of this pool.
    pub fn new(source: Source, pool: &str) -> Feed {
        Feed { source, pool: pool.to_owned(), far: None }
    }

    /// The next batches after a head, some at a time; none if there are none now.
    ///
    /// # Errors
    /// Damage, what the storage says, a batch that does not follow.
    pub fn next(&mut self, after: Head) -> Result<Vec<Frame>, ProjectionError> {
        if let Some(far) = &mut self.far {
            let mut frames = Vec::new();
            let mut bytes = 0;
            while bytes < READ_BYTES {
                match far.next().transpose()? {
                    Some(frame) => {
                        bytes += frame.bytes.len();
                        frames.push(frame);
                    }
                    None => {
                        self.far = None;
                        break;
                    }
                }
            }
            if !frames.is_empty() {
                return Ok(frames);
            }
        }
        let next = after.seq + 1;
        let near = match &self.source.hot {
            Some(hot) => hot.read(&self.pool, next, READ_BYTES),
            None => Err(LogError::Trimmed { pool: Arc::from(self.pool.as_str()), wanted: next, oldest: 0 }),
        };
        match near {
            Ok(frames) if !frames.is_empty() => Ok(frames),
            Ok(_) if self.source.hot.is_some() && self.source.head(&self.pool)? <= after.seq => {
                Ok(Vec::new())
            }
            Ok(_) | Err(LogError::Trimmed { .. }) => {
                let mut far = self.source.logs()?.reader(&self.pool, Bound::Seq(next), Bound::Open);
                if after != Head::default() {
                    far = far.after(after);
                }
                let first = far.next().transpose()?;
                if first.is_some() {
                    self.far = Some(far);
                }
                Ok(first.into_iter().collect())
            }
            Err(error) => Err(error.into()),
        }
    }
}
