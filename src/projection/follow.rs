//! Keeps the projections of all pools with the log: one thread a pool, which reads durable batches as anybody may, and
//! gathers for a moment before it does, so that it costs little beside the decisions.
//!
//! Whatever goes wrong here stays here: it is said once, tried again later, and the log goes on.

use crate::anew::{Anew, CatchUp};
use crate::db::{self, Db};
use crate::error::ProjectionError;
use crate::pool::{PoolProjection, Position};
use crate::retain;
use crate::source::{Feed, Source};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long steps gather before they are folded: the lag of the projections.
const GATHER: Duration = Duration::from_millis(50);
/// Between commits, at the least: what a kill may cost in folding again.
const COMMIT_EVERY: Duration = Duration::from_secs(5);
/// Between looks at what the log still keeps.
const RETAIN_EVERY: Duration = Duration::from_secs(60);
/// After a failure.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The directory of the projections inside a data directory.
pub const DIRECTORY: &str = "projections";

/// The read models of every pool of a log.
#[derive(Debug)]
pub struct Projections {
    pools: BTreeMap<String, Arc<PoolProjection>>,
    db: Arc<Db>,
    anew: Option<Anew>,
    closed: AtomicBool,
}

impl Projections {
    /// Where they lie in a data directory.
    pub fn dir(data: &Path) -> PathBuf {
        data.join(DIRECTORY)
    }

    /// Removes those of a data directory, which nobody may have open: the next to open them folds all of it from the log.
    /// (sled gives no space back, so what is removed from a database stays on the disk.)
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub fn throw_away(data: &Path) -> Result<(), ProjectionError> {
        db::remove(&Projections::dir(data))
    }

    /// Opens those of a log: beside it in its data directory, or in memory's stead in a temporary directory.
    ///
    /// # Errors
    /// The log or the database cannot be read.
    pub fn open(data: Option<&Path>, source: &Source) -> Result<Projections, ProjectionError> {
        let (db, anew) = match data {
            Some(data) => {
                let description = weir_log::dir::read_description(data)?;
                let log_id = description.map(|description| description.log_id).unwrap_or_default();
                let dir = Projections::dir(data);
                let opened = Db::open(&dir, &log_id)?;
                if let Some(why) = &opened.1 {
                    why.say(&dir);
                }
                opened
            }
            None => (Db::temporary()?, Some(Anew::None)),
        };
        let db = Arc::new(db);
        let mut pools = BTreeMap::new();
        for name in source.pools()? {
            let pool = PoolProjection::open(&name, db.clone(), source.clone())?;
            pools.insert(name, Arc::new(pool));
        }
        Ok(Projections { pools, db, anew, closed: AtomicBool::new(false) })
    }

    /// The same, with pools that may not have a step yet.
    ///
    /// # Errors
    /// As [`Projections::open`].
    pub fn open_with(
        data: Option<&Path>,
        source: &Source,
        names: &[String],
    ) -> Result<Projections, ProjectionError> {
        let mut all = Projections::open(data, source)?;
        for name in names {
            if !all.pools.contains_key(name) {
                let pool = PoolProjection::open(name, all.db.clone(), source.clone())?;
                all.pools.insert(name.clone(), Arc::new(pool));
            }
        }
        Ok(all)
    }

    /// The pools, by name.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<PoolProjection>> {
        self.pools.values()
    }

    /// A pool.
    pub fn pool(&self, name: &str) -> Option<&Arc<PoolProjection>> {
        self.pools.get(name)
    }

    /// Why they are folded anew, if they are: there were none, or of another format or log, or none that can be read.
    pub fn made_anew(&self) -> Option<&Anew> {
        self.anew.as_ref()
    }

    /// Whoever follows them shall end now.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Shall whoever follows them end?
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Bytes on disk.
    pub fn size(&self) -> u64 {
        self.db.size()
    }

    /// Folds everything that the log has, now, on this thread; `progress` hears of it now and then.
    ///
    /// # Errors
    /// The log cannot be read, the database not be written.
    pub fn catch_up(&self, mut progress: impl FnMut(&str, &Position)) -> Result<(), ProjectionError> {
        for pool in self.pools.values() {
            let mut feed = Feed::new(pool.source.clone(), pool.name());
            while pool.advance(&mut feed)? > 0 {
                if pool.is_commit_due() {
                    pool.commit()?;
                    progress(pool.name(), &pool.position()?);
                }
            }
            pool.commit()?;
            retain::follow(pool)?;
            progress(pool.name(), &pool.position()?);
        }
        self.db.flush()
    }

    /// Follows the log from here on, each pool on a thread of its own.
    ///
    /// # Errors
    /// No thread.
    pub fn follow(&self) -> std::io::Result<Followers> {
        let stop = Arc::new(Stop::default());
        let mut followers = Followers { threads: Vec::new(), stop: stop.clone() };
        for pool in self.pools.values() {
            let (pool, stop) = (pool.clone(), stop.clone());
            let builder = std::thread::Builder::new().name("weir-projection".to_owned());
            let follow = move || {
                // Folding waits for nobody, and questions and batches do not hold back because of it.
                weir_background::can_wait();
                run(&pool, &stop);
            };
            followers.threads.push(builder.spawn(follow)?);
        }
        Ok(followers)
    }
}

/// Tells the threads to end, and lets them sleep until then.
#[derive(Debug, Default)]
struct Stop {
    told: AtomicBool,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Stop {
    fn is_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    fn sleep(&self, span: Duration) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_told() {
            drop(self.woken.wait_timeout(lock, span));
        }
    }

    fn tell(&self) {
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.told.store(true, Ordering::Release);
        self.woken.notify_all();
    }
}

/// The threads that follow; they end, with everything committed, when this is dropped.
#[derive(Debug)]
pub struct Followers {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<Stop>,
}

impl Drop for Followers {
    fn drop(&mut self) {
        self.stop.tell();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn run(pool: &PoolProjection, stop: &Stop) {
    let mut feed = Feed::new(pool.source.clone(), pool.name());
    let (mut committed, mut retained) = (Instant::now(), Instant::now());
    let mut behind = catch_up_of(pool);
    while !stop.is_told() {
        let kept = keep(pool, &mut feed, &mut committed, &mut retained);
        match kept {
            Ok(true) => {
                if pool.write().fault.take().is_some() {
                    tracing::info!(pool = pool.name(), "the projections go on");
                }
                if let Some((known, steps)) =
                    behind.as_ref().and_then(|it| Some((it, it.is_over(pool.at().seq)?)))
                {
                    known.say_end(pool.name(), steps);
                    behind = None;
                }
            }
            // Nothing new: until there is, or for long enough to look at the rest again.
            Ok(false) => {
                let past = pool.at().seq;
                if pool.source.wait(pool.name(), past, Duration::from_millis(250)) {
                    stop.sleep(GATHER);
                }
            }
            Err(error) => {
                let text = error.to_string();
                let known = pool.write().fault.replace(text.clone());
                if known.as_ref() != Some(&text) {
                    tracing::warn!(
                        pool = pool.name(),
                        error = text,
                        "the projections cannot follow the log for now"
                    );
                }
                stop.sleep(RETRY_AFTER);
                feed = Feed::new(pool.source.clone(), pool.name());
                if let Err(error) = pool.reload() {
                    tracing::warn!(pool = pool.name(), %error, "the projections do not come back");
                }
                behind = behind.or_else(|| catch_up_of(pool));
            }
        }
    }
    if let Err(error) = pool.commit().and_then(|_| pool.db.flush()) {
        tracing::warn!(pool = pool.name(), %error, "the projections did not write their end");
    }
}

/// What it is behind by, where that is worth a word, which is said.
fn catch_up_of(pool: &PoolProjection) -> Option<CatchUp> {
    // Where the log cannot be read, that is said when it is followed.
    let position = pool.position().ok()?;
    let behind = CatchUp::of(position.committed.seq, position.at.seq, position.head)?;
    behind.say_begin(pool.name());
    Some(behind)
}

/// One round; false if there was nothing to do.
fn keep(
    pool: &PoolProjection,
    feed: &mut Feed,
    committed: &mut Instant,
    retained: &mut Instant,
) -> Result<bool, ProjectionError> {
    let taken = pool.advance(feed)?;
    if pool.is_commit_due() || committed.elapsed() >= COMMIT_EVERY {
        pool.commit()?;
        *committed = Instant::now();
    }
    if retained.elapsed() >= RETAIN_EVERY {
        retain::follow(pool)?;
        *retained = Instant::now();
    }
    Ok(taken > 0)
}
