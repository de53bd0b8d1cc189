//! Which chunk may hold a request: a filter (Bloom) a chunk, and many filters turned on their side, so that a look among
//! all chunks of a group reads a few short records and not every filter.
//!
//! Not here: the chunks (`chunk.rs`) and where the records are kept (`commit.rs`).

use crate::db::{Db, Kind, Writes};
use crate::error::ProjectionError;
use crate::row::Row;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Words of a filter: 2 × 512 entries, 24 bits each.
const WORDS: usize = 384;
const HASHES: u64 = 6;
/// Chunks of a group: half a million requests. A larger one is read in fewer pieces, and until it is full its filters
/// (3 KiB a chunk) are in memory.
pub const GROUP: usize = 1_024;
/// Bytes that hold one bit of every chunk of a group.
const LINE: usize = GROUP / 8;
/// Bits of the filters in one record: 4 KiB of it.
const LINES: usize = 32;
const RECORDS: usize = WORDS * 64 / LINES;

/// Which requests a chunk may hold, by number and by the caller's id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids(Vec<u64>);

/// FNV-1a, spread once more.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

/// Where a filter has the bits of a hash.
fn places(hash: u64) -> impl Iterator<Item = usize> {
    let step = (hash >> 33) | 1;
    (0..HASHES).map(move |turn| (hash.wrapping_add(turn.wrapping_mul(step)) % (WORDS as u64 * 64)) as usize)
}

/// The hash of a request's number.
pub fn of_number(id: u64) -> u64 {
    hash(&id.to_be_bytes())
}

/// The hash of a caller's id.
pub fn of_caller(caller_id: &str) -> u64 {
    hash(caller_id.as_bytes())
}

impl Ids {
    /// Of these rows.
    pub fn of(rows: &[Row]) -> Ids {
        let mut words = vec![0_u64; WORDS];
        let mut set = |hash| {
            for place in places(hash) {
                if let Some(word) = words.get_mut(place / 64) {
                    *word |= 1 << (place % 64);
                }
            }
        };
        for row in rows {
            set(of_number(row.id));
            if !row.caller_id.is_empty() {
                set(of_caller(&row.caller_id));
            }
        }
        Ids(words)
    }

    /// May it hold the one with this hash?
    pub fn may_hold(&self, hash: u64) -> bool {
        places(hash).all(|place| self.0.get(place / 64).is_some_and(|word| word & (1 << (place % 64)) != 0))
    }
}

/// The number of the record of a group that holds this bit of every filter.
const fn record(group: u64, place: usize) -> u64 {
    (group << 16) | (place / LINES) as u64
}

/// The numbers of the records of the groups before this one.
pub const fn records_before(group: u64) -> std::ops::Range<u64> {
    0..group << 16
}

/// Stores the filters of a group.
pub fn put(writes: &mut Writes, pool: &str, group: u64, filters: &[Arc<Ids>]) {
    let mut records = vec![vec![0_u8; LINES * LINE]; RECORDS];
    for (chunk, filter) in filters.iter().enumerate().take(GROUP) {
        for (at, word) in filter.0.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                let place = at * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                if let Some(record) = records.get_mut(place / LINES) {
                    record[place % LINES * LINE + chunk / 8] |= 1 << (chunk % 8);
                }
            }
        }
    }
    for (number, bytes) in records.iter().enumerate() {
        writes.put(pool, Kind::Group, record(group, number * LINES), bytes);
    }
}

/// The chunks of a group that may hold the one with this hash, one bit each; every one of a group that is not there.
///
/// # Errors
/// The database cannot be read.
pub fn holders(db: &Db, pool: &str, group: u64, hash: u64) -> Result<[u8; LINE], ProjectionError> {
    let mut all = [u8::MAX; LINE];
    for place in places(hash) {
        let Some((bytes, _)) = db.bytes(pool, Kind::Group, record(group, place))? else {
            return Ok([u8::MAX; LINE]);
        };
        let line = bytes.get(place % LINES * LINE..).unwrap_or_default();
        for (all, line) in all.iter_mut().zip(line) {
            *all &= line;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(chunk: u64) -> Vec<Row> {
        let row = |n| Row { id: chunk * 1_000 + n, caller_id: format!("call-{chunk}-{n}"), ..Row::default() };
        (0..512).map(row).collect()
    }

    #[test]
    fn a_group_knows_the_chunk_of_every_request_and_seldom_takes_another_for_it() {
        let filters: Vec<Arc<Ids>> = (0..GROUP as u64).map(|chunk| Arc::new(Ids::of(&rows(chunk)))).collect();
        let db = Db::temporary().unwrap();
        let mut writes = Writes::default();
        put(&mut writes, "chat", 3, &filters);
        db.write(writes).unwrap();
        let has = |bits: [u8; LINE], chunk: usize| bits[chunk / 8] & (1 << (chunk % 8)) != 0;
        let (mut others, mut asked) = (0_usize, 0);
        for chunk in (0..GROUP).step_by(7) {
            for n in (0..512).step_by(37) {
                for hash in [of_number(chunk as u64 * 1_000 + n), of_caller(&format!("call-{chunk}-{n}"))] {
                    let bits = holders(&db, "chat", 3, hash).unwrap();
                    assert!(has(bits, chunk) && filters[chunk].may_hold(hash));
                    let found = (0..GROUP).filter(|other| has(bits, *other)).count();
                    let filtered = filters.iter().filter(|filter| filter.may_hold(hash)).count();
                    assert_eq!(found, filtered);
                    (others, asked) = (others + found - 1, asked + 1);
                }
            }
        }
        assert!(others * 10 < asked * 4, "{others} others for {asked}");
        assert_eq!(holders(&db, "chat", 4, 1).unwrap(), [u8::MAX; LINE]);
    }
}
