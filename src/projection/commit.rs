//! What is written of a pool's read models: everything that is finished and a checkpoint of what is not, in one batch, so
//! that after a kill the fold goes on from the last one and writes nothing twice.
//!
//! Not here: what is in memory and how it comes back (`pool.rs`).

use crate::chunk::{Chunk, ROWS, Zone};
use crate::db::{Kind, Writes, encode};
use crate::error::{ProjectionError, Spot};
use crate::fold::{Folder, Seen};
use crate::ids::{self, GROUP, Ids};
use crate::note::{self, NoteZone};
use crate::pool::{Inner, PoolProjection};
use crate::row::Row;
use std::sync::Arc;
use weir_kernel::Micros;

/// Steps after which a commit is due, however short the time.
const COMMIT_STEPS: u64 = 32_768;
/// Steps between two kept states: what a look back into the past has to fold at the most.
const POINT_STEPS: u64 = COMMIT_STEPS;
/// A state of many records is kept less often, so that it costs little beside the steps.
const POINT_FACTOR: u64 = 16;
/// States that are older than this are kept less densely,
const POINTS_OLD: Micros = Micros::from_secs(86_400);
/// with so many steps between two of them at the most (and one step of the above).
const POINT_STEPS_OLD: u64 = 400_000;

/// Rows of a group of chunks.
const GROUP_ROWS: u64 = (GROUP * ROWS) as u64;

/// The place of the first row of the group that is not full when so many rows are written.
pub const fn group_begin(written: u64) -> u64 {
    written - written % GROUP_ROWS
}

/// The number of the group of a row's place.
pub const fn group_of(place: u64) -> u64 {
    place / GROUP_ROWS
}

/// What a commit adds to what is in memory of what is written.
#[derive(Default)]
struct Added {
    zones: Vec<Arc<Zone>>,
    ids: Vec<Arc<Ids>>,
    notes: Vec<NoteZone>,
    point: Option<Spot>,
}

impl PoolProjection {
    /// Is there so much unwritten that it is time?
    pub fn is_commit_due(&self) -> bool {
        self.read().since_commit >= COMMIT_STEPS
    }

    /// Writes what is finished, and a checkpoint of what is not; one batch, whole or not at all. Gives the bytes.
    ///
    /// # Errors
    /// What sled says; then [`PoolProjection::reload`] goes on from the commit before.
    pub fn commit(&self) -> Result<u64, ProjectionError> {
        let mut inner = self.write();
        let at = inner.folder.seen.at;
        if at == inner.committed {
            return Ok(0);
        }
        let mut writes = Writes::default();
        let mut added = Added { ids: inner.ids.clone(), ..Added::default() };
        self.put_rows(&mut inner.folder.seen, &mut added, &mut writes);
        added.notes = note::put(&mut writes, self.name(), &mut inner.folder.seen.notes);
        self.put_closed(&mut inner.folder, &mut writes);
        added.point = self.put_point(&inner, &mut writes);
        if let Some(spot) = added.point {
            let points = &mut inner.folder.seen.points;
            points.push(spot);
            for gone in thin(points, spot.at) {
                let parts = self.db.parts(self.name(), Kind::State, gone.seq)?;
                writes.remove(self.name(), Kind::State, gone.seq, 0..parts);
            }
            inner.since_point = 0;
        }
        let parts = writes.put(self.name(), Kind::Checkpoint, 0, &encode(&inner.folder.seen));
        writes.remove(self.name(), Kind::Checkpoint, 0, parts..inner.checkpoint_parts.max(parts));
        let bytes = writes.bytes;
        self.db.write(writes)?;
        inner.zones.append(&mut added.zones);
        inner.ids = added.ids;
        inner.note_zones.extend(added.notes.into_iter().map(Arc::new));
        (inner.committed, inner.checkpoint_parts, inner.since_commit) = (at, parts, 0);
        Ok(bytes)
    }

    fn put_rows(&self, seen: &mut Seen, added: &mut Added, writes: &mut Writes) {
        let whole = seen.pending.len() - seen.pending.len() % ROWS;
        let mut rows = seen.pending.drain(..whole);
        loop {
            let chunk: Vec<Row> = rows.by_ref().take(ROWS).collect();
            if chunk.is_empty() {
                break;
            }
            let first = seen.written;
            let (chunk, zone, ids) = Chunk::pack(first, chunk);
            writes.put(self.name(), Kind::Chunk, first, &encode(&chunk));
            writes.put(self.name(), Kind::Zone, first, &encode(&zone));
            let parts = writes.put(self.name(), Kind::Ids, first, &encode(&ids));
            seen.written += ROWS as u64;
            added.zones.push(Arc::new(zone));
            added.ids.push(Arc::new(ids));
            if added.ids.len() == GROUP {
                ids::put(writes, self.name(), group_of(first), &added.ids);
                let begin = group_begin(first);
                for number in (begin..=first).step_by(ROWS) {
                    writes.remove(self.name(), Kind::Ids, number, 0..parts);
                }
                added.ids.clear();
            }
        }
    }

    fn put_closed(&self, folder: &mut Folder, writes: &mut Writes) {
        let closed = std::mem::take(&mut folder.closed);
        let name = self.name();
        for bucket in &closed.full.fine {
            writes.put(name, Kind::Fine, bucket.start.0, &encode(bucket));
        }
        for bucket in &closed.full.coarse {
            writes.put(name, Kind::Coarse, bucket.start.0, &encode(bucket));
        }
        // More than one of a kind may come in one step.
        for (place, regime) in closed.regimes.iter().enumerate() {
            let before =
                closed.regimes[..place].iter().rev().take_while(|other| other.spot.seq == regime.spot.seq);
            writes.put(name, Kind::Regime, numbered(regime.spot.seq, before.count() as u64), &encode(regime));
        }
        for (place, next) in closed.next.iter().enumerate() {
            let before =
                closed.next[..place].iter().rev().take_while(|other| other.spot.seq == next.spot.seq);
            writes.put(name, Kind::Next, numbered(next.spot.seq, before.count() as u64), &encode(next));
        }
        for policy in &closed.policies {
            writes.put(name, Kind::Policy, policy.spot.seq, &encode(policy));
        }
        for decided in &closed.decided {
            writes.put(name, Kind::Reclamation, decided.decision.number, &encode(decided));
        }
        for revocation in &closed.revocations {
            writes.put(name, Kind::Revocation, revocation.number, &encode(revocation));
        }
        for episode in &closed.episodes {
            writes.put(name, Kind::Episode, episode.number(), &encode(episode));
        }
    }

    fn put_point(&self, inner: &Inner, writes: &mut Writes) -> Option<Spot> {
        if inner.since_point < POINT_STEPS {
            return None;
        }
        let state = &inner.folder.state;
        let records = state.queued() + state.in_flight() + state.remembered_keys() as u64;
        if inner.since_point < records.saturating_mul(POINT_FACTOR) {
            return None;
        }
        let spot = inner.folder.seen.at;
        writes.put(self.name(), Kind::State, spot.seq, &encode(&(spot, state.restate())));
        Some(spot)
    }
}

/// Takes out old points that stand too densely; gives them. The first one and the newest stay.
fn thin(points: &mut Vec<Spot>, now: Micros) -> Vec<Spot> {
    let old = points.partition_point(|spot| now.since(spot.at) > POINTS_OLD);
    let (mut gone, mut kept, mut place) = (Vec::new(), None, 0);
    points.retain(|spot| {
        place += 1;
        let dense = kept.is_some_and(|kept: u64| spot.seq - kept < POINT_STEPS_OLD);
        if place < old && dense {
            gone.push(*spot);
            return false;
        }
        kept = Some(spot.seq);
        true
    });
    gone
}

/// A number for the record of a step that has more than one.
pub const fn numbered(seq: u64, place: u64) -> u64 {
    seq.saturating_mul(16).saturating_add(if place > 15 { 15 } else { place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_states_are_thinned_once_and_never_further_apart_than_said() {
        let spot = |n: u64| Spot { seq: n * 50_000, at: Micros::from_secs(n * 600) };
        let mut points = Vec::new();
        for n in 1..=600 {
            points.push(spot(n));
            for gone in thin(&mut points, spot(n).at) {
                assert!(spot(n).at.since(gone.at) > POINTS_OLD, "{gone:?}");
            }
        }
        let apart = |pair: &[Spot]| pair[1].seq - pair[0].seq;
        assert_eq!(points.first(), Some(&spot(1)));
        assert!(points.windows(2).all(|pair| apart(pair) <= POINT_STEPS_OLD + 50_000));
        let old = points.iter().take_while(|at| spot(600).at.since(at.at) > POINTS_OLD).count();
        assert!(old < 65 && points.len() - old == 145, "{old} of {}", points.len());
        let before = points.clone();
        assert!(thin(&mut points, spot(600).at).is_empty());
        assert_eq!(points, before);
    }

    #[test]
    fn rows_belong_to_groups() {
        assert_eq!(
            (group_begin(0), group_begin(GROUP_ROWS - 512), group_begin(GROUP_ROWS)),
            (0, 0, GROUP_ROWS)
        );
        assert_eq!((group_of(GROUP_ROWS - 1), group_of(GROUP_ROWS)), (0, 1));
    }
}
