//! Questions about requests: one by its number, one page of many, how many.
//!
//! What is asked is compared with the zone maps first; only chunks that may answer are read, nearest first, and only as
//! many rows as a page holds are kept.

use crate::chunk::{Chunk, ROWS, Zone};
use crate::commit::{group_begin, group_of};
use crate::db::Kind;
use crate::error::ProjectionError;
use crate::ids::{self, Ids};
use crate::pool::{Inner, PoolProjection};
use crate::row::Row;
use crate::work::Work;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use weir_kernel::{LeaseEnd, Micros, Outcome, Reason, Regime};

/// What is asked for; a list that is empty allows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Arrived at or after this.
    pub from: Option<Micros>,
    /// Arrived before this.
    pub to: Option<Micros>,
    /// Outcomes.
    pub outcomes: Vec<Outcome>,
    /// Reasons.
    pub reasons: Vec<Reason>,
    /// Regimes that decided.
    pub regimes: Vec<Regime>,
    /// Bands.
    pub priorities: Vec<i32>,
    /// The flow.
    pub flow: Option<String>,
    /// The objective.
    pub objective: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The caller's own id.
    pub caller_id: Option<String>,
    /// Waited at least so long.
    pub waited_min: Option<Micros>,
    /// Waited at most so long.
    pub waited_max: Option<Micros>,
    /// Ordered back while it ran, or not.
    pub revoked: Option<bool>,
    /// How its lease ended.
    pub lease_ends: Vec<LeaseEnd>,
    /// Ended, or not.
    pub over: Option<bool>,
}

/// In which order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// First come, first.
    #[default]
    Arrival,
    /// Last come, first.
    ArrivalDesc,
    /// Shortest wait first.
    Wait,
    /// Longest wait first.
    WaitDesc,
}

/// A place in an order.
pub type Key = (u64, u64);

/// Which page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Behind this place.
    pub after: Option<Key>,
    /// Before this place.
    pub before: Option<Key>,
    /// At most so many.
    pub limit: usize,
    /// The last of those in between rather than the first.
    pub backwards: bool,
}

/// A page of rows.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// In the order that was asked for, each with its place.
    pub rows: Vec<(Key, Row)>,
    /// There are more beyond the end at which the page stops.
    pub more: bool,
}

impl Order {
    /// The place of a row.
    pub fn key(self, row: &Row) -> Key {
        let waited = row.waited().map_or(0, |waited| waited.0);
        match self {
            Order::Arrival => (row.id, row.id),
            Order::ArrivalDesc => (u64::MAX - row.id, row.id),
            Order::Wait => (waited, row.id),
            Order::WaitDesc => (u64::MAX - waited, row.id),
        }
    }

    /// Places between which those of a chunk lie. (With the numbers of requests: many wait equally long, mostly not at
    /// all, and then those decide which chunk is too far.)
    fn span(self, zone: &Zone) -> (Key, Key) {
        let (first, last) = zone.ids;
        let (shortest, longest) = (zone.waited.0.0, zone.waited.1.0);
        match self {
            Order::Arrival => ((first, first), (last, last)),
            Order::ArrivalDesc => ((u64::MAX - last, first), (u64::MAX - first, last)),
            Order::Wait => ((shortest, first), (longest, last)),
            Order::WaitDesc => ((u64::MAX - longest, first), (u64::MAX - shortest, last)),
        }
    }
}

impl Filter {
    /// May a chunk hold a row that is asked for?
    pub fn may_hold(&self, zone: &Zone) -> bool {
        let any = |list: usize, hits: bool| list == 0 || hits;
        let named = [&self.flow, &self.objective, &self.model];
        self.from.is_none_or(|from| zone.arrived.1 >= from)
            && self.to.is_none_or(|to| zone.arrived.0 < to)
            && any(self.outcomes.len(), self.outcomes.iter().any(|o| zone.outcomes & (1 << *o as u16) != 0))
            && any(self.reasons.len(), self.reasons.iter().any(|r| zone.reasons & (1 << *r as u32) != 0))
            && any(self.regimes.len(), self.regimes.iter().any(|r| zone.regimes & (1 << *r as u8) != 0))
            && any(
                self.lease_ends.len(),
                self.lease_ends.iter().any(|e| zone.lease_ends & (1 << *e as u8) != 0),
            )
            && any(
                self.priorities.len(),
                self.priorities.iter().any(|p| (zone.priorities.0..=zone.priorities.1).contains(p)),
            )
            && self.waited_min.is_none_or(|least| zone.waited.1 >= least)
            && self.waited_max.is_none_or(|most| zone.waited.0 <= most)
            && self.revoked.is_none_or(|revoked| !revoked || zone.revoked)
            && self.over != Some(false)
            && named.into_iter().flatten().all(|name| zone.may_name(name))
    }

    /// Is this row asked for?
    pub fn holds(&self, row: &Row) -> bool {
        fn any<T: PartialEq>(list: &[T], found: Option<T>) -> bool {
            list.is_empty() || found.is_some_and(|found| list.contains(&found))
        }
        let end = row.end.as_ref();
        let lease_end = row.lease.as_ref().and_then(|lease| lease.end.as_ref()).map(|finish| finish.end);
        self.from.is_none_or(|from| row.arrived_at >= from)
            && self.to.is_none_or(|to| row.arrived_at < to)
            && any(&self.outcomes, end.map(|end| end.outcome))
            && any(&self.reasons, end.and_then(|end| end.reason))
            && any(&self.regimes, end.map(|end| end.regime))
            && any(&self.lease_ends, lease_end)
            && any(&self.priorities, Some(row.priority))
            && self.flow.as_ref().is_none_or(|flow| row.flow == *flow)
            && self.objective.as_ref().is_none_or(|name| row.objective.as_ref() == Some(name))
            && self.model.as_ref().is_none_or(|name| row.model.as_ref() == Some(name))
            && self.caller_id.as_ref().is_none_or(|id| row.caller_id == *id)
            && self.waited_min.is_none_or(|least| row.waited().is_some_and(|waited| waited >= least))
            && self.waited_max.is_none_or(|most| row.waited().is_some_and(|waited| waited <= most))
            && self.revoked.is_none_or(|revoked| row.is_revoked() == revoked)
            && self.over.is_none_or(|over| row.is_over() == over)
    }
}

/// What is in memory and may be asked for, and the chunks that may hold more.
struct Candidates {
    rows: Vec<Row>,
    zones: Vec<Arc<Zone>>,
    filters: Filters,
}

/// The filters of the chunks whose group is not full, from the place of its first row on.
struct Filters {
    begin: u64,
    ids: Vec<Arc<Ids>>,
}

impl PoolProjection {
    /// The request with this number; none if there is none.
    ///
    /// # Errors
    /// The database cannot be read; the time is over.
    pub fn request(&self, id: u64, work: &Work) -> Result<Option<Row>, ProjectionError> {
        if let Some(row) = work.recent.row(self.name(), id) {
            return Ok(Some(row));
        }
        let (zones, filters) = {
            let inner = self.read();
            let seen = &inner.folder.seen;
            let pending = || seen.pending.iter().find(|row| row.id == id);
            if let Some(row) = seen.open.get(&id).or_else(pending) {
                return Ok(Some(row.clone()));
            }
            // Rows are in the order in which they ended: those of a chunk that was full before it came are not it.
            let first = inner.zones.partition_point(|zone| zone.last_seq < id);
            let may = inner.zones[first..].iter().filter(|zone| (zone.ids.0..=zone.ids.1).contains(&id));
            (may.cloned().collect(), Filters::of(&inner))
        };
        for zone in self.holders(zones, &filters, ids::of_number(id), work)? {
            work.check()?;
            if let Some(row) = self.kept_chunk(&zone, work)?.iter().find(|row| row.id == id) {
                return Ok(Some(row.clone()));
            }
        }
        Ok(None)
    }

    /// A page of the requests that are asked for.
    ///
    /// # Errors
    /// The database cannot be read; the time is over.
    pub fn requests(
        &self,
        filter: &Filter,
        order: Order,
        page: Page,
        work: &Work,
    ) -> Result<Rows, ProjectionError> {
        let Candidates { rows, mut zones, filters } = self.candidates(filter);
        if let Some(caller_id) = &filter.caller_id {
            zones = self.holders(zones, &filters, ids::of_caller(caller_id), work)?;
        }
        let mut best = Best { page, kept: BTreeMap::new() };
        for row in rows {
            best.offer(order.key(&row), row);
        }
        // Chunks that can hold the nearest rows first: what is too far then need not be read.
        if page.backwards {
            zones.sort_by_key(|zone| std::cmp::Reverse(order.span(zone).1));
        } else {
            zones.sort_by_key(|zone| order.span(zone).0);
        }
        for zone in zones {
            work.check()?;
            let (low, high) = order.span(&zone);
            if best.is_beyond(low, high) {
                break;
            }
            let passed = page.after.is_some_and(|after| high < after);
            if passed || page.before.is_some_and(|before| low > before) {
                continue;
            }
            if filter.caller_id.is_some() {
                // Few, and what they say of the request is asked for next.
                let rows = self.kept_chunk(&zone, work)?;
                rows.iter()
                    .filter(|row| filter.holds(row))
                    .for_each(|row| best.offer(order.key(row), row.clone()));
                continue;
            }
            for row in self.chunk(&zone)?.filter(|row| filter.holds(row)) {
                best.offer(order.key(&row), row);
            }
        }
        Ok(best.rows())
    }

    /// How many requests are asked for, and whether that is all of them (false: counting stopped at `most`).
    ///
    /// # Errors
    /// The database cannot be read; the time is over.
    pub fn count(&self, filter: &Filter, most: u64, work: &Work) -> Result<(u64, bool), ProjectionError> {
        let Candidates { rows, mut zones, filters } = self.candidates(filter);
        if let Some(caller_id) = &filter.caller_id {
            zones = self.holders(zones, &filters, ids::of_caller(caller_id), work)?;
        }
        let mut count = rows.len() as u64;
        for zone in zones {
            if count >= most {
                return Ok((most, false));
            }
            work.check()?;
            count += self.chunk(&zone)?.filter(|row| filter.holds(row)).count() as u64;
        }
        Ok((count, true))
    }

    fn candidates(&self, filter: &Filter) -> Candidates {
        let inner = self.read();
        let seen = &inner.folder.seen;
        let rows = seen.open.values().chain(&seen.pending).filter(|row| filter.holds(row)).cloned().collect();
        let zones = inner.zones.iter().filter(|zone| filter.may_hold(zone)).cloned().collect();
        Candidates { rows, zones, filters: Filters::of(&inner) }
    }

    /// Of these chunks (in the order of their rows), those that may hold the request with this hash.
    fn holders(
        &self,
        mut zones: Vec<Arc<Zone>>,
        filters: &Filters,
        hash: u64,
        work: &Work,
    ) -> Result<Vec<Arc<Zone>>, ProjectionError> {
        let mut known = None;
        let mut failed = Ok(());
        zones.retain(|zone| {
            let place = |begin: u64| ((zone.first - begin) / ROWS as u64) as usize;
            if zone.first >= filters.begin {
                return filters.ids.get(place(filters.begin)).is_none_or(|ids| ids.may_hold(hash));
            }
            let group = group_of(zone.first);
            let bits = match known {
                Some((of, bits)) if of == group => bits,
                _ => match work
                    .check()
                    .map_err(ProjectionError::from)
                    .and_then(|()| ids::holders(&self.db, self.name(), group, hash))
                {
                    Ok(bits) => bits,
                    Err(error) => {
                        failed = Err(error);
                        return false;
                    }
                },
            };
            known = Some((group, bits));
            let chunk = place(group_begin(zone.first));
            bits[chunk / 8] & (1 << (chunk % 8)) != 0
        });
        failed.map(|()| zones)
    }

    /// [`Self::chunk`], kept for what the same question asks next.
    fn kept_chunk(&self, zone: &Zone, work: &Work) -> Result<Arc<[Row]>, ProjectionError> {
        work.recent.rows(self.name(), zone.first, || Ok(self.chunk(zone)?.collect()))
    }

    /// The rows of a chunk; none of one that retention has removed meanwhile.
    fn chunk(&self, zone: &Zone) -> Result<impl Iterator<Item = Row> + use<>, ProjectionError> {
        let chunk: Option<Chunk> = self.db.get(self.name(), Kind::Chunk, zone.first)?;
        Ok(chunk.map(Chunk::unpack).into_iter().flatten())
    }
}

impl Filters {
    fn of(inner: &Inner) -> Filters {
        Filters { begin: group_begin(inner.folder.seen.written), ids: inner.ids.clone() }
    }
}

/// The nearest rows so far: one more than a page, which tells whether there are more.
struct Best {
    page: Page,
    kept: BTreeMap<Key, Row>,
}

impl Best {
    fn offer(&mut self, key: Key, row: Row) {
        let range = (
            self.page.after.map_or(Bound::Unbounded, Bound::Excluded),
            self.page.before.map_or(Bound::Unbounded, Bound::Excluded),
        );
        if !std::ops::RangeBounds::contains(&range, &key) {
            return;
        }
        self.kept.insert(key, row);
        if self.kept.len() > self.page.limit.saturating_add(1) {
            if self.page.backwards {
                self.kept.pop_first()
            } else {
                self.kept.pop_last()
            };
        }
    }

    /// Nothing with places in this range can still be among the nearest.
    fn is_beyond(&self, low: Key, high: Key) -> bool {
        let full = self.kept.len() > self.page.limit;
        let far = match self.page.backwards {
            true => self.kept.first_key_value().is_some_and(|(key, _)| high < *key),
            false => self.kept.last_key_value().is_some_and(|(key, _)| low > *key),
        };
        full && far
    }

    fn rows(mut self) -> Rows {
        let more = self.kept.len() > self.page.limit;
        if more {
            if self.page.backwards {
                self.kept.pop_first()
            } else {
                self.kept.pop_last()
            };
        }
        Rows { rows: self.kept.into_iter().collect(), more }
    }
}
