//! A real engine for a bench: one pool, its thread, its log in a directory that goes when the bench is over.

use super::BenchError;
use crate::engine::{Engine, EngineOptions, INBOX_ARRIVALS_MAX, LogOptions, Place, PoolHandle, PoolOptions};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;
use tempfile::TempDir;
use weir_kernel::{EndpointChange, Observation, Policy, Pushed, Role, Slot};

/// The pool's name.
pub const POOL: &str = "default";

/// An engine with one pool.
pub struct BenchPool {
    /// Its handle.
    pub handle: PoolHandle,
    engine: Engine,
    // Removed when dropped, after the engine.
    dir: TempDir,
}

impl BenchPool {
    /// Starts it with these settings; nothing is known of its endpoints yet.
    pub fn start(policy: Policy) -> Result<BenchPool, BenchError> {
        let dir = tempfile::tempdir().map_err(failed)?;
        let options = EngineOptions {
            pools: BTreeMap::from([(POOL.to_owned(), PoolOptions { policy, ..PoolOptions::default() })]),
            place: Place::Directory(dir.path().join("log")),
            log: LogOptions::default(),
            clock: None,
            inbox_arrivals_max: 2 * INBOX_ARRIVALS_MAX,
        };
        let engine = Engine::open(options).map_err(failed)?;
        let handle = engine.pool(POOL).cloned().ok_or_else(|| failed("the pool is not there"))?;
        Ok(BenchPool { handle, engine, dir })
    }

    /// A first view: no endpoints.
    pub fn empty(&self) -> Result<(), BenchError> {
        self.observe(Observation { requested_at: self.handle.clock().now(), ..Observation::default() })
    }

    /// Endpoints appear, and a saturation figure where one is pushed.
    pub fn open(&self, endpoints: u16, pushed: Pushed) -> Result<(), BenchError> {
        let joined = |i| EndpointChange::Joined {
            slot: Slot(i),
            name: format!("10.0.0.{i}:8000"),
            role: Role::Decode,
        };
        let changes = (0..endpoints).map(joined).collect();
        self.observe(Observation { requested_at: self.handle.clock().now(), changes, pushed })
    }

    fn observe(&self, observation: Observation) -> Result<(), BenchError> {
        self.handle.observe(observation).map_err(failed)
    }

    /// Waits until this many are queued.
    pub async fn queued(&self, wanted: u64) -> Result<(), BenchError> {
        loop {
            let queued = self.handle.query(weir_kernel::State::queued).await.map_err(failed)?;
            if queued >= wanted {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops it and removes its log.
    pub async fn stop(self) -> Result<(), BenchError> {
        let stopped = self.engine.shutdown(Duration::ZERO).await.map_err(failed);
        self.dir.close().map_err(failed)?;
        stopped
    }
}

/// Any error, as the bench's own.
pub fn failed(error: impl Display) -> BenchError {
    BenchError(error.to_string())
}

/// A runtime for benches that wait for an engine.
pub fn block_on<T>(work: impl Future<Output = Result<T, BenchError>>) -> Result<T, BenchError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(failed)?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}
