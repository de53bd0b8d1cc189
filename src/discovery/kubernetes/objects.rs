//! What matters of each kind of object; fields that decide nothing here are not looked at.

use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use weir_kernel::Role;

/// Takes what matters from an object.
///
/// The error names the field, what was found and what is allowed.
pub type Read<T> = fn(&Value) -> Result<T, String>;

/// The label by which a pod says what it does.
const ROLE_LABEL: &str = "llm-d.ai/role";
/// The most target ports of an InferencePool.
const PORTS_MAX: usize = 8;

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Addresses that are ready.
    pub ready: BTreeSet<IpAddr>,
    /// Its ports by name.
    pub ports: Vec<(String, u16)>,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its address, once it has one.
    pub ip: Option<IpAddr>,
    /// It may be sent requests.
    pub ready: bool,
    /// What it says of itself.
    pub role: Option<Role>,
}

/// What an InferencePool selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The labels of its pods, as a selector.
    pub labels: String,
    /// Its target ports.
    pub ports: Vec<u16>,
}

/// An InferenceObjective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objective {
    /// The InferencePool that it concerns.
    pub pool: String,
    /// Its priority; absent means 0.
    pub priority: i32,
}

fn wrong(field: &str, found: &Value, allowed: &str) -> String {
    let mut shown: String = found.to_string().chars().take(80).collect();
    if found.is_null() {
        shown = "nothing".to_owned();
    }
    format!("{field}: found {shown}, allowed: {allowed}")
}

fn list<'v>(object: &'v Value, field: &str) -> Result<&'v [Value], String> {
    match &object[field] {
        Value::Null => Ok(&[]),
        Value::Array(list) => Ok(list),
        other => Err(wrong(field, other, "a list")),
    }
}

fn port(field: &str, value: &Value) -> Result<u16, String> {
    let number = value.as_u64().and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
    number.ok_or_else(|| wrong(field, value, "a port from 1 to 65535"))
}

fn address(field: &str, value: &Value) -> Result<IpAddr, String> {
    let ip = value.as_str().and_then(|text| text.parse().ok());
    ip.ok_or_else(|| wrong(field, value, "an IP address"))
}

/// Reads an EndpointSlice. Of an endpoint's addresses only the first means anything; one whose `ready` is not said is ready.
pub fn slice(object: &Value) -> Result<Slice, String> {
    let kind = object["addressType"].as_str().unwrap_or_default();
    if !["IPv4", "IPv6"].contains(&kind) {
        return Err(wrong("addressType", &object["addressType"], "IPv4 or IPv6"));
    }
    let mut ready = BTreeSet::new();
    for endpoint in list(object, "endpoints")? {
        let is_ready = match &endpoint["conditions"]["ready"] {
            Value::Null => true,
            Value::Bool(ready) => *ready,
            other => return Err(wrong("endpoints.conditions.ready", other, "true or false")),
        };
        if is_ready {
            ready.insert(address("endpoints.addresses", &endpoint["addresses"][0])?);
        }
    }
    let mut ports = Vec::new();
    // A port that is null stands for all of them, which is of no use here.
    for entry in list(object, "ports")?.iter().filter(|entry| !entry["port"].is_null()) {
        let name = entry["name"].as_str().unwrap_or_default().to_owned();
        ports.push((name, port("ports.port", &entry["port"])?));
    }
    Ok(Slice { ready, ports })
}

/// The ready addresses of all slices of a Service at the port that is wanted: by name, by number, or the only one.
///
/// # Errors
/// Slices with ready addresses have no such port, or which one is meant is not said.
pub fn addresses_of_slices<'s>(
    slices: impl Iterator<Item = &'s Slice>,
    wanted: Option<&str>,
) -> Result<BTreeSet<SocketAddr>, String> {
    let mut found = BTreeSet::new();
    for slice in slices.filter(|slice| !slice.ready.is_empty()) {
        let by_name = |name: &str| slice.ports.iter().find(|port| port.0 == name).map(|port| port.1);
        let number = wanted.and_then(|wanted| wanted.parse::<u16>().ok());
        let port = match (wanted, number) {
            // A number need not be among the ports of the Service.
            (_, Some(number)) => Some(number),
            (Some(name), None) => by_name(name),
            (None, None) => {
                Some(slice.ports.as_slice()).filter(|ports| ports.len() == 1).map(|ports| ports[0].1)
            }
        };
        let Some(port) = port else {
            let known: Vec<String> =
                slice.ports.iter().map(|(name, port)| format!("{name:?} ({port})")).collect();
            let wanted = wanted.unwrap_or("the only one");
            return Err(format!("port: {wanted} is wanted, the slices have {}", known.join(", ")));
        };
        found.extend(slice.ready.iter().map(|ip| SocketAddr::new(*ip, port)));
    }
    Ok(found)
}

/// Reads a pod. One that is being deleted is not ready, whatever its condition still says.
pub fn pod(object: &Value) -> Result<Pod, String> {
    let status = &object["status"];
    let ip = match &status["podIP"] {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        other => Some(address("status.podIP", other)?),
    };
    let conditions = list(status, "conditions").map_err(|error| format!("status.{error}"))?;
    let condition = conditions.iter().find(|condition| condition["type"] == "Ready");
    let ready = condition.is_some_and(|condition| condition["status"] == "True")
        && status["phase"] == "Running"
        && object["metadata"]["deletionTimestamp"].is_null();
    let role = object["metadata"]["labels"][ROLE_LABEL].as_str().map(Role::from_label);
    Ok(Pod { ip, ready, role })
}

/// Reads an InferencePool of either group.
pub fn inference_pool(object: &Value) -> Result<Selection, String> {
    let spec = &object["spec"];
    let selector = &spec["selector"];
    if !selector["matchExpressions"].is_null() {
        return Err(wrong("spec.selector", selector, "matchLabels alone"));
    }
    // The older group has the labels without `matchLabels` around them.
    let labels = if selector["matchLabels"].is_object() { &selector["matchLabels"] } else { selector };
    let labels = labels.as_object().filter(|labels| !labels.is_empty());
    let labels = labels.ok_or_else(|| wrong("spec.selector", selector, "at least one label"))?;
    let mut pairs = Vec::new();
    for (key, value) in labels {
        let value = value.as_str().ok_or_else(|| wrong("spec.selector", selector, "labels with texts"))?;
        if key.contains([',', '=', '!', ' ']) || value.contains([',', '=', '!', ' ']) {
            return Err(wrong("spec.selector", selector, "labels"));
        }
        pairs.push(format!("{key}={value}"));
    }
    let mut ports = Vec::new();
    for target in list(spec, "targetPorts")? {
        ports.push(port("spec.targetPorts.number", &target["number"])?);
    }
    if ports.is_empty() {
        ports.push(port("spec.targetPorts", &spec["targetPortNumber"])?);
    }
    if ports.len() > PORTS_MAX {
        return Err(wrong("spec.targetPorts", &spec["targetPorts"], "at most 8 ports"));
    }
    Ok(Selection { labels: pairs.join(","), ports })
}

/// Reads an InferenceObjective.
pub fn objective(object: &Value) -> Result<Objective, String> {
    let spec = &object["spec"];
    let pool = spec["poolRef"]["name"].as_str().filter(|name| !name.is_empty());
    let pool = pool.ok_or_else(|| {
        wrong("spec.poolRef.name", &spec["poolRef"]["name"], "the name of an InferencePool")
    })?;
    let priority = match &spec["priority"] {
        Value::Null => 0,
        number => number
            .as_i64()
            .and_then(|number| i32::try_from(number).ok())
            .ok_or_else(|| wrong("spec.priority", number, "an integer from -2147483648 to 2147483647"))?,
    };
    Ok(Objective { pool: pool.to_owned(), priority })
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
