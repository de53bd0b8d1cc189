//! The pool as vectors describe it, as loads for the detectors and as changes for the kernel.

use super::engine::Engine;
use super::settings::ratio;
use super::vector::list;
use serde_json::Value;
use weir_kernel::saturation::{EndpointLoad, Sample, saturation};
use weir_kernel::{Detector, EndpointChange, Micros, Pushed, Ratio, Role};

/// One endpoint of a vector.
pub struct Listed {
    pub id: Option<String>,
    pub load: EndpointLoad,
}

/// The endpoints of an entry: a count of plain ones, or a list in which null is nobody.
pub fn endpoints(detector: &Detector, value: &Value, now_ms: i64) -> Vec<Listed> {
    if let Some(count) = value.as_u64() {
        return (0..count).map(|_| Listed { id: None, load: EndpointLoad::default() }).collect();
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
    let age_ms = now_ms.saturating_sub(endpoint["metrics_at_ms"].as_i64().unwrap_or(now_ms));
    let limit = match detector {
        Detector::Utilization { staleness, .. } => *staleness,
        Detector::Concurrency { .. } | Detector::Pushed => Micros::MAX,
    };
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
    Listed { id, load }
}

/// What the kernel is told to use: metrics are read by itself, everything else is a figure that is pushed.
pub fn detector_at_run_time(detector: &Detector) -> Detector {
    if detector.reads_metrics() { detector.clone() } else { Detector::Pushed }
}

/// One round that replaces the pool by this entry, and the figure that goes with it.
pub fn changes(
    detector: &Detector,
    entry: &Value,
    now_ms: i64,
    engine: &mut Engine,
) -> Result<(Vec<EndpointChange>, Pushed), String> {
    let endpoints = endpoints(detector, &entry["endpoints"], now_ms);
    let mut changes = engine.everyone_leaves();
    for (index, Listed { id, load }) in endpoints.iter().enumerate() {
        let slot = engine.new_slot();
        let name = id.clone().unwrap_or_else(|| format!("endpoint-{index}"));
        changes.push(EndpointChange::Joined { slot, name, role: load.role });
        let Some(sample) = load.sample.filter(|_| detector.reads_metrics()) else { continue };
        let signed = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let (waiting, running, kv) = (signed(sample.waiting), signed(sample.running), signed(sample.kv));
        changes.push(EndpointChange::Sampled { slot, waiting, running, kv });
        if !load.fresh {
            changes.push(EndpointChange::Stale { slot });
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
    Ok((changes, pushed))
}
