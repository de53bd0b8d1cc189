//! Names, help texts and labels of every series, each in one place (seed-system's section on metrics, prefix `weir_`).
//!
//! Not here: running requests, programs, the kernel's times and traces (`more.rs`), revocations (`revocations.rs`).

use super::exemplar::Mark;
use super::histogram::Histogram;
use super::projection::{Projection, QueueKey, Shared};
use super::{Metrics, more, own, revocations};
use crate::engine::Timings;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::Arc;
use weir_kernel::{Outcome, Ratio, Regime};
use weir_log::writer::{FLUSH_BOUNDS_US, LogMetrics};

/// The waits in the queue.
pub(super) const QUEUE_DURATION: &str = "flow_control_request_queue_duration_seconds";

/// A pool at the moment of a scrape.
#[derive(Clone, Debug, Default)]
pub struct PoolGauges {
    /// Its name.
    pub pool: String,
    /// Its regime.
    pub regime: Regime,
    /// Is it ready?
    pub ready: bool,
    /// Can its log be written?
    pub log_writable: bool,
    /// How often the kernel failed, and inputs refused because their like made it fail.
    pub faults: (u64, u64),
    /// Did an operator pause it?
    pub paused: bool,
    /// Its last durable step.
    pub durable: u64,
    /// Saturation as sampled, and with in-flight credit.
    pub saturation: (Ratio, Ratio),
    /// Endpoints, and how many of them have stale metrics.
    pub endpoints: (u64, u64),
    /// Leases.
    pub in_flight: u64,
    /// By how much the last reclamation decision wanted the gauge to fall, and what is still expected of revocations.
    pub reclaim: (Ratio, Ratio),
    /// Its bands.
    pub bands: Vec<BandGauge>,
    /// Limits over all bands: requests and bytes, 0 = none.
    pub limits: (u64, u64),
    /// The detector's name.
    pub detector: String,
    /// Saturation by stage: prefill and decode, where they have endpoints.
    pub stages: (Option<Ratio>, Option<Ratio>),
    /// Programs whose attained service is accounted for, in tokens.
    pub attained: Vec<(String, f64)>,
    /// How long steps took, and how late deadlines were noticed.
    pub timings: Timings,
    /// The head of its chain: the last durable step, and the first 48 bits of its batch's hash.
    pub chain: (u64, u64),
    /// Where its endpoints are discovered: is that known now, and how often it could not be found out.
    pub discovery: Option<(bool, u64)>,
}

/// A band at the moment of a scrape.
#[derive(Clone, Debug, Default)]
pub struct BandGauge {
    /// Its priority.
    pub priority: i32,
    /// Queued requests, and their limit.
    pub requests: (u64, u64),
    /// Queued bytes, and their limit.
    pub bytes: (u64, u64),
    /// Its ceiling.
    pub ceiling: Ratio,
}

/// What the registry asks at each scrape.
#[derive(Debug)]
pub struct Exposition {
    /// What is exposed.
    pub metrics: Arc<Metrics>,
    /// Leave out what is the service's own.
    pub flow_control_only: bool,
}

pub(super) type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let inner = self.metrics.lock();
        counters(&mut encoder, &inner.pools)?;
        queues(&mut encoder, &inner.pools, &inner.shared)?;
        waits(&mut encoder, &inner.pools, &inner.shared)?;
        revocations::encode(&mut encoder, &inner.pools)?;
        more::requests(&mut encoder, &inner.pools, &inner.shared)?;
        gauges(&mut encoder, &inner.gauges)?;
        more::gauges(&mut encoder, &inner.gauges)?;
        if self.flow_control_only {
            return Ok(());
        }
        service(&mut encoder, &inner.gauges)?;
        more::kernel(&mut encoder, &inner.gauges)?;
        more::projections(&mut encoder, &inner.pools)?;
        more::traces(&mut encoder, inner.traces)?;
        log(&mut encoder, &inner.log)?;
        own::encode(&mut encoder, &self.metrics.gateway)
    }
}

/// One series after another under one descriptor.
pub(super) struct Series<'e>(MetricEncoder<'e>);

impl<'e> Series<'e> {
    pub(super) fn counter(
        encoder: &'e mut DescriptorEncoder<'_>,
        name: &'e str,
        help: &str,
    ) -> Result<Self, Error> {
        Ok(Series(encoder.encode_descriptor(name, help, None, MetricType::Counter)?))
    }

    pub(super) fn gauge(
        encoder: &'e mut DescriptorEncoder<'_>,
        name: &'e str,
        help: &str,
    ) -> Result<Self, Error> {
        Ok(Series(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?))
    }

    pub(super) fn count(&mut self, labels: Labels<'_>, value: u64) -> Result<(), Error> {
        self.0.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    /// The same with the last traced request behind it.
    fn count_marked(&mut self, labels: Labels<'_>, value: u64, mark: Option<&Mark>) -> Result<(), Error> {
        let mut encoder = self.0.encode_family(&labels)?;
        match mark.map(Mark::exemplar) {
            Some(counter) => encoder.encode_counter(&value, counter.get().1.as_ref()),
            None => encoder.encode_counter::<NoLabelSet, u64, f64>(&value, None),
        }
    }

    pub(super) fn value(&mut self, labels: Labels<'_>, value: f64) -> Result<(), Error> {
        self.0.encode_family(&labels)?.encode_gauge(&value)
    }
}

/// A counter of a pool.
type OfProjection = fn(&Projection) -> u64;

pub(super) type Pools = BTreeMap<String, Projection>;

fn counters(encoder: &mut DescriptorEncoder<'_>, pools: &Pools) -> Result<(), Error> {
    let mut series =
        Series::counter(encoder, "flow_control_requests", "Requests by queue outcome, as in the log.")?;
    for (pool, figures) in pools {
        for ((outcome, priority), count) in &figures.outcomes {
            let priority = priority.to_string();
            let labels =
                vec![("outcome", outcome.word()), ("priority", &*priority), ("inference_pool", &**pool)];
            series.count_marked(labels, *count, figures.marks.get(outcome))?;
        }
    }
    let mut series =
        Series::counter(encoder, "flow_control_dropped", "Requests refused or evicted from the queue.")?;
    for (pool, figures) in pools {
        for (reason, count) in &figures.reasons {
            series.count(vec![("reason", reason.word()), ("inference_pool", pool)], *count)?;
        }
    }
    let mut series = Series::counter(encoder, "flow_control_lease_ends", "Ends of admitted requests.")?;
    for (pool, figures) in pools {
        for (end, count) in &figures.lease_ends {
            series.count(vec![("end", end.word()), ("inference_pool", pool)], *count)?;
        }
    }
    let mut series = Series::counter(encoder, "flow_control_regime_changes", "Changes of regime.")?;
    for (pool, figures) in pools {
        for ((from, to), count) in &figures.regimes {
            series.count(vec![("from", from.word()), ("to", to.word()), ("inference_pool", pool)], *count)?;
        }
    }
    let mut series = Series::counter(encoder, "flow_control_admin_orders", "Orders of operators.")?;
    for (pool, figures) in pools {
        for (action, count) in &figures.orders {
            series.count(vec![("action", *action), ("inference_pool", &**pool)], *count)?;
        }
    }
    let plain: [(&str, &str, OfProjection); 6] = [
        ("flow_control_arrivals", "Requests that arrived.", |p| p.arrivals),
        ("flow_control_repeated", "Calls that repeated an earlier one by idempotency key.", |p| p.repeated),
        ("flow_control_objective_unknown", "Requests whose objective is not in the table.", |p| {
            p.objective_unknown
        }),
        ("flow_control_ttl_unreadable", "Budget headers that could not be read.", |p| p.ttl_unreadable),
        (
            "flow_control_refused_unlogged",
            "Requests refused unseen while the log could not be written.",
            |p| p.refused_unlogged,
        ),
        ("flow_control_keys_forgotten", "Idempotency keys forgotten to make room.", |p| p.keys_forgotten),
    ];
    for (name, help, of) in plain {
        let mut series = Series::counter(encoder, name, help)?;
        for (pool, figures) in pools {
            series.count(vec![("inference_pool", pool)], of(figures))?;
        }
    }
    Ok(())
}

fn labels<'a>(
    key: &QueueKey,
    priority: &'a str,
    pool: &'a str,
    shared: &'a Shared,
    with_model: bool,
) -> Labels<'a> {
    let mut labels =
        vec![("fairness_id", shared.flows.name(key.flow)), ("priority", priority), ("inference_pool", pool)];
    if with_model {
        let model = shared.models.name(key.model);
        labels.extend([("model_name", model), ("target_model_name", model)]);
    }
    labels
}

/// The labels of a series of waits.
pub(super) fn wait_labels<'a>(
    key: &QueueKey,
    outcome: Outcome,
    priority: &'a str,
    pool: &'a str,
    shared: &'a Shared,
) -> Labels<'a> {
    let mut labels = labels(key, priority, pool, shared, true);
    labels.push(("outcome", outcome.word()));
    labels
}

fn queues(encoder: &mut DescriptorEncoder<'_>, pools: &Pools, shared: &Shared) -> Result<(), Error> {
    for (name, help, bytes) in [
        ("flow_control_queue_size", "Queued requests.", false),
        ("flow_control_queue_bytes", "Queued bytes.", true),
    ] {
        let mut series = Series::gauge(encoder, name, help)?;
        for (pool, figures) in pools {
            for (key, queue) in &figures.queues {
                let priority = key.priority.to_string();
                let value = if bytes { queue.bytes } else { queue.requests };
                series.value(labels(key, &priority, pool, shared, true), value as f64)?;
            }
        }
    }
    Ok(())
}

fn waits(encoder: &mut DescriptorEncoder<'_>, pools: &Pools, shared: &Shared) -> Result<(), Error> {
    let help = "Time in the queue, by how it ended.";
    let mut encoder_of = encoder.encode_descriptor(QUEUE_DURATION, help, None, MetricType::Histogram)?;
    for (pool, figures) in pools {
        for ((key, outcome), histogram) in &figures.waits {
            let priority = key.priority.to_string();
            let labels = wait_labels(key, *outcome, &priority, pool, shared);
            write(&mut encoder_of, &labels, histogram)?;
        }
    }
    let name = "flow_control_request_enqueue_duration_seconds";
    let help = "Time from receipt to the decision to queue or refuse.";
    let mut encoder_of = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (pool, figures) in pools {
        for ((key, outcome), histogram) in &figures.enqueues {
            let priority = key.priority.to_string();
            let mut labels = labels(key, &priority, pool, shared, false);
            // llm-d's word for a request that is queued and has no outcome yet.
            labels.push(("outcome", outcome.map_or("NotYetFinalized", |outcome| outcome.word())));
            write(&mut encoder_of, &labels, histogram)?;
        }
    }
    Ok(())
}

pub(super) fn write(
    encoder: &mut MetricEncoder<'_>,
    labels: &Labels<'_>,
    histogram: &Histogram,
) -> Result<(), Error> {
    let (sum, count, buckets) = (histogram.sum(), histogram.count(), histogram.buckets());
    encoder.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

fn ratio(value: Ratio) -> f64 {
    value.micros() as f64 / 1e6
}

fn share(held: u64, limit: u64) -> f64 {
    held as f64 / limit.max(1) as f64
}

type OfPool = fn(&PoolGauges) -> Option<f64>;

fn gauges(encoder: &mut DescriptorEncoder<'_>, pools: &[PoolGauges]) -> Result<(), Error> {
    let mut series = Series::gauge(encoder, "flow_control_pool_saturation", "1.0 is the set point.")?;
    for pool in pools {
        let stages = [
            ("raw", Some(pool.saturation.0)),
            ("prefill", pool.stages.0),
            ("decode", pool.stages.1),
            ("effective", Some(pool.saturation.1)),
        ];
        for (stage, value) in stages.into_iter().filter_map(|(stage, value)| Some((stage, value?))) {
            series.value(vec![("inference_pool", &pool.pool), ("stage", stage)], ratio(value))?;
        }
    }
    let mut series =
        Series::gauge(encoder, "flow_control_stale_endpoints", "Endpoints whose metrics are too old.")?;
    for pool in pools {
        let labels = vec![("detector", &*pool.detector), ("inference_pool", &*pool.pool)];
        series.value(labels, pool.endpoints.1 as f64)?;
    }
    let mut series = Series::gauge(encoder, "flow_control_regime", "1 for the regime in force.")?;
    for pool in pools {
        for regime in Regime::ALL {
            let labels = vec![("regime", regime.word()), ("inference_pool", &*pool.pool)];
            series.value(labels, f64::from(u8::from(regime == pool.regime)))?;
        }
    }
    band_gauges(encoder, pools)?;
    let plain: [(&str, &str, OfPool); 6] = [
        ("flow_control_global_capacity_utilization_requests", "Queued requests over their limit.", |p| {
            let queued = p.bands.iter().map(|band| band.requests.0).sum();
            (p.limits.0 > 0).then(|| share(queued, p.limits.0))
        }),
        ("flow_control_global_capacity_utilization_bytes", "Queued bytes over their limit.", |p| {
            let queued = p.bands.iter().map(|band| band.bytes.0).sum();
            (p.limits.1 > 0).then(|| share(queued, p.limits.1))
        }),
        ("flow_control_queued", "Queued requests of all bands.", |p| {
            Some(p.bands.iter().map(|band| band.requests.0).sum::<u64>() as f64)
        }),
        (
            "flow_control_reclaim_target",
            "By how much the last reclamation decision wanted the gauge to fall.",
            |p| Some(ratio(p.reclaim.0)),
        ),
        ("flow_control_pending_reclaim", "By how much the gauge is expected to fall by revocations.", |p| {
            Some(ratio(p.reclaim.1))
        }),
        ("flow_control_in_flight", "Admitted requests that have not ended.", |p| Some(p.in_flight as f64)),
    ];
    each_pool(encoder, pools, &plain)
}

fn service(encoder: &mut DescriptorEncoder<'_>, pools: &[PoolGauges]) -> Result<(), Error> {
    let plain: [(&str, &str, OfPool); 6] = [
        (
            "discovery_up",
            "0 while the endpoints of the pool cannot be found out; what was found last stays.",
            |p| p.discovery.map(|(up, _)| f64::from(u8::from(up))),
        ),
        ("pool_paused", "1 while an operator has the pool paused.", |p| Some(f64::from(u8::from(p.paused)))),
        ("pool_endpoints", "Endpoints of the pool.", |p| Some(p.endpoints.0 as f64)),
        ("pool_ready", "1 if the pool may be sent traffic.", |p| Some(f64::from(u8::from(p.ready)))),
        ("log_writable", "1 if decisions can be made durable.", |p| {
            Some(f64::from(u8::from(p.log_writable)))
        }),
        ("log_durable_sequence", "The last durable step of the pool's log.", |p| Some(p.durable as f64)),
    ];
    each_pool(encoder, pools, &plain)?;
    let help = "How often endpoints or objectives of the pool could not be found out.";
    let mut series = Series::counter(encoder, "discovery_failures", help)?;
    for (pool, (_, failures)) in pools.iter().filter_map(|pool| Some((pool, pool.discovery?))) {
        series.count(vec![("inference_pool", &pool.pool)], failures)?;
    }
    let mut series = Series::counter(encoder, "pool_faults", "Inputs that made the kernel fail.")?;
    for pool in pools {
        series.count(vec![("inference_pool", &pool.pool)], pool.faults.0)?;
    }
    let help = "Inputs refused because their like made the kernel fail.";
    let mut series = Series::counter(encoder, "pool_poison_refused", help)?;
    for pool in pools {
        series.count(vec![("inference_pool", &pool.pool)], pool.faults.1)?;
    }
    Ok(())
}

/// One gauge per pool, left out where it has no value.
fn each_pool(
    encoder: &mut DescriptorEncoder<'_>,
    pools: &[PoolGauges],
    plain: &[(&str, &str, OfPool)],
) -> Result<(), Error> {
    for (name, help, of) in plain {
        let mut series = Series::gauge(encoder, name, help)?;
        for pool in pools {
            if let Some(value) = of(pool) {
                series.value(vec![("inference_pool", &pool.pool)], value)?;
            }
        }
    }
    Ok(())
}

fn band_gauges(encoder: &mut DescriptorEncoder<'_>, pools: &[PoolGauges]) -> Result<(), Error> {
    for (name, bytes) in [
        ("flow_control_capacity_utilization_requests", false),
        ("flow_control_capacity_utilization_bytes", true),
    ] {
        let mut series = Series::gauge(encoder, name, "Share of the band's limit in use.")?;
        for pool in pools {
            for band in &pool.bands {
                let (held, limit) = if bytes { band.bytes } else { band.requests };
                let priority = band.priority.to_string();
                let labels = vec![("priority", &*priority), ("inference_pool", &*pool.pool)];
                series.value(labels, share(held, limit))?;
            }
        }
    }
    let mut series =
        Series::gauge(encoder, "flow_control_ceiling", "Saturation at which the band is blocked.")?;
    for pool in pools {
        for band in &pool.bands {
            let priority = band.priority.to_string();
            let labels = vec![("priority", &*priority), ("inference_pool", &*pool.pool)];
            series.value(labels, ratio(band.ceiling))?;
        }
    }
    Ok(())
}

/// The log's writer, which all pools share.
fn log(encoder: &mut DescriptorEncoder<'_>, log: &LogMetrics) -> Result<(), Error> {
    for (name, help, value) in [
        ("log_batches", "Batches made durable.", log.batches),
        ("log_steps", "Steps made durable.", log.steps),
        ("log_bytes", "Bytes of batches made durable.", log.bytes),
        ("log_commit_failures", "Commits that failed.", log.failures),
    ] {
        Series::counter(encoder, name, help)?.count(Vec::new(), value)?;
    }
    let (name, help) = ("log_commit_duration_seconds", "Write and sync of one commit, of all pools.");
    let bounds = FLUSH_BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(log.flush_buckets).collect();
    let sum = log.flush_us as f64 / 1e6;
    let mut histogram = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    histogram.encode_histogram::<NoLabelSet>(sum, log.commits, &buckets, None)
}
