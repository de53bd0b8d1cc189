//! What a durable log costs, beside the least that durability can cost: the same bytes, in the same batches, appended
//! to a plain file with a data sync after each. Building blocks; the tables are made by whoever measures.

use crate::error::LogError;
use crate::frame::Frame;
use crate::writer::WriterHandle;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use weir_kernel::Step;

/// Submits batches one after the other while those before are made durable, and waits for the last release.
/// The time is from the first batch being asked for to the last being durable.
///
/// One commit holds one batch only if the writer was started with `commit_bytes_max: 1`.
///
/// # Errors
/// A batch that could not be written.
pub fn through_log(
    writer: &WriterHandle,
    pool: &Arc<str>,
    batches: impl Iterator<Item = Vec<Step>>,
) -> Result<Duration, LogError> {
    let (released, releases) = channel();
    let begun = Instant::now();
    let mut count = 0_u64;
    for steps in batches {
        let released = released.clone();
        writer.submit(
            pool,
            &steps,
            Box::new(move |result| {
                let _ = released.send(result.map(|_| ()));
            }),
        )?;
        count += 1;
    }
    for _ in 0..count {
        releases.recv().unwrap_or(Err(LogError::Closed))?;
    }
    Ok(begun.elapsed())
}

/// A plain file, each append of which is followed by a data sync.
#[derive(Debug)]
pub struct PlainFile {
    file: File,
    path: PathBuf,
}

impl PlainFile {
    /// Creates the file.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path) -> Result<PlainFile, LogError> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|error| LogError::io("create", path, &error))?;
        Ok(PlainFile { file, path: path.to_owned() })
    }

    /// Appends each batch and syncs; the time it took.
    ///
    /// # Errors
    /// What the system says.
    pub fn append(&mut self, batches: &[Frame]) -> Result<Duration, LogError> {
        let begun = Instant::now();
        for batch in batches {
            self.file
                .write_all(&batch.bytes)
                .and_then(|()| self.file.sync_data())
                .map_err(|error| LogError::io("append to", &self.path, &error))?;
        }
        Ok(begun.elapsed())
    }
}
