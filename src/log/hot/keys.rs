//! The keys of a hot database.
//!
//! | key | value |
//! |---|---|
//! | 0, pool number (u32) | the pool's name |
//! | 1, pool number, first sequence (u64), part (u16) | a part of a batch |
//! | 1, pool number, first sequence, 65,535 | where its parts are among the pages (`pages.rs`): first (u32), count (u16) |
//! | 2, pool number | where the pool's log ended when this database was begun |
//!
//! Numbers are big-endian, so that keys sort as batches follow each other. A batch has either parts here or a place
//! among the pages, never both.

use crate::chain::Head;
use weir_kernel::Micros;

/// The part number that says where the parts are.
const PLACE: u16 = u16::MAX;

pub(super) const PART_KEY: usize = 15;

const POOL: u8 = 0;
const BATCH: u8 = 1;
const BASE: u8 = 2;

pub(super) fn pool_key(id: u32) -> [u8; 5] {
    short(POOL, id)
}

pub(super) fn base_key(id: u32) -> [u8; 5] {
    short(BASE, id)
}

pub(super) fn part_key(id: u32, seq: u64, part: u16) -> [u8; PART_KEY] {
    let mut key = [BATCH; PART_KEY];
    key[1..5].copy_from_slice(&id.to_be_bytes());
    key[5..13].copy_from_slice(&seq.to_be_bytes());
    key[13..15].copy_from_slice(&part.to_be_bytes());
    key
}

pub(super) fn place_key(id: u32, seq: u64) -> [u8; PART_KEY] {
    part_key(id, seq, PLACE)
}

/// Where the parts of a batch are among the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) first: u32,
    pub(super) count: u16,
}

impl Place {
    pub(super) fn value(self) -> [u8; 6] {
        let mut value = [0; 6];
        value[..4].copy_from_slice(&self.first.to_be_bytes());
        value[4..].copy_from_slice(&self.count.to_be_bytes());
        value
    }

    /// The number after its last page.
    pub(super) fn end(self) -> u32 {
        self.first.saturating_add(u32::from(self.count))
    }
}

/// The place that an entry gives, if it is of that kind.
pub(super) fn place_of(part: u16, value: &[u8]) -> Option<Place> {
    let value: [u8; 6] = value.try_into().ok().filter(|_| part == PLACE)?;
    let [a, b, c, d, e, f] = value;
    Some(Place { first: u32::from_be_bytes([a, b, c, d]), count: u16::from_be_bytes([e, f]) })
}

pub(super) const POOL_PREFIX: [u8; 1] = [POOL];

/// The pool number of a pool or base key.
pub(super) fn id_of(key: &[u8]) -> Option<u32> {
    key.get(1..5)?.try_into().ok().map(u32::from_be_bytes)
}

/// First sequence and part of a part key.
pub(super) fn part_of(key: &[u8]) -> Option<(u64, u16)> {
    if key.len() != PART_KEY {
        return None;
    }
    let seq = u64::from_be_bytes(key.get(5..13)?.try_into().ok()?);
    Some((seq, u16::from_be_bytes(key.get(13..15)?.try_into().ok()?)))
}

fn short(kind: u8, id: u32) -> [u8; 5] {
    let mut key = [kind; 5];
    key[1..5].copy_from_slice(&id.to_be_bytes());
    key
}

pub(super) fn base_value(head: &Head) -> [u8; 48] {
    let mut value = [0; 48];
    value[..8].copy_from_slice(&head.seq.to_be_bytes());
    value[8..16].copy_from_slice(&head.at.0.to_be_bytes());
    value[16..].copy_from_slice(&head.hash);
    value
}

pub(super) fn base_of(value: &[u8]) -> Option<Head> {
    let hash = value.get(16..48)?.try_into().ok()?;
    let word = |at: usize| value.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
    Some(Head { seq: word(0)?, at: Micros(word(8)?), hash })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_batches_follow_and_read_back() {
        let keys = [(1, 9, 0), (1, 9, 1), (1, 10, 0), (1, 256, 0), (1, 1 << 40, 3), (2, 1, 0), (300, 1, 0)];
        for pair in keys.windows(2) {
            let [a, b] = [pair[0], pair[1]].map(|(id, seq, part)| part_key(id, seq, part));
            assert!(a < b, "{pair:?}");
        }
        for (id, seq, part) in keys {
            let key = part_key(id, seq, part);
            assert_eq!((id_of(&key), part_of(&key)), (Some(id), Some((seq, part))));
        }
        let place = Place { first: 70_000, count: 300 };
        assert_eq!(place_of(u16::MAX, &place.value()), Some(place));
        assert_eq!((place_of(0, &place.value()), place_of(u16::MAX, b"frame")), (None, None));
        assert!(place_key(1, 9) > part_key(1, 9, 4) && place_key(1, 9) < part_key(1, 10, 0));
        let head = Head { seq: 7, at: Micros(8), hash: [9; 32] };
        assert_eq!(base_of(&base_value(&head)), Some(head));
        assert_eq!(base_of(&[0; 47]), None);
    }
}
