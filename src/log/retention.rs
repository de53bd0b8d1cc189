//! Retention: whole segments that a snapshot covers are removed, oldest first, by age and by size.
//!
//! A segment goes only when the oldest usable snapshot kept is at or after its end, so that the state can be had even
//! if the newest snapshot is damaged. The hot window and the snapshots count as size, but are not trimmed here.

use crate::segment::{
    SEGMENTS, SectionFile, SegmentError, SegmentRef, list, pools_under, segment_dir, sync_dir,
};
use crate::snapshot;
use std::fs;
use std::path::Path;
use weir_kernel::Micros;

/// How much of the log is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Segments whose last step is older than this are removed; none = never.
    pub max_age: Option<Micros>,
    /// While the whole log takes more bytes than this, the oldest segments are removed; none = no limit.
    pub max_bytes: Option<u64>,
}

impl Retention {
    /// How large a database of the hot window may get, so that the limit on size can be held.
    pub fn rotate_bytes(&self, wanted: u64) -> u64 {
        self.max_bytes.map_or(wanted, |limit| wanted.min(limit / 8).max(1 << 20))
    }
}

/// What a log takes on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// The hot window.
    pub hot: u64,
    /// Segments.
    pub sealed: u64,
    /// Snapshots.
    pub snapshots: u64,
}

impl DiskUse {
    /// All of it.
    pub const fn total(&self) -> u64 {
        self.hot + self.sealed + self.snapshots
    }
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrimReport {
    /// Segments removed.
    pub segments: usize,
    /// Their bytes.
    pub bytes: u64,
    /// What is left.
    pub left: DiskUse,
    /// The limit is exceeded, but nothing more may go: no snapshot covers it yet.
    pub held_back: bool,
}

struct Candidate {
    pool: String,
    segment: SegmentRef,
    at_last: Micros,
    covered: bool,
}

/// Removes what is not kept any longer. `now` is the time of the log.
///
/// # Errors
/// A directory or file that cannot be read or removed.
pub fn trim(
    data: &Path,
    hot_bytes: u64,
    retention: &Retention,
    now: Micros,
) -> Result<TrimReport, SegmentError> {
    let mut report = TrimReport::default();
    report.left.hot = hot_bytes;
    let mut candidates = Vec::new();
    for pool in pools_under(data, snapshot::SNAPSHOTS)? {
        report.left.snapshots += snapshot::list(data, &pool)?.iter().map(|s| s.bytes).sum::<u64>();
    }
    for pool in pools_under(data, SEGMENTS)? {
        let segments = list(data, &pool)?;
        report.left.sealed += segments.iter().map(|s| s.bytes).sum::<u64>();
        let covered = covered(data, &pool)?;
        for segment in segments {
            let at_last = SectionFile::open(&segment.path)?
                .sections
                .last()
                .map_or(Micros::ZERO, |section| section.footer.at_last);
            let covered = segment.last_seq <= covered;
            candidates.push(Candidate { pool: pool.clone(), segment, at_last, covered });
        }
    }
    // Of equal times the first sequence goes first; within a pool that is the order anyhow.
    candidates.sort_by_key(|candidate| (candidate.at_last, candidate.segment.first_seq));
    for candidate in candidates {
        let old = retention.max_age.is_some_and(|age| candidate.at_last + age < now);
        let large = retention.max_bytes.is_some_and(|limit| report.left.total() > limit);
        if !old && !large {
            continue;
        }
        if !candidate.covered {
            report.held_back = true;
            continue;
        }
        let path = &candidate.segment.path;
        fs::remove_file(path).map_err(SegmentError::path(path, "remove"))?;
        sync_dir(&segment_dir(data, &candidate.pool))?;
        report.segments += 1;
        report.bytes += candidate.segment.bytes;
        report.left.sealed -= candidate.segment.bytes;
    }
    Ok(report)
}

/// The sequence up to which the state of a pool can be had without its segments; 0 = none of it.
fn covered(data: &Path, pool: &str) -> Result<u64, SegmentError> {
    for at in snapshot::list(data, pool)? {
        match snapshot::usable(&at, u64::MAX) {
            Ok(_) => return Ok(at.seq),
            Err(error) => tracing::warn!(pool, seq = at.seq, %error, "this snapshot covers nothing"),
        }
    }
    Ok(0)
}
