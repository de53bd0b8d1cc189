//! Sealing: batches that the hot window will not change any more become segment files.
//!
//! Not here: which generation of the hot window is closed, and its removal once this is done.

use crate::chain::{Chain, Head};
use crate::error::LogError;
use crate::frame::Frame;
use crate::segment::{SegmentError, SegmentFile, SegmentRef, list, remove_temporary, segment_dir};
use std::path::{Path, PathBuf};
use weir_kernel::Micros;

/// A segment is completed once it has this many bytes on disk.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// Turns batches into segment files of one data directory.
#[derive(Clone, Debug)]
pub struct Sealer {
    data: PathBuf,
    log_id: [u8; 16],
    segment_bytes: u64,
}

impl Sealer {
    /// For a data directory and the log in it.
    pub fn new(data: &Path, log_id: [u8; 16]) -> Self {
        Sealer { data: data.to_owned(), log_id, segment_bytes: SEGMENT_BYTES }
    }

    /// With segments of another size.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes.max(1);
        self
    }

    /// Seals consecutive batches of one pool. Those that are sealed already (a crash came between) are left out. When
    /// it returns, every batch is in a synced file.
    ///
    /// # Errors
    /// A batch that does not follow what is sealed; a failed read or write. What was completed before stays, and the
    /// next call goes on after it.
    pub fn seal(
        &self,
        pool: &str,
        written: Micros,
        frames: impl Iterator<Item = Result<Frame, LogError>>,
    ) -> Result<Vec<SegmentRef>, SegmentError> {
        remove_temporary(&segment_dir(&self.data, pool))?;
        let head = sealed_head(&self.data, pool)?;
        let mut chain = head.map_or_else(Chain::anywhere, Chain::after);
        let mut done = Vec::new();
        let mut open: Option<SegmentFile> = None;
        for frame in frames {
            let frame = frame?;
            weir_background::pass_on();
            if chain.head().is_some_and(|head| frame.header.last_seq() <= head.seq) {
                continue;
            }
            if *frame.header.pool != *pool {
                let reason = format!("pool {pool} is sealed, a batch of pool {} came", frame.header.pool);
                return Err(SegmentError::Mismatch { file: self.data.display().to_string(), reason });
            }
            chain.follow(&frame).map_err(LogError::from)?;
            open = match open.take() {
                None => Some(SegmentFile::start(&self.data, self.log_id, written, &frame)?),
                Some(mut file) => {
                    file.push(&frame)?;
                    Some(file)
                }
            };
            if let Some(file) = open.take_if(|file| file.written() >= self.segment_bytes) {
                done.push(file.finish()?.0);
            }
        }
        if let Some(file) = open {
            done.push(file.finish()?.0);
        }
        Ok(done)
    }
}

/// Where what is sealed of a pool ends; none if nothing is sealed.
///
/// # Errors
/// A directory or file that cannot be read, a damaged footer.
pub fn sealed_head(data: &Path, pool: &str) -> Result<Option<Head>, SegmentError> {
    let Some(last) = list(data, pool)?.pop() else { return Ok(None) };
    let file = crate::segment::SectionFile::open(&last.path)?;
    Ok(file.sections.last().map(|section| Head {
        seq: section.footer.last_seq,
        hash: section.footer.chain,
        at: section.footer.at_last,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::{Bound, Logs};
    use crate::segment::tests::samples::requests;

    fn hot(frames: &[Frame]) -> impl Iterator<Item = Result<Frame, LogError>> {
        frames.iter().cloned().map(Ok)
    }

    #[test]
    fn sealing_again_after_a_crash_adds_only_what_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let frames = requests(4, 3_000, 1_000, 10);
        let sealer = Sealer::new(dir.path(), [1; 16]).segment_bytes(60_000);
        let first = sealer.seal("chat", Micros(1), hot(&frames[..300])).unwrap();
        assert!(first.len() > 1, "several files: {}", first.len());
        assert_eq!(first.last().unwrap().last_seq, 3_000);

        // The crash left a half-written file, and the generation was not removed.
        std::fs::write(segment_dir(dir.path(), "chat").join("x.tmp"), b"half").unwrap();
        let second = sealer.seal("chat", Micros(2), hot(&frames[..450])).unwrap();
        assert_eq!(second[0].first_seq, 3_001);
        assert!(sealer.seal("chat", Micros(3), hot(&frames[..450])).unwrap().is_empty());
        assert_eq!(sealed_head(dir.path(), "chat").unwrap(), Some(Head::of(&frames[449])));

        let logs = Logs::of_dir(dir.path(), None).unwrap();
        let reader = logs.reader("chat", Bound::Open, Bound::Open);
        let read: Vec<Frame> = reader.map(Result::unwrap).collect();
        assert_eq!(read, frames[..450]);
        assert_eq!(logs.sealed_head("chat").unwrap(), Some(Head::of(&frames[449])));
    }

    #[test]
    fn a_batch_that_does_not_follow_what_is_sealed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let frames = requests(4, 100, 1_000, 10);
        let sealer = Sealer::new(dir.path(), [1; 16]);
        sealer.seal("chat", Micros(1), hot(&frames[..5])).unwrap();
        assert!(sealer.seal("chat", Micros(1), hot(&frames[7..9])).is_err(), "a gap");
        let other = requests(5, 100, 1_000, 10);
        assert!(sealer.seal("chat", Micros(1), hot(&other[5..9])).is_err(), "another log");
        assert_eq!(sealed_head(dir.path(), "chat").unwrap(), Some(Head::of(&frames[4])));
    }
}
