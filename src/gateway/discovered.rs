//! What a search finds goes to where it counts: endpoints to the observer, objectives to the pool's table, beside those of the
//! settings, which go first.
//!
//! Not here: how it is found (`discovery`).

use super::state::PoolFace;
use crate::discovery::{Discovery, Found};
use crate::engine::{PoolHandle, Unavailable};
use crate::observer::Observer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_config::{DiscoverySettings, PoolSettings};
use weir_kernel::{ObjectivesChange, State};

/// What could not be put in force is tried again after this long.
const AGAIN: Duration = Duration::from_secs(1);

/// Of one pool: the search that runs, and the objectives of both sources.
#[derive(Debug, Default)]
pub struct Discovered {
    search: Mutex<Option<Search>>,
    /// Whoever changes the pool's table holds it meanwhile.
    objectives: Arc<tokio::sync::Mutex<Sources>>,
}

#[derive(Debug)]
struct Search {
    settings: DiscoverySettings,
    inference_pool: String,
    discovery: Discovery,
    follower: JoinHandle<()>,
}

impl Drop for Search {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// Where priorities come from.
#[derive(Debug, Default)]
struct Sources {
    /// The settings, which go first.
    settings: BTreeMap<String, i32>,
    /// What was found.
    found: Option<BTreeMap<String, i32>>,
    /// Something will be found: until then what the log knows stays.
    awaited: bool,
}

/// How a search stands, for whoever looks at the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where it looks.
    pub kind: &'static str,
    /// Were endpoints found yet?
    pub found: bool,
    /// What cannot be found out now.
    pub faults: BTreeMap<String, String>,
    /// How often something could not be found out.
    pub failures: u64,
}

/// Does this search bring objectives as well?
pub fn brings_objectives(pool: &PoolSettings) -> bool {
    matches!(&pool.discovery, Some(DiscoverySettings::Kubernetes(cluster)) if cluster.objectives)
}

impl Discovered {
    /// From here on as these settings say: another search than before begins anew, the same one goes on.
    pub fn follow(&self, face: &PoolFace, pool: &PoolSettings) {
        let mut search = self.lock();
        let same = search.as_ref().map(|search| (&search.settings, &search.inference_pool));
        let wanted = pool.discovery.as_ref().map(|settings| (settings, &pool.inference_pool));
        if same == wanted {
            return;
        }
        // The old one ends before the new one speaks.
        *search = None;
        let Some(settings) = &pool.discovery else { return };
        let discovery = Discovery::start(face.handle.name(), settings, &pool.inference_pool);
        let parts = (face.observer.clone(), face.handle.clone(), Arc::clone(&self.objectives));
        let follower = tokio::spawn(follow(parts, discovery.found()));
        let (settings, inference_pool) = (settings.clone(), pool.inference_pool.clone());
        *search = Some(Search { settings, inference_pool, discovery, follower });
    }

    /// Ends the search.
    pub fn stop(&self) {
        *self.lock() = None;
    }

    /// How the search stands, if there is one.
    pub fn standing(&self) -> Option<Standing> {
        let search = self.lock();
        let discovery = &search.as_ref()?.discovery;
        let found = discovery.found();
        let Found { endpoints, faults, failures, .. } = &*found.borrow();
        let (found, faults) = (endpoints.is_some(), faults.clone());
        Some(Standing { kind: discovery.kind(), found, faults, failures: *failures })
    }

    /// Makes the pool's table that of its settings and of what was found.
    ///
    /// # Errors
    /// The pool takes none now.
    pub async fn set_objectives(&self, handle: &PoolHandle, pool: &PoolSettings) -> Result<(), Unavailable> {
        let mut sources = self.objectives.lock().await;
        sources.settings.clone_from(&pool.objectives);
        let brings = brings_objectives(pool);
        if !brings {
            sources.found = None;
        }
        sources.awaited = brings && sources.found.is_none();
        put(handle, &sources).await
    }

    fn lock(&self) -> MutexGuard<'_, Option<Search>> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn follow(
    (observer, handle, objectives): (Observer, PoolHandle, Arc<tokio::sync::Mutex<Sources>>),
    mut found: watch::Receiver<Found>,
) {
    loop {
        let Found { endpoints, objectives: priorities, .. } = found.borrow_and_update().clone();
        if let Some(specs) = endpoints
            && let Err(error) = observer.discovered(specs)
        {
            tracing::error!(pool = handle.name(), %error, "discovery: the endpoints are not taken");
        }
        if let Some(priorities) = priorities {
            while let Err(error) = take(&handle, &objectives, &priorities).await {
                tracing::debug!(pool = handle.name(), %error, "the objectives are not changed yet");
                tokio::time::sleep(AGAIN).await;
            }
        }
        if found.changed().await.is_err() {
            return;
        }
    }
}

/// Puts what was found in force, if that is not done yet. The lock is not kept while it waits for another try: a reload of the
/// settings must get by.
async fn take(
    handle: &PoolHandle,
    objectives: &tokio::sync::Mutex<Sources>,
    found: &BTreeMap<String, i32>,
) -> Result<(), Unavailable> {
    let mut sources = objectives.lock().await;
    if !sources.awaited && sources.found.as_ref() == Some(found) {
        return Ok(());
    }
    (sources.found, sources.awaited) = (Some(found.clone()), false);
    let put = put(handle, &sources).await;
    sources.awaited = put.is_err();
    put
}

async fn put(handle: &PoolHandle, sources: &Sources) -> Result<(), Unavailable> {
    let mut wanted = sources.settings.clone();
    for (name, priority) in sources.found.iter().flatten() {
        wanted.entry(name.clone()).or_insert(*priority);
    }
    let keep = sources.awaited;
    if let Some(change) = handle.query(move |state| difference(state, &wanted, keep)).await? {
        handle.change_objectives(change).await?;
    }
    Ok(())
}

/// What has to change for the table to be `wanted` (with what is there beside that, if it is kept), if anything has.
fn difference(state: &State, wanted: &BTreeMap<String, i32>, keep: bool) -> Option<ObjectivesChange> {
    let known: BTreeMap<&str, i32> = state.objectives().collect();
    let set = wanted
        .iter()
        .filter(|(name, priority)| known.get(name.as_str()) != Some(priority))
        .map(|(name, priority)| (name.clone(), *priority))
        .collect::<Vec<_>>();
    let removed = known.keys().filter(|name| !keep && !wanted.contains_key(**name));
    let removed = removed.map(|name| (*name).to_owned()).collect::<Vec<_>>();
    (!set.is_empty() || !removed.is_empty()).then_some(ObjectivesChange { set, removed })
}
