//! The observer of one pool: rounds of scrapes, pushes, and the input that each of them becomes.

use super::scrape::{ScrapeFault, ScrapeOptions, Scraper};
use super::table::{Known, Seen, Spec, Table, TooMany};
use super::text::Load;
use crate::engine::PoolHandle;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use weir_kernel::{Micros, Observation, Pushed, Role, State};

/// Lines about failing scrapes of one pool come at most this often.
const TROUBLE_EVERY: Micros = Micros::from_secs(30);

/// Where a pool's endpoints come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The settings: known from the start, also when there are none.
    Configured(Vec<Spec>),
    /// Somebody pushes them: nothing is known of the pool until then.
    Pushed,
    /// They are found while the service runs ([`Observer::discovered`]): nothing is known of the pool until then.
    Discovered,
}

/// How a pool is observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserverOptions {
    /// Where endpoints come from.
    pub feed: Feed,
    /// How those with a metrics address are scraped.
    pub scrape: ScrapeOptions,
    /// Older samples are stale (the detector's `metricsStalenessThreshold`).
    pub staleness: Micros,
}

/// What somebody pushes: the whole of the pool's endpoints, or a saturation figure, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// All endpoints of the pool, each with its load if that is pushed as well.
    pub endpoints: Option<Vec<(Spec, Option<Load>)>>,
    /// A saturation figure.
    pub saturation: Pushed,
}

/// How an endpoint is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Where it is scraped.
    pub metrics_url: Option<String>,
    /// Its last sample.
    pub load: Option<Load>,
    /// The age of that, from receipt.
    pub age: Option<Micros>,
    /// Is it fresh?
    pub fresh: bool,
    /// Scrapes that gave a sample.
    pub scraped: u64,
    /// Scrapes that gave none, by [`ScrapeFault::WORDS`].
    pub faults: [u64; ScrapeFault::WORDS.len()],
    /// The last of those faults.
    pub last_fault: Option<String>,
}

/// How a pool is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Has the feed spoken?
    pub known: bool,
    /// Its endpoints, by name.
    pub endpoints: Vec<EndpointStatus>,
    /// The last pushed saturation figure.
    pub pushed: Option<Pushed>,
}

/// The observer of one pool; clones share it.
#[derive(Clone)]
pub struct Observer(Arc<Shared>);

struct Shared {
    pool: PoolHandle,
    inner: Mutex<Inner>,
    /// The endpoints or the options changed: begin a round.
    changed: Notify,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    options: ObserverOptions,
    table: Table,
    /// The feed has spoken.
    known: bool,
    /// The kernel has had a first view.
    told: bool,
    /// Views that the pool has lost, as far as they are made good.
    lost: u64,
    stats: BTreeMap<String, Stats>,
    trouble: Trouble,
}

#[derive(Default)]
struct Stats {
    scraped: u64,
    faults: [u64; ScrapeFault::WORDS.len()],
    last_fault: Option<String>,
}

/// Failures since the last line about them.
#[derive(Default)]
struct Trouble {
    failures: u64,
    said_at: Option<Micros>,
}

/// A finished scrape.
struct Scraped {
    name: String,
    round: u64,
    requested_at: Micros,
    result: Result<Load, ScrapeFault>,
}

impl Observer {
    /// Begins to observe, from what the log knows of the pool. Runs on the present Tokio runtime.
    pub async fn start(pool: PoolHandle, options: ObserverOptions) -> Observer {
        // A pool that cannot be looked at takes no observations either.
        let known = pool.peek(known).await.unwrap_or_default();
        let inner = Inner {
            options,
            table: Table::restored(known),
            known: false,
            told: false,
            lost: 0,
            stats: BTreeMap::new(),
            trouble: Trouble::default(),
        };
        let shared =
            Shared { pool, inner: Mutex::new(inner), changed: Notify::new(), task: Mutex::new(None) };
        let observer = Observer(Arc::new(shared));
        observer.adopt_feed(&mut observer.lock());
        let task = tokio::spawn(rounds(Arc::clone(&observer.0)));
        *observer.0.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        observer
    }

    /// Other options from here on. Endpoints of the settings replace what is there; what was pushed or discovered stays
    /// until other is.
    ///
    /// # Errors
    /// More endpoints than a pool can have; nothing is changed.
    pub fn configure(&self, options: ObserverOptions) -> Result<(), TooMany> {
        let mut inner = self.lock();
        if let Feed::Configured(specs) = &options.feed {
            inner.table.want(specs.clone())?;
            inner.known = true;
        }
        inner.options = options;
        drop(inner);
        self.0.changed.notify_one();
        Ok(())
    }

    /// Takes a push in and hands it to the pool before it returns, so that a request made after it finds it there
    /// (while earlier rounds are unread, as when the log fails: with the next round).
    ///
    /// # Errors
    /// More endpoints than a pool can have; nothing is changed.
    pub fn push(&self, push: Push) -> Result<(), TooMany> {
        let mut inner = self.lock();
        let now = self.0.pool.clock().now();
        if let Some(endpoints) = push.endpoints {
            let (specs, loads): (Vec<Spec>, Vec<_>) =
                endpoints.into_iter().map(|(spec, load)| (spec.clone(), (spec.name, load))).unzip();
            inner.table.want(specs)?;
            for (name, load) in loads {
                if let Some(load) = load {
                    inner.table.sampled(&name, load, now, now);
                }
            }
            inner.known = true;
            inner.forget_gone();
        }
        inner.table.push(push.saturation);
        self.0.tell(&mut inner);
        Ok(())
    }

    /// These are all endpoints now: what went is out of choice and no longer scraped when this returns, what came is
    /// scraped at once.
    ///
    /// # Errors
    /// More endpoints than a pool can have; nothing is changed.
    pub fn discovered(&self, specs: Vec<Spec>) -> Result<(), TooMany> {
        let mut inner = self.lock();
        inner.table.want(specs)?;
        inner.known = true;
        inner.forget_gone();
        self.0.tell(&mut inner);
        drop(inner);
        self.0.changed.notify_one();
        Ok(())
    }

    /// How the pool is seen now.
    pub fn view(&self) -> View {
        let inner = self.lock();
        let now = self.0.pool.clock().now();
        let endpoints = inner.table.wanted().map(|(spec, seen)| inner.status(spec, seen, now)).collect();
        View { known: inner.known, endpoints, pushed: inner.table.pushed() }
    }

    /// Where the metrics of an endpoint are, if it is wanted and they are scraped.
    pub fn metrics_url(&self, endpoint: &str) -> Option<String> {
        let inner = self.lock();
        inner.table.wanted().find(|(spec, _)| spec.name == endpoint)?.0.metrics_url.clone()
    }

    /// Ends the rounds.
    pub fn stop(&self) {
        if let Some(task) = self.0.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }

    fn adopt_feed(&self, inner: &mut Inner) {
        if let Feed::Configured(specs) = inner.options.feed.clone() {
            match inner.table.want(specs) {
                Ok(()) => inner.known = true,
                Err(error) => {
                    tracing::error!(pool = self.0.pool.name(), %error, "the pool cannot be observed")
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Observer({})", self.0.pool.name())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the pool what changed; one input per request time, oldest first.
    fn tell(&self, inner: &mut Inner) {
        if !inner.known {
            // A saturation figure alone says nothing about endpoints, and would read as a first view of an empty pool.
            return;
        }
        inner.table.worked(self.pool.worked_until());
        loop {
            let now = self.pool.clock().now();
            let requested_at = inner.table.oldest_new().unwrap_or(now);
            let changes = inner.table.changes(requested_at, now, inner.options.staleness);
            let pushed = inner.table.pushed_change();
            // An empty pool is told as well: before the first view nothing is known of it.
            if !inner.told || !changes.is_empty() || pushed != Pushed::Keep {
                let observation = Observation { requested_at, changes: changes.clone(), pushed };
                if self.pool.observe(observation).is_err() {
                    // The differences stay, and go with a later round.
                    return;
                }
                inner.told = true;
            }
            inner.table.logged(&changes, pushed, requested_at, now);
            if inner.table.oldest_new().is_none() {
                return;
            }
        }
    }

    fn take_in(&self, inner: &mut Inner, scraped: &Scraped) {
        let now = self.pool.clock().now();
        let Some(stats) = inner.stats.get_mut(&scraped.name) else {
            return;
        };
        match &scraped.result {
            Ok(load) => {
                stats.scraped += 1;
                inner.table.sampled(&scraped.name, *load, scraped.requested_at, now);
            }
            Err(fault) => {
                stats.faults[fault.index()] += 1;
                stats.last_fault = Some(fault.to_string());
                if let Some(failures) = inner.trouble.note(now) {
                    let (pool, endpoint) = (self.pool.name(), &scraped.name);
                    tracing::warn!(pool, %endpoint, failures, error = %fault, "scrapes fail; the last of them:");
                }
            }
        }
    }
}

impl Trouble {
    /// One more scrape failed; if it is time for a line about it, how many have since the last one.
    fn note(&mut self, now: Micros) -> Option<u64> {
        self.failures += 1;
        if self.said_at.is_some_and(|at| now.since(at) < TROUBLE_EVERY) {
            return None;
        }
        self.said_at = Some(now);
        Some(std::mem::take(&mut self.failures))
    }
}

impl Inner {
    fn status(&self, spec: &Spec, seen: Option<&Seen>, now: Micros) -> EndpointStatus {
        let stats = self.stats.get(&spec.name);
        let age = seen.map(|seen| now.since(seen.received_at));
        EndpointStatus {
            name: spec.name.clone(),
            role: spec.role,
            metrics_url: spec.metrics_url.clone(),
            load: seen.map(|seen| seen.load),
            age,
            fresh: age.is_some_and(|age| age <= self.options.staleness),
            scraped: stats.map_or(0, |stats| stats.scraped),
            faults: stats.map(|stats| stats.faults).unwrap_or_default(),
            last_fault: stats.and_then(|stats| stats.last_fault.clone()),
        }
    }

    /// Figures of endpoints that are gone go with them.
    fn forget_gone(&mut self) {
        let names: BTreeSet<&str> = self.table.wanted().map(|(spec, _)| spec.name.as_str()).collect();
        self.stats.retain(|name, _| names.contains(name.as_str()));
    }

    /// What to scrape: every endpoint with an address.
    fn targets(&mut self) -> Vec<(String, String)> {
        self.forget_gone();
        let targets: Vec<_> = self
            .table
            .wanted()
            .filter_map(|(spec, _)| Some((spec.name.clone(), spec.metrics_url.clone()?)))
            .collect();
        for (name, _) in &targets {
            self.stats.entry(name.clone()).or_default();
        }
        targets
    }
}

/// What the log knows of a pool's endpoints.
fn known(state: &State) -> Vec<Known> {
    let known = state.endpoints().map(|endpoint| Known {
        slot: endpoint.slot,
        name: endpoint.name.to_owned(),
        role: endpoint.role,
        sample: endpoint.sample.map(|(waiting, running, kv)| Load { waiting, running, kv }),
        stale: endpoint.stale,
    });
    known.collect()
}

/// Round after round, for ever.
async fn rounds(shared: Arc<Shared>) {
    let scraper = Scraper::new();
    let (to, mut from) = mpsc::unbounded_channel::<Scraped>();
    let mut busy: BTreeSet<String> = BTreeSet::new();
    let mut round = 0_u64;
    loop {
        round += 1;
        make_good(&shared).await;
        let began = tokio::time::Instant::now();
        let (targets, scrape) = {
            let mut inner = shared.lock();
            (inner.targets(), Arc::new(inner.options.scrape.clone()))
        };
        let requested_at = shared.pool.clock().now();
        let mut awaited = 0_usize;
        for (name, url) in targets {
            if busy.insert(name.clone()) {
                awaited += 1;
                let (scraper, scrape, to) = (scraper.clone(), Arc::clone(&scrape), to.clone());
                tokio::spawn(async move {
                    let result = scraper.scrape(&url, &scrape).await;
                    // The observer may have stopped.
                    let _ = to.send(Scraped { name, round, requested_at, result });
                });
            }
        }
        // What comes within half the round goes into one input; the rest follows with the next.
        let (gathered, over) = (began + scrape.interval / 2, began + scrape.interval);
        let (mut told, mut anew) = (false, false);
        loop {
            if anew && awaited == 0 {
                break;
            }
            if !told && (awaited == 0 || tokio::time::Instant::now() >= gathered) {
                shared.tell(&mut shared.lock());
                told = true;
            }
            let wake = if told { over.min(next_stale(&shared).unwrap_or(over)) } else { gathered };
            tokio::select! {
                Some(scraped) = from.recv() => {
                    busy.remove(&scraped.name);
                    awaited -= usize::from(scraped.round == round);
                    shared.take_in(&mut shared.lock(), &scraped);
                }
                () = tokio::time::sleep_until(wake) => {
                    if told {
                        shared.tell(&mut shared.lock());
                    }
                    if tokio::time::Instant::now() >= over {
                        break;
                    }
                }
                () = shared.changed.notified() => anew = true,
            }
        }
    }
}

/// The pool has lost a round of ours: from what it knows the next one tells it the rest.
async fn make_good(shared: &Shared) {
    let lost = shared.pool.status().views_lost;
    if shared.lock().lost == lost {
        return;
    }
    if let Ok(known) = shared.pool.peek(known).await {
        let mut inner = shared.lock();
        inner.lost = lost;
        inner.told = false;
        inner.table.relearn(known);
    }
}

/// When the next endpoint becomes stale, if that is still to come.
fn next_stale(shared: &Shared) -> Option<tokio::time::Instant> {
    let inner = shared.lock();
    let now = shared.pool.clock().now();
    let stale = inner.table.next_stale(inner.options.staleness)?;
    (stale > now).then(|| tokio::time::Instant::now() + Duration::from_micros(stale.since(now).0))
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
