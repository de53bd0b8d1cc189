//! `/metrics`: figures derived from durable steps, gauges read from the engine at a scrape, and the gateway's own.

mod encode;
mod exemplar;
mod histogram;
mod labels;
mod leases;
mod marks;
mod more;
mod own;
mod projection;
mod revocations;

pub use encode::{BandGauge, PoolGauges};

use encode::Exposition;
use exemplar::Marking;
use labels::Labels;
use projection::{Projection, Shared};
use prometheus_client::encoding::{prometheus_text, text as openmetrics};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_kernel::{Event, Reason, Step};
use weir_log::writer::LogMetrics;
use weir_telemetry::export::Counts;

/// Distinct fairness ids that keep a label of their own.
pub const FLOW_LABELS_MAX: usize = 1_000;
/// Distinct models that keep a label of their own.
pub const MODEL_LABELS_MAX: usize = 1_000;

/// In which form figures are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Prometheus' text format.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0, which has exemplars.
    OpenMetrics,
}

impl Form {
    /// What the media type of the exposition is.
    pub const fn content_type(self) -> &'static str {
        match self {
            Form::Prometheus => prometheus_text::CONTENT_TYPE,
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All figures of the service.
#[derive(Debug)]
pub struct Metrics {
    inner: Mutex<Inner>,
    /// What no log holds: what was refused before it could be an input.
    pub gateway: GatewayCounters,
}

/// Counters of the gateway itself.
#[derive(Debug, Default)]
pub struct GatewayCounters {
    /// Requests refused as malformed (4xx).
    pub invalid: AtomicU64,
    /// Raw priorities ignored because the pool does not trust them.
    pub priority_ignored: AtomicU64,
    /// Priorities lowered to what their caller's token allows.
    pub priority_capped: AtomicU64,
    /// Requests of callers that are not known (401).
    pub unauthenticated: AtomicU64,
    /// Requests of known callers that may not do that (403).
    pub forbidden: AtomicU64,
    /// Arrivals refused because the log could not take them.
    pub log_unavailable: AtomicU64,
    /// Admissions that nobody was there to take.
    pub undelivered: AtomicU64,
    /// Connections open now.
    pub connections: AtomicU64,
    /// Connections turned away at the limit.
    pub connections_refused: AtomicU64,
    /// Requests that are with an endpoint, by way of the proxy.
    pub proxied: AtomicU64,
    /// Connections to endpoints that did not come about.
    pub proxy_unreachable: AtomicU64,
    /// Requests that an endpoint left without an answer, or whose answer broke off.
    pub proxy_broken: AtomicU64,
    /// Gaps in the figures: they fell behind the log and could not catch up.
    pub gaps: AtomicU64,
}

impl GatewayCounters {
    /// Adds one.
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Inner {
    shared: Shared,
    pools: BTreeMap<String, Projection>,
    gauges: Vec<PoolGauges>,
    log: LogMetrics,
    traces: Option<Counts>,
}

impl Metrics {
    /// No figures yet; `models` keep their labels whatever else comes.
    pub fn new(models: &[String]) -> Self {
        let mut reserved = vec![String::new()];
        reserved.extend(models.iter().take(MODEL_LABELS_MAX).cloned());
        let shared = Shared {
            flows: Labels::new(FLOW_LABELS_MAX, &[]),
            models: Labels::new(MODEL_LABELS_MAX + 1, &reserved),
        };
        let inner = Inner {
            shared,
            pools: BTreeMap::new(),
            gauges: Vec::new(),
            log: LogMetrics::default(),
            traces: None,
        };
        Metrics { inner: Mutex::new(inner), gateway: GatewayCounters::default() }
    }

    /// Begins a pool with what its state holds.
    pub fn restate(&self, pool: &str, events: &[Event]) {
        let mut inner = self.lock();
        let Inner { shared, pools, .. } = &mut *inner;
        pools.entry(pool.to_owned()).or_default().restate(events, shared);
    }

    /// Takes in durable steps of a pool; those that are in already count once.
    pub fn apply(&self, pool: &str, steps: &[Step]) {
        let mut inner = self.lock();
        let Inner { shared, pools, .. } = &mut *inner;
        let Some(projection) = pools.get_mut(pool) else { return };
        for step in steps {
            projection.apply(step, shared);
        }
    }

    /// The last step of a pool that the figures hold.
    pub fn seq(&self, pool: &str) -> u64 {
        self.lock().pools.get(pool).map_or(0, |projection| projection.seq)
    }

    /// Refusals of a pool by reason so far.
    pub fn refusals(&self, pool: &str) -> BTreeMap<Reason, u64> {
        self.lock().pools.get(pool).map(|projection| projection.reasons.clone()).unwrap_or_default()
    }

    /// Requests of a pool that wait.
    pub fn waiting(&self, pool: &str) -> u64 {
        self.lock().pools.get(pool).map_or(0, |pool| pool.queues.values().map(|queue| queue.requests).sum())
    }

    /// What became of spans so far, for the next exposition.
    pub fn note_traces(&self, counts: Counts) {
        self.lock().traces = Some(counts);
    }

    /// As [`Metrics::show`] in Prometheus' text format.
    pub fn render(self: &Arc<Self>, gauges: Vec<PoolGauges>, log: LogMetrics, compat: bool) -> String {
        self.show(gauges, log, compat, Form::Prometheus)
    }

    /// The exposition, with the gauges of this moment; those of flow control under llm-d's prefix as well if asked.
    pub fn show(
        self: &Arc<Self>,
        gauges: Vec<PoolGauges>,
        log: LogMetrics,
        compat: bool,
        form: Form,
    ) -> String {
        let mut inner = self.lock();
        (inner.gauges, inner.log) = (gauges, log);
        drop(inner);
        let mut text = String::new();
        let mut registry = Registry::default();
        let prefixes = [("weir", false), ("llm_d_epp", true)];
        let prefixes: Vec<_> = prefixes.into_iter().filter(|(_, compatible)| compat || !compatible).collect();
        for (prefix, flow_control_only) in prefixes.iter().copied() {
            let exposition = Exposition { metrics: Arc::clone(self), flow_control_only };
            registry.sub_registry_with_prefix(prefix).register_collector(Box::new(exposition));
        }
        // Writing to a string cannot fail.
        let _ = match form {
            Form::Prometheus => prometheus_text::encode(&mut text, &registry),
            Form::OpenMetrics => {
                let marks = marks::of(&self.lock(), prefixes.iter().map(|(prefix, _)| *prefix));
                openmetrics::encode(&mut Marking::new(&mut text, marks), &registry)
            }
        };
        text
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
