//! What the log has let go of goes from the projections too.

use crate::bucket::Bucket;
use crate::commit::{group_of, numbered};
use crate::db::{Kind, Writes};
use crate::episode::{Episode, EpisodeKind};
use crate::error::{ProjectionError, Spot};
use crate::ids;
use crate::pool::PoolProjection;
use crate::record::{Decided, Revocation};
use serde::de::DeserializeOwned;
use std::ops::RangeInclusive;

/// Removes what rests on nothing but steps that the log does not keep any more.
///
/// # Errors
/// The log or the database cannot be read.
pub fn follow(pool: &PoolProjection) -> Result<(), ProjectionError> {
    let Some(oldest) = pool.source.oldest(pool.name())? else { return Ok(()) };
    if oldest <= pool.read().folder.seen.begun.seq {
        return Ok(());
    }
    drop_chunks(pool, oldest)?;
    drop_notes(pool, oldest)?;
    for kind in [Kind::Fine, Kind::Coarse] {
        drop_records(pool, kind, 0..=u64::MAX, |bucket: &Bucket| bucket.last_seq < oldest)?;
    }
    // The one in force stays, however old.
    for (kind, limit) in [(Kind::Regime, numbered(oldest, 0)), (Kind::Policy, oldest)] {
        let mut last = None;
        pool.db.numbers(pool.name(), kind, 0..=limit.saturating_sub(1), |number| last = Some(number))?;
        if let Some(last) = last.and_then(|last: u64| last.checked_sub(1)) {
            pool.db.clear(pool.name(), kind, 0..=last)?;
        }
    }
    let all = 0..=u64::MAX;
    drop_records(pool, Kind::Reclamation, all.clone(), |decided: &Decided| decided.spot.seq < oldest)?;
    drop_records(pool, Kind::Revocation, all, |revocation: &Revocation| revocation.issued.seq < oldest)?;
    for kind in EpisodeKind::ALL {
        let numbers = kind.number(0)..=kind.number(u64::MAX);
        drop_records(pool, Kind::Episode, numbers, |episode: &Episode| episode.to.seq < oldest)?;
    }
    if let Some(last) = numbered(oldest, 0).checked_sub(1) {
        pool.db.clear(pool.name(), Kind::Next, 0..=last)?;
    }
    drop_points(pool, oldest)?;
    let at = first_kept(pool, oldest)?;
    let mut inner = pool.write();
    let begun = &mut inner.folder.seen.begun;
    *begun = (*begun).max(at);
    Ok(())
}

fn first_kept(pool: &PoolProjection, oldest: u64) -> Result<Spot, ProjectionError> {
    use weir_log::reader::Bound;
    let first = pool.source.steps(pool.name(), Bound::Seq(oldest), Bound::Seq(oldest))?.next().transpose()?;
    Ok(first.map_or(Spot { seq: oldest, ..Spot::default() }, |step| Spot { seq: step.seq, at: step.at }))
}

fn drop_chunks(pool: &PoolProjection, oldest: u64) -> Result<(), ProjectionError> {
    let gone: Vec<u64> = {
        let mut inner = pool.write();
        let gone = inner.zones.iter().take_while(|zone| zone.last_seq < oldest).count();
        inner.zones.drain(..gone).map(|zone| zone.first).collect()
    };
    let Some(last) = gone.last() else { return Ok(()) };
    for kind in [Kind::Chunk, Kind::Ids, Kind::Zone] {
        pool.db.clear(pool.name(), kind, 0..=*last)?;
    }
    let kept = pool.read().zones.first().map_or(u64::MAX, |zone| zone.first);
    let kept = kept.min(pool.read().folder.seen.written);
    match ids::records_before(group_of(kept)) {
        gone if gone.is_empty() => Ok(()),
        gone => pool.db.clear(pool.name(), Kind::Group, gone.start..=gone.end - 1),
    }
}

fn drop_notes(pool: &PoolProjection, oldest: u64) -> Result<(), ProjectionError> {
    let gone: Vec<u64> = {
        let mut inner = pool.write();
        let gone = inner.note_zones.iter().take_while(|zone| zone.last.seq < oldest).count();
        inner.note_zones.drain(..gone).map(|zone| zone.first.seq).collect()
    };
    let Some(last) = gone.last() else { return Ok(()) };
    for kind in [Kind::Notes, Kind::NoteZone] {
        pool.db.clear(pool.name(), kind, 0..=*last)?;
    }
    Ok(())
}

/// Removes records from the oldest on, as far as they are gone.
fn drop_records<T: DeserializeOwned>(
    pool: &PoolProjection,
    kind: Kind,
    numbers: RangeInclusive<u64>,
    is_gone: impl Fn(&T) -> bool,
) -> Result<(), ProjectionError> {
    let mut last = None;
    pool.db.range(pool.name(), kind, numbers.clone(), |number, record: T| {
        let gone = is_gone(&record);
        if gone {
            last = Some(number);
        }
        Ok(gone)
    })?;
    last.map_or(Ok(()), |last| pool.db.clear(pool.name(), kind, *numbers.start()..=last))
}

/// A state serves what comes after it, as far as the log has that.
fn drop_points(pool: &PoolProjection, oldest: u64) -> Result<(), ProjectionError> {
    let gone: Vec<Spot> = {
        let mut inner = pool.write();
        let gone = inner.folder.seen.points.iter().take_while(|spot| spot.seq + 1 < oldest).count();
        inner.folder.seen.points.drain(..gone).collect()
    };
    let mut writes = Writes::default();
    for spot in gone {
        let parts = pool.db.parts(pool.name(), Kind::State, spot.seq)?;
        writes.remove(pool.name(), Kind::State, spot.seq, 0..parts);
    }
    pool.db.write(writes)
}
