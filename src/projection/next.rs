//! Who was admitted next where a budget had ended, and whether a limit stood alone: what tells how a request would have
//! fared with more time or room, without a look into the log.
//!
//! In a band that takes strictly the oldest first, whoever waited behind a request and was admitted later took its place.
//! So each first admission after ends of budgets is kept, and with it everything after which nothing is certain any more.

use crate::commit::numbered;
use crate::db::Kind;
use crate::error::{ProjectionError, Spot};
use crate::meter::Meter;
use crate::pool::PoolProjection;
use crate::row::Row;
use crate::work::Work;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_kernel::{Event, Fairness, Limit, LimitKind, Ordering, State};

/// Records that are looked at for one question.
const LOOK_AHEAD: usize = 50_000;

/// An admission for which ends of budgets had waited, or the end of all certainty about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// The step.
    pub spot: Spot,
    /// The band and the number of the request; none: settings, a start or an order by hand came in between.
    pub admitted: Option<(i32, u64)>,
}

/// What came after the end of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The first request of the band with a larger number that was admitted.
    Admitted(Spot, u64),
    /// None is admitted yet.
    Nobody,
    /// Settings, a start or an order by hand came first.
    Spoiled(Spot),
    /// More admissions of others came in between than are looked at.
    TooMany,
    /// The step is not kept any more.
    NotKept,
}

impl After {
    /// The request that was admitted.
    pub fn admitted(self) -> Option<(Spot, u64)> {
        match self {
            After::Admitted(spot, id) => Some((spot, id)),
            _ => None,
        }
    }
}

/// By band, the smallest and the largest number of the requests whose budget ended and behind which nobody was admitted
/// since. The smallest may be lower than it is (its request was answered already): then a record more is kept than need
/// be, never one less.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited(BTreeMap<i32, (u64, u64)>);

impl Awaited {
    /// The budget of this request ended.
    pub fn ended(&mut self, priority: i32, id: u64) {
        let (least, most) = self.0.entry(priority).or_insert((id, id));
        (*least, *most) = ((*least).min(id), (*most).max(id));
    }

    /// This request was admitted: did one of those that ended wait before it?
    pub fn admitted(&mut self, priority: i32, id: u64) -> bool {
        let Some((least, most)) = self.0.get_mut(&priority).filter(|(least, _)| *least < id) else {
            return false;
        };
        if *most < id {
            self.0.remove(&priority);
        } else {
            *least = id;
        }
        true
    }

    /// Nothing is certain any more: was anybody waited for?
    pub fn spoil(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }
}

/// Could one request more in the queue have been treated otherwise from here on?
pub const fn spoils(event: &Event) -> bool {
    matches!(
        event,
        Event::StartNoted { .. }
            | Event::PolicyAdopted
            | Event::ObjectivesAdopted
            | Event::BandChanged { .. }
            | Event::BandClosed { .. }
            | Event::PurgeBegun { .. }
            | Event::DrainBegun { .. }
            | Event::ClassRebudgeted { .. }
    )
}

/// Does the band take strictly the oldest request first?
pub fn is_strict(state: &State, priority: i32) -> bool {
    state.band_settings(priority).is_some_and(|settings| {
        settings.ordering == Ordering::Fcfs && settings.fairness == Fairness::GlobalStrict
    })
}

/// Is the limit that refused a request the only one that stood against it?
pub fn is_certain_limit(limit: &Limit, row: &Row, state: &State, meter: &Meter) -> bool {
    let Some(band) = state.band_settings(row.priority) else { return false };
    let policy = state.policy();
    let ((requests, bytes), (in_band, bytes_in_band)) = (meter.standing(), meter.standing_in(row.priority));
    let all = [
        (LimitKind::GlobalBytes, bytes.saturating_add(row.bytes), policy.max_bytes),
        (LimitKind::GlobalRequests, requests + 1, policy.max_requests),
        (LimitKind::BandBytes, bytes_in_band.saturating_add(row.bytes), band.max_bytes),
        (LimitKind::BandRequests, in_band + 1, band.max_requests),
    ];
    all.iter().all(|(which, wanted, allowed)| {
        let stands = *allowed > 0 && wanted > allowed;
        stands == (*which == limit.which)
    })
}

impl PoolProjection {
    /// The first request of this band with a number above `id` that was admitted in step `seq` or later, in which a budget of a
    /// request with that number ended ([`crate::End::certain`]); or why there is none.
    ///
    /// # Errors
    /// The database cannot be read; the time is over.
    pub fn next_admitted(
        &self,
        seq: u64,
        priority: i32,
        id: u64,
        work: &Work,
    ) -> Result<After, ProjectionError> {
        // What is in memory is copied first: a commit in between cannot hide anything.
        let unwritten: Vec<Next> = {
            let inner = self.read();
            if seq < inner.folder.seen.begun.seq {
                return Ok(After::NotKept);
            }
            let next = &inner.folder.closed.next;
            let begin = next.partition_point(|next| next.spot.seq < seq);
            next[begin..].iter().take(LOOK_AHEAD).copied().collect()
        };
        let (mut found, mut looked) = (After::Nobody, 0);
        let mut look = |next: Next| {
            looked += 1;
            found = match next.admitted {
                None => After::Spoiled(next.spot),
                Some((band, number)) if band == priority && number > id => After::Admitted(next.spot, number),
                Some(_) if looked >= LOOK_AHEAD => After::TooMany,
                Some(_) => After::Nobody,
            };
            found == After::Nobody
        };
        let mut going = true;
        let first = numbered(seq, 0);
        self.db.range(self.name(), Kind::Next, first..=u64::MAX, |_, next| {
            work.check()?;
            going = look(next);
            Ok(going)
        })?;
        // Those that were written meanwhile are met twice, which changes nothing.
        for next in unwritten {
            going = going && look(next);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admission_answers_for_all_that_ended_before_it() {
        let mut awaited = Awaited::default();
        assert!(!awaited.admitted(0, 5) && !awaited.spoil());
        for id in [10, 12, 20] {
            awaited.ended(0, id);
        }
        awaited.ended(-5, 3);
        // One that waited before all of them says nothing about them.
        assert!(!awaited.admitted(0, 9));
        assert!(awaited.admitted(0, 15), "it waited behind 10 and 12");
        assert!(awaited.admitted(0, 21), "it waited behind 20");
        assert!(!awaited.admitted(0, 22) && awaited.admitted(-5, 4));
        awaited.ended(0, 30);
        assert!(awaited.spoil() && !awaited.admitted(0, 31));
    }
}
