//! One setting by its path: `defaultRequestTTL=15s`, `priorityBands[0].maxRequests=2000`, `usageLimitPolicy={…}`.
//!
//! A path may begin at the top of a document, or within `flowControl`, `weir` or the pool. Whether a key exists is for
//! the resolving to say.

use super::{CandidateError, json_of};
use serde_json::{Map, Value as Json, json};
use weir_config::nearest;

/// Keys at the top of a document.
const TOP: [&str; 5] = ["featureGates", "plugins", "flowControl", "weir", "pools"];
/// Keys of the section `flowControl`, which may stand alone.
const FLOW: [&str; 10] = [
    "maxBytes",
    "maxRequests",
    "defaultRequestTTL",
    "noEndpointRequestTTL",
    "defaultPriorityBand",
    "defaultNegativePriorityBand",
    "priorityBands",
    "usageLimitPolicyPluginRef",
    "saturationDetector",
    "enableEviction",
];
/// Sections and keys of a pool, which may stand alone.
const POOL: [&str; 7] =
    ["mode", "saturation", "eviction", "registry", "regime", "controller", "trustRequestPriority"];
/// Keys that may stand alone, and where they are.
const ALONE: [(&str, &str); 11] = [
    ("blindAfter", "pools.default.regime.blindAfter"),
    ("inFlightCredit", "pools.default.saturation.inFlightCredit"),
    ("maxRevocationsPerDecision", "pools.default.eviction.maxRevocationsPerDecision"),
    ("confirmationTimeout", "pools.default.eviction.confirmationTimeout"),
    ("confirmationGrace", "pools.default.eviction.confirmationGrace"),
    ("flowGCTimeout", "pools.default.registry.flowGCTimeout"),
    ("priorityBandGCTimeout", "pools.default.registry.priorityBandGCTimeout"),
    ("leaseTimeout", "weir.leaseTimeout"),
    ("ticketTimeout", "weir.ticketTimeout"),
    ("maxDynamicBands", "weir.maxDynamicBands"),
    ("idempotencyKeys", "weir.idempotencyKeys"),
];
/// Of the section `weir`, what decisions depend on.
const WEIR: [&str; 5] =
    ["leaseTimeout", "ticketTimeout", "resumeWindow", "idempotencyKeys", "maxDynamicBands"];
/// Of a pool, what decisions depend on (`mode` is looked at by itself).
const DECIDES: [&str; 7] = ["mode", "saturation", "eviction", "registry", "regime", "flowControl", "plugins"];

/// Does a setting act on the decisions that a log holds? Others act before a request comes to them, or after.
pub fn decides(full: &str) -> bool {
    let mut parts = full.split(['.', '[']);
    match parts.next() {
        Some("weir") => parts.next().is_none_or(|key| WEIR.contains(&key)),
        Some("pools") => parts.nth(1).is_none_or(|key| DECIDES.contains(&key)),
        _ => true,
    }
}

/// The paths of what a part of a document sets.
pub fn leaves(part: &Json) -> Vec<String> {
    fn walk(part: &Json, at: &str, found: &mut Vec<String>) {
        match part {
            Json::Object(map) => map.iter().for_each(|(key, value)| {
                let under = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                walk(value, &under, found);
            }),
            // A section with nothing in it.
            Json::Null => {}
            _ => found.push(at.to_owned()),
        }
    }
    let mut found = Vec::new();
    walk(part, "", &mut found);
    found
}

/// A whole policy in one word: a plugin's name, or `{type, parameters}`; and the key that refers to it.
const POLICIES: [(&str, &str); 2] = [
    ("usageLimitPolicy", "flowControl.usageLimitPolicyPluginRef"),
    ("detector", "flowControl.saturationDetector.pluginRef"),
];
/// The same for a band's own.
const BAND_POLICIES: [(&str, &str); 2] =
    [("fairnessPolicy", "fairnessPolicyRef"), ("orderingPolicy", "orderingPolicyRef")];

/// `PATH=VALUE`, the value in YAML.
pub fn parse(word: &str) -> Result<(String, Json), CandidateError> {
    let refused = |reason: String| CandidateError::Set { word: word.to_owned(), reason };
    let (path, value) = word
        .split_once('=')
        .filter(|(path, _)| !path.trim().is_empty())
        .ok_or_else(|| refused("allowed: PATH=VALUE, as in defaultRequestTTL=15s".to_owned()))?;
    if value.trim().is_empty() {
        return Err(refused("no value; allowed: PATH=VALUE, as in defaultRequestTTL=15s".to_owned()));
    }
    let node = weir_config::parse_yaml(value).map_err(|error| refused(error.message))?;
    let json = json_of(&node).map_err(|key| refused(format!("the key {key} stands twice")))?;
    Ok((path.trim().to_owned(), json))
}

/// A value in one line.
pub fn shown(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The full path of one that may begin within a section.
///
/// # Errors
/// It begins with no key that is known.
pub fn full(path: &str) -> Result<String, CandidateError> {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (head, rest) = path.split_at(end);
    if TOP.contains(&head) {
        return Ok(path.to_owned());
    }
    if FLOW.contains(&head) {
        return Ok(format!("flowControl.{path}"));
    }
    if POOL.contains(&head) {
        return Ok(format!("pools.{}.{path}", weir_config::DEFAULT_POOL));
    }
    if let Some((_, at)) = ALONE.iter().find(|(key, _)| *key == head) {
        return Ok(format!("{at}{rest}"));
    }
    let alone = ALONE.iter().chain(&POLICIES).map(|(key, _)| *key);
    let known = FLOW.into_iter().chain(POOL).chain(alone).chain(TOP);
    let reason = match nearest(head, known.clone()) {
        Some(near) => format!("unknown key {head}; did you mean {near}{rest}?"),
        None => format!("unknown key {head}; known here: {}", known.collect::<Vec<_>>().join(", ")),
    };
    Err(CandidateError::Set { word: path.to_owned(), reason })
}

/// Sets one value in the document.
pub fn set(document: &mut Json, path: &str, value: &Json, pool: Option<&str>) -> Result<(), CandidateError> {
    let home = |full: String| match pool {
        Some(pool) if pool != weir_config::DEFAULT_POOL => {
            let own = format!("pools.{pool}.");
            let top = ["flowControl.", "plugins"].iter().any(|key| full.starts_with(key));
            let default = format!("pools.{}.", weir_config::DEFAULT_POOL);
            if top { own + &full } else { full.replacen(&default, &own, 1) }
        }
        _ => full,
    };
    let last = path.rsplit_once('.');
    if let Some((_, at)) = POLICIES.iter().find(|(key, _)| *key == path) {
        let name = policy(document, path, value);
        return put(document, &home((*at).to_owned()), path, name);
    }
    if let Some((band, key)) = last
        && let Some((_, reference)) = BAND_POLICIES.iter().find(|(known, _)| *known == key)
    {
        let name = policy(document, key, value);
        return put(document, &home(full(&format!("{band}.{reference}"))?), path, name);
    }
    put(document, &home(full(path)?), path, value.clone())
}

/// The name of the plugin that a value means; one that is given whole is defined.
fn policy(document: &mut Json, key: &str, value: &Json) -> Json {
    let Some(kind) = value.get("type") else { return value.clone() };
    let name = format!("candidate-{key}");
    let mut plugin = Map::new();
    plugin.insert("name".to_owned(), json!(name));
    plugin.insert("type".to_owned(), kind.clone());
    for (key, value) in value.as_object().into_iter().flatten().filter(|(key, _)| *key != "type") {
        plugin.insert(key.clone(), value.clone());
    }
    if !document["plugins"].is_array() {
        document["plugins"] = json!([]);
    }
    if let Some(list) = document["plugins"].as_array_mut() {
        list.retain(|known| known["name"] != *name);
        list.push(Json::Object(plugin));
    }
    json!(name)
}

fn put(document: &mut Json, full: &str, word: &str, value: Json) -> Result<(), CandidateError> {
    let refused = |reason: String| CandidateError::Set { word: word.to_owned(), reason };
    let mut at = document;
    for part in full.split('.') {
        let (key, indices) = part.split_once('[').map_or((part, ""), |(key, rest)| (key, rest));
        if !at.is_object() {
            *at = Json::Object(Map::new());
        }
        at = &mut at[key];
        for index in indices.split('[').filter(|index| !index.is_empty()) {
            let index: usize = index
                .trim_end_matches(']')
                .parse()
                .map_err(|_| refused(format!("[{index} is no index; allowed: a whole number in brackets")))?;
            if at.is_null() {
                *at = json!([]);
            }
            let Some(list) = at.as_array_mut() else { return Err(refused(format!("{key} is no list"))) };
            let len = list.len();
            if index > len {
                return Err(refused(format!("{key} has {len} entries; allowed: an index from 0 to {len}")));
            }
            if index == len {
                list.push(Json::Object(Map::new()));
            }
            at = &mut list[index];
        }
    }
    *at = value;
    Ok(())
}

/// Lays `patch` over `document`: sections are merged, everything else is replaced; a section with nothing in it (or with
/// nothing but comments) changes nothing.
pub fn merge(document: &mut Json, patch: &Json) {
    match (document, patch) {
        (Json::Object(into), Json::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Json::Null), value);
            }
        }
        (Json::Object(_), Json::Null) => {}
        (at, value) => *at = value.clone(),
    }
}
