//! All pools of one process, over one log.

use super::clock::Clock;
use super::handle::PoolHandle;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_kernel::Policy;

/// What to run.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The pools, by name; each has its own kernel, log stream and thread.
    pub pools: BTreeMap<String, PoolOptions>,
    /// Where decisions are kept.
    pub place: Place,
    /// Given by tests; else one that starts after what is logged.
    pub clock: Option<Clock>,
    /// Arrivals of one pool that may wait for their first look (default 65,536).
    pub inbox_arrivals_max: usize,
}

/// Where the log lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In memory: gone with the process.
    Memory,
    /// In this data directory.
    Directory(PathBuf),
}

/// One pool's settings at start.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// What decides.
    pub policy: Policy,
    /// Names of objectives and their priorities.
    pub objectives: BTreeMap<String, i32>,
}

/// The running engine.
#[derive(Debug)]
pub struct Engine {
    pools: BTreeMap<String, PoolHandle>,
    clock: Clock,
}

impl Engine {
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
}
