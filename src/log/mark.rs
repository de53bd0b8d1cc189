//! The high-water mark: a small file that says how far the log was durable, beside the database and apart from it.
//!
//! Two slots are written in turn, each with a checksum, and each is synced before the other is touched: whatever a
//! loss of power tears, one of them is whole. It is written at the same time as the database, by a thread of its own
//! (`keeper.rs`), and says for each pool which batch was known to be durable and which was on its way. So a database
//! that opens with acknowledged batches missing is found out, while one that lacks only the batch on its way is fine.

use crate::chain::Head;
use crate::error::LogError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_kernel::Micros;

const MAGIC: [u8; 4] = *b"WMRK";
/// Magic, length, checksum.
const FIXED: usize = 12;
/// Room for more than a thousand pools; only what is used is written.
const SLOT: usize = 256 << 10;

/// What was known when the mark was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The newest generation of the hot window that a batch was committed to; 0 = none yet.
    pub generation: u32,
    /// Per pool: the head that was durable, and the one that was on its way (equal when nothing was).
    pub pools: BTreeMap<Arc<str>, (Head, Head)>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    turn: u64,
    generation: u32,
    pools: Vec<(String, [StoredHead; 2])>,
}

type StoredHead = (u64, u64, [u8; 32]);

fn stored(head: &Head) -> StoredHead {
    (head.seq, head.at.0, head.hash)
}

fn head(stored: StoredHead) -> Head {
    Head { seq: stored.0, at: Micros(stored.1), hash: stored.2 }
}

/// The open file.
#[derive(Debug)]
pub struct MarkFile {
    file: File,
    path: PathBuf,
    turn: u64,
}

/// Writes a new mark file (by rename, so that it is there whole or not at all).
///
/// # Errors
/// What the system says.
pub fn create(path: &Path, mark: &Mark) -> Result<(), LogError> {
    let mut content = encode(path, mark, 0)?;
    content.resize(2 * SLOT, 0);
    crate::dir::replace_file(path, &content)
}

/// Reads the mark without holding it.
///
/// # Errors
/// [`LogError::Mark`] if neither slot is whole, or what the system says.
pub fn read(path: &Path) -> Result<Mark, LogError> {
    MarkFile::open(path).map(|(_, mark)| mark)
}

impl MarkFile {
    /// Opens the mark and reads the later of its two slots.
    ///
    /// # Errors
    /// As [`read`].
    pub fn open(path: &Path) -> Result<(MarkFile, Mark), LogError> {
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    LogError::Mark { path: path.to_owned(), error: "it is missing".to_owned() }
                }
                _ => LogError::io("open", path, &error),
            })?;
        let mut best: Option<(u64, Mark)> = None;
        let mut faults = Vec::new();
        for slot in 0..2 {
            match read_slot(&file, slot) {
                Ok((turn, mark)) if best.as_ref().is_none_or(|(newest, _)| turn > *newest) => {
                    best = Some((turn, mark));
                }
                Ok(_) => {}
                Err(fault) => faults.push(fault),
            }
        }
        match best {
            Some((turn, mark)) => Ok((MarkFile { file, path: path.to_owned(), turn }, mark)),
            None => Err(LogError::Mark { path: path.to_owned(), error: faults.join("; ") }),
        }
    }

    /// Writes the next slot and syncs it.
    ///
    /// # Errors
    /// What the system says; more pools than a slot has room for.
    pub fn write(&mut self, mark: &Mark) -> Result<(), LogError> {
        let turn = self.turn + 1;
        let content = encode(&self.path, mark, turn)?;
        self.file
            .write_all_at(&content, (turn % 2) * SLOT as u64)
            .and_then(|()| self.file.sync_data())
            .map_err(|error| LogError::io("write", &self.path, &error))?;
        self.turn = turn;
        Ok(())
    }
}

fn encode(path: &Path, mark: &Mark, turn: u64) -> Result<Vec<u8>, LogError> {
    let pools = mark
        .pools
        .iter()
        .map(|(pool, (durable, coming))| (pool.to_string(), [stored(durable), stored(coming)]))
        .collect();
    let value = Stored { turn, generation: mark.generation, pools };
    let mut content = vec![0; FIXED];
    let fault = |error| LogError::Mark { path: path.to_owned(), error };
    weir_migrations::to_bytes(&value, &mut content).map_err(fault)?;
    if content.len() > SLOT {
        return Err(fault(format!("{} pools are more than it has room for", mark.pools.len())));
    }
    let len = (content.len() - FIXED) as u32;
    content[0..4].copy_from_slice(&MAGIC);
    content[4..8].copy_from_slice(&len.to_le_bytes());
    let crc = crc32fast::hash(&content[FIXED..]);
    content[8..12].copy_from_slice(&crc.to_le_bytes());
    Ok(content)
}

fn read_slot(file: &File, slot: u64) -> Result<(u64, Mark), String> {
    let at = slot * SLOT as u64;
    let mut fixed = [0; FIXED];
    file.read_exact_at(&mut fixed, at).map_err(|error| format!("slot {slot}: {error}"))?;
    if fixed[..4] != MAGIC {
        return Err(format!("slot {slot} does not begin with WMRK"));
    }
    let word = |at: usize| fixed[at..at + 4].iter().rev().fold(0u32, |n, byte| n << 8 | u32::from(*byte));
    let (len, crc) = (word(4) as usize, word(8));
    if len > SLOT - FIXED {
        return Err(format!("slot {slot} has a length of {len}"));
    }
    let mut content = vec![0; len];
    file.read_exact_at(&mut content, at + FIXED as u64).map_err(|error| format!("slot {slot}: {error}"))?;
    if crc32fast::hash(&content) != crc {
        return Err(format!("slot {slot} has a wrong checksum"));
    }
    let value: Stored =
        weir_migrations::from_bytes(&content).map_err(|fault| format!("slot {slot}: {fault}"))?;
    let pools = value
        .pools
        .into_iter()
        .map(|(pool, [durable, coming])| (Arc::from(pool), (head(durable), head(coming))))
        .collect();
    Ok((value.turn, Mark { generation: value.generation, pools }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(seq: u64) -> Mark {
        let head = |seq| Head { seq, at: Micros(seq * 10), hash: [seq as u8; 32] };
        let pools = ["a", "b"].map(|pool| (Arc::from(pool), (head(seq), head(seq + 1))));
        Mark { generation: 3, pools: BTreeMap::from(pools) }
    }

    #[test]
    fn the_later_slot_counts_and_either_may_be_torn() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        create(&path, &Mark::default()).unwrap();
        let (mut file, first) = MarkFile::open(&path).unwrap();
        assert_eq!(first, Mark::default());
        for seq in 1..6 {
            file.write(&mark(seq)).unwrap();
            assert_eq!(read(&path).unwrap(), mark(seq));
        }
        let whole = std::fs::read(&path).unwrap();
        for byte in [0, 5, 9, 30, 100] {
            let mut torn = whole.clone();
            torn[SLOT + byte] ^= 0x40; // Turn 5 stands in slot 1.
            std::fs::write(&path, &torn).unwrap();
            assert_eq!(read(&path).unwrap(), mark(4), "byte {byte}");
            torn[byte] ^= 0x40;
            std::fs::write(&path, &torn).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("slot 0") && error.contains("slot 1"), "{error}");
        }
        let (mut file, _) = {
            std::fs::write(&path, &whole).unwrap();
            MarkFile::open(&path).unwrap()
        };
        file.write(&mark(9)).unwrap();
        assert_eq!(read(&path).unwrap(), mark(9), "the turn goes on where it was");
    }

    #[test]
    fn a_thousand_pools_fit_and_too_many_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        create(&path, &Mark::default()).unwrap();
        let (mut file, _) = MarkFile::open(&path).unwrap();
        let many = |count: u32| Mark {
            generation: 1,
            pools: (0..count)
                .map(|n| {
                    (
                        Arc::from(format!("{n:0>128}")),
                        (Head { seq: u64::MAX, ..Head::default() }, Head::default()),
                    )
                })
                .collect(),
        };
        file.write(&many(1_000)).unwrap();
        assert_eq!(read(&path).unwrap(), many(1_000));
        assert!(file.write(&many(2_000)).is_err());
        assert_eq!(read(&path).unwrap(), many(1_000));
    }
}
