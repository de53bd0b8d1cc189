//! Rows of ended requests, many at once: a list of names, the rows, and what they hold in short (the zone map), so that
//! a question passes over what cannot answer it.

use crate::error::Spot;
use crate::ids::{Ids, hash};
use crate::row::Row;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use weir_kernel::Micros;

/// Rows in a full chunk.
pub const ROWS: usize = 512;

/// What is stored of a chunk.
#[derive(Debug, Serialize, Deserialize)]
pub struct Chunk {
    names: Vec<String>,
    base: Spot,
    rows: Vec<Row<u32>>,
}

/// What a chunk holds, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// The place of its first row among all rows.
    pub first: u64,
    /// How many.
    pub rows: u32,
    /// Smallest and largest number of a request.
    pub ids: (u64, u64),
    /// Earliest and latest arrival.
    pub arrived: (Micros, Micros),
    /// Shortest and longest wait.
    pub waited: (Micros, Micros),
    /// The last step that one of them rests on.
    pub last_seq: u64,
    /// Outcomes, by their number on disk.
    pub outcomes: u16,
    /// Reasons, by their number on disk.
    pub reasons: u32,
    /// Regimes at the decision, by their number on disk.
    pub regimes: u8,
    /// Lease ends, by their number on disk.
    pub lease_ends: u8,
    /// Some were revoked.
    pub revoked: bool,
    /// Lowest and highest band.
    pub priorities: (i32, i32),
    /// A filter of flows, objectives and models.
    pub names: [u64; 4],
}

/// The bits of a name in [`Zone::names`].
fn name_bits(name: &str) -> [u64; 4] {
    let mut bits = [0; 4];
    let mut hash = hash(name.as_bytes());
    for _ in 0..2 {
        bits[(hash & 3) as usize] |= 1 << ((hash >> 2) & 63);
        hash >>= 16;
    }
    bits
}

impl Zone {
    /// May one of its rows have this flow, objective or model?
    pub fn may_name(&self, name: &str) -> bool {
        self.names.iter().zip(name_bits(name)).all(|(all, bits)| all & bits == bits)
    }

    fn add(&mut self, row: &Row) {
        let Some(end) = &row.end else { return };
        let first = self.rows == 0;
        self.rows += 1;
        widen(first, &mut self.ids, row.id);
        widen(first, &mut self.arrived, row.arrived_at);
        widen(first, &mut self.waited, end.waited);
        widen(first, &mut self.priorities, row.priority);
        self.outcomes |= 1 << end.outcome as u16;
        self.reasons |= end.reason.map_or(0, |reason| 1 << reason as u32);
        self.regimes |= 1 << end.regime as u8;
        self.last_seq = self.last_seq.max(end.spot.seq);
        if let Some(finish) = row.lease.as_ref().and_then(|lease| lease.end.as_ref()) {
            self.lease_ends |= 1 << finish.end as u8;
            self.last_seq = self.last_seq.max(finish.spot.seq);
        }
        self.revoked |= row.is_revoked();
        for name in [Some(&row.flow), row.objective.as_ref(), row.model.as_ref()].into_iter().flatten() {
            for (word, bits) in self.names.iter_mut().zip(name_bits(name)) {
                *word |= bits;
            }
        }
    }
}

fn widen<T: Ord + Copy>(first: bool, range: &mut (T, T), value: T) {
    *range = if first { (value, value) } else { (range.0.min(value), range.1.max(value)) };
}

impl Chunk {
    /// Packs rows; `first` is the place of the first one among all rows.
    pub fn pack(first: u64, rows: Vec<Row>) -> (Chunk, Zone, Ids) {
        let mut zone = Zone { first, ..Zone::default() };
        rows.iter().for_each(|row| zone.add(row));
        let ids = Ids::of(&rows);
        let base = Spot { seq: zone.ids.0, at: zone.arrived.0 };
        let (mut names, mut known) = (Vec::new(), HashMap::new());
        let rows = rows.into_iter().map(|mut row| {
            row.shift(base, false);
            row.rename(|name: String| match known.get(&name) {
                Some(place) => *place,
                None => {
                    let place = u32::try_from(names.len()).unwrap_or(u32::MAX);
                    names.push(name.clone());
                    known.insert(name, place);
                    place
                }
            })
        });
        let rows = rows.collect();
        (Chunk { names, base, rows }, zone, ids)
    }

    /// The rows as they were.
    pub fn unpack(self) -> impl Iterator<Item = Row> {
        let Chunk { names, base, rows } = self;
        rows.into_iter().map(move |row| {
            let mut row = row.rename(|place| names.get(place as usize).cloned().unwrap_or_default());
            row.shift(base, true);
            row
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{of_caller, of_number};
    use crate::row::{End, Finish, Lease, Queue};
    use weir_kernel::{BudgetSource, LeaseEnd, Outcome, Regime};

    fn row(id: u64) -> Row {
        let spot =
            |after: u64| Spot { seq: id + after, at: Micros(1_764_460_800_000_000 + id * 1_000 + after) };
        let end = End {
            spot: spot(3),
            outcome: Outcome::Dispatched,
            reason: None,
            regime: Regime::HasEndpoints,
            waited: Micros(id * 7),
            budget: None,
            cause: None,
            held_by: None,
            limit: None,
            certain: false,
            retry_after: None,
            raw: None,
            effective: None,
            ceiling: None,
            observed: Some(id.saturating_sub(9)),
            endpoint: Some("10.0.0.1:8000".to_owned()),
        };
        let finish = Finish {
            spot: spot(9),
            end: LeaseEnd::Completed,
            ran: Micros(6),
            cause: None,
            termination: None,
            usage: None,
        };
        Row {
            id,
            arrived_at: spot(0).at,
            received_at: Micros(spot(0).at.0 - 40),
            caller_id: format!("call-{id}"),
            flow: format!("tenant-{}", id % 3),
            objective: id.is_multiple_of(2).then(|| "batch".to_owned()),
            priority: -(id as i32 % 4),
            queue: Some(Queue {
                saturation_budget: Micros(60_000_000),
                no_endpoint_budget: Micros(60_000_000),
                budget_source: BudgetSource::Global,
                header_class: None,
                depth: 4,
            }),
            end: Some(end),
            lease: Some(Lease { first_byte: Some(spot(5)), revocations: vec![], end: Some(finish) }),
            ..Row::default()
        }
    }

    #[test]
    fn rows_come_back_as_they_were_and_the_zone_covers_them() {
        let rows: Vec<Row> = [900, 3, 77, 512, 4].into_iter().map(row).collect();
        let (chunk, zone, ids) = Chunk::pack(10, rows.clone());
        assert_eq!((zone.first, zone.rows, zone.ids, zone.priorities), (10, 5, (3, 900), (-3, 0)));
        assert!(zone.may_name("tenant-0") && zone.may_name("batch"));
        assert_eq!(zone.outcomes, 1 << Outcome::Dispatched as u16);
        assert_eq!(zone.last_seq, 909);
        for row in &rows {
            assert!(ids.may_hold(of_number(row.id)) && ids.may_hold(of_caller(&row.caller_id)));
        }
        let others = (10_000..20_000).filter(|id| ids.may_hold(of_number(*id))).count();
        assert!(others < 100, "{others} of 10,000 pass the filter of five");
        let bytes = crate::db::encode(&chunk);
        let (read, _): (Chunk, usize) =
            bincode::serde::decode_from_slice(&bytes, bincode::config::standard()).unwrap();
        assert_eq!(read.unpack().collect::<Vec<_>>(), rows);
    }
}
