//! Segment files of a data directory: `segments/<pool>/<first>-<last>.wseg`, and how a file gets there whole or not at all.
//!
//! A file is written under a temporary name, synced, renamed, and its directory synced. Files in place are never
//! changed. Not here: which batches go into which file (see `seal.rs`).

use super::batches::BatchWriter;
use super::error::SegmentError;
use super::format::Footer;
use crate::frame::Frame;
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use weir_kernel::Micros;

/// The directory of segments inside a data directory.
pub const SEGMENTS: &str = "segments";
/// Extension of segment files.
pub const EXTENSION: &str = "wseg";
const TEMPORARY: &str = "tmp";

/// A segment file, as its name says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentRef {
    /// First sequence inside.
    pub first_seq: u64,
    /// Last sequence inside.
    pub last_seq: u64,
    /// Where it is.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The directory of a pool's segments.
pub fn segment_dir(data: &Path, pool: &str) -> PathBuf {
    data.join(SEGMENTS).join(pool)
}

/// The pools that have a directory under `data/<kind>`, sorted.
///
/// # Errors
/// A directory that cannot be read; one that is not there holds nothing.
pub fn pools_under(data: &Path, kind: &str) -> Result<Vec<String>, SegmentError> {
    let mut pools = Vec::new();
    for entry in read_dir(&data.join(kind))? {
        if entry.is_dir()
            && let Some(name) = entry.file_name().and_then(|name| name.to_str())
        {
            pools.push(name.to_owned());
        }
    }
    pools.sort();
    Ok(pools)
}

/// The segments of a pool, by sequence.
///
/// # Errors
/// A directory that cannot be read.
pub fn list(data: &Path, pool: &str) -> Result<Vec<SegmentRef>, SegmentError> {
    let mut found = Vec::new();
    for path in read_dir(&segment_dir(data, pool))? {
        let Some((first_seq, last_seq)) = parse_name(&path) else { continue };
        let bytes = fs::metadata(&path).map_err(SegmentError::path(&path, "read"))?.len();
        found.push(SegmentRef { first_seq, last_seq, path, bytes });
    }
    found.sort();
    Ok(found)
}

/// Removes what a crash left half-written.
///
/// # Errors
/// A directory that cannot be read, a file that cannot be removed.
pub fn remove_temporary(dir: &Path) -> Result<(), SegmentError> {
    for path in read_dir(dir)? {
        if path.extension().is_some_and(|e| e == TEMPORARY) {
            fs::remove_file(&path).map_err(SegmentError::path(&path, "remove"))?;
        }
    }
    Ok(())
}

/// A segment being written.
pub struct SegmentFile {
    dir: PathBuf,
    temporary: PathBuf,
    writer: BatchWriter<BufWriter<Gradual>>,
}

/// A file whose bytes are on their way to the disk while more are written, so that the sync at its end has little left:
/// commits of the log wait behind what is synced at once.
struct Gradual {
    file: File,
    written: u64,
    /// Up to where they are on their way.
    begun: u64,
}

/// So many bytes are sent on their way at a time.
const STRETCH: u64 = 1 << 20;

impl Gradual {
    const fn new(file: File) -> Self {
        Gradual { file, written: 0, begun: 0 }
    }
}

impl Write for Gradual {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        if let Some(stretch) = NonZeroU64::new(self.written - self.begun).filter(|s| s.get() >= STRETCH) {
            // On Linux this begins to write what was changed (a sync would also commit the file system's journal). Where it
            // does nothing, the sync at the end does all.
            let _ = fadvise(&self.file, self.begun, Some(stretch), Advice::DontNeed);
            self.begun = self.written;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl From<Gradual> for File {
    fn from(gradual: Gradual) -> File {
        gradual.file
    }
}

impl SegmentFile {
    /// Starts a file in the pool's directory with its first batch.
    ///
    /// # Errors
    /// A failed write.
    pub fn start(
        data: &Path,
        log_id: [u8; 16],
        written: Micros,
        first: &Frame,
    ) -> Result<Self, SegmentError> {
        let dir = segment_dir(data, &first.header.pool);
        make_dir(&dir)?;
        let temporary = dir.join(format!("{:020}.{TEMPORARY}", first.header.first_seq));
        let file = File::create(&temporary).map_err(SegmentError::path(&temporary, "create"))?;
        let name = temporary.display().to_string();
        let writer = BatchWriter::start(BufWriter::new(Gradual::new(file)), name, log_id, written, first)?;
        Ok(SegmentFile { dir, temporary, writer })
    }

    /// Adds the next batch.
    ///
    /// # Errors
    /// A batch that does not follow; a failed write.
    pub fn push(&mut self, frame: &Frame) -> Result<(), SegmentError> {
        self.writer.push(frame)
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.writer.written()
    }

    /// Completes the file: synced, under its name, and its name synced.
    ///
    /// # Errors
    /// A failed write, sync or rename; then there is no file under the name.
    pub fn finish(self) -> Result<(SegmentRef, Footer), SegmentError> {
        let Some(span) = self.writer.span() else {
            let reason = "a segment without batches".to_owned();
            return Err(SegmentError::Mismatch { file: self.temporary.display().to_string(), reason });
        };
        let (out, footer) = self.writer.finish()?;
        let path = self.dir.join(format!("{:020}-{:020}.{EXTENSION}", span.first_seq, span.last_seq));
        let bytes = publish(out, &self.temporary, &path)?;
        Ok((SegmentRef { first_seq: span.first_seq, last_seq: span.last_seq, path, bytes }, footer))
    }
}

/// Syncs a written file, gives it its name, and syncs the directory. Returns its size.
///
/// # Errors
/// What the system answers.
pub fn publish<W: Write + Into<File>>(
    out: BufWriter<W>,
    temporary: &Path,
    path: &Path,
) -> Result<u64, SegmentError> {
    let mut out = out;
    out.flush().map_err(SegmentError::path(temporary, "write"))?;
    let out = out.into_inner().map_err(|e| SegmentError::path(temporary, "write")(e.into_error()))?;
    let file: File = out.into();
    file.sync_all().map_err(SegmentError::path(temporary, "sync"))?;
    let bytes = file.metadata().map_err(SegmentError::path(temporary, "read"))?.len();
    fs::rename(temporary, path).map_err(SegmentError::path(temporary, "rename"))?;
    if let Some(dir) = path.parent() {
        sync_dir(dir)?;
    }
    Ok(bytes)
}

/// Makes a directory and its parents, synced.
///
/// # Errors
/// What the system answers.
pub fn make_dir(dir: &Path) -> Result<(), SegmentError> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_dir(parent)?;
    }
    match fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(SegmentError::path(dir, "create"))?,
    }
    match dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Makes names in a directory durable.
///
/// # Errors
/// What the system answers.
pub fn sync_dir(dir: &Path) -> Result<(), SegmentError> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir).and_then(|file| file.sync_all()).map_err(SegmentError::path(dir, "sync"))
}

/// The entries of a directory, in no order; nothing if it is not there.
///
/// # Errors
/// What the system answers.
pub fn read_dir(dir: &Path) -> Result<Vec<PathBuf>, SegmentError> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(SegmentError::path(dir, "read"))?,
    };
    let paths: Result<Vec<PathBuf>, io::Error> = entries.map(|e| Ok(e?.path())).collect();
    paths.map_err(SegmentError::path(dir, "read"))
}

fn parse_name(path: &Path) -> Option<(u64, u64)> {
    if path.extension()? != EXTENSION {
        return None;
    }
    let (first, last) = path.file_stem()?.to_str()?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}
