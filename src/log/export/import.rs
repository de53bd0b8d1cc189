//! Import: exports, segments and the sealed part of a data directory become a new data directory.

use crate::chain::Head;
use crate::dir::Description;
use crate::mark::Mark;
use crate::reader::{Bound, Library, LogReader, Shelf};
use crate::seal::Sealer;
use crate::segment::{SectionFile, SegmentError};
use crate::snapshot::{self, Snapshot};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_kernel::Micros;

/// What was imported of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedPool {
    /// The pool.
    pub pool: String,
    /// First sequence.
    pub first_seq: u64,
    /// Where it ends.
    pub head: Head,
    /// Segment files written.
    pub segments: usize,
    /// Snapshots kept.
    pub snapshots: usize,
}

/// What was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The log that it came from.
    pub log_id: [u8; 16],
    /// By pool.
    pub pools: Vec<ImportedPool>,
}

/// Makes a new data directory of exports, segments and the sealed part of data directories. It is the same log: it
/// goes on where what was imported ends.
///
/// # Errors
/// A directory that is not empty; files of different logs; a gap, damage or a broken chain, named; a failed write.
/// Then the new directory has no description and is no log.
pub fn import_log(files: &[PathBuf], data: &Path, written: Micros) -> Result<Imported, SegmentError> {
    let imported = import(files, data, written)?;
    crate::dir::create_dir(&crate::dir::hot_dir(data))?;
    let heads = imported.pools.iter().map(|pool| (Arc::from(pool.pool.as_str()), (pool.head, pool.head)));
    let mark = Mark { generation: 0, pools: heads.collect() };
    crate::mark::create(&crate::dir::mark_path(data), &mark)?;
    let description = Description {
        format: weir_migrations::CURRENT,
        log_id: format!("{:032x}", u128::from_be_bytes(imported.log_id)),
        created: written.0,
    };
    crate::dir::write_description(data, &description)?;
    Ok(imported)
}

/// Writes the segments and snapshots of a new data directory.
///
/// # Errors
/// A directory that is not empty; files of different logs; a gap, damage or a broken chain, named; a failed write.
pub fn import(files: &[PathBuf], data: &Path, written: Micros) -> Result<Imported, SegmentError> {
    if !crate::segment::read_dir(data)?.is_empty() {
        let reason = "is not empty: an import makes a new data directory".to_owned();
        return Err(SegmentError::Mismatch { file: data.display().to_string(), reason });
    }
    crate::segment::make_dir(data)?;
    let library = Library::of_files(files)?;
    let log_id = one_log(&library)?;
    let sealer = Sealer::new(data, log_id);
    let mut pools = Vec::new();
    for (pool, shelf) in &library.pools {
        pools.push(import_pool(&sealer, pool, shelf, data, written)?);
    }
    Ok(Imported { log_id, pools })
}

fn import_pool(
    sealer: &Sealer,
    pool: &str,
    shelf: &Shelf,
    data: &Path,
    written: Micros,
) -> Result<ImportedPool, SegmentError> {
    let mut reader = LogReader::new(pool, Some(shelf), None, Bound::Open, Bound::Open);
    let mut failed = None;
    let frames = std::iter::from_fn(|| match reader.next()? {
        Ok(frame) => Some(Ok(frame)),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let segments = sealer.seal(pool, written, frames)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let head = reader.head().unwrap_or_default();
    let first_seq = segments.first().map_or(head.seq + 1, |segment| segment.first_seq);
    let mut kept = 0;
    for at in shelf.snapshots.iter().rev().filter(|at| at.seq <= head.seq && at.seq + 1 >= first_seq) {
        if kept == snapshot::KEPT {
            break;
        }
        snapshot::save(data, &Snapshot::read(at)?, written, weir_migrations::CURRENT)?;
        kept += 1;
    }
    if first_seq > 1 && kept == 0 {
        let reason =
            format!("starts at sequence {first_seq} of pool {pool}, without a snapshot of what was before");
        let file = shelf.pieces.first().map_or_else(String::new, |p| p.path.display().to_string());
        return Err(SegmentError::Mismatch { file, reason });
    }
    Ok(ImportedPool { pool: pool.to_owned(), first_seq, head, segments: segments.len(), snapshots: kept })
}

/// The log that all sections belong to.
fn one_log(library: &Library) -> Result<[u8; 16], SegmentError> {
    let mut log_id = None;
    for piece in library.pools.values().flat_map(|shelf| &shelf.pieces) {
        let file = SectionFile::open(&piece.path)?;
        let Some(section) = file.sections.get(piece.section) else { continue };
        match log_id {
            None => log_id = Some(section.header.log_id),
            Some(id) if id == section.header.log_id => {}
            Some(_) => {
                let reason = "belongs to another log than the files before it".to_owned();
                return Err(SegmentError::Mismatch { file: piece.path.display().to_string(), reason });
            }
        }
    }
    log_id.ok_or_else(|| SegmentError::Mismatch {
        file: "import".to_owned(),
        reason: "no batches in what was given".to_owned(),
    })
}
