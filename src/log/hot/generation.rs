//! One database of the hot window: batches in sled, small ones whole, larger ones cut into pages.
//!
//! `flush` of sled does not reach the disk by itself on Linux, so a data sync of its file follows each (`sync`). Every
//! call into sled may panic on damage; none of these panics leaves this file.

use super::ground;
use super::keys;
use super::pages::Pages;
use super::quiet::caught;
use super::snapshots;
use crate::chain::Head;
use crate::error::LogError;
use crate::frame::Frame;
use crate::header::FrameHeader;
use crate::sled_open::open_let_go;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// A batch of at most so many bytes is one value beside the keys: sled writes it some four times, which costs less than
/// a page and the entry that says where it is.
const WHOLE_MAX: usize = 2_000;

struct Opened {
    db: sled::Db,
    pages: Pages,
    /// A second handle of sled's file, for the real sync.
    file: File,
    /// Bytes of the file that are known to be in use.
    used: AtomicU64,
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.close();
    }
}

/// What a generation holds of one pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    id: u32,
    /// First and last sequence of its batches; 0 = none.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Where the pool's log ended when the generation was begun.
    pub(super) base: Option<Head>,
}

/// A database, open unless an error closed it.
pub(super) struct Generation {
    pub(super) number: u32,
    path: PathBuf,
    open: RwLock<Option<Opened>>,
    held: RwLock<BTreeMap<Arc<str>, Held>>,
    /// Bytes that were in use when it was opened.
    found: u64,
    /// Its file was made as long as it will be.
    laid: AtomicBool,
}

/// What there is of a batch that was on its way when the writing ended.
pub(super) struct TornBatch {
    pool: Arc<str>,
    id: u32,
    seq: u64,
}

/// A batch as found: whole, or with parts missing.
enum Piece {
    Whole(Frame),
    Torn(u64),
}

impl Generation {
    /// Opens the database at the path, or creates it, and reads which pools it knows.
    pub(super) fn open(path: &Path, number: u32, cache_bytes: u64) -> Result<Generation, LogError> {
        let opened = open_sled(path, cache_bytes)?;
        let found = opened.used.load(Ordering::Relaxed);
        let generation = Generation {
            number,
            path: path.to_owned(),
            held: RwLock::new(BTreeMap::new()),
            open: RwLock::new(Some(opened)),
            found,
            laid: AtomicBool::new(false),
        };
        let held = generation.with(|opened| read_pools(&opened.db))?;
        *write(&generation.held) = held;
        Ok(generation)
    }

    /// Makes the file of a new database, to which nobody writes yet, as long as it will be (`ground.rs`). Where that is
    /// not done, it grows as it is written.
    pub(super) fn lay_ground(&self, bytes: u64, pause: Duration) {
        let path = self.path.join("db");
        match ground::lay(&path, bytes, pause) {
            Ok(laid) => self.laid.store(laid, Ordering::Relaxed),
            Err(error) => tracing::warn!(%error, path = %path.display(), "its ground could not be laid"),
        }
    }

    /// Was its ground laid?
    pub(super) fn is_laid(&self) -> bool {
        self.laid.load(Ordering::Relaxed)
    }

    /// Makes a new database's files and their names durable.
    pub(super) fn settle_files(&self) -> Result<(), LogError> {
        self.sync()?;
        let entries =
            std::fs::read_dir(&self.path).map_err(|error| LogError::io("list", &self.path, &error))?;
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_file() {
                File::open(&path)
                    .and_then(|file| file.sync_all())
                    .map_err(|error| LogError::io("sync", &path, &error))?;
            } else {
                crate::dir::sync_dir(&path)?;
            }
        }
        crate::dir::sync_dir(&self.path)?;
        self.path.parent().map_or(Ok(()), crate::dir::sync_dir)
    }

    /// Lets go of the database.
    pub(super) fn close(&self) {
        let opened = write(&self.open).take();
        // Dropping it flushes once more, which may fail or panic like any other call.
        let _ = caught(move || drop(opened));
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of its file.
    pub(super) fn disk_bytes(&self) -> u64 {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let size = open.as_ref().and_then(|opened| opened.file.metadata().ok());
        size.map_or(0, |metadata| metadata.len())
    }

    /// Bytes of its file that sled has put to use, to a segment of 512 KiB; and of these, since it was opened, those
    /// that were not laid ahead.
    pub(super) fn used_bytes(&self) -> (u64, u64) {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let Some(opened) = open.as_ref() else { return (0, 0) };
        let used = ground::used(&opened.file, opened.used.load(Ordering::Relaxed));
        opened.used.store(used, Ordering::Relaxed);
        let grown = if self.is_laid() { 0 } else { used.saturating_sub(self.found) };
        (used, grown)
    }

    pub(super) fn held(&self) -> BTreeMap<Arc<str>, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn held_of(&self, pool: &str) -> Option<Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).get(pool).copied()
    }

    fn with<T>(&self, run: impl FnOnce(&Opened) -> Result<T, LogError>) -> Result<T, LogError> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let Some(opened) = open.as_ref() else {
            let error = format!("the database {} is closed", self.path.display());
            return Err(LogError::Unavailable { error });
        };
        match caught(|| run(opened)) {
            Ok(result) => result.map_err(|error| place(error, &self.path)),
            Err(panic) => Err(LogError::Damaged { path: self.path.clone(), error: panic }),
        }
    }

    /// Writes a batch: first its pages, then where they are, so that the latter is never there without the former.
    pub(super) fn put(&self, frame: &Frame) -> Result<(), LogError> {
        let id = self.id(&frame.header.pool)?;
        let seq = frame.header.first_seq;
        self.with(|opened| {
            let written = if frame.bytes.len() <= WHOLE_MAX {
                opened.db.insert(keys::part_key(id, seq, 0), &frame.bytes[..])
            } else {
                let place = opened.pages.put(&frame.bytes).map_err(sled_error)?;
                let place = place.ok_or_else(|| LogError::Unavailable {
                    error: format!("a batch of {} bytes has no room in this database", frame.bytes.len()),
                })?;
                opened.db.insert(keys::place_key(id, seq), &place.value()[..])
            };
            written.map(|_| ()).map_err(sled_error)
        })?;
        self.note(frame);
        Ok(())
    }

    /// Notes where the pools' logs ended when this generation was begun.
    pub(super) fn put_bases(&self, heads: &BTreeMap<Arc<str>, Head>) -> Result<(), LogError> {
        for (pool, head) in heads {
            let id = self.id(pool)?;
            self.with(|opened| {
                opened
                    .db
                    .insert(keys::base_key(id), &keys::base_value(head)[..])
                    .map_err(sled_error)
                    .map(|_| ())
            })?;
            if let Some(held) = write(&self.held).get_mut(pool) {
                held.base = Some(*head);
            }
        }
        Ok(())
    }

    /// [`Generation::put_bases`] for pools of which it knows neither batch nor base: a generation that was cut off
    /// before it knew them.
    pub(super) fn complete_bases(&self, heads: &BTreeMap<Arc<str>, Head>) -> Result<(), LogError> {
        let unknown =
            |pool: &Arc<str>| self.held_of(pool).is_none_or(|held| held.first == 0 && held.base.is_none());
        let missing = heads.iter().filter(|(pool, head)| head.seq > 0 && unknown(pool));
        self.put_bases(&missing.map(|(pool, head)| (pool.clone(), *head)).collect())
    }

    /// Makes what was written durable: sled's flush, then the system's data sync of its file.
    pub(super) fn sync(&self) -> Result<(), LogError> {
        self.with(|opened| {
            opened.db.flush().map_err(sled_error)?;
            opened.file.sync_data().map_err(|error| LogError::io("sync", &self.path, &error))
        })
    }

    /// Visits every batch, pool by pool, in order; gives those that were on their way at the end and lack parts.
    pub(super) fn visit(
        &self,
        visit: &mut dyn FnMut(&Frame) -> Result<(), LogError>,
    ) -> Result<Vec<TornBatch>, LogError> {
        let mut all_torn = Vec::new();
        for (pool, held) in self.held() {
            let mut torn = Vec::new();
            let mut frames = |piece: Piece| match piece {
                Piece::Torn(seq) => {
                    torn.push(TornBatch { pool: pool.clone(), id: held.id, seq });
                    Ok(true)
                }
                Piece::Whole(frame) => {
                    if let Some(TornBatch { seq, .. }) = torn.first() {
                        let error = format!(
                            "the batch at sequence {seq} of pool {pool} has parts missing, but batches follow it"
                        );
                        return Err(LogError::Damaged { path: self.path.clone(), error });
                    }
                    visit(&frame)?;
                    self.note(&frame);
                    Ok(true)
                }
            };
            self.with(|opened| walk(opened, held.id, 0, &mut frames))?;
            all_torn.append(&mut torn);
        }
        Ok(all_torn)
    }

    /// Reads batches from the one that holds `from`, up to the sequence `upto`, until `bytes_max` are read.
    pub(super) fn read(
        &self,
        pool: &str,
        from: u64,
        upto: u64,
        bytes_max: usize,
        to: &mut Vec<Frame>,
    ) -> Result<(), LogError> {
        let Some(held) = self.held_of(pool) else { return Ok(()) };
        let mut bytes: usize = to.iter().map(|frame| frame.bytes.len()).sum();
        let mut take = |piece: Piece| {
            let Piece::Whole(frame) = piece else { return Ok(false) };
            if frame.header.last_seq() > upto {
                return Ok(false);
            }
            if frame.header.last_seq() >= from {
                bytes += frame.bytes.len();
                if bytes > bytes_max && !to.is_empty() {
                    return Ok(false);
                }
                to.push(frame);
            }
            Ok(bytes < bytes_max)
        };
        self.with(|opened| {
            let before = keys::part_key(held.id, 0, 0)..=keys::part_key(held.id, from, u16::MAX);
            let start = match opened.db.range(before).next_back() {
                Some(entry) => keys::part_of(&entry.map_err(sled_error)?.0).map_or(0, |(seq, _)| seq),
                None => 0,
            };
            walk(opened, held.id, start, &mut take)
        })
    }

    /// Takes out what there is of a batch that was on its way.
    pub(super) fn remove(&self, torn: &TornBatch) -> Result<(), LogError> {
        let (pool, seq) = (&torn.pool, torn.seq);
        tracing::warn!(%pool, seq, path = %self.path.display(), "a batch that was on its way is cut: taken out");
        self.with(|opened| {
            let parts = keys::part_key(torn.id, seq, 0)..=keys::part_key(torn.id, seq, u16::MAX);
            for entry in opened.db.range(parts) {
                opened.db.remove(entry.map_err(sled_error)?.0).map_err(sled_error)?;
            }
            Ok(())
        })
    }

    /// The number of a pool in this database, given out on first use.
    fn id(&self, pool: &Arc<str>) -> Result<u32, LogError> {
        if let Some(held) = self.held_of(pool) {
            return Ok(held.id);
        }
        let mut held = write(&self.held);
        let id = held.values().map(|held| held.id + 1).max().unwrap_or(1);
        self.with(|opened| {
            opened.db.insert(keys::pool_key(id), pool.as_bytes()).map_err(sled_error).map(|_| ())
        })?;
        held.insert(pool.clone(), Held { id, ..Held::default() });
        Ok(id)
    }

    fn note(&self, frame: &Frame) {
        if let Some(held) = write(&self.held).get_mut(&frame.header.pool) {
            if held.first == 0 {
                held.first = frame.header.first_seq;
            }
            held.last = frame.header.last_seq();
        }
    }
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

fn open_sled(path: &Path, cache_bytes: u64) -> Result<Opened, LogError> {
    let file_path = path.join("db");
    // After a failed sync the page cache may hold what the disk does not: have sled read the disk itself.
    if let Ok(file) = File::open(&file_path) {
        let _ = file.sync_data();
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
    ground::take_up(&file_path).map_err(|error| LogError::io("shorten", &file_path, &error))?;
    let config = sled::Config::new().path(path).cache_capacity(cache_bytes).flush_every_ms(None);
    let db = match try_open(&config, path) {
        // sled believes its snapshot file more than its own log, and the file may be the damaged one of the two. The
        // log says the same, and the mark and the chain prove that nothing is missing.
        Err(damage @ LogError::Damaged { .. }) => match snapshots::set_aside(path)? {
            true => try_open(&config, path).map_err(|_| damage)?,
            false => return Err(damage),
        },
        opened => opened?,
    };
    let file = File::open(&file_path).map_err(|error| LogError::io("open", &file_path, &error))?;
    let pages = caught(|| Pages::open(&db).map_err(sled_error));
    match pages {
        Ok(pages) => {
            let pages = pages.map_err(|error| place(error, path))?;
            let used = AtomicU64::new(ground::found(&file));
            Ok(Opened { db, pages, file, used })
        }
        Err(panic) => Err(LogError::Damaged { path: path.to_owned(), error: panic }),
    }
}

fn try_open(config: &sled::Config, path: &Path) -> Result<sled::Db, LogError> {
    // What sled says has no place; what is done before has.
    let opened = caught(|| open_let_go(config, || snapshots::remove_unfinished(path)));
    match opened {
        Ok(opened) => opened.map_err(|error| place(error, path)),
        Err(panic) => Err(LogError::Damaged { path: path.to_owned(), error: panic }),
    }
}

impl From<sled::Error> for LogError {
    /// Without the place, which [`place`] puts in.
    fn from(error: sled::Error) -> LogError {
        sled_error(error)
    }
}

/// sled's errors without the place, which [`place`] puts in.
fn sled_error(error: sled::Error) -> LogError {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    match error {
        sled::Error::Io(error) if ![InvalidData, UnexpectedEof].contains(&error.kind()) => {
            LogError::io("write or read", Path::new(""), &error)
        }
        other => LogError::Damaged { path: PathBuf::new(), error: other.to_string() },
    }
}

fn place(error: LogError, at: &Path) -> LogError {
    match error {
        LogError::Io { doing, path, error, kind } if path.as_os_str().is_empty() => {
            LogError::Io { doing, path: at.to_owned(), error, kind }
        }
        LogError::Damaged { path, error } if path.as_os_str().is_empty() => {
            LogError::Damaged { path: at.to_owned(), error }
        }
        LogError::Frame(error) => LogError::Damaged { path: at.to_owned(), error: error.to_string() },
        other => other,
    }
}

fn read_pools(db: &sled::Db) -> Result<BTreeMap<Arc<str>, Held>, LogError> {
    let mut pools = BTreeMap::new();
    for entry in db.scan_prefix(keys::POOL_PREFIX) {
        let (key, name) = entry.map_err(sled_error)?;
        let (Some(id), Ok(name)) = (keys::id_of(&key), std::str::from_utf8(&name)) else {
            let error = format!("it has a pool entry {key:?} that cannot be read");
            return Err(LogError::Damaged { path: PathBuf::new(), error });
        };
        let base = db.get(keys::base_key(id)).map_err(sled_error)?;
        let base = base.and_then(|value| keys::base_of(&value));
        pools.insert(Arc::from(name), Held { id, base, ..Held::default() });
    }
    Ok(pools)
}

/// Puts the parts of a pool's batches together, from a sequence on, until the taker has enough.
fn walk(
    opened: &Opened,
    id: u32,
    from: u64,
    take: &mut dyn FnMut(Piece) -> Result<bool, LogError>,
) -> Result<(), LogError> {
    let mut current: Option<(u64, u32, Vec<u8>)> = None;
    for entry in opened.db.range(keys::part_key(id, from, 0)..=keys::part_key(id, u64::MAX, u16::MAX)) {
        let (key, value) = entry.map_err(sled_error)?;
        let Some((seq, part)) = keys::part_of(&key) else { continue };
        if let Some(done) = current.take_if(|(at, _, _)| *at != seq)
            && !take(piece(done)?)?
        {
            return Ok(());
        }
        let (_, next, bytes) = current.get_or_insert_with(|| (seq, 0, Vec::new()));
        if let Some(place) = keys::place_of(part, &value) {
            *bytes = opened.pages.get(place).map_err(sled_error)?;
            continue;
        }
        // A part out of turn leaves `next` where it is: what comes out is too short, and torn.
        if *next == u32::from(part) {
            *next += 1;
            bytes.extend_from_slice(&value);
        }
    }
    if let Some(done) = current {
        take(piece(done)?)?;
    }
    Ok(())
}

fn piece((seq, _, bytes): (u64, u32, Vec<u8>)) -> Result<Piece, LogError> {
    if bytes.is_empty() {
        return Ok(Piece::Torn(seq));
    }
    let header = FrameHeader::parse(&bytes)?;
    if bytes.len() < header.frame_len() {
        return Ok(Piece::Torn(seq));
    }
    let frame = Frame::from_vec(bytes)?;
    if frame.header.first_seq != seq {
        let error =
            format!("the batch stored at sequence {seq} says it begins at {}", frame.header.first_seq);
        return Err(LogError::Damaged { path: PathBuf::new(), error });
    }
    Ok(Piece::Whole(frame))
}

#[cfg(test)]
#[path = "generation_tests.rs"]
mod tests;
