//! From a vector's `config` to the settings of a pool.

use super::vector::{list, priority};
use serde_json::Value;
use std::collections::BTreeMap;
use weir_kernel::{
    BandSettings, ConcurrencyMode, Detector, Fairness, HoldbackDomain, Micros, Ordering, OutputEstimate,
    Policy, ProgramAware, Ratio, UsageLimit,
};

/// The settings of a pool as a vector's configuration describes them; scripted saturation is a pushed figure.
pub fn policy(config: &Value) -> Result<Policy, String> {
    let (controller, registry) = (&config["controller"], &config["registry"]);
    let mut policy = Policy::default();
    let span = |value: &Value, otherwise: Micros| match value.as_u64() {
        Some(ms) => Micros::from_millis(ms),
        None => otherwise,
    };
    policy.saturation_budget = span(&controller["default_request_ttl_ms"], policy.saturation_budget);
    policy.no_endpoint_budget = span(&controller["no_endpoint_request_ttl_ms"], policy.no_endpoint_budget);
    policy.flow_idle = span(&registry["flow_gc_timeout_ms"], policy.flow_idle);
    policy.band_idle = span(&registry["priority_band_gc_timeout_ms"], policy.band_idle);
    policy.max_bytes = registry["max_bytes"].as_u64().unwrap_or(0);
    policy.max_requests = registry["max_requests"].as_u64().unwrap_or(0);
    policy.usage_limit = usage_limit(&config["usage_limit"])?;
    policy.detector = detector(&config["saturation"])?;
    let common = BandSettings {
        ordering: ordering(&config["ordering"]["type"])?,
        fairness: fairness(&config["fairness"])?,
        ..BandSettings::default()
    };
    policy.template = band(&registry["default_band"], &common)?;
    if registry["default_negative_band"].is_object() {
        policy.negative_template = Some(band(&registry["default_negative_band"], &common)?);
    }
    policy.bands = BTreeMap::from([(0, policy.template.clone())]);
    for entry in list(&registry["bands"]) {
        policy.bands.insert(priority(entry, "priority")?, band(entry, &common)?);
    }
    Ok(policy)
}

fn band(entry: &Value, common: &BandSettings) -> Result<BandSettings, String> {
    let limit = |name: &str, otherwise: u64| match entry[name].as_u64() {
        // Zero is "not set" here (seed-system.md 3.3).
        None | Some(0) => otherwise,
        Some(limit) => limit,
    };
    let mut settings = common.clone();
    settings.max_requests = limit("max_requests", settings.max_requests);
    settings.max_bytes = limit("max_bytes", settings.max_bytes);
    settings.saturation_budget = entry["default_request_ttl_ms"].as_u64().map(Micros::from_millis);
    settings.no_endpoint_budget = entry["no_endpoint_request_ttl_ms"].as_u64().map(Micros::from_millis);
    if !entry["ordering"].is_null() {
        settings.ordering = ordering(type_of(&entry["ordering"]))?;
    }
    if !entry["fairness"].is_null() {
        settings.fairness = fairness(&entry["fairness"])?;
    }
    Ok(settings)
}

/// `"x"` and `{"type": "x"}` say the same.
fn type_of(value: &Value) -> &Value {
    if value.is_object() { &value["type"] } else { value }
}

pub fn ordering(name: &Value) -> Result<Ordering, String> {
    match name.as_str() {
        None | Some("fcfs" | "fcfs-ordering-policy") => Ok(Ordering::Fcfs),
        Some("edf" | "edf-ordering-policy") => Ok(Ordering::Edf),
        Some("slo-deadline" | "slo-deadline-ordering-policy") => Ok(Ordering::SloDeadline),
        Some(other) => Err(format!("unknown ordering {other}")),
    }
}

pub fn fairness(value: &Value) -> Result<Fairness, String> {
    match type_of(value).as_str() {
        None | Some("global-strict" | "global-strict-fairness-policy") => Ok(Fairness::GlobalStrict),
        Some("round-robin" | "round-robin-fairness-policy") => Ok(Fairness::RoundRobin),
        Some("program-aware" | "program-aware-fairness") => {
            let (given, default) = (&value["parameters"], ProgramAware::default());
            let seconds = |name: &str, otherwise: Micros| match given[name].as_f64() {
                Some(seconds) => Micros((seconds * 1e6) as u64),
                None => otherwise,
            };
            Ok(Fairness::ProgramAware(ProgramAware {
                weight_service: ratio(&given["lasWeightService"], default.weight_service),
                weight_head_wait: ratio(&given["lasWeightHeadWait"], default.weight_head_wait),
                half_life: seconds("lasHalfLifeSeconds", default.half_life),
                state_ttl: seconds("evictionTtlSeconds", default.state_ttl),
                state_sweep: seconds("evictionSweepSeconds", default.state_sweep),
            }))
        }
        Some(other) => Err(format!("unknown fairness {other}")),
    }
}

pub fn usage_limit(value: &Value) -> Result<UsageLimit, String> {
    let given = &value["parameters"];
    match value["type"].as_str() {
        None | Some("static") => Ok(UsageLimit::Static { threshold: ratio(&given["threshold"], Ratio::ONE) }),
        Some("priority-holdback") => Ok(UsageLimit::Holdback {
            min: ratio(&given["minCeiling"], Ratio::ZERO),
            max: ratio(&given["maxCeiling"], Ratio::ONE),
            domain: match given["domain"].as_str() {
                Some("value") => HoldbackDomain::Value,
                _rank => HoldbackDomain::Rank,
            },
        }),
        Some("soft-reflective") => Ok(UsageLimit::SoftReflective),
        Some("fixed") => {
            let named = given["ceilings"].as_object().into_iter().flatten();
            let ceilings = named.map(|(priority, ceiling)| {
                let priority = priority.parse::<i32>().map_err(|_| format!("{priority} is no priority"))?;
                Ok((priority, ratio(ceiling, Ratio::ONE)))
            });
            let default = ratio(&given["default"], Ratio::ONE);
            Ok(UsageLimit::Fixed { ceilings: ceilings.collect::<Result<_, String>>()?, default })
        }
        Some(other) => Err(format!("unknown usage limit {other}")),
    }
}

pub fn detector(value: &Value) -> Result<Detector, String> {
    let given = &value["parameters"];
    let count = |name: &str, otherwise: u64| given[name].as_u64().unwrap_or(otherwise);
    let headroom = ratio(&given["headroom"], Ratio::ZERO);
    match value["type"].as_str() {
        None | Some("scripted") => Ok(Detector::Pushed),
        Some("utilization") => Ok(Detector::Utilization {
            queue_depth: u32::try_from(count("queueDepthThreshold", 5)).unwrap_or(u32::MAX),
            kv: ratio(&given["kvCacheUtilThreshold"], Ratio(800_000)),
            staleness: match given["metricsStalenessThreshold"].as_str() {
                Some(text) => weir_config::parse_duration(text).map_err(|error| error.to_string())?,
                None => Micros::from_millis(200),
            },
            headroom,
        }),
        Some("concurrency") => Ok(Detector::Concurrency {
            mode: match given["concurrencyMode"].as_str() {
                Some("tokens") => ConcurrencyMode::Tokens,
                Some("hybrid") => ConcurrencyMode::Hybrid,
                _requests => ConcurrencyMode::Requests,
            },
            max_requests: count("maxConcurrency", 100),
            max_tokens: count("maxTokenConcurrency", 1_000_000),
            headroom,
            output_estimate: Some(output_estimate()),
        }),
        Some(other) => Err(format!("unknown detector {other}")),
    }
}

/// The vectors take the estimate of the output to be on (contract.md, *Conformance vectors and these rows*).
pub fn output_estimate() -> OutputEstimate {
    OutputEstimate { ratio: Ratio(1_500_000), cap: 0 }
}

/// A gauge of the vectors in millionths.
pub fn ratio(value: &Value, otherwise: Ratio) -> Ratio {
    match value.as_f64() {
        Some(number) => Ratio((number * 1e6).round() as i64),
        None => otherwise,
    }
}
