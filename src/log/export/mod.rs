//! Export: one file that holds a log, or a part of it, in the form of segments; and the way back, [`import`].
//!
//! An export is any number of sections, pool after pool: the snapshots that the batches need, then the batches. A
//! segment file is an export of one section.

mod import;

pub use import::{Imported, ImportedPool, import, import_log};

use crate::reader::{Bound, Logs};
use crate::segment::{BatchWriter, SegmentError};
use crate::snapshot::Snapshot;
use std::io::Write;
use weir_kernel::Micros;

/// What of a log is exported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Only this pool.
    pub pool: Option<String>,
    /// From here on; the batch that holds it is exported whole.
    pub from: Bound,
    /// Up to here; the batch that holds it is exported whole.
    pub to: Bound,
}

/// What was exported of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The pool.
    pub pool: String,
    /// First sequence.
    pub first_seq: u64,
    /// Last sequence.
    pub last_seq: u64,
    /// Snapshots.
    pub snapshots: usize,
}

/// Writes sections to `out`, which is neither synced nor closed. `name` is what errors call it.
///
/// # Errors
/// Damage in what is read (nothing damaged is exported in silence); a failed write.
pub fn export<W: Write>(
    logs: &Logs,
    wanted: &Wanted,
    log_id: [u8; 16],
    written: Micros,
    mut out: W,
    name: &str,
) -> Result<Vec<Exported>, SegmentError> {
    let mut done = Vec::new();
    let mut pools = logs.pools();
    pools.retain(|pool| wanted.pool.as_ref().is_none_or(|only| only == pool));
    for pool in pools {
        let mut frames = logs.reader(&pool, wanted.from, wanted.to);
        let Some(first) = frames.next() else { continue };
        let first = first?;
        let mut snapshots = 0;
        for at in logs.snapshots(&pool) {
            let beyond = matches!(wanted.to, Bound::Seq(last) if at.seq > last);
            if at.seq + 1 < first.header.first_seq || beyond {
                continue;
            }
            let snapshot = Snapshot::read(at)?;
            if matches!(wanted.to, Bound::Time(last) if snapshot.head.at > last) {
                continue;
            }
            snapshot.write(&mut out, name.to_owned(), written, weir_migrations::CURRENT)?;
            snapshots += 1;
        }
        let mut writer = BatchWriter::start(&mut out, name.to_owned(), log_id, written, &first)?;
        for frame in frames {
            writer.push(&frame?)?;
        }
        let (_, footer) = writer.finish()?;
        let (first_seq, last_seq) = (first.header.first_seq, footer.last_seq);
        done.push(Exported { pool, first_seq, last_seq, snapshots });
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
