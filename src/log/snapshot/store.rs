//! Snapshot files of a data directory: written whole or not at all, the last two kept.

use super::Snapshot;
use crate::segment::{SegmentError, make_dir, publish, read_dir, sync_dir};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use weir_kernel::Micros;

/// The directory of snapshots inside a data directory.
pub const SNAPSHOTS: &str = "snapshots";
/// How many snapshots of a pool are kept: should the last one be damaged, there is one before it.
pub const KEPT: usize = 2;
const EXTENSION: &str = "wsnap";

/// A snapshot in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotRef {
    /// The sequence that it is the state after.
    pub seq: u64,
    /// The file.
    pub path: PathBuf,
    /// Position of the section in the file.
    pub section: usize,
    /// Its size in bytes.
    pub bytes: u64,
}

fn dir(data: &Path, pool: &str) -> PathBuf {
    data.join(SNAPSHOTS).join(pool)
}

/// The snapshots of a pool, by sequence.
///
/// # Errors
/// A directory that cannot be read.
pub fn list(data: &Path, pool: &str) -> Result<Vec<SnapshotRef>, SegmentError> {
    let mut found = Vec::new();
    for path in read_dir(&dir(data, pool))? {
        if path.extension().is_none_or(|e| e != EXTENSION) {
            continue;
        }
        let Some(seq) = path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse().ok()) else {
            continue;
        };
        let bytes = fs::metadata(&path).map_err(SegmentError::path(&path, "read"))?.len();
        found.push(SnapshotRef { seq, path, section: 0, bytes });
    }
    found.sort();
    Ok(found)
}

/// Writes a snapshot, synced, and removes those beyond the last [`KEPT`].
///
/// # Errors
/// A failed write; then the snapshots before it are still there.
pub fn save(
    data: &Path,
    snapshot: &Snapshot,
    written: Micros,
    format: u16,
) -> Result<SnapshotRef, SegmentError> {
    let dir = dir(data, &snapshot.pool);
    make_dir(&dir)?;
    crate::segment::remove_temporary(&dir)?;
    let seq = snapshot.head.seq;
    let temporary = dir.join(format!("{seq:020}.tmp"));
    let path = dir.join(format!("{seq:020}.{EXTENSION}"));
    let file = File::create(&temporary).map_err(SegmentError::path(&temporary, "create"))?;
    let out = BufWriter::new(file);
    let out = snapshot.write(out, temporary.display().to_string(), written, format)?;
    let bytes = publish(out, &temporary, &path)?;
    prune(data, &snapshot.pool)?;
    Ok(SnapshotRef { seq, path, section: 0, bytes })
}

/// Removes the snapshots of a pool beyond the last [`KEPT`]. Returns how many.
///
/// # Errors
/// A directory that cannot be read, a file that cannot be removed.
pub fn prune(data: &Path, pool: &str) -> Result<usize, SegmentError> {
    let found = list(data, pool)?;
    let old = found.len().saturating_sub(KEPT);
    for snapshot in &found[..old] {
        fs::remove_file(&snapshot.path).map_err(SegmentError::path(&snapshot.path, "remove"))?;
    }
    if old > 0 {
        sync_dir(&dir(data, pool))?;
    }
    Ok(old)
}
