//! Reading what is pushed to `PUT /v1/pools/{pool}/endpoints`: the whole set of endpoints, a saturation figure of the
//! pusher's own, or both.
//!
//! ```json
//! {"endpoints": [{"name": "10.0.0.1:8000", "role": "decode", "waiting": 2, "running": 14, "kv": 0.61},
//!                {"name": "10.0.0.2:8000", "metricsUrl": "http://10.0.0.2:8000/metrics"}]}
//! {"saturation": 0.85}
//! {"saturation": {"prefill": 0.4, "decode": 0.85}}
//! {"saturation": null}
//! ```
//!
//! Ages are counted from receipt: a sender's clock is not asked. Not here: what becomes of it (the observer).

use super::ask::label;
use super::json::nearest;
use super::problem::Invalid;
use crate::observer::{ENDPOINTS_MAX, Load, Push, Spec, metrics_uri};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use weir_config::url_key;
use weir_kernel::{Pushed, Ratio, Role};

/// Requests that an engine may report as waiting or running.
const REQUESTS_MAX: u64 = 1_000_000_000;

/// The largest saturation figure.
const SATURATION_MAX: f64 = 1_000.0;

/// Reads the body.
///
/// # Errors
/// Names the member, what was found and what is allowed.
pub fn read(body: &[u8]) -> Result<Push, Invalid> {
    let shape = "an object with endpoints, saturation or both";
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Invalid::new("body", body, format!("{shape} ({error})")))?;
    let Value::Object(members) = value else { return Err(Invalid::new("body", body, shape)) };
    known("body", &members, &["endpoints", "saturation"])?;
    if members.is_empty() {
        return Err(Invalid::new("body", body, shape));
    }
    Ok(Push {
        endpoints: members.get("endpoints").map(endpoints).transpose()?,
        saturation: members.get("saturation").map_or(Ok(Pushed::Keep), pushed)?,
    })
}

fn pushed(value: &Value) -> Result<Pushed, Invalid> {
    match value {
        Value::Null => Ok(Pushed::Clear),
        Value::Object(stages) => {
            known("saturation", stages, &["prefill", "decode"])?;
            let of = |name: &str, field| saturation(field, stages.get(name).unwrap_or(&Value::Null));
            Ok(Pushed::Stages {
                prefill: of("prefill", "saturation.prefill")?,
                decode: of("decode", "saturation.decode")?,
            })
        }
        figure => saturation("saturation", figure).map(Pushed::Pool),
    }
}

pub(super) fn known(field: &str, members: &Map<String, Value>, allowed: &[&str]) -> Result<(), Invalid> {
    for key in members.keys() {
        if !allowed.contains(&key.as_str()) {
            let list = allowed.join(", ");
            let hint = match nearest(key, allowed) {
                Some(near) => format!("a known member; did you mean {near}? (known: {list})"),
                None => format!("a known member: {list}"),
            };
            return Err(Invalid::new(field.to_owned(), key, hint));
        }
    }
    Ok(())
}

fn saturation(field: &'static str, value: &Value) -> Result<Ratio, Invalid> {
    match value.as_f64() {
        Some(figure) if (0.0..=SATURATION_MAX).contains(&figure) => Ok(Ratio((figure * 1e6).round() as i64)),
        _ => Err(refused(field.to_owned(), value, "a number from 0 to 1000 (1.0 is the set point)")),
    }
}

pub(super) fn refused(field: String, value: &Value, allowed: &'static str) -> Invalid {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Invalid::new(field, text, allowed)
}

fn endpoints(value: &Value) -> Result<Vec<(Spec, Option<Load>)>, Invalid> {
    let Value::Array(items) = value else {
        return Err(refused("endpoints".to_owned(), value, "a list"));
    };
    if items.len() > ENDPOINTS_MAX {
        return Err(Invalid::new("endpoints", items.len().to_string(), "at most 4096 endpoints"));
    }
    let mut names = BTreeSet::new();
    let mut urls: BTreeMap<String, String> = BTreeMap::new();
    let mut out = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let (spec, load) = endpoint(&format!("endpoints[{index}]"), item)?;
        if !names.insert(spec.name.clone()) {
            let field = format!("endpoints[{index}].name");
            return Err(Invalid::new(field, spec.name, "each name once"));
        }
        if let Some(url) = &spec.metrics_url
            && let Some(other) = urls.insert(url_key(url), spec.name.clone())
        {
            let (field, name) = (format!("endpoints[{index}].metricsUrl"), &spec.name);
            let allowed =
                format!("each URL once: {other} and {name} have the same, and one server would count as two");
            return Err(Invalid::new(field, url, allowed));
        }
        out.push((spec, load));
    }
    Ok(out)
}

fn endpoint(field: &str, value: &Value) -> Result<(Spec, Option<Load>), Invalid> {
    let Value::Object(members) = value else {
        return Err(refused(field.to_owned(), value, "an object"));
    };
    known(field, members, &["name", "role", "metricsUrl", "waiting", "running", "kv"])?;
    let name = match members.get("name") {
        Some(Value::String(name)) if !name.is_empty() => label(format!("{field}.name"), name.as_bytes())?,
        other => {
            let found = other.unwrap_or(&Value::Null);
            return Err(refused(format!("{field}.name"), found, "a string of 1 to 256 bytes"));
        }
    };
    let role = match members.get("role") {
        None | Some(Value::Null) => Role::Decode,
        // Words that are not known are legal: such an endpoint counts in no stage.
        Some(Value::String(role)) => Role::from_label(&label(format!("{field}.role"), role.as_bytes())?),
        Some(other) => return Err(refused(format!("{field}.role"), other, "a string")),
    };
    let metrics_url = match members.get("metricsUrl") {
        None | Some(Value::Null) => None,
        Some(Value::String(url)) if url.len() <= 2_048 && metrics_uri(url).is_ok() => Some(url.clone()),
        Some(other) => {
            return Err(refused(format!("{field}.metricsUrl"), other, "an absolute http:// URL"));
        }
    };
    Ok((Spec { name, role, metrics_url }, load(field, members)?))
}

fn load(field: &str, members: &Map<String, Value>) -> Result<Option<Load>, Invalid> {
    let figures = ["waiting", "running", "kv"].map(|name| members.get(name).filter(|v| !v.is_null()));
    let [waiting, running, kv] = match figures {
        [None, None, None] => return Ok(None),
        [Some(waiting), Some(running), Some(kv)] => [waiting, running, kv],
        // A missing figure must never count as an idle engine.
        _ => {
            let found = Value::Object(members.clone());
            return Err(refused(
                field.to_owned(),
                &found,
                "waiting, running and kv together, or none of them",
            ));
        }
    };
    let requests = |name: &str, value: &Value| {
        let number = value.as_u64().filter(|number| *number <= REQUESTS_MAX);
        let allowed = "a whole number from 0 to 1000000000";
        number.map(|number| number as u32).ok_or_else(|| refused(format!("{field}.{name}"), value, allowed))
    };
    let share = kv.as_f64().filter(|share| (0.0..=1.0).contains(share));
    let share = share.ok_or_else(|| refused(format!("{field}.kv"), kv, "a number from 0 to 1"))?;
    Ok(Some(Load {
        waiting: requests("waiting", waiting)?,
        running: requests("running", running)?,
        kv: (share * 10_000.0).round() as u32,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_set_is_read() {
        let body = br#"{"endpoints":[{"name":"a","role":"prefill","waiting":2,"running":14,"kv":0.61},
            {"name":"b","metricsUrl":"http://b:1/metrics"},{"name":"c","role":"encode"}]}"#;
        let of = |name: &str, role, metrics_url: Option<&str>| Spec {
            name: name.to_owned(),
            role,
            metrics_url: metrics_url.map(str::to_owned),
        };
        let want = vec![
            (of("a", Role::Prefill, None), Some(Load { waiting: 2, running: 14, kv: 6_100 })),
            (of("b", Role::Decode, Some("http://b:1/metrics")), None),
            (of("c", Role::Other, None), None),
        ];
        assert_eq!(read(body), Ok(Push { endpoints: Some(want), saturation: Pushed::Keep }));
        for (body, endpoints, saturation) in [
            (r#"{"endpoints":[]}"#, Some(vec![]), Pushed::Keep),
            (r#"{"saturation":1.7}"#, None, Pushed::Pool(Ratio(1_700_000))),
            (r#"{"endpoints":[],"saturation":0}"#, Some(vec![]), Pushed::Pool(Ratio(0))),
            (r#"{"saturation":null}"#, None, Pushed::Clear),
            (
                r#"{"saturation":{"prefill":0,"decode":0.5}}"#,
                None,
                Pushed::Stages { prefill: Ratio(0), decode: Ratio(500_000) },
            ),
        ] {
            assert_eq!(read(body.as_bytes()), Ok(Push { endpoints, saturation }), "{body}");
        }
    }

    #[test]
    fn c046_what_is_not_allowed_is_named() {
        for (body, field) in [
            ("", "body"),
            ("[]", "body"),
            ("{}", "body"),
            (r#"{"endpoint":[]}"#, "body"),
            (r#"{"endpoints":{}}"#, "endpoints"),
            (r#"{"endpoints":[7]}"#, "endpoints[0]"),
            (r#"{"endpoints":[{"name":""}]}"#, "endpoints[0].name"),
            (r#"{"endpoints":[{"name":"a\u0000"}]}"#, "endpoints[0].name"),
            (r#"{"endpoints":[{"name":"a"},{"name":"a"}]}"#, "endpoints[1].name"),
            (r#"{"endpoints":[{"name":"a","kv":0.5}]}"#, "endpoints[0]"),
            (r#"{"endpoints":[{"name":"a","ageMs":1}]}"#, "endpoints[0]"),
            (r#"{"endpoints":[{"name":"a","metricsUrl":"ftp://a"}]}"#, "endpoints[0].metricsUrl"),
            (
                r#"{"endpoints":[{"name":"a","metricsUrl":"http://a:99999/metrics"}]}"#,
                "endpoints[0].metricsUrl",
            ),
            (
                r#"{"endpoints":[{"name":"a","metricsUrl":"http://a/m"},{"name":"b","metricsUrl":"http://A:80/m"}]}"#,
                "endpoints[1].metricsUrl",
            ),
            (r#"{"endpoints":[{"name":"a","waiting":-1,"running":0,"kv":0}]}"#, "endpoints[0].waiting"),
            (r#"{"endpoints":[{"name":"a","waiting":0,"running":1.5,"kv":0}]}"#, "endpoints[0].running"),
            (r#"{"endpoints":[{"name":"a","waiting":0,"running":0,"kv":1.01}]}"#, "endpoints[0].kv"),
            (r#"{"endpoints":[{"name":"a","waiting":0,"running":0,"kv":"NaN"}]}"#, "endpoints[0].kv"),
            (r#"{"endpoints":[{"name":"a","wating":0}]}"#, "endpoints[0]"),
            (r#"{"saturation":-0.1}"#, "saturation"),
            (r#"{"saturation":1e9}"#, "saturation"),
            (r#"{"saturation":NaN}"#, "body"),
            (r#"{"saturation":{"prefill":1}}"#, "saturation.decode"),
            (r#"{"saturation":{"prefil":1}}"#, "saturation"),
        ] {
            assert_eq!(read(body.as_bytes()).unwrap_err().field, field, "{body}");
        }
    }

    #[test]
    fn one_server_under_two_names_is_refused_with_both() {
        let body = r#"{"endpoints":[{"name":"a","metricsUrl":"http://h:1/m"},{"name":"b","metricsUrl":"http://h:1/m"}]}"#;
        let allowed = read(body.as_bytes()).unwrap_err().allowed;
        assert_eq!(allowed, "each URL once: a and b have the same, and one server would count as two");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = read(&body);
        }
    }
}
