//! The database of the read models: one sled tree, records under (pool, kind, number), large ones in parts.
//!
//! What a batch of writes holds is there as a whole or not at all, whatever happens to the process. A call into sled
//! may panic on damage; `guarded` turns that into an error. Not here: what the records mean.

use crate::anew::Anew;
use crate::error::ProjectionError;
use serde::{Serialize, de::DeserializeOwned};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use weir_log::sled_open::open_let_go;

/// The version of what is stored. Any other is thrown away and folded again from the log.
pub const FORMAT: u32 = 3;

/// Bytes of one value: a leaf of sled holds up to 16, and beyond 128 KiB it would become a file of its own.
const PART: usize = 7_000;

const META: &[u8] = b"\0meta";

/// What a record is. Bytes are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Where the fold is, and what it has not written elsewhere.
    Checkpoint = b'k',
    /// Rows of ended requests.
    Chunk = b'c',
    /// What a chunk holds, in short.
    Zone = b'z',
    /// Which requests a chunk holds: a filter, until its group is full.
    Ids = b'i',
    /// The filters of many chunks, on their side.
    Group = b'g',
    /// Notes.
    Notes = b'n',
    /// What a chunk of notes holds, in short.
    NoteZone = b'm',
    /// Ten seconds.
    Fine = b'b',
    /// Ten minutes.
    Coarse = b'B',
    /// A regime began.
    Regime = b'r',
    /// A reclamation decision.
    Reclamation = b'l',
    /// A revocation that has ended.
    Revocation = b'v',
    /// Settings that came into force.
    Policy = b'f',
    /// An episode that is over.
    Episode = b'e',
    /// The state after a step.
    State = b's',
    /// Who was admitted next where a budget had ended.
    Next = b'x',
}

/// A batch of writes.
#[derive(Debug, Default)]
pub struct Writes {
    batch: sled::Batch,
    /// Bytes of keys and values in it.
    pub bytes: u64,
}

/// The open database.
#[derive(Debug)]
pub struct Db {
    db: sled::Db,
    path: PathBuf,
}

/// Removes the database there, if there is one.
///
/// # Errors
/// The directory cannot be removed.
pub fn remove(path: &Path) -> Result<(), ProjectionError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ProjectionError::store(path, error))
        }
        _ => Ok(()),
    }
}

fn prefix(pool: &str, kind: Kind) -> Vec<u8> {
    let mut key = of_pool(pool);
    key.push(kind as u8);
    key
}

fn of_pool(pool: &str) -> Vec<u8> {
    // Names of pools are at most 255 bytes (weir-log holds that).
    let mut key = Vec::with_capacity(pool.len() + 12);
    key.push(u8::try_from(pool.len()).unwrap_or(u8::MAX));
    key.extend_from_slice(pool.as_bytes());
    key
}

fn key(pool: &str, kind: Kind, number: u64, part: u16) -> Vec<u8> {
    let mut key = prefix(pool, kind);
    key.extend_from_slice(&number.to_be_bytes());
    key.extend_from_slice(&part.to_be_bytes());
    key
}

/// Number and part of a key.
fn parsed(key: &[u8]) -> Option<(u64, u16)> {
    let (rest, part) = key.split_last_chunk::<2>()?;
    let (_, number) = rest.split_last_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), u16::from_be_bytes(*part)))
}

/// Encodes a record.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Types of numbers, strings and sequences always encode; an empty record would be found when it is read.
    bincode::serde::encode_to_vec(value, bincode::config::standard()).unwrap_or_default()
}

impl Writes {
    /// Stores a record, in as many parts as it takes; gives how many.
    pub fn put(&mut self, pool: &str, kind: Kind, number: u64, bytes: &[u8]) -> u16 {
        let mut parts = 0;
        for chunk in bytes.chunks(PART) {
            self.bytes += chunk.len() as u64 + pool.len() as u64 + 12;
            self.batch.insert(key(pool, kind, number, parts), chunk);
            parts += 1;
        }
        parts
    }

    /// Removes parts of a record.
    pub fn remove(&mut self, pool: &str, kind: Kind, number: u64, parts: std::ops::Range<u16>) {
        for part in parts {
            self.batch.remove(key(pool, kind, number, part));
        }
    }
}

impl Db {
    /// Opens the database there, of the log with this id; and why it was made anew, if it was.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn open(path: &Path, log_id: &str) -> Result<(Db, Option<Anew>), ProjectionError> {
        let is_there = std::fs::read_dir(path).is_ok_and(|mut files| files.next().is_some());
        let why = match is_there.then(|| Db::open_sled(path, false)) {
            None => Anew::None,
            Some(Ok(db)) => match Anew::of_meta(db.meta().as_deref(), log_id) {
                None => return Ok((db, None)),
                Some(why) => why,
            },
            Some(Err(error)) => Anew::Unreadable(error.to_string()),
        };
        Db::make_anew(path, &format!("{FORMAT} {log_id}")).map(|db| (db, Some(why)))
    }

    /// A database that is gone with the process, for a log in memory.
    ///
    /// # Errors
    /// No place for temporary files.
    pub fn temporary() -> Result<Db, ProjectionError> {
        Db::open_sled(Path::new("(temporary)"), true)
    }

    fn make_anew(path: &Path, meta: &str) -> Result<Db, ProjectionError> {
        remove(path)?;
        let db = Db::open_sled(path, false)?;
        db.guarded(|db| db.insert(META, meta.as_bytes()))?;
        db.flush()?;
        Ok(db)
    }

    fn open_sled(path: &Path, temporary: bool) -> Result<Db, ProjectionError> {
        let config = sled::Config::new().cache_capacity(32 << 20).flush_every_ms(Some(1_000));
        let config = if temporary { config.temporary(true) } else { config.path(path) };
        let opened = catch_unwind(AssertUnwindSafe(|| open_let_go(&config, || Ok::<_, sled::Error>(()))));
        let opened = opened.map_err(|_| ProjectionError::store(path, "sled does not open it"))?;
        let db = opened.map_err(|error| ProjectionError::store(path, error))?;
        Ok(Db { db, path: path.to_owned() })
    }

    fn meta(&self) -> Option<Vec<u8>> {
        self.guarded(|db| db.get(META)).ok().flatten().map(|value| value.to_vec())
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes on disk.
    pub fn size(&self) -> u64 {
        self.db.size_on_disk().unwrap_or_default()
    }

    fn guarded<T>(&self, call: impl FnOnce(&sled::Db) -> sled::Result<T>) -> Result<T, ProjectionError> {
        let called = catch_unwind(AssertUnwindSafe(|| call(&self.db)));
        let called = called.map_err(|_| ProjectionError::Damaged {
            path: self.path.clone(),
            what: "the database".to_owned(),
            error: "sled gave up".to_owned(),
        })?;
        called.map_err(|error| ProjectionError::store(&self.path, error))
    }

    /// Writes a batch, whole or not at all.
    ///
    /// # Errors
    /// What sled says.
    pub fn write(&self, writes: Writes) -> Result<(), ProjectionError> {
        self.guarded(|db| db.apply_batch(writes.batch))
    }

    /// Hands everything to the system.
    ///
    /// # Errors
    /// What sled says.
    pub fn flush(&self) -> Result<(), ProjectionError> {
        self.guarded(|db| db.flush().map(|_| ()))
    }

    /// The bytes of a record; none if it is not there.
    ///
    /// # Errors
    /// What sled says.
    pub fn bytes(
        &self,
        pool: &str,
        kind: Kind,
        number: u64,
    ) -> Result<Option<(Vec<u8>, u16)>, ProjectionError> {
        self.guarded(|db| {
            let (mut found, mut parts) = (None, 0);
            for item in db.scan_prefix(&key(pool, kind, number, 0)[..pool.len() + 10]) {
                let (_, value) = item?;
                found.get_or_insert_with(Vec::new).extend_from_slice(&value);
                parts += 1;
            }
            Ok(found.map(|bytes| (bytes, parts)))
        })
    }

    /// A record; none if it is not there.
    ///
    /// # Errors
    /// What sled says; a record that does not decode.
    pub fn get<T: DeserializeOwned>(
        &self,
        pool: &str,
        kind: Kind,
        number: u64,
    ) -> Result<Option<T>, ProjectionError> {
        let Some((bytes, _)) = self.bytes(pool, kind, number)? else { return Ok(None) };
        self.decode(kind, number, &bytes).map(Some)
    }

    fn decode<T: DeserializeOwned>(
        &self,
        kind: Kind,
        number: u64,
        bytes: &[u8],
    ) -> Result<T, ProjectionError> {
        let decoded = bincode::serde::decode_from_slice(bytes, bincode::config::standard());
        decoded.map(|(value, _)| value).map_err(|error| ProjectionError::Damaged {
            path: self.path.clone(),
            what: format!("{kind:?} {number}"),
            error: error.to_string(),
        })
    }

    /// Gives the records of a kind with these numbers, in their order, until `take` has enough and says false.
    ///
    /// # Errors
    /// What sled says; a record that does not decode; what `take` says.
    pub fn range<T: DeserializeOwned>(
        &self,
        pool: &str,
        kind: Kind,
        numbers: std::ops::RangeInclusive<u64>,
        mut take: impl FnMut(u64, T) -> Result<bool, ProjectionError>,
    ) -> Result<(), ProjectionError> {
        let mut next = *numbers.start();
        // By the handful: sled's iterator is not held while `take` works.
        loop {
            let records = self.some(pool, kind, next, *numbers.end())?;
            let Some((last, _)) = records.last() else { return Ok(()) };
            let last = *last;
            for (number, bytes) in records {
                if !take(number, self.decode(kind, number, &bytes)?)? {
                    return Ok(());
                }
            }
            if last == *numbers.end() {
                return Ok(());
            }
            next = last + 1;
        }
    }

    /// The next records, at most 256 of them.
    fn some(
        &self,
        pool: &str,
        kind: Kind,
        from: u64,
        to: u64,
    ) -> Result<Vec<(u64, Vec<u8>)>, ProjectionError> {
        if from > to {
            return Ok(Vec::new());
        }
        self.guarded(|db| {
            let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
            for item in db.range(key(pool, kind, from, 0)..=key(pool, kind, to, u16::MAX)) {
                let (key, value) = item?;
                let Some((number, _)) = parsed(&key) else { continue };
                let full = records.len() == 256;
                match records.last_mut() {
                    Some((last, bytes)) if *last == number => bytes.extend_from_slice(&value),
                    _ if full => break,
                    _ => records.push((number, value.to_vec())),
                }
            }
            Ok(records)
        })
    }

    /// The first and the last number of a kind.
    ///
    /// # Errors
    /// What sled says.
    pub fn ends(&self, pool: &str, kind: Kind) -> Result<Option<(u64, u64)>, ProjectionError> {
        self.guarded(|db| {
            let mut range = db.scan_prefix(prefix(pool, kind)).keys();
            let (first, last) = (range.next().transpose()?, range.next_back().transpose()?);
            let number = |key: &sled::IVec| parsed(key).map(|(number, _)| number);
            let Some(first) = first.as_ref().and_then(number) else { return Ok(None) };
            Ok(Some((first, last.as_ref().and_then(number).unwrap_or(first))))
        })
    }

    /// How many parts a record has.
    ///
    /// # Errors
    /// What sled says.
    pub fn parts(&self, pool: &str, kind: Kind, number: u64) -> Result<u16, ProjectionError> {
        let prefix = &key(pool, kind, number, 0)[..pool.len() + 10];
        self.guarded(|db| Ok(db.scan_prefix(prefix).keys().filter_map(Result::ok).count()))
            .map(|parts| u16::try_from(parts).unwrap_or(u16::MAX))
    }

    /// Removes the records of a kind with these numbers.
    ///
    /// # Errors
    /// What sled says.
    pub fn clear(
        &self,
        pool: &str,
        kind: Kind,
        numbers: std::ops::RangeInclusive<u64>,
    ) -> Result<(), ProjectionError> {
        let range = key(pool, kind, *numbers.start(), 0)..=key(pool, kind, *numbers.end(), u16::MAX);
        self.clear_keys(|db| db.range(range.clone()))
    }

    /// Removes all records of a pool.
    ///
    /// # Errors
    /// What sled says.
    pub fn clear_pool(&self, pool: &str) -> Result<(), ProjectionError> {
        self.clear_keys(|db| db.scan_prefix(of_pool(pool)))
    }

    fn clear_keys(&self, records: impl Fn(&sled::Db) -> sled::Iter) -> Result<(), ProjectionError> {
        loop {
            let keys = self.guarded(|db| records(db).keys().take(4_096).collect::<sled::Result<Vec<_>>>())?;
            if keys.is_empty() {
                return Ok(());
            }
            let mut batch = sled::Batch::default();
            keys.into_iter().for_each(|key| batch.remove(key));
            self.guarded(|db| db.apply_batch(batch))?;
        }
    }

    /// The largest number of a record of a kind that is not above this; none if there is none.
    ///
    /// # Errors
    /// What sled says.
    pub fn last_to(&self, pool: &str, kind: Kind, number: u64) -> Result<Option<u64>, ProjectionError> {
        let range = key(pool, kind, 0, 0)..=key(pool, kind, number, u16::MAX);
        self.guarded(|db| db.range(range).keys().next_back().transpose())
            .map(|key| key.and_then(|key| parsed(&key)).map(|(number, _)| number))
    }

    /// Gives the numbers of the records of a kind within a range, in order.
    ///
    /// # Errors
    /// What sled says.
    pub fn numbers(
        &self,
        pool: &str,
        kind: Kind,
        numbers: std::ops::RangeInclusive<u64>,
        mut take: impl FnMut(u64),
    ) -> Result<(), ProjectionError> {
        let range = key(pool, kind, *numbers.start(), 0)..=key(pool, kind, *numbers.end(), u16::MAX);
        self.guarded(|db| {
            for found in db.range(range).keys() {
                if let Some((number, 0)) = parsed(&found?) {
                    take(number);
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_is_cleared_leaves_the_others_as_they_are() {
        let db = Db::temporary().unwrap();
        let kinds = [Kind::Checkpoint, Kind::Chunk, Kind::Next, Kind::State];
        let mut writes = Writes::default();
        for pool in ["a", "ab", "b"] {
            kinds.iter().for_each(|kind| {
                writes.put(pool, *kind, 7, &[1; 9_000]);
            });
        }
        db.write(writes).unwrap();
        db.clear_pool("a").unwrap();
        for (pool, wanted) in [("a", None), ("ab", Some(2)), ("b", Some(2))] {
            for kind in kinds {
                let found = db.bytes(pool, kind, 7).unwrap().map(|(_, parts)| parts);
                assert_eq!(found, wanted, "{pool} {kind:?}");
            }
        }
    }

    #[test]
    fn a_database_that_is_made_anew_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("projections");
        let open = |id: &str| Db::open(&path, id).unwrap().1;
        let write = |meta: Option<&str>| {
            let db = Db::open_sled(&path, false).unwrap();
            db.guarded(|db| match meta {
                Some(meta) => db.insert(META, meta).map(|_| ()),
                None => db.clear(),
            })
            .unwrap();
            db.flush().unwrap();
        };
        assert_eq!(open("one"), Some(Anew::None));
        assert_eq!(open("one"), None);
        let other = Anew::OtherLog { found: "one".to_owned(), wanted: "two".to_owned() };
        assert_eq!(open("two"), Some(other));
        write(Some("2 two"));
        let why = open("two").unwrap();
        assert_eq!(why, Anew::Format { found: "2".to_owned() });
        assert!(why.to_string().ends_with(&format!("are of format 2, wanted is format {FORMAT}")), "{why}");
        write(None);
        assert_eq!(open("two"), Some(Anew::Cut));
        assert_eq!(open("two"), None);
        std::fs::write(path.join("db"), vec![7; 1 << 20]).unwrap();
        std::fs::write(path.join("conf"), "none").unwrap();
        let why = open("two");
        assert!(matches!(why, Some(Anew::Unreadable(_))), "{why:?}");
        assert_eq!(open("two"), None);
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(open("two"), Some(Anew::None), "an empty directory holds none");
    }
}
