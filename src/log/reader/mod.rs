//! One iterator over a pool's batches: sealed sections, then the hot window; in order, verified, in bounded memory.
//!
//! It works on a stopped data directory, on segment files and exports, and on standard input. A *running* server's
//! directory can be read as far as it is sealed; its hot window only the server itself can read.

mod bound;
mod library;
mod logs;
mod source;

pub use bound::Bound;
pub use library::{Library, Piece, Shelf};
pub use logs::Logs;
pub(crate) use source::open_front;
pub use source::{FrameSource, HotFrames};

use crate::chain::{Chain, Head};
use crate::error::LogError;
use crate::fault::FrameFault;
use crate::frame::Frame;
use crate::segment::{Damage, Fault, SegmentError};
use crate::store::Frames;
use source::{Source, Start, hot_frames};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_kernel::{Micros, Step};

/// Batches of one pool, in order and verified: sequence, time, hash, across all sources.
pub struct LogReader {
    pool: String,
    from: Bound,
    to: Bound,
    pieces: VecDeque<Piece>,
    hot: Option<Source>,
    /// The hot window as it is kept by a running server, and the data directory into which it is sealed meanwhile.
    window: Option<(Arc<dyn Frames>, Option<PathBuf>)>,
    current: Option<Source>,
    chain: Chain,
    /// Nothing was given out yet, so the oldest that is there may be too young.
    at_front: bool,
    /// The last sequence of what is sealed.
    sealed_to: u64,
    window_read: bool,
    failed: bool,
}

impl LogReader {
    /// Over what is sealed of a pool, then its hot window where that is at hand.
    pub fn new(pool: &str, shelf: Option<&Shelf>, hot: Option<HotFrames>, from: Bound, to: Bound) -> Self {
        let mut pieces: VecDeque<Piece> =
            shelf.map(|s| s.pieces.iter().cloned().collect()).unwrap_or_default();
        let sealed_to = pieces.back().map_or(0, |piece| piece.last_seq);
        if let Bound::Seq(first) = from {
            while pieces.len() > 1 && pieces.front().is_some_and(|piece| piece.last_seq < first) {
                pieces.pop_front();
            }
        }
        LogReader {
            pool: pool.to_owned(),
            from,
            to,
            pieces,
            hot: hot.map(Source::Hot),
            window: None,
            current: None,
            chain: Chain::anywhere(),
            at_front: true,
            sealed_to,
            window_read: false,
            failed: false,
        }
    }

    /// With the hot window after what is sealed; `data` is where it is sealed into while this is read.
    #[must_use]
    pub(crate) fn with_window(mut self, frames: Arc<dyn Frames>, data: Option<&Path>) -> Self {
        self.window = Some((frames, data.map(Path::to_owned)));
        self
    }

    /// Over another source, such as standard input.
    pub fn of_stream(pool: &str, stream: Box<dyn FrameSource>, from: Bound, to: Bound) -> Self {
        let mut reader = LogReader::new(pool, None, None, from, to);
        reader.hot = Some(Source::Stream(stream));
        reader
    }

    /// Holds the first batch to what came before it.
    #[must_use]
    pub fn after(mut self, head: Head) -> Self {
        self.chain = Chain::after(head);
        self
    }

    /// The last batch that was read.
    pub fn head(&self) -> Option<Head> {
        self.chain.head()
    }

    /// The steps, one by one, those outside the range left out.
    pub fn steps(self) -> Steps {
        Steps { reader: self, batch: Vec::new().into_iter() }
    }

    fn read(&mut self) -> Result<Option<Frame>, SegmentError> {
        loop {
            let Some(source) = &mut self.current else {
                if !self.open_next()? {
                    return Ok(None);
                }
                continue;
            };
            let frame = match source.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    self.current = None;
                    continue;
                }
                Err(SegmentError::Log(LogError::Trimmed { oldest, .. })) if self.window.is_some() => {
                    self.catch_up(oldest)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if self.at_front {
                self.check_trimmed(&frame)?;
                self.at_front = false;
            }
            // What is sealed may still be in the hot window, and in an export as well as in a segment.
            let seen = self.chain.head().is_some_and(|head| frame.header.last_seq() <= head.seq);
            let early = self.from.excludes_before(frame.header.last_seq(), frame.header.at_last);
            if seen || (early && self.chain.head().is_none()) {
                continue;
            }
            self.follow(&frame)?;
            if early {
                continue;
            }
            if self.to.excludes_after(frame.header.first_seq, frame.header.at_first) {
                return Ok(None);
            }
            return Ok(Some(frame));
        }
    }

    fn open_next(&mut self) -> Result<bool, SegmentError> {
        if let Some(piece) = self.pieces.pop_front() {
            let start = match self.from {
                Bound::Seq(seq) if seq > piece.first_seq && self.at_front => Start::Seq(seq),
                Bound::Time(at) if self.at_front => {
                    if self.skips(at)? {
                        return Ok(true);
                    }
                    Start::Time(at)
                }
                _ => Start::Front,
            };
            self.current = Some(Source::open(&piece, start)?);
            return Ok(true);
        }
        if self.hot.is_none() && !self.window_read {
            self.window_read = true;
            self.open_window(self.next_wanted());
        }
        if self.current.is_none() {
            self.current = self.hot.take();
        }
        Ok(self.current.is_some())
    }

    /// The sequence that comes next, as far as it is known.
    fn next_wanted(&self) -> u64 {
        match (self.chain.head(), self.from) {
            (Some(head), _) => head.seq + 1,
            (None, Bound::Seq(first)) => first.max(self.sealed_to + 1),
            (None, Bound::Open | Bound::Time(_)) => self.sealed_to + 1,
        }
    }

    fn open_window(&mut self, from: u64) {
        if let Some((frames, _)) = &self.window {
            self.current = Some(Source::Hot(hot_frames(frames.clone(), &self.pool, from)));
        }
    }

    /// What should come next has left the hot window: it is sealed by now, or it is trimmed.
    fn catch_up(&mut self, oldest: u64) -> Result<(), SegmentError> {
        self.current = None;
        let wanted = self.next_wanted();
        let data = self.window.as_ref().and_then(|(_, data)| data.clone());
        let library = data.map(|data| Library::of_dir(&data)).transpose()?.unwrap_or_default();
        let new: Vec<Piece> = library.shelf(&self.pool).map_or_else(Vec::new, |shelf| {
            shelf.pieces.iter().filter(|piece| piece.last_seq >= wanted).cloned().collect()
        });
        match new.last() {
            Some(last) => {
                self.sealed_to = last.last_seq;
                self.pieces = new.into();
                self.window_read = false;
            }
            None => self.open_window(oldest),
        }
        Ok(())
    }

    /// With a time as the lower bound: does the next section start early enough, so that this one can be left out?
    fn skips(&mut self, at: Micros) -> Result<bool, SegmentError> {
        let Some(next) = self.pieces.front() else { return Ok(false) };
        let file = crate::segment::SectionFile::open(&next.path)?;
        Ok(file.sections.get(next.section).is_some_and(|section| section.footer.at_first < at))
    }

    fn check_trimmed(&self, first: &Frame) -> Result<(), SegmentError> {
        let (seq, at) = (first.header.first_seq, first.header.at_first);
        let asked_before = match self.from {
            Bound::Open => false,
            Bound::Seq(wanted) => wanted.max(1) < seq,
            Bound::Time(wanted) => seq > 1 && wanted < at,
        };
        if asked_before && self.chain.head().is_none() {
            let pool = self.pool.clone();
            return Err(SegmentError::Trimmed { pool, before_seq: seq, before_time: at });
        }
        Ok(())
    }

    fn follow(&mut self, frame: &Frame) -> Result<(), SegmentError> {
        self.chain.follow(frame).map_err(|error| {
            let file = self.current.as_ref().map_or_else(String::new, Source::name);
            let expected = self.chain.head().map(|head| head.seq + 1);
            let batch = match &error.fault {
                FrameFault::Chain(crate::chain::Break::Sequence { .. }) => expected,
                _ => Some(frame.header.first_seq),
            };
            let fault = Fault::Batch(error.fault);
            SegmentError::Damaged(Box::new(Damage { file, offset: None, block: None, batch, fault }))
        })
    }
}

impl Iterator for LogReader {
    type Item = Result<Frame, SegmentError>;

    /// The next batch; after an error, nothing.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let read = self.read();
        self.failed = !matches!(read, Ok(Some(_)));
        read.transpose()
    }
}

/// The steps of a [`LogReader`] within its range.
pub struct Steps {
    reader: LogReader,
    batch: std::vec::IntoIter<Step>,
}

impl Steps {
    /// The last batch that was read.
    pub fn head(&self) -> Option<Head> {
        self.reader.head()
    }
}

impl Iterator for Steps {
    type Item = Result<Step, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            for step in self.batch.by_ref() {
                if self.reader.from.excludes_before(step.seq, step.at) {
                    continue;
                }
                if self.reader.to.excludes_after(step.seq, step.at) {
                    self.reader.failed = true;
                    return None;
                }
                return Some(Ok(step));
            }
            match self.reader.next()? {
                Err(error) => return Some(Err(error)),
                Ok(frame) => match frame.steps() {
                    Ok(steps) => self.batch = steps.into_iter(),
                    Err(error) => {
                        self.reader.failed = true;
                        return Some(Err(LogError::from(error).into()));
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests;
