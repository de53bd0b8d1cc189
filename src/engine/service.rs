//! All pools of one process, over one log.

use super::clock::Clock;
use super::comeback::rebuild;
use super::handle::PoolHandle;
use super::inbox::Message;
use super::journal::Writing;
use super::keeping::KeepingThread;
use super::launch::{Launch, Running};
use super::place::{LogOptions, Opened, Place, open};
use super::poison::Poison;
use super::pool::{Decide, End};
use super::pseudonym::{PseudonymError, Pseudonyms};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use weir_kernel::{Micros, Policy};
use weir_log::store::Frames;
use weir_log::writer::{LogMetrics, LogStatus, WriterHandle};
use weir_log::{LogError, SegmentError, pool_name_fault};

/// Arrivals of one pool that may wait for their first look, unless the options say otherwise.
pub const INBOX_ARRIVALS_MAX: usize = 65_536;
/// After the drain time, how long the last steps may take to become durable.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The pools, by name; each has its own kernel, log stream and thread.
    pub pools: BTreeMap<String, PoolOptions>,
    /// Where decisions are kept.
    pub place: Place,
    /// How they are kept.
    pub log: LogOptions,
    /// Given by tests; else one that starts after what is logged.
    pub clock: Option<Clock>,
    /// Arrivals of one pool that may wait for their first look ([`INBOX_ARRIVALS_MAX`]).
    pub inbox_arrivals_max: usize,
}

/// One pool's settings at start.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// What decides.
    pub policy: Policy,
    /// Names of objectives and their priorities.
    pub objectives: BTreeMap<String, i32>,
    /// Others that the log knows stay for now: they are found out while the service runs.
    pub keep_objectives: bool,
}

/// Why the engine does not start, or did not stop in order.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The log does not open, read or fold.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Sealed parts of the log or its snapshots do not read.
    #[error(transparent)]
    Sealed(#[from] SegmentError),
    /// A name that no pool can have.
    #[error("pool name {pool:?}: {fault}")]
    Name {
        /// The name.
        pool: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// There is no key for the pseudonyms of the log.
    #[error(transparent)]
    Pseudonyms(#[from] PseudonymError),
    /// The operating system gave no thread.
    #[error("pool {pool}: no thread: {error}")]
    Thread {
        /// The pool.
        pool: String,
        /// What the system said.
        error: String,
    },
    /// The operating system gave no thread for the log's keeping.
    #[error("no thread for the log's keeping: {error}")]
    Keeping {
        /// What the system said.
        error: String,
    },
    /// A pool's thread ended through a fault of ours.
    #[error("pool {pool}: its thread failed")]
    Failed {
        /// The pool.
        pool: String,
    },
    /// A pool's last steps did not become durable in time.
    #[error("pool {pool}: the log could not be written before the end")]
    NotDurable {
        /// The pool.
        pool: String,
    },
}

/// The running engine. Dropped without [`Engine::shutdown`], it leaves everything as a crash would.
#[derive(Debug)]
pub struct Engine {
    pools: BTreeMap<String, PoolHandle>,
    threads: Vec<(String, JoinHandle<End>)>,
    clock: Clock,
    writer: Arc<WriterHandle>,
    keeping: Option<KeepingThread>,
}

impl Engine {
    /// Recovers each pool from the log and starts its thread.
    ///
    /// # Errors
    /// The log does not open or does not fold, or the system has no thread for a pool.
    pub fn open(options: EngineOptions) -> Result<Engine, EngineError> {
        Engine::open_deciding(options, weir_kernel::decide)
    }

    /// The same with another kernel in place of ours, to see what becomes of one with a fault.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_deciding(options: EngineOptions, decide: Decide) -> Result<Engine, EngineError> {
        for pool in options.pools.keys() {
            if let Some(fault) = pool_name_fault(pool) {
                return Err(EngineError::Name { pool: pool.clone(), fault });
            }
        }
        let pseudonyms =
            options.log.pseudonym_key.as_deref().map(Pseudonyms::load).transpose()?.map(Arc::new);
        let names: Vec<&str> = options.pools.keys().map(String::as_str).collect();
        let Opened { writer, keeping, mut states, last_logged } = open(&options.place, &options.log, &names)?;
        let dir = match &options.place {
            Place::Directory(dir) => Some(dir.clone()),
            Place::Memory(_) => None,
        };
        let clock = options.clock.unwrap_or_else(|| Clock::starting_after(last_logged));
        let writer = Arc::new(writer);
        let mut engine = Engine {
            pools: BTreeMap::new(),
            threads: Vec::new(),
            clock: clock.clone(),
            writer: Arc::clone(&writer),
            keeping,
        };
        for (name, pool) in options.pools {
            let launch = Launch {
                name: name.clone(),
                state: states.remove(&name).unwrap_or_default(),
                clock: clock.clone(),
                options: pool,
                inbox_arrivals_max: options.inbox_arrivals_max,
                decide,
                rebuild: rebuild(dir.clone(), writer.frames(), &name),
                poison: Poison::load(dir.as_deref(), &name),
                pseudonyms: pseudonyms.clone(),
            };
            let Running { handle, thread } =
                launch.start(|port| Box::new(Writing::new(Arc::clone(&writer), &name, port)))?;
            engine.pools.insert(name.clone(), handle);
            engine.threads.push((name, thread));
        }
        Ok(engine)
    }

    /// A pool by its name.
    pub fn pool(&self, name: &str) -> Option<&PoolHandle> {
        self.pools.get(name)
    }

    /// Every pool, by name.
    pub fn pools(&self) -> impl Iterator<Item = &PoolHandle> {
        self.pools.values()
    }

    /// The clock of all pools.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Can the log be written?
    pub fn log_status(&self) -> LogStatus {
        self.writer.status()
    }

    /// What the log's writer has done so far.
    pub fn log_metrics(&self) -> LogMetrics {
        self.writer.metrics()
    }

    /// The log's writer, for those who outlive a look at it.
    pub fn log_writer(&self) -> Arc<WriterHandle> {
        Arc::clone(&self.writer)
    }

    /// The log's durable batches of every pool, to read and to follow.
    pub fn log_frames(&self) -> Arc<dyn Frames> {
        self.writer.frames()
    }

    /// Begins the end: readiness turns false, new requests are refused as the service is stopping, queued ones are
    /// served for `drain`. Returns the end of that, in the time of [`Engine::clock`].
    pub fn begin_stop(&self, drain: Duration) -> Micros {
        let drain = Micros(u64::try_from(drain.as_micros()).unwrap_or(u64::MAX));
        let drain_until = self.clock.now() + drain;
        for pool in self.pools.values() {
            // A pool that is gone has stopped.
            let _ = pool.0.inbox.put(Message::Stop { drain_until });
        }
        drain_until
    }

    /// Stops: drains for at most `drain`, ends what is left, makes the last step durable and joins the threads.
    ///
    /// # Errors
    /// A pool's thread had failed, or its log could not be written; every other pool is stopped all the same.
    pub async fn shutdown(self, drain: Duration) -> Result<(), EngineError> {
        self.shutdown_after(drain, || ()).await
    }

    /// The same; `readers` ends whoever still reads the log, on a thread that may block, before the log is closed: a log that is
    /// closed under its readers looks to them like one that has failed.
    ///
    /// # Errors
    /// As [`Engine::shutdown`].
    pub async fn shutdown_after(
        mut self,
        drain: Duration,
        readers: impl FnOnce() + Send + 'static,
    ) -> Result<(), EngineError> {
        let until = self.begin_stop(drain);
        let threads = std::mem::take(&mut self.threads);
        let patience = Duration::from_micros(until.since(self.clock.now()).0) + STOP_GRACE;
        let joined = tokio::task::spawn_blocking(move || {
            threads
                .into_iter()
                .map(|(pool, thread)| (pool, thread.join().unwrap_or(End::Failed)))
                .collect::<Vec<_>>()
        });
        let mut joined = std::pin::pin!(joined);
        let ends = match tokio::time::timeout(patience, &mut joined).await {
            Ok(ends) => ends,
            Err(_) => {
                self.leave();
                joined.await
            }
        };
        let (writer, keeping) = (Arc::clone(&self.writer), self.keeping.take());
        let closed = tokio::task::spawn_blocking(move || {
            readers();
            drop(keeping);
            // What it was given is durable or was told to be lost; the store goes with it.
            drop(writer.close());
        });
        let ends = ends.unwrap_or_default();
        // Only a panic there gives an error, and the ends tell of what matters.
        let _ = closed.await;
        for (pool, end) in ends {
            match end {
                End::Stopped => {}
                End::Left => return Err(EngineError::NotDurable { pool }),
                End::Failed => return Err(EngineError::Failed { pool }),
            }
        }
        Ok(())
    }

    fn leave(&self) {
        for pool in self.pools.values() {
            pool.0.inbox.leave();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.leave();
        for (_, thread) in self.threads.drain(..) {
            // Its end is in its status.
            let _ = thread.join();
        }
        // It reads what the writer owns.
        drop(self.keeping.take());
    }
}
