//! Where the parts of larger batches lie: a tree of sled whose leaves are made before they are filled.
//!
//! sled rewrites a leaf whole when it splits (more than 16 entries) and after ten changes, so a tree that only grows at
//! its right edge writes every value three to five times. Here a leaf is first filled with nine empty entries
//! (*fences*), which are cheap to rewrite, and split off by the fences that follow. Then it takes seven values: too few
//! for another split or rewrite. So each value is written once: measured at 55 kB a commit, half the bytes and two
//! thirds of the time.
//!
//! | key | value |
//! |---|---|
//! | leaf (u32), 0 to 6 | a part of a batch |
//! | leaf (u32), 16 to 24 | nothing: a fence |

use super::keys::Place;
use std::sync::atomic::{AtomicU32, Ordering};

const TREE: &str = "pages";
/// Bytes in a page; the last of a batch is shorter. Seven of them are under the 128 KiB beyond which sled would open a
/// file per value if it rewrote the leaf after all.
const PAGE: usize = 16_000;
const PER_LEAF: u32 = 7;
const FENCES: u8 = 9;
const FENCE: u8 = 16;
/// A leaf is split off once there are fences for the next two.
const AHEAD: u32 = 2;

/// The pages of one database.
pub(super) struct Pages {
    tree: sled::Tree,
    next: AtomicU32,
    /// Leaves whose fences stand.
    fenced: AtomicU32,
}

impl Pages {
    /// Opens the tree or makes it. Pages of a batch that was on its way when the writing ended are left unused.
    pub(super) fn open(db: &sled::Db) -> sled::Result<Pages> {
        let tree = db.open_tree(TREE)?;
        // The fences of the last leaf may be cut off: they are put up again.
        let fenced = tree.last()?.and_then(|(key, _)| leaf_and_entry(&key)).map_or(0, |(leaf, _)| leaf);
        let mut next = 0;
        for entry in tree.iter().rev() {
            // Behind the last page there are only the fences of a few leaves.
            if let Some((leaf, entry)) = leaf_and_entry(&entry?.0)
                && entry < FENCE
            {
                next = leaf.saturating_mul(PER_LEAF).saturating_add(u32::from(entry) + 1);
                break;
            }
        }
        let pages = Pages { tree, next: AtomicU32::new(next), fenced: AtomicU32::new(fenced) };
        pages.fence(next / PER_LEAF + AHEAD)?;
        Ok(pages)
    }

    /// Writes a batch and says where it is. The caller notes the place after it: a place is never there without its
    /// pages. Called by one thread at a time.
    pub(super) fn put(&self, bytes: &[u8]) -> sled::Result<Option<Place>> {
        let first = self.next.load(Ordering::Relaxed);
        let (Ok(count), Some(_)) =
            (u16::try_from(bytes.len().div_ceil(PAGE)), first.checked_add(u32::from(u16::MAX)))
        else {
            return Ok(None);
        };
        for (page, chunk) in (first..).zip(bytes.chunks(PAGE)) {
            self.fence(page / PER_LEAF + AHEAD)?;
            self.tree.insert(key(page), chunk)?;
        }
        let place = Place { first, count };
        self.next.store(place.end(), Ordering::Relaxed);
        Ok(Some(place))
    }

    /// The bytes at a place, up to the first page that is missing.
    pub(super) fn get(&self, place: Place) -> sled::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::from(place.count) * PAGE);
        for page in place.first..place.end() {
            let Some(chunk) = self.tree.get(key(page))? else { break };
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Puts up the fences of all leaves up to this one.
    fn fence(&self, upto: u32) -> sled::Result<()> {
        while self.fenced.load(Ordering::Relaxed) <= upto {
            let leaf = self.fenced.load(Ordering::Relaxed);
            for fence in FENCE..FENCE + FENCES {
                self.tree.insert(in_leaf(leaf, fence), &[][..])?;
            }
            self.fenced.store(leaf + 1, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn key(page: u32) -> [u8; 5] {
    in_leaf(page / PER_LEAF, (page % PER_LEAF) as u8)
}

fn leaf_and_entry(key: &[u8]) -> Option<(u32, u8)> {
    let [a, b, c, d, entry] = key.try_into().ok()?;
    Some((u32::from_be_bytes([a, b, c, d]), entry))
}

fn in_leaf(leaf: u32, entry: u8) -> [u8; 5] {
    let [a, b, c, d] = leaf.to_be_bytes();
    [a, b, c, d, entry]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &std::path::Path) -> sled::Db {
        let config = sled::Config::new().path(path).flush_every_ms(None);
        crate::sled_open::open_let_go(&config, || Ok::<_, sled::Error>(())).unwrap()
    }

    /// Bytes that do not repeat.
    fn bytes(seed: u32, len: usize) -> Vec<u8> {
        (0..len as u32).map(|n| ((n ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    #[test]
    fn what_is_written_is_read_and_goes_on_after_opening_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut places, mut next) = (Vec::new(), 0);
        for round in 0..4 {
            let db = open(dir.path());
            let pages = Pages::open(&db).unwrap();
            for (seed, len) in [(1, 1), (2, PAGE - 1), (3, PAGE), (4, PAGE + 1), (5, 9 * PAGE), (6, 200_000)]
            {
                let content = bytes(seed + 10 * round, len);
                let place = pages.put(&content).unwrap().unwrap();
                assert_eq!(place.first, next);
                next = place.end();
                places.push((place, content));
            }
            for (place, content) in &places {
                assert!(pages.get(*place).unwrap() == *content, "{place:?} in round {round}");
            }
        }
    }

    #[test]
    fn a_missing_page_ends_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let pages = Pages::open(&db).unwrap();
        let content = bytes(7, 3 * PAGE);
        let place = pages.put(&content).unwrap().unwrap();
        pages.tree.remove(key(place.first + 1)).unwrap();
        assert_eq!(pages.get(place).unwrap(), content[..PAGE]);
    }

    #[test]
    fn each_value_is_written_about_once() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let pages = Pages::open(&db).unwrap();
        let mut written = 0;
        for seed in 0..600 {
            let content = bytes(seed, 20_000 + (seed as usize * 577) % 50_000);
            written += content.len() as u64;
            pages.put(&content).unwrap();
            db.flush().unwrap();
        }
        let stored = dir.path().join("db").metadata().unwrap().len();
        assert!(stored < written / 10 * 12, "{written} bytes take {stored} in the file");
        let blobs = std::fs::read_dir(dir.path().join("blobs")).map_or(0, Iterator::count);
        assert_eq!(blobs, 0);
    }
}
