//! Parts of a configuration by themselves: JSON in, the resolved part as JSON out, through the same reading as a file.
//!
//! For programs that hold a part and not a file. `controller` and `registry` take snake case and milliseconds, the others
//! the keys of a document. Not here: any rule of its own.

use crate::effective::{Effective, PoolSettings};
use crate::load::{DEFAULT_POOL, resolve};
use crate::node::{Node, Origin};
use crate::plugins::{fairness_name, ordering_name, parameters_of};
use crate::report::{Mistakes, Report};
use crate::scalar::Scalar;
use crate::section::{Reading, Row};
use crate::tables::PLUGIN_TYPES;
use serde_json::{Map, Value as Json, json};
use weir_kernel::{BandSettings, Micros, UsageLimit};

/// Validates and resolves one part:
///
/// - `controller`, `registry`: options in snake case, spans in milliseconds (`default_request_ttl_ms`);
/// - `loader`: a section `flowControl`;
/// - `document`: `featureGates`, `plugins` (a name alone stands for a detector of that name) and `flowControl` of an
///   `EndpointPickerConfig`;
/// - `fairness`, `usage_limit`, `saturation`: `type` (the plugin's type, or its first words) and `parameters`.
///
/// # Errors
/// Every mistake in it, and a layer that is not one of these.
pub fn layer(name: &str, input: &Json) -> Result<Json, Mistakes> {
    match name {
        "controller" => controller(input),
        "registry" => registry(input),
        "loader" => of_document(&json!({ "flowControl": input })).map(|effective| loader_view(&effective)),
        "document" => document(input),
        "fairness" | "usage_limit" | "saturation" => plugin(input),
        _ => {
            let allowed = "controller, registry, loader, document, fairness, usage_limit or saturation";
            Err(one("layer", format!("\"{name}\""), allowed))
        }
    }
}

fn one(path: &str, found: impl Into<String>, allowed: &str) -> Mistakes {
    let mut report = Report::default();
    report.value(path, &Origin::Given, found, allowed);
    Mistakes { file: None, list: report.mistakes }
}

fn of_document(document: &Json) -> Result<Effective, Mistakes> {
    resolve(Node::from_json(document), [])
}

fn pool(effective: &Effective) -> Option<&PoolSettings> {
    effective.pools.get(DEFAULT_POOL)
}

fn ms(span: Micros) -> Json {
    span.as_millis().into()
}

/// Moves `input`'s keys to a section of the document; a key in `_ms` becomes a span.
fn moved(input: &Json, names: &[(&str, &str)], unknown: &mut Vec<String>) -> Map<String, Json> {
    let mut section = Map::new();
    for (key, value) in input.as_object().into_iter().flatten() {
        match names.iter().find(|(from, _)| from == key) {
            Some((from, to)) => {
                let span = from.ends_with("_ms") && value.is_number();
                let value = if span { Json::String(format!("{value}ms")) } else { value.clone() };
                section.insert((*to).to_owned(), value);
            }
            None => unknown.push(key.clone()),
        }
    }
    section
}

fn refuse_unknown(unknown: &[String], known: &[&[(&str, &str)]]) -> Result<(), Mistakes> {
    let is_known = |key: &String| known.iter().any(|names| names.iter().any(|(from, _)| from == key));
    match unknown.iter().find(|key| !is_known(key)) {
        Some(key) => Err(one(key, format!("\"{key}\""), "a key of this layer")),
        None => Ok(()),
    }
}

const BUDGETS: [(&str, &str); 3] = [
    ("default_request_ttl_ms", "defaultRequestTTL"),
    ("no_endpoint_request_ttl_ms", "noEndpointRequestTTL"),
    ("enable_eviction", "enableEviction"),
];
const CONTROLLER: [(&str, &str); 5] = [
    ("expiry_cleanup_interval_ms", "expiryCleanupInterval"),
    ("enqueue_channel_buffer_size", "enqueueChannelBufferSize"),
    ("max_revocations_per_decision", "maxRevocationsPerDecision"),
    ("eviction_confirmation_grace_ms", "evictionConfirmationGrace"),
    ("eviction_confirmation_timeout_ms", "evictionConfirmationTimeout"),
];
const LIMITS: [(&str, &str); 2] = [("max_bytes", "maxBytes"), ("max_requests", "maxRequests")];
const COLLECTION: [(&str, &str); 2] =
    [("flow_gc_timeout_ms", "flowGCTimeout"), ("priority_band_gc_timeout_ms", "priorityBandGCTimeout")];
const BAND: [(&str, &str); 7] = [
    ("priority", "priority"),
    ("max_bytes", "maxBytes"),
    ("max_requests", "maxRequests"),
    ("ordering", "orderingPolicyRef"),
    ("fairness", "fairnessPolicyRef"),
    ("default_request_ttl_ms", "defaultRequestTTL"),
    ("no_endpoint_request_ttl_ms", "noEndpointRequestTTL"),
];
const BANDS: [&str; 3] = ["bands", "default_band", "default_negative_band"];

fn controller(input: &Json) -> Result<Json, Mistakes> {
    let mut unknown = Vec::new();
    let mut flow = moved(input, &BUDGETS, &mut unknown);
    let controller = moved(input, &CONTROLLER, &mut unknown);
    refuse_unknown(&unknown, &[&BUDGETS, &CONTROLLER])?;
    // At this level the second budget has a default of its own; only in a file does it follow the first.
    flow.entry("noEndpointRequestTTL").or_insert_with(|| "60s".into());
    let document = json!({ "flowControl": flow, "pools": { DEFAULT_POOL: { "controller": controller } } });
    let effective = of_document(&document)?;
    Ok(pool(&effective).map_or(Json::Null, controller_view))
}

fn controller_view(pool: &PoolSettings) -> Json {
    let constants = &pool.controller;
    json!({
        "default_request_ttl_ms": ms(pool.policy.saturation_budget),
        "no_endpoint_request_ttl_ms": ms(pool.policy.no_endpoint_budget),
        "expiry_cleanup_interval_ms": ms(constants.expiry_cleanup_interval),
        "enqueue_channel_buffer_size": constants.enqueue_channel_buffer_size,
        "enable_eviction": constants.enable_eviction,
        "max_revocations_per_decision": constants.max_revocations_per_decision,
        "eviction_confirmation_grace_ms": ms(constants.eviction_confirmation_grace),
        "eviction_confirmation_timeout_ms": ms(constants.eviction_confirmation_timeout),
    })
}

fn registry(input: &Json) -> Result<Json, Mistakes> {
    let mut unknown = Vec::new();
    let mut flow = moved(input, &LIMITS, &mut unknown);
    let collection = moved(input, &COLLECTION, &mut unknown);
    let bands: Vec<(&str, &str)> = BANDS.into_iter().map(|key| (key, key)).collect();
    refuse_unknown(&unknown, &[&LIMITS, &COLLECTION, &bands])?;
    let listed = input.get("bands").and_then(Json::as_array).cloned().unwrap_or_default();
    let listed = listed.iter().map(band).collect::<Result<Vec<Json>, Mistakes>>()?;
    flow.insert("priorityBands".to_owned(), Json::Array(listed));
    for (from, to) in
        [("default_band", "defaultPriorityBand"), ("default_negative_band", "defaultNegativePriorityBand")]
    {
        if let Some(template) = input.get(from) {
            flow.insert(to.to_owned(), band(template)?);
        }
    }
    let document = json!({ "flowControl": flow, "pools": { DEFAULT_POOL: { "registry": collection } } });
    let effective = of_document(&document)?;
    Ok(pool(&effective).map_or(Json::Null, registry_view))
}

/// A band; null stays null and is refused as such. Here a policy may be left out, but not be null.
fn band(input: &Json) -> Result<Json, Mistakes> {
    if input.is_null() {
        return Ok(Json::Null);
    }
    let mut unknown = Vec::new();
    let section = moved(input, &BAND, &mut unknown);
    refuse_unknown(&unknown, &[])?;
    for (key, family) in [("fairness", "fairness policy"), ("ordering", "ordering policy")] {
        if input.get(key).is_some_and(Json::is_null) {
            return Err(one(key, "null", &format!("the name of a {family}")));
        }
    }
    Ok(Json::Object(section))
}

fn registry_view(pool: &PoolSettings) -> Json {
    let policy = &pool.policy;
    let bands: Map<String, Json> =
        policy.bands.iter().map(|(priority, band)| (priority.to_string(), band_view(band))).collect();
    json!({
        "max_bytes": policy.max_bytes,
        "max_requests": policy.max_requests,
        "band_count": policy.bands.len(),
        "bands": bands,
        "default_band": band_view(&policy.template),
        "default_negative_band": policy.negative_template.as_ref().map(band_view),
        "flow_gc_timeout_ms": ms(policy.flow_idle),
        "priority_band_gc_timeout_ms": ms(policy.band_idle),
    })
}

fn band_view(band: &BandSettings) -> Json {
    json!({
        "max_bytes": band.max_bytes,
        "max_requests": band.max_requests,
        "ordering": ordering_name(band.ordering),
        "fairness": fairness_name(&band.fairness),
        "default_request_ttl_ms": band.saturation_budget.map(ms),
        "no_endpoint_request_ttl_ms": band.no_endpoint_budget.map(ms),
    })
}

fn loader_view(effective: &Effective) -> Json {
    let Some(pool) = pool(effective) else { return Json::Null };
    let mut limit = json!({ "ref": pool.usage_limit_name });
    if let (UsageLimit::Static { threshold }, Json::Object(map)) = (&pool.policy.usage_limit, &mut limit) {
        map.insert("threshold".to_owned(), (threshold.micros() as f64 / 1e6).into());
    }
    json!({ "controller": controller_view(pool), "registry": registry_view(pool), "usage_limit": limit })
}

fn document(input: &Json) -> Result<Json, Mistakes> {
    let mut document = input.as_object().cloned().unwrap_or_default();
    document.insert("kind".to_owned(), crate::gates::LLM_D_KIND.into());
    if let Some(Json::Array(plugins)) = document.get_mut("plugins") {
        for plugin in plugins.iter_mut() {
            if let Json::String(name) = plugin {
                *plugin = json!({ "name": name, "type": "utilization-detector" });
            }
        }
    }
    let effective = of_document(&Json::Object(document))?;
    Ok(pool(&effective).map_or(Json::Null, |pool| {
        json!({
            "flow_control_enabled": pool.policy.flow_control,
            "ignored_section_warning": pool.section_ignored,
            "saturation_detector": pool.detector_name,
        })
    }))
}

fn plugin(input: &Json) -> Result<Json, Mistakes> {
    let word = input.get("type").and_then(Json::as_str).unwrap_or_default();
    let known = PLUGIN_TYPES.iter().find(|known| known.name == word || starts(known.name, word));
    let Some(known) = known else { return Err(one("type", format!("\"{word}\""), "a plugin type")) };
    let mut reading = Reading::default();
    let node = input.get("parameters").map(Node::from_json);
    let plugin = parameters_of(&mut reading, known, node.as_ref(), "parameters", &Origin::Given);
    if !reading.report.mistakes.is_empty() || plugin.is_none() {
        return Err(Mistakes { file: None, list: reading.report.mistakes });
    }
    let value = |row: &Row| match row.value {
        Scalar::Span(span) if row.path.ends_with("Seconds") => (span.0 as f64 / 1e6).into(),
        Scalar::Span(_) => Json::String(row.value.to_string()),
        _ => row.value.to_json(),
    };
    let name = |row: &Row| row.path.trim_start_matches("parameters.").to_owned();
    Ok(Json::Object(reading.rows.iter().map(|row| (name(row), value(row))).collect()))
}

/// `priority-holdback` stands for `priority-holdback-policy`.
fn starts(name: &str, word: &str) -> bool {
    !word.is_empty() && name.strip_prefix(word).is_some_and(|rest| rest.starts_with('-'))
}
