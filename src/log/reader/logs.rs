//! A log as its readers see it: what is sealed, and the hot window where it is at hand.

use super::{Bound, HotFrames, HotWindow, Library, LogReader};
use crate::chain::Head;
use crate::segment::{SectionFile, SegmentError};
use crate::snapshot::SnapshotRef;
use std::path::{Path, PathBuf};

/// What there is to read of one log.
pub struct Logs {
    library: Library,
    hot: Option<Box<dyn HotWindow>>,
}

impl Logs {
    /// What is sealed in a data directory, and its hot window where one is given.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn of_dir(data: &Path, hot: Option<Box<dyn HotWindow>>) -> Result<Logs, SegmentError> {
        Ok(Logs { library: Library::of_dir(data)?, hot })
    }

    /// What is in segment files, snapshot files, exports and (sealed) in data directories.
    ///
    /// # Errors
    /// A file that cannot be read, damage in its headers or footers.
    pub fn of_files(paths: &[PathBuf]) -> Result<Logs, SegmentError> {
        Ok(Logs { library: Library::of_files(paths)?, hot: None })
    }

    /// The pools, sorted.
    ///
    /// # Errors
    /// A hot window that cannot be read.
    pub fn pools(&self) -> Result<Vec<String>, SegmentError> {
        let mut pools: Vec<String> = self.library.pools.keys().cloned().collect();
        if let Some(hot) = &self.hot {
            pools.extend(hot.pools()?);
        }
        pools.sort();
        pools.dedup();
        Ok(pools)
    }

    /// What is sealed.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The snapshots of a pool, by sequence.
    pub fn snapshots(&self, pool: &str) -> &[SnapshotRef] {
        self.library.shelf(pool).map_or(&[], |shelf| &shelf.snapshots)
    }

    /// The batches of a pool within a range.
    ///
    /// # Errors
    /// A hot window that cannot be read.
    pub fn reader(&self, pool: &str, from: Bound, to: Bound) -> Result<LogReader, SegmentError> {
        let shelf = self.library.shelf(pool);
        let sealed = shelf.and_then(|shelf| shelf.pieces.last()).map_or(0, |piece| piece.last_seq);
        let first = match from {
            Bound::Seq(seq) => seq.max(sealed + 1),
            Bound::Open | Bound::Time(_) => sealed + 1,
        };
        let hot = self.hot_frames(pool, first)?;
        Ok(LogReader::new(pool, shelf, hot, from, to))
    }

    /// The hot batches of a pool from a sequence on, if the hot window is at hand.
    ///
    /// # Errors
    /// A hot window that cannot be read.
    pub fn hot_frames(&self, pool: &str, from_seq: u64) -> Result<Option<HotFrames>, SegmentError> {
        match &self.hot {
            Some(hot) => Ok(Some(hot.frames(pool, from_seq)?)),
            None => Ok(None),
        }
    }

    /// Where what is sealed of a pool ends, from the footer of its last section; none if nothing is sealed.
    ///
    /// # Errors
    /// A file that cannot be read, a damaged footer.
    pub fn sealed_head(&self, pool: &str) -> Result<Option<Head>, SegmentError> {
        let Some(piece) = self.library.shelf(pool).and_then(|shelf| shelf.pieces.last()) else {
            return Ok(None);
        };
        let file = SectionFile::open(&piece.path)?;
        Ok(file.sections.get(piece.section).map(|section| Head {
            seq: section.footer.last_seq,
            hash: section.footer.chain,
            at: section.footer.at_last,
        }))
    }
}
