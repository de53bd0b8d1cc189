//! The keys of a hot database, and how a batch is cut into values.
//!
//! sled keeps a leaf of up to 16 values in its file only while they are under 128 KiB together; beyond that it opens a
//! file per value. Hence parts of 6,000 bytes.
//!
//! | key | value |
//! |---|---|
//! | 0, pool number (u32) | the pool's name |
//! | 1, pool number, first sequence (u64), part (u16) | a part of a batch |
//! | 2, pool number | where the pool's log ended when this database was begun |
//!
//! Numbers are big-endian, so that keys sort as batches follow each other.

use crate::chain::Head;
use weir_kernel::Micros;

/// Bytes in a part; the last one is shorter.
pub(super) const PART: usize = 6_000;

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
        let head = Head { seq: 7, at: Micros(8), hash: [9; 32] };
        assert_eq!(base_of(&base_value(&head)), Some(head));
        assert_eq!(base_of(&[0; 47]), None);
    }
}
