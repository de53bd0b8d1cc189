//! The hot window: the newest batches of all pools, in a series of sled databases.
//!
//! sled never gives disk space back, so a database is left at `rotate_bytes` and a new one begun; the old one is
//! sealed into segments by whoever asks [`HotWindow::closed`], and then deleted whole.

mod generation;
mod ground;
mod keys;
mod pages;
mod quiet;
mod recover;
mod snapshots;
mod window;

use crate::chain::Head;
use crate::dir::LogDir;
use crate::error::LogError;
use crate::fault::{FrameError, FrameFault};
use crate::frame::Frame;
use crate::keeper::Keeper;
use crate::mark::{Mark, MarkFile};
use crate::store::{Frames, Store};
use generation::Generation;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use window::{ClosedGeneration, HotWindow};

/// How the hot window is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotOptions {
    /// A database that uses more than this on disk is left and the next one begun; a busy one has it set aside from the
    /// start. Default 64 MiB.
    pub rotate_bytes: u64,
    /// sled's cache, per database. Default 64 MiB; the process uses up to about twice that.
    pub cache_bytes: u64,
}

impl Default for HotOptions {
    fn default() -> Self {
        HotOptions { rotate_bytes: 64 << 20, cache_bytes: 64 << 20 }
    }
}

/// A database whose ground was not laid, the first one of a run, is left once it has grown by so much.
const UNLAID_MAX: u64 = 2 << 20;

/// Between pieces of 128 KiB of the ground of the next one: 64 MiB are laid in about 0.8 s, or in 2.5 s.
const LAY_SOON: Duration = Duration::from_millis(1);
const LAY_GENTLY: Duration = Duration::from_millis(4);

/// How long after a failure the next generation is tried again.
const ROTATE_RETRY: Duration = Duration::from_secs(1);

type Heads = BTreeMap<Arc<str>, Head>;

/// The hot window, writing side.
pub struct HotStore {
    dir: LogDir,
    options: HotOptions,
    window: Arc<HotWindow>,
    /// What is written, durable or not.
    heads: Heads,
    /// What is durable.
    durable: Heads,
    keeper: Option<Keeper>,
    /// The next generation, being made ready.
    next: Option<JoinHandle<Result<Generation, LogError>>>,
    /// When that last failed.
    next_failed: Option<Instant>,
    /// The ground of the newest generation was laid, or was not tried yet.
    lays: bool,
    /// A generation was begun since the last sync.
    begun: bool,
    broken: Option<LogError>,
}

impl HotStore {
    /// Opens the hot window of a data directory, created if need be, and checks it whole: every batch of the window
    /// against the chain, the ends against the high-water mark.
    ///
    /// # Errors
    /// [`LogError`]; nothing is changed by an open that fails.
    pub fn open(path: &Path, options: HotOptions) -> Result<HotStore, LogError> {
        HotStore::in_dir(LogDir::open(path)?, options)
    }

    /// [`HotStore::open`] in a directory that is held already.
    ///
    /// # Errors
    /// As [`HotStore::open`].
    pub fn in_dir(dir: LogDir, options: HotOptions) -> Result<HotStore, LogError> {
        let (mut file, mut mark) = MarkFile::open(&crate::dir::mark_path(dir.path()))?;
        let recovered = recover::recover(dir.path(), &mark, &options)?;
        let heads = recovered.heads;
        let current = recovered.generations.last().cloned();
        let number = current.as_ref().map_or(0, |generation| generation.number);
        if let Some(generation) = current {
            generation.complete_bases(&heads)?;
            // What was on its way and is there after all becomes durable now.
            generation.sync()?;
        }
        mark = whole_mark(number, &heads, &heads);
        file.write(&mark)?;
        let window = Arc::new(HotWindow::new(recovered.generations));
        window.durable(&heads);
        Ok(HotStore {
            keeper: Some(Keeper::spawn(file, mark)?),
            dir,
            options,
            window,
            durable: heads.clone(),
            heads,
            next: None,
            next_failed: None,
            lays: true,
            begun: false,
            broken: None,
        })
    }

    /// What the log is.
    pub fn dir(&self) -> &LogDir {
        &self.dir
    }

    /// The databases, to be read, sealed and deleted.
    pub fn window(&self) -> Arc<HotWindow> {
        self.window.clone()
    }

    fn current(&self) -> Result<Arc<Generation>, LogError> {
        self.window.current().ok_or(LogError::Closed)
    }

    fn guarded<T>(&mut self, run: impl FnOnce(&mut HotStore) -> Result<T, LogError>) -> Result<T, LogError> {
        if let Some(error) = &self.broken {
            return Err(LogError::Unavailable { error: error.to_string() });
        }
        let result = run(self);
        if let Err(error) = &result {
            self.broken = Some(error.clone());
        }
        result
    }

    /// Makes the next generation ready in good time, and goes over to it when this one is full, or has grown by so much
    /// without its ground laid that more is likely to come.
    fn rotate(&mut self) -> Result<Arc<Generation>, LogError> {
        let current = self.current()?;
        let (used, grown) = current.used_bytes();
        let reached = |share: u64| {
            let early = self.lays && grown >= UNLAID_MAX / 8 * share;
            early || used >= self.options.rotate_bytes / 8 * share
        };
        let pause = self.next_failed.is_some_and(|at| at.elapsed() < ROTATE_RETRY);
        if self.next.is_none() && !pause && reached(3) {
            // One whose own ground was not laid is to be left soon.
            let pace = if grown > 0 { LAY_SOON } else { LAY_GENTLY };
            let (hot, options) = (crate::dir::hot_dir(self.dir.path()), self.options.clone());
            let number = current.number + 1;
            self.next = std::thread::Builder::new()
                .name("weir-log-rotate".to_owned())
                .spawn(move || {
                    weir_background::give_way();
                    recover::begin(&hot, number, &options, Some(pace))
                })
                .ok();
        }
        if !reached(8) {
            return Ok(current);
        }
        let Some(next) = self.next.take_if(|next| next.is_finished()) else { return Ok(current) };
        match next.join() {
            Ok(Ok(next)) => {
                // Nothing in the new one may be on disk without all that came before it.
                current.sync()?;
                next.put_bases(&self.heads)?;
                self.begun = true;
                self.lays = next.is_laid();
                Ok(self.window.begin(next))
            }
            Ok(Err(error)) => {
                self.next_failed = Some(Instant::now());
                tracing::warn!(%error, "no new generation of the hot window yet: this one goes on");
                Ok(current)
            }
            Err(_) => Ok(current),
        }
    }

    /// Goes over to a new generation now, whatever the size of this one, so that all there is can be sealed.
    ///
    /// # Errors
    /// What the storage says.
    pub fn rotate_now(&mut self) -> Result<(), LogError> {
        self.guarded(|store| {
            store.sync_all()?;
            if let Some(next) = store.next.take() {
                let _ = next.join();
            }
            let hot = crate::dir::hot_dir(store.dir.path());
            let next = recover::begin(&hot, store.current()?.number + 1, &store.options, None)?;
            next.put_bases(&store.heads)?;
            store.begun = true;
            store.window.begin(next);
            store.sync_all()
        })
    }

    fn write_frames(&mut self, frames: &[Frame]) -> Result<(), LogError> {
        let generation = self.rotate()?;
        for frame in frames {
            generation.put(frame)?;
            self.heads.insert(frame.header.pool.clone(), Head::of(frame));
        }
        Ok(())
    }

    fn sync_all(&mut self) -> Result<(), LogError> {
        let generation = self.current()?;
        let keeper = self.keeper.as_ref().ok_or(LogError::Closed)?;
        keeper.publish(whole_mark(generation.number, &self.durable, &self.heads))?;
        generation.sync()?;
        self.durable.clone_from(&self.heads);
        keeper.settle(whole_mark(generation.number, &self.durable, &self.heads));
        if self.begun {
            // Before anything in a new generation is acknowledged the mark must name it; and before the one before it
            // may be deleted, the mark must name ends that are not within that one.
            keeper.finish()?;
            self.begun = false;
            self.window.left(generation.number);
        }
        self.window.durable(&self.durable);
        Ok(())
    }

    fn open_again(&mut self) -> Result<(), LogError> {
        if let Some(next) = self.next.take() {
            let _ = next.join();
            self.next_failed = Some(Instant::now());
        }
        self.window.close_all();
        self.keeper = None; // Its last mark, if it can still be written.
        let path = crate::dir::mark_path(self.dir.path());
        let (mut file, on_disk) = MarkFile::open(&path)?;
        let number = on_disk.generation;
        let durable = whole_mark(number, &self.durable, &self.durable);
        let recovered = recover::recover(self.dir.path(), &durable, &self.options)?;
        if let Some(current) = recovered.generations.last() {
            current.complete_bases(&recovered.heads)?;
            current.sync()?;
        }
        self.heads = recovered.heads;
        self.begun = false;
        self.window.replace(recovered.generations);
        let mark = whole_mark(number, &self.durable, &self.heads);
        file.write(&mark)?;
        self.keeper = Some(Keeper::spawn(file, mark)?);
        self.broken = None;
        Ok(())
    }
}

impl Store for HotStore {
    fn format(&self) -> u16 {
        self.dir.description().format
    }

    fn head(&self, pool: &str) -> Head {
        self.heads.get(pool).copied().unwrap_or_default()
    }

    fn write(&mut self, frames: &[Frame]) -> Result<(), LogError> {
        admit(&self.heads, frames)?;
        self.guarded(|store| store.write_frames(frames))
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.guarded(HotStore::sync_all)
    }

    fn reopen(&mut self) -> Result<(), LogError> {
        let result = self.open_again();
        if let Err(error) = &result {
            self.broken = Some(error.clone());
        }
        result
    }

    fn frames(&self) -> Arc<dyn Frames> {
        self.window.clone()
    }

    fn close(&mut self) -> Result<(), LogError> {
        if let Some(next) = self.next.take() {
            let _ = next.join();
        }
        self.keeper.take().map_or(Ok(()), |keeper| keeper.finish())
    }
}

impl Drop for HotStore {
    fn drop(&mut self) {
        let _ = self.close();
        // Readers may be left over; the databases and the directory are free all the same.
        self.window.close_all();
    }
}

fn whole_mark(generation: u32, durable: &Heads, coming: &Heads) -> Mark {
    let pools = coming
        .iter()
        .map(|(pool, coming)| (pool.clone(), (durable.get(pool).copied().unwrap_or_default(), *coming)));
    Mark { generation, pools: pools.collect() }
}

/// Does each batch follow its pool's head (or the batch before it in the list)?
pub(crate) fn admit(heads: &Heads, frames: &[Frame]) -> Result<(), LogError> {
    let mut moved: BTreeMap<&str, Head> = BTreeMap::new();
    for frame in frames {
        let pool = &frame.header.pool;
        let head = moved.get(&**pool).or_else(|| heads.get(pool)).copied().unwrap_or_default();
        head.admits(&frame.header).map_err(|broken| FrameError {
            pool: Some(pool.clone()),
            seq: Some(frame.header.first_seq),
            fault: FrameFault::Chain(broken),
        })?;
        moved.insert(pool, Head::of(frame));
    }
    Ok(())
}
