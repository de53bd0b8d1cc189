//! What every handler shares: the pools by name, the limits, the figures.

use super::admin::Upkeep;
use super::ask::{Highest, Terms};
use super::auth::{Actor, Guard};
use super::discovered::Discovered;
use super::history::History;
use super::json::shown;
use super::metrics::{BandGauge, FLOW_LABELS_MAX, GatewayCounters, Metrics, PoolGauges};
use super::options::Options;
use super::outcome::SEARCHES_MAX;
use super::problem::Fault;
use super::proxy::Proxy;
use super::stream::Streams;
use super::tls::Tls;
use crate::engine::PoolHandle;
use crate::observer::Observer;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use tokio::sync::Semaphore;
use weir_kernel::{Face, Fairness, State};
use weir_telemetry::export::Exporter;

/// The pool of calls that name none, where there is more than one.
const DEFAULT_POOL: &str = "default";

/// A pool as the gateway knows it.
#[derive(Debug)]
pub struct PoolFace {
    /// Its engine.
    pub handle: PoolHandle,
    /// Its observer.
    pub observer: Observer,
    /// What its event streams share.
    pub streams: Arc<Streams>,
    trust_priority: AtomicBool,
    configured: AtomicBool,
    /// The name of its detector, as a metric label.
    pub detector: String,
    /// Its objectives, as the log last told them.
    pub objectives: Arc<Objectives>,
    /// What is found of it while it runs.
    pub discovered: Discovered,
}

/// Priorities by objective name, kept beside the engine: who may only have so high a priority is told apart by them.
#[derive(Debug, Default)]
pub struct Objectives(RwLock<BTreeMap<String, i32>>);

impl Objectives {
    /// From here on these hold.
    pub fn set(&self, table: BTreeMap<String, i32>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    /// The priority of a name.
    pub fn get(&self, name: &str) -> Option<i32> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }
}

impl PoolFace {
    /// A pool whose endpoints are pushed and whose callers are not trusted to set a priority.
    pub fn new(handle: PoolHandle, observer: Observer, detector: String) -> Self {
        PoolFace {
            handle,
            observer,
            streams: Arc::default(),
            trust_priority: AtomicBool::new(false),
            configured: AtomicBool::new(false),
            detector,
            objectives: Arc::default(),
            discovered: Discovered::default(),
        }
    }

    /// Is a raw priority honoured?
    pub fn trusts_priority(&self) -> bool {
        self.trust_priority.load(Ordering::Relaxed)
    }

    /// From here on a raw priority is honoured, or not.
    pub fn set_trust_priority(&self, trust: bool) {
        self.trust_priority.store(trust, Ordering::Relaxed);
    }

    /// Are its endpoints those of the settings, or discovered, so that pushing them is refused?
    pub fn is_configured(&self) -> bool {
        self.configured.load(Ordering::Relaxed)
    }

    /// `ip:port` of an endpoint: its name, if that is one, else where its metrics are.
    pub fn address(&self, endpoint: &str) -> Option<String> {
        if endpoint.parse::<SocketAddr>().is_ok() {
            return Some(endpoint.to_owned());
        }
        let url = self.observer.metrics_url(endpoint)?.parse::<http::Uri>().ok()?;
        let authority = url.authority()?;
        let address = match authority.port_u16() {
            Some(_) => authority.as_str().to_owned(),
            None => format!("{}:80", authority.host()),
        };
        address.parse::<SocketAddr>().is_ok().then_some(address)
    }

    /// From here on its endpoints are those of the settings or discovered, or else pushed.
    pub fn set_configured(&self, configured: bool) {
        self.configured.store(configured, Ordering::Relaxed);
    }
}

/// The gateway of one process.
#[derive(Debug)]
pub struct Gateway {
    pools: BTreeMap<String, PoolFace>,
    /// The log of all pools.
    pub history: History,
    /// Limits and times.
    pub options: Options,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// What operators ordered, and how the last reload went.
    pub upkeep: Upkeep,
    /// Places of readers of a log.
    pub log_readers: Arc<Semaphore>,
    /// Places of searches of the log for one request.
    pub searches: Semaphore,
    /// Who may do what.
    pub guard: Guard,
    /// What TLS is spoken with, if it is. Set before anything is served.
    pub tls: OnceLock<Tls>,
    /// Questions to the decision log, if they are answered. Set before anything is served.
    pub graphql: OnceLock<weir_graphql::Service>,
    /// The reverse proxy, if it is on.
    pub proxy: Option<Proxy>,
    /// Where spans go, if they are made. Set before anything is served.
    pub traces: OnceLock<Arc<Exporter>>,
    stopping: AtomicBool,
}

impl Gateway {
    /// A gateway over these pools.
    pub fn new(pools: Vec<PoolFace>, history: History, options: Options) -> Self {
        let metrics = Arc::new(Metrics::new(&options.models));
        let pools = pools.into_iter().map(|pool| (pool.handle.name().to_owned(), pool)).collect();
        let log_readers = Arc::new(Semaphore::new(options.log_readers_max));
        let guard = Guard::default();
        let (searches, stopping) = (Semaphore::new(SEARCHES_MAX), AtomicBool::new(false));
        let proxy = options.proxy.as_ref().map(|proxy| Proxy::new(proxy, &metrics));
        let (upkeep, tls, traces) = (Upkeep::default(), OnceLock::new(), OnceLock::new());
        Gateway {
            pools,
            history,
            options,
            metrics,
            upkeep,
            log_readers,
            searches,
            graphql: OnceLock::new(),
            proxy,
            guard,
            tls,
            traces,
            stopping,
        }
    }

    /// The terms on which this caller's request becomes an arrival at this pool.
    ///
    /// # Errors
    /// The caller is bound to other pools.
    pub fn terms<'g>(
        &'g self,
        pool: &'g PoolFace,
        face: Face,
        actor: Option<&Actor>,
    ) -> Result<Terms<'g>, Fault> {
        if let Some(actor) = actor {
            actor.must_pool(pool.handle.name())?;
        }
        let highest = actor.and_then(Actor::max_priority);
        Ok(Terms {
            now: pool.handle.clock().now(),
            face,
            trust_priority: pool.trusts_priority(),
            highest: highest.map(|priority| Highest { priority, objectives: &pool.objectives }),
            counters: &self.metrics.gateway,
        })
    }

    /// Counts a request that may not pass, as the fault says.
    pub fn turned_away(&self, fault: &Fault) {
        let counters = &self.metrics.gateway;
        match fault {
            Fault::Unauthenticated { .. } => GatewayCounters::add(&counters.unauthenticated),
            Fault::Forbidden { .. } | Fault::PoolForbidden { .. } => {
                GatewayCounters::add(&counters.forbidden)
            }
            _ => {}
        }
    }

    /// The pool of that name; without one the only pool, else the one called `default`.
    ///
    /// # Errors
    /// No such pool.
    pub fn pool(&self, name: Option<&str>) -> Result<&PoolFace, Fault> {
        let found = match name {
            Some(name) => self.pools.get(name),
            None if self.pools.len() == 1 => self.pools.values().next(),
            None => self.pools.get(DEFAULT_POOL),
        };
        found.ok_or_else(|| {
            let mut known: Vec<&str> = self.pools.keys().take(20).map(String::as_str).collect();
            if self.pools.len() > known.len() {
                known.push("…");
            }
            let name = shown(name.unwrap_or(DEFAULT_POOL).as_bytes());
            Fault::NoPool { name, known: known.join(", ") }
        })
    }

    /// Every pool, by name.
    pub fn pools(&self) -> impl Iterator<Item = &PoolFace> {
        self.pools.values()
    }

    /// A stop has begun: no longer ready, whatever the pools say.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Has a stop begun?
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Every pool's gauges at this moment; a pool that does not answer shows what is known without it.
    pub async fn gauges(&self) -> Vec<PoolGauges> {
        let mut all = Vec::with_capacity(self.pools.len());
        for pool in self.pools() {
            let seen = pool.handle.peek(gauges).await.unwrap_or_default();
            let status = pool.handle.status();
            all.push(PoolGauges {
                pool: pool.handle.name().to_owned(),
                regime: status.regime,
                ready: status.ready() && !self.is_stopping(),
                log_writable: status.log_writable,
                durable: status.durable,
                faults: (status.faults, pool.handle.poison_refused()),
                detector: pool.detector.clone(),
                timings: pool.handle.timings(),
                chain: self.history.chain(pool.handle.name()),
                discovery: pool
                    .discovered
                    .standing()
                    .map(|search| (search.faults.is_empty() && search.found, search.failures)),
                ..seen
            });
        }
        all
    }
}

/// Attained service in tokens, where fairness goes by it; of at most so many programs as have labels of their own.
fn attained(state: &State) -> Vec<(String, f64)> {
    let half_life = state.bands().find_map(|band| match band.settings.fairness {
        Fairness::ProgramAware(program) => Some(program.half_life),
        _ => None,
    });
    let Some(half_life) = half_life else { return Vec::new() };
    let names: BTreeSet<&str> = state.flows().map(|(name, _, _)| name).take(FLOW_LABELS_MAX).collect();
    let tokens = |name: &str| Some(state.attained_service(name, half_life)? as f64 / 1e6);
    names.into_iter().filter_map(|name| Some((name.to_owned(), tokens(name)?))).collect()
}

fn gauges(state: &State) -> PoolGauges {
    let bands = state.bands().map(|band| BandGauge {
        priority: band.priority,
        requests: (band.requests, band.settings.max_requests),
        bytes: (band.bytes, band.settings.max_bytes),
        ceiling: band.ceiling,
    });
    let policy = state.policy();
    PoolGauges {
        paused: state.paused().is_some(),
        saturation: state.saturation(),
        stages: state.stage_saturation(),
        attained: attained(state),
        endpoints: (u64::from(state.endpoint_count()), u64::from(state.stale_endpoints())),
        in_flight: state.in_flight(),
        reclaim: (state.reclaim_target(), state.pending_reclaim()),
        bands: bands.collect(),
        limits: (policy.max_requests, policy.max_bytes),
        ..PoolGauges::default()
    }
}
