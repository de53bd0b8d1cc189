//! Names, help texts and labels of the series that are neither queues nor counters of outcomes: running requests, programs,
//! the kernel's own times, the chain, traces.

use super::encode::{PoolGauges, Pools, Series, write};
use super::projection::Shared;
use crate::engine::{STEP_BOUNDS_NS, Spread};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt::Error;
use weir_telemetry::export::Counts;

/// Whole requests.
pub const PROCESSING_DURATION: &str = "request_processing_duration_seconds";

/// Running requests, whole requests and programs, as seed-system's section on metrics names them.
pub fn requests(encoder: &mut DescriptorEncoder<'_>, pools: &Pools, shared: &Shared) -> Result<(), Error> {
    for (name, help, tokens) in [
        ("inflight_requests", "Admitted requests that have not ended, by endpoint where it is known.", false),
        ("inflight_tokens", "Prompt tokens of those, as far as they are known.", true),
    ] {
        let mut series = Series::gauge(encoder, name, help)?;
        for (pool, figures) in pools {
            for (key, load) in &figures.leases.loads {
                let priority = key.priority.to_string();
                let labels = vec![
                    ("endpoint_name", figures.leases.endpoint(key)),
                    ("namespace", ""),
                    ("producer_name", "weir"),
                    ("fairness_id", shared.flows.name(key.flow)),
                    ("priority", &*priority),
                    ("inference_pool", &**pool),
                ];
                series.value(labels, if tokens { load.tokens } else { load.requests } as f64)?;
            }
        }
    }
    let (name, help) = (PROCESSING_DURATION, "From receipt to the end of admitted requests.");
    let mut histogram = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (pool, figures) in pools {
        write(&mut histogram, &vec![("inference_pool", &**pool)], &figures.leases.processing)?;
    }
    let (name, help) =
        ("flow_control_retry_after_seconds", "Retry-After as it was given; none given is not counted.");
    let mut histogram = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (pool, figures) in pools {
        write(&mut histogram, &vec![("inference_pool", &**pool)], &figures.retry_after)?;
    }
    programs(encoder, pools, shared)
}

fn programs(encoder: &mut DescriptorEncoder<'_>, pools: &Pools, shared: &Shared) -> Result<(), Error> {
    let (name, help) =
        ("program_aware_jains_fairness_index", "Of the mean waits of fairness ids; 1.0 = all alike.");
    let mut series = Series::gauge(encoder, name, help)?;
    for (pool, figures) in pools {
        series.value(vec![("inference_pool", &**pool)], figures.leases.jain())?;
    }
    let (name, help) = ("program_aware_avg_wait_time_milliseconds", "Mean wait of admitted requests.");
    let mut series = Series::gauge(encoder, name, help)?;
    for (pool, figures) in pools {
        for (flow, mean) in figures.leases.mean_waits() {
            let labels = vec![("program_id", shared.flows.name(flow)), ("inference_pool", &**pool)];
            series.value(labels, mean as f64 / 1e3)?;
        }
    }
    Ok(())
}

/// Attained service, by stage saturation and blindness: what only the state knows.
pub fn gauges(encoder: &mut DescriptorEncoder<'_>, pools: &[PoolGauges]) -> Result<(), Error> {
    let (name, help) =
        ("program_aware_attained_service_tokens", "Attained service of programs, decayed to now.");
    let mut series = Series::gauge(encoder, name, help)?;
    for pool in pools {
        for (program, tokens) in &pool.attained {
            let labels = vec![("program_id", &**program), ("inference_pool", &*pool.pool)];
            series.value(labels, *tokens)?;
        }
    }
    let help = "1 while endpoints exist and the metrics of none are fresh.";
    let mut series = Series::gauge(encoder, "flow_control_blind", help)?;
    for pool in pools {
        let blind = pool.endpoints.0 > 0 && pool.endpoints.0 == pool.endpoints.1;
        series.value(vec![("inference_pool", &*pool.pool)], f64::from(u8::from(blind)))?;
    }
    let (name, help) =
        ("flow_control_dispatch_cycle_duration_seconds", "Steps of the kernel: each decides what is due.");
    steps(encoder, pools, name, help, |pool| &pool.timings.steps)
}

/// The kernel's own times.
pub fn kernel(encoder: &mut DescriptorEncoder<'_>, pools: &[PoolGauges]) -> Result<(), Error> {
    let (name, help) = ("kernel_step_duration_seconds", "Time the kernel takes for a step.");
    steps(encoder, pools, name, help, |pool| &pool.timings.steps)?;
    let (name, help) = ("kernel_deadline_lateness_seconds", "From a deadline to the step that acts on it.");
    steps(encoder, pools, name, help, |pool| &pool.timings.lateness)?;
    // 48 bits of the hash are exact in a gauge, and no label grows with the log.
    let help = "The last durable step of the chain's head, read together with its hash.";
    let mut series = Series::gauge(encoder, "log_chain_head_sequence", help)?;
    for pool in pools {
        series.value(vec![("inference_pool", &*pool.pool)], pool.chain.0 as f64)?;
    }
    let help = "The first 48 bits of the hash of the last durable batch, as a number.";
    let mut series = Series::gauge(encoder, "log_chain_head_hash", help)?;
    for pool in pools {
        series.value(vec![("inference_pool", &*pool.pool)], pool.chain.1 as f64)?;
    }
    Ok(())
}

fn steps(
    encoder: &mut DescriptorEncoder<'_>,
    pools: &[PoolGauges],
    name: &str,
    help: &str,
    of: fn(&PoolGauges) -> &Spread,
) -> Result<(), Error> {
    let mut histogram = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for pool in pools {
        let spread = of(pool);
        let bounds = STEP_BOUNDS_NS.iter().map(|ns| *ns as f64 / 1e9).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(spread.counts).collect();
        let (sum, count) = (spread.sum_ns as f64 / 1e9, spread.counts.iter().sum());
        let labels = vec![("inference_pool", &*pool.pool)];
        histogram.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

/// How far what is derived from the log is.
pub fn projections(encoder: &mut DescriptorEncoder<'_>, pools: &Pools) -> Result<(), Error> {
    let help = "The last step of the log that a projection holds.";
    let mut series = Series::gauge(encoder, "projection_sequence", help)?;
    for (pool, figures) in pools {
        let labels = vec![("projection", "metrics"), ("inference_pool", &**pool)];
        series.value(labels, figures.seq as f64)?;
    }
    Ok(())
}

/// What became of spans, where they are made.
pub fn traces(encoder: &mut DescriptorEncoder<'_>, counts: Option<Counts>) -> Result<(), Error> {
    let Some(counts) = counts else { return Ok(()) };
    let help = "Spans that the receiver took.";
    Series::counter(encoder, "traces_spans_exported", help)?.count(Vec::new(), counts.exported)?;
    let help = "Spans that were dropped; the log has them.";
    let mut series = Series::counter(encoder, "traces_spans_dropped", help)?;
    series.count(vec![("cause", "queue_full")], counts.full)?;
    series.count(vec![("cause", "export_failed")], counts.failed)?;
    let help = "Requests whose spans were given up before they were made; the log has them.";
    Series::counter(encoder, "traces_requests_skipped", help)?.count(Vec::new(), counts.lagged)
}
