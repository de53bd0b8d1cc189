//! From a vector's `config` to the settings of a pool, through the real loader.
//!
//! The vectors' options become a configuration document with llm-d's keys. What no document can say is put in
//! afterwards: ceilings given one by one for a test, and a ceiling that the loader refuses.

use super::vector::{list, priority};
use serde_json::{Map, Value, json};
use weir_config::{Node, Plugin, parse_plugin};
use weir_kernel::{Detector, Fairness, Micros, Ordering, OutputEstimate, Policy, Ratio, UsageLimit};

/// The settings of a pool as a vector's configuration describes them; scripted saturation is a pushed figure.
pub fn policy(config: &Value) -> Result<Policy, String> {
    let (controller, registry) = (&config["controller"], &config["registry"]);
    let mut plugins = Vec::new();
    // Of these two there is one for all bands, unless a band has its own.
    let common = [("ordering", "orderingPolicyRef"), ("fairness", "fairnessPolicyRef")]
        .map(|(family, key)| (key, family, policy_ref(&config[family], family, family, &mut plugins)));
    let mut flow = Map::new();
    let mut set = |key: &str, value: Option<Value>| value.map(|value| flow.insert(key.to_owned(), value));
    set("maxBytes", count(&registry["max_bytes"]));
    set("maxRequests", count(&registry["max_requests"]));
    set("defaultRequestTTL", span(&controller["default_request_ttl_ms"]));
    // As an option the second budget has a default of its own; only in a file does it follow the first.
    let no_endpoint = span(&controller["no_endpoint_request_ttl_ms"]);
    set("noEndpointRequestTTL", Some(no_endpoint.unwrap_or_else(|| "60s".into())));
    let mut band = |entry: &Value, name: &str| band(entry, name, &common, &mut plugins);
    set("defaultPriorityBand", Some(band(&registry["default_band"], "default")));
    if registry["default_negative_band"].is_object() {
        set("defaultNegativePriorityBand", Some(band(&registry["default_negative_band"], "negative")));
    }
    let mut bands = Vec::new();
    for entry in list(&registry["bands"]) {
        let own = priority(entry, "priority")?;
        let mut listed = band(entry, &own.to_string());
        listed["priority"] = own.into();
        bands.push(listed);
    }
    set("priorityBands", Some(bands.into()));
    let mut collection = Map::new();
    for (from, to) in
        [("flow_gc_timeout_ms", "flowGCTimeout"), ("priority_band_gc_timeout_ms", "priorityBandGCTimeout")]
    {
        span(&registry[from]).map(|span| collection.insert(to.to_owned(), span));
    }
    let document = json!({
        "plugins": plugins,
        "flowControl": flow,
        "pools": { "default": { "registry": collection } },
    });
    let effective = weir_config::resolve(Node::from_json(&document), []);
    let pools = effective.map_err(|mistakes| mistakes.to_string())?.pools;
    let mut policy = pools.get("default").ok_or("there is no pool")?.policy.clone();
    policy.usage_limit = usage_limit(&config["usage_limit"])?;
    policy.detector = detector(&config["saturation"])?;
    let ms = |name: &str| controller[name].as_u64().map(Micros::from_millis);
    let eviction = &mut policy.eviction;
    eviction.enabled = controller["enable_eviction"].as_bool().unwrap_or(false);
    let most = controller["max_revocations_per_decision"].as_u64();
    eviction.max_revocations =
        most.and_then(|most| u32::try_from(most).ok()).unwrap_or(eviction.max_revocations);
    eviction.confirmation_grace = ms("eviction_confirmation_grace_ms").unwrap_or(eviction.confirmation_grace);
    eviction.confirmation_timeout =
        ms("eviction_confirmation_timeout_ms").unwrap_or(eviction.confirmation_timeout);
    Ok(policy)
}

type Common = [(&'static str, &'static str, String); 2];

fn band(entry: &Value, name: &str, common: &Common, plugins: &mut Vec<Value>) -> Value {
    let mut section = Map::new();
    let mut set = |key: &str, value: Option<Value>| value.map(|value| section.insert(key.to_owned(), value));
    set("maxBytes", count(&entry["max_bytes"]));
    set("maxRequests", count(&entry["max_requests"]));
    set("defaultRequestTTL", span(&entry["default_request_ttl_ms"]));
    set("noEndpointRequestTTL", span(&entry["no_endpoint_request_ttl_ms"]));
    for (key, family, shared) in common {
        let own = &entry[*family];
        let reference = if own.is_null() {
            shared.clone()
        } else {
            policy_ref(own, family, &format!("{family}-{name}"), plugins)
        };
        set(key, Some(reference.into()));
    }
    Value::Object(section)
}

/// A plugin of this name for a policy of the vector.
fn policy_ref(policy: &Value, family: &str, name: &str, plugins: &mut Vec<Value>) -> String {
    let word = policy["type"].as_str().or(policy.as_str());
    let default = if family == "ordering" { "fcfs" } else { "global-strict" };
    let mut plugin = json!({ "name": name, "type": type_name(word.unwrap_or(default)) });
    if policy["parameters"].is_object() {
        plugin["parameters"] = policy["parameters"].clone();
    }
    plugins.push(plugin);
    name.to_owned()
}

fn count(value: &Value) -> Option<Value> {
    value.is_number().then(|| value.to_string().into())
}

fn span(ms: &Value) -> Option<Value> {
    ms.is_number().then(|| format!("{ms}ms").into())
}

/// The type of a plugin by the vectors' shorter word for it.
fn type_name(word: &str) -> &str {
    match word {
        "fcfs" => "fcfs-ordering-policy",
        "edf" => "edf-ordering-policy",
        "slo-deadline" => "slo-deadline-ordering-policy",
        "global-strict" => "global-strict-fairness-policy",
        "round-robin" => "round-robin-fairness-policy",
        "program-aware" => "program-aware-fairness",
        "static" => "static-usage-limit-policy",
        "priority-holdback" => "priority-holdback-policy",
        "soft-reflective" => "soft-reflective-ceiling-policy",
        "utilization" => "utilization-detector",
        "concurrency" => "concurrency-detector",
        whole => whole,
    }
}

fn plugin(value: &Value, default: &str) -> Result<Plugin, String> {
    let word = value["type"].as_str().or(value.as_str()).unwrap_or(default);
    let parameters = if value["parameters"].is_object() { value["parameters"].clone() } else { json!({}) };
    parse_plugin(type_name(word), &parameters).map_err(|mistakes| mistakes.to_string())
}

pub fn ordering(value: &Value) -> Result<Ordering, String> {
    match plugin(value, "fcfs")? {
        Plugin::Ordering(ordering) => Ok(ordering),
        other => Err(format!("{other:?} is no ordering")),
    }
}

pub fn fairness(value: &Value) -> Result<Fairness, String> {
    match plugin(value, "global-strict")? {
        Plugin::Fairness(fairness) => Ok(fairness),
        other => Err(format!("{other:?} is no fairness policy")),
    }
}

pub fn usage_limit(value: &Value) -> Result<UsageLimit, String> {
    let given = &value["parameters"];
    if value["type"] == "fixed" {
        let named = given["ceilings"].as_object().into_iter().flatten();
        let ceilings = named.map(|(priority, ceiling)| {
            let priority = priority.parse::<i32>().map_err(|_| format!("{priority} is no priority"))?;
            Ok((priority, ratio(ceiling, Ratio::ONE)))
        });
        let default = ratio(&given["default"], Ratio::ONE);
        return Ok(UsageLimit::Fixed { ceilings: ceilings.collect::<Result<_, String>>()?, default });
    }
    match plugin(value, "static") {
        Ok(Plugin::UsageLimit(limit)) => Ok(limit),
        // The vector is about what such a ceiling does, not about whether it is taken.
        Err(_) if value["type"] == "static" && given["threshold"].is_number() => {
            Ok(UsageLimit::Static { threshold: ratio(&given["threshold"], Ratio::ONE) })
        }
        Ok(other) => Err(format!("{other:?} is no usage limit")),
        Err(refused) => Err(refused),
    }
}

pub fn detector(value: &Value) -> Result<Detector, String> {
    if matches!(value["type"].as_str(), None | Some("scripted")) {
        return Ok(Detector::Pushed);
    }
    match plugin(value, "utilization")? {
        Plugin::Detector(Detector::Concurrency { mode, max_requests, max_tokens, headroom, .. }, _) => {
            let output_estimate = Some(output_estimate());
            Ok(Detector::Concurrency { mode, max_requests, max_tokens, headroom, output_estimate })
        }
        Plugin::Detector(detector, _) => Ok(detector),
        other => Err(format!("{other:?} is no detector")),
    }
}

/// The vectors take the estimate of the output to be on (contract: `addEstimatedOutputTokens`).
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
