//! A log as its readers see it: what is sealed, and the hot window where it is at hand.

use super::source::hot_frames;
use super::{Bound, HotFrames, Library, LogReader};
use crate::chain::Head;
use crate::dir;
use crate::error::LogError;
use crate::hot::{HotOptions, HotStore};
use crate::segment::{SectionFile, SegmentError};
use crate::snapshot::SnapshotRef;
use crate::store::{Frames, Store};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What there is to read of one log.
pub struct Logs {
    library: Library,
    hot: Option<Arc<dyn Frames>>,
    /// The data directory, if it is one.
    data: Option<PathBuf>,
    /// Keeps the hot window open (and the directory held).
    store: Option<HotStore>,
}

impl Logs {
    /// A stopped data directory, whole: it is held as long as the value lives.
    ///
    /// # Errors
    /// No log there; [`LogError::Locked`] if it is in use; a hot window that does not open.
    pub fn open(data: &Path) -> Result<Logs, SegmentError> {
        if dir::read_description(data)?.is_none() {
            let (path, error) = (data.join("format"), "there is no log here".to_owned());
            return Err(LogError::Format { path, error }.into());
        }
        let store = HotStore::open(data, HotOptions::default())?;
        let hot = store.frames();
        let (library, data) = (Library::of_dir(data)?, Some(data.to_owned()));
        Ok(Logs { library, hot: Some(hot), data, store: Some(store) })
    }

    /// What is sealed in a data directory, and the hot window that its holder has open.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn of_dir(data: &Path, hot: Option<Arc<dyn Frames>>) -> Result<Logs, SegmentError> {
        Ok(Logs { library: Library::of_dir(data)?, hot, data: Some(data.to_owned()), store: None })
    }

    /// A hot window alone, such as that of a log in memory.
    pub fn of_hot(hot: Arc<dyn Frames>) -> Logs {
        Logs { library: Library::default(), hot: Some(hot), data: None, store: None }
    }

    /// What is in segment files, snapshot files, exports and (sealed) in data directories.
    ///
    /// # Errors
    /// A file that cannot be read, damage in its headers or footers.
    pub fn of_files(paths: &[PathBuf]) -> Result<Logs, SegmentError> {
        Ok(Logs { library: Library::of_files(paths)?, hot: None, data: None, store: None })
    }

    /// The pools, sorted.
    pub fn pools(&self) -> Vec<String> {
        let mut pools: Vec<String> = self.library.pools.keys().cloned().collect();
        if let Some(hot) = &self.hot {
            pools.extend(hot.pools().iter().map(ToString::to_string));
        }
        pools.sort();
        pools.dedup();
        pools
    }

    /// What is sealed.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The hot window, if it is at hand.
    pub fn hot(&self) -> Option<&Arc<dyn Frames>> {
        self.hot.as_ref()
    }

    /// The hot window's owner, if this value opened it.
    pub fn store(&mut self) -> Option<&mut HotStore> {
        self.store.as_mut()
    }

    /// The snapshots of a pool, by sequence.
    pub fn snapshots(&self, pool: &str) -> &[SnapshotRef] {
        self.library.shelf(pool).map_or(&[], |shelf| &shelf.snapshots)
    }

    /// The batches of a pool within a range.
    pub fn reader(&self, pool: &str, from: Bound, to: Bound) -> LogReader {
        let reader = LogReader::new(pool, self.library.shelf(pool), None, from, to);
        match &self.hot {
            Some(hot) => reader.with_window(hot.clone(), self.data.as_deref()),
            None => reader,
        }
    }

    /// The hot batches of a pool from a sequence on (or from the oldest one there is), if the hot window is at hand.
    pub fn hot_frames(&self, pool: &str, from_seq: u64) -> Option<HotFrames> {
        let hot = self.hot.as_ref()?;
        let from = hot.oldest(pool).map_or(from_seq, |oldest| oldest.max(from_seq));
        Some(hot_frames(hot.clone(), pool, from))
    }

    /// Where a pool's log ends; none if it is empty.
    ///
    /// # Errors
    /// A file that cannot be read, a damaged footer.
    pub fn head(&self, pool: &str) -> Result<Option<Head>, SegmentError> {
        let hot = self.hot.as_ref().map(|hot| hot.head(pool)).filter(|head| head.seq > 0);
        let sealed = self.sealed_head(pool)?;
        Ok(hot.into_iter().chain(sealed).max_by_key(|head| head.seq))
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
