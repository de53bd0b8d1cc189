//! From snapshot and tail to the state, and from the state to the next snapshot.
//!
//! Snapshots are made of what is sealed, by whoever seals: the batches are durable, no pool's thread has to stop for
//! it, and what is folded has been read back from the disk.

use super::{Snapshot, SnapshotRef, save};
use crate::chain::Head;
use crate::error::LogError;
use crate::reader::{Bound, Logs};
use crate::segment::{SegmentError, short_hex};
use std::path::Path;
use weir_kernel::{Micros, State, fold};

/// A state, and what it was made from.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The state after the last batch.
    pub state: State,
    /// The sequence of the snapshot it starts from; none = from the beginning of the log.
    pub from_snapshot: Option<u64>,
    /// Steps folded after that.
    pub tail_steps: u64,
    /// The last batch.
    pub head: Head,
}

/// The state of a pool at the end of its log: the newest usable snapshot and the fold of all that follows.
///
/// A snapshot that cannot be used is warned about and the one before it taken.
///
/// # Errors
/// Damage in the tail, named; a log whose beginning was trimmed, without a usable snapshot.
pub fn recover(logs: &Logs, pool: &str) -> Result<Recovered, SegmentError> {
    let end = logs.head(pool)?.map_or(0, |head| head.seq);
    let mut start = None;
    for at in logs.snapshots(pool).iter().rev() {
        match usable(at, end) {
            Ok(found) => {
                start = Some(found);
                break;
            }
            Err(error) => tracing::warn!(pool, seq = at.seq, %error, "this snapshot cannot be used"),
        }
    }
    let (mut state, head) = start.unwrap_or((State::new(), Head::default()));
    let from_snapshot = (head.seq > 0).then_some(head.seq);
    let mut steps = logs.reader(pool, Bound::Seq(head.seq + 1), Bound::Open).after(head).steps();
    let mut tail_steps = 0;
    for step in steps.by_ref() {
        let step = step.map_err(|error| without_start(error, pool, from_snapshot))?;
        fold(&mut state, &step);
        tail_steps += 1;
        weir_background::pass_on();
    }
    let head = steps.head().unwrap_or(head);
    Ok(Recovered { state, from_snapshot, tail_steps, head })
}

/// A snapshot as a state, everything about it checked.
///
/// # Errors
/// A file that cannot be read; damage; events that are no state; another digest or sequence than announced; a
/// sequence beyond the end of the log.
pub fn usable(at: &SnapshotRef, end: u64) -> Result<(State, Head), SegmentError> {
    let wrong = |reason: String| SegmentError::Mismatch { file: at.path.display().to_string(), reason };
    let snapshot = Snapshot::read(at)?;
    if snapshot.head.seq > end {
        return Err(wrong(format!("is of sequence {}, the log ends at {end}", snapshot.head.seq)));
    }
    let state = snapshot.state().map_err(wrong)?;
    Ok((state, snapshot.head))
}

impl Snapshot {
    /// The state that the events restate.
    ///
    /// # Errors
    /// In words, if they restate none or another one than announced.
    pub fn state(&self) -> Result<State, String> {
        let state = State::from_restated(&self.events).map_err(|error| error.to_string())?;
        if state.seq() != self.head.seq {
            return Err(format!("restates sequence {}, should be {}", state.seq(), self.head.seq));
        }
        let digest = state.digest();
        if digest != self.digest {
            let (found, wanted) = (short_hex(&digest), short_hex(&self.digest));
            return Err(format!("restates a state with digest {found}, should be {wanted}"));
        }
        Ok(state)
    }

    /// Restates a state.
    pub fn of(state: &State, pool: &str, log_id: [u8; 16], head: Head) -> Snapshot {
        let (digest, events) = (state.digest(), state.restate());
        Snapshot { pool: pool.to_owned(), log_id, head, digest, events }
    }
}

/// Makes a snapshot at the end of what is sealed of a pool, if it is not there yet.
///
/// # Errors
/// Damage in what is sealed; a failed write.
pub fn advance(
    data: &Path,
    pool: &str,
    log_id: [u8; 16],
    written: Micros,
    format: u16,
) -> Result<Option<SnapshotRef>, SegmentError> {
    let logs = Logs::of_dir(data, None)?;
    let Some(head) = logs.sealed_head(pool)? else { return Ok(None) };
    if logs.snapshots(pool).last().is_some_and(|newest| newest.seq >= head.seq) {
        return Ok(None);
    }
    let recovered = recover(&logs, pool)?;
    let snapshot = Snapshot::of(&recovered.state, pool, log_id, recovered.head);
    save(data, &snapshot, written, format).map(Some)
}

fn without_start(error: SegmentError, pool: &str, from_snapshot: Option<u64>) -> SegmentError {
    let trimmed = matches!(
        &error,
        SegmentError::Damaged(damage) if damage.batch == Some(1) && damage.block.is_none()
    ) || matches!(&error, SegmentError::Log(LogError::Trimmed { .. }));
    if trimmed && from_snapshot.is_none() {
        let reason =
            format!("the beginning of its log is not here, and there is no usable snapshot: {error}");
        return SegmentError::Mismatch { file: format!("pool {pool}"), reason };
    }
    error
}
