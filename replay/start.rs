//! The state that a replay of a range starts from.

use std::collections::BTreeMap;
use weir_kernel::State;
use weir_log::reader::{Bound, Logs};
use weir_log::snapshot::{self, SnapshotRef};
use weir_log::{Head, SegmentError};

/// A state and its place in the log.
pub struct Start {
    /// The state.
    pub state: State,
    /// The head that it belongs to.
    pub head: Head,
    /// The first sequence that is kept; 0 = none.
    pub first: u64,
    /// Digests of later snapshots, by sequence.
    pub digests: BTreeMap<u64, [u8; 32]>,
}

/// Empty, or the newest snapshot before the range, or the oldest one of a trimmed log.
///
/// # Errors
/// A log that cannot be read, or that was trimmed without a usable snapshot.
pub fn start(logs: &Logs, pool: &str, from: Bound) -> Result<Start, SegmentError> {
    let mut found = Start { state: State::new(), head: Head::default(), first: 0, digests: BTreeMap::new() };
    let first = match logs.reader(pool, Bound::Open, Bound::Open).next() {
        Some(frame) => frame?.header.first_seq,
        None => return Ok(found),
    };
    found.first = first;
    let known: Vec<&SnapshotRef> = logs.snapshots(pool).iter().filter(|at| at.seq + 1 >= first).collect();
    for at in &known {
        match snapshot::usable(at, u64::MAX) {
            Ok((state, head)) => {
                found.digests.insert(head.seq, state.digest());
                let early = !from.excludes_before(head.seq + 1, head.at);
                let before_range = !early || from == Bound::Seq(head.seq + 1);
                if (first > 1 && found.head.seq == 0) || (before_range && head.seq > found.head.seq) {
                    (found.state, found.head) = (state, head);
                }
            }
            Err(error) => eprintln!("note: {error}; this snapshot is left out"),
        }
    }
    if first > 1 && found.head.seq == 0 {
        let reason = format!("starts at sequence {first}, and there is no usable snapshot before it");
        return Err(SegmentError::Mismatch { file: format!("the log of pool {pool}"), reason });
    }
    let seq = found.head.seq;
    found.digests.retain(|at, _| *at > seq);
    Ok(found)
}
