//! The pool as vectors describe it, as loads for the detectors and as changes for the kernel.

use super::engine::{Engine, at};
use super::settings::ratio;
use super::vector::list;
use serde_json::Value;
use weir_kernel::saturation::{EndpointLoad, Sample, saturation};
use weir_kernel::{Detector, EndpointChange, Micros, Pushed, Ratio, Role, Slot};

/// One endpoint of a vector.
pub struct Listed {
    pub id: Option<String>,
    pub load: EndpointLoad,
    /// When its metrics were scraped; none = always now.
    pub scraped_ms: Option<i64>,
}

/// The endpoints of an entry: a count of plain ones, or a list in which null is nobody.
pub fn endpoints(detector: &Detector, value: &Value, now_ms: i64) -> Vec<Listed> {
    if let Some(count) = value.as_u64() {
        return (0..count)
            .map(|_| Listed { id: None, load: EndpointLoad::default(), scraped_ms: None })
            .collect();
    }
    list(value)
        .iter()
        .filter(|endpoint| !endpoint.is_null())
        .map(|endpoint| listed(detector, endpoint, now_ms))
        .collect()
}

fn listed(detector: &Detector, endpoint: &Value, now_ms: i64) -> Listed {
    let count = |name: &str| endpoint[name].as_u64().unwrap_or(0);
    let has_metrics = endpoint["metrics"].as_bool().unwrap_or(true);
    let sample = has_metrics.then(|| Sample {
        waiting: u32::try_from(count("queue_depth")).unwrap_or(u32::MAX),
        running: 0,
        // Ten-thousandths from millionths.
        kv: u32::try_from((ratio(&endpoint["kv_usage"], Ratio::ZERO).0 + 50) / 100).unwrap_or(0),
    });
    let scraped_ms = endpoint["metrics_at_ms"].as_i64();
    let age_ms = now_ms.saturating_sub(scraped_ms.unwrap_or(now_ms));
    let limit = staleness(detector);
    let id = endpoint["id"].as_str().map(str::to_owned);
    // Load is kept by identity: an endpoint without one counts as idle.
    let held = |name: &str| if id.is_some() { count(name) } else { 0 };
    let load = EndpointLoad {
        role: Role::from_label(endpoint["role"].as_str().unwrap_or_default()),
        sample,
        fresh: has_metrics && Micros::from_millis(u64::try_from(age_ms).unwrap_or(0)) <= limit,
        requests: held("inflight_requests"),
        tokens: held("inflight_tokens"),
        ..EndpointLoad::default()
    };
    Listed { id, load, scraped_ms }
}

fn staleness(detector: &Detector) -> Micros {
    match detector {
        Detector::Utilization { staleness, .. } => *staleness,
        Detector::Concurrency { .. } | Detector::Pushed => Micros::MAX,
    }
}

/// What the kernel is told to use: metrics are read by itself, everything else is a figure that is pushed.
pub fn detector_at_run_time(detector: &Detector) -> Detector {
    if detector.reads_metrics() { detector.clone() } else { Detector::Pushed }
}

/// One round that replaces the pool.
#[derive(Default)]
pub struct Round {
    pub changes: Vec<EndpointChange>,
    /// A figure that was computed elsewhere.
    pub pushed: Pushed,
    /// When metrics that are fresh now become too old, for the endpoints whose age the vector gives.
    pub stale_at: Vec<(Micros, Slot)>,
}

/// The round that makes the pool what this entry says.
pub fn round(detector: &Detector, entry: &Value, now_ms: i64, engine: &mut Engine) -> Round {
    let endpoints = endpoints(detector, &entry["endpoints"], now_ms);
    let (mut changes, mut stale_at) = (engine.everyone_leaves(), Vec::new());
    for (index, Listed { id, load, scraped_ms }) in endpoints.iter().enumerate() {
        let slot = engine.new_slot();
        let name = id.clone().unwrap_or_else(|| format!("endpoint-{index}"));
        changes.push(EndpointChange::Joined { slot, name, role: load.role });
        let Some(sample) = load.sample.filter(|_| detector.reads_metrics()) else { continue };
        let signed = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let (waiting, running, kv) = (signed(sample.waiting), signed(sample.running), signed(sample.kv));
        changes.push(EndpointChange::Sampled { slot, waiting, running, kv });
        match (load.fresh, scraped_ms) {
            (false, _) => changes.push(EndpointChange::Stale { slot }),
            // Exactly at the limit is still fresh.
            (true, Some(ms)) => stale_at.push((at(*ms) + staleness(detector) + Micros(1), slot)),
            // Metrics without an age are always of now.
            (true, None) => {}
        }
    }
    let scripted = &entry["saturation"];
    let pushed = match detector {
        Detector::Utilization { .. } => Pushed::Keep,
        Detector::Concurrency { .. } => {
            let loads: Vec<EndpointLoad> = endpoints.iter().map(|listed| listed.load).collect();
            let read = saturation(detector, &loads, false);
            match (read.prefill, read.decode) {
                (None, None) => Pushed::Pool(read.effective),
                (prefill, decode) => Pushed::Stages {
                    prefill: prefill.unwrap_or(Ratio::ZERO),
                    decode: decode.unwrap_or(Ratio::ZERO),
                },
            }
        }
        Detector::Pushed if scripted.is_object() => Pushed::Stages {
            prefill: ratio(&scripted["prefill"], Ratio::ZERO),
            decode: ratio(&scripted["decode"], Ratio::ZERO),
        },
        Detector::Pushed if scripted.is_number() => Pushed::Pool(ratio(scripted, Ratio::ONE)),
        Detector::Pushed => Pushed::Clear,
    };
    Round { changes, pushed, stale_at }
}
