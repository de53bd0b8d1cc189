//! Tables by numbers that a log gives out: one multiplication in place of a hash that withstands an attack.
//!
//! Sequences are given out by the service one after another, so nobody can choose them to collide. With a hash that is the
//! same in each run, the order of a table is too.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A table by number.
pub type Table<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;
/// A set of numbers.
pub type Numbers<K> = HashSet<K, BuildHasherDefault<Mix>>;

/// Multiplies by an odd constant (the golden ratio's) and lets the high bits, which depend on all, come down.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    #[test]
    fn consecutive_numbers_lie_apart_in_low_and_in_high_bits() {
        let hash = |n: u64| BuildHasherDefault::<Mix>::default().hash_one(n);
        let low: BTreeSet<u64> = (0..1_000).map(|n| hash(n) & 0xffff).collect();
        let high: BTreeSet<u64> = (0..1_000).map(|n| hash(n) >> 48).collect();
        assert!(low.len() > 900 && high.len() > 900, "{} {}", low.len(), high.len());
        let table: Table<u64, u64> = (0..1_000).map(|n| (n << 20, n)).collect();
        assert_eq!(table.get(&(7 << 20)), Some(&7));
    }
}
