//! Chunks that one question has unpacked: after a request was found, more is asked of it, and of those beside it.
//!
//! Not here: chunks that a question only looks through (`query.rs`).

use crate::row::Row;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

/// Chunks that are kept: some 512 rows each, so a few MB a question at the most.
const CHUNKS: usize = 8;

/// The last chunks, the newest first.
#[derive(Debug, Default)]
pub struct Recent(Mutex<VecDeque<Chunk>>);

#[derive(Debug)]
struct Chunk {
    pool: String,
    first: u64,
    /// From the smallest number of a request to the largest.
    ids: RangeInclusive<u64>,
    rows: Arc<[Row]>,
}

impl Recent {
    /// The row of the request with this number, if it is in one of them.
    pub fn row(&self, pool: &str, id: u64) -> Option<Row> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may = kept.iter().filter(|chunk| chunk.ids.contains(&id) && chunk.pool == pool);
        may.flat_map(|chunk| chunk.rows.iter()).find(|row| row.id == id).cloned()
    }

    /// The rows of a pool's chunk whose first row has this place: those that are kept, else what `unpack` gives.
    ///
    /// # Errors
    /// Those of `unpack`.
    pub fn rows<E>(
        &self,
        pool: &str,
        first: u64,
        unpack: impl FnOnce() -> Result<Arc<[Row]>, E>,
    ) -> Result<Arc<[Row]>, E> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chunk) = kept.iter().find(|chunk| chunk.first == first && chunk.pool == pool) {
            return Ok(chunk.rows.clone());
        }
        let rows = unpack()?;
        kept.truncate(CHUNKS - 1);
        let ids = || rows.iter().map(|row| row.id);
        let ids = ids().min().unwrap_or(u64::MAX)..=ids().max().unwrap_or(0);
        kept.push_front(Chunk { pool: pool.to_owned(), first, ids, rows: rows.clone() });
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_few_are_unpacked_once() {
        let (recent, mut unpacked) = (Recent::default(), Vec::new());
        let mut ask = |pool: &str, first: u64| {
            let rows = recent.rows(pool, first, || {
                unpacked.push((pool.to_owned(), first));
                Ok::<_, ()>(Arc::from([Row { id: first, ..Row::default() }]))
            });
            assert_eq!(rows.unwrap()[0].id, first);
        };
        for first in (0..CHUNKS as u64).chain([0, 3]) {
            ask("chat", first);
        }
        ask("code", 0);
        ask("chat", 3);
        ask("chat", 0);
        let has = |pool, id| recent.row(pool, id).map(|row| row.id);
        assert_eq!(
            (has("chat", 3), has("code", 0), has("code", 3), has("chat", 99)),
            (Some(3), Some(0), None, None)
        );
        let again = unpacked.split_off(CHUNKS);
        assert_eq!(again, [("code".to_owned(), 0), ("chat".to_owned(), 0)], "the oldest made room");
    }
}
