//! The settings that decided: their history, the ones in force at a moment, what differs.

use crate::ask::{Ask, Out, wrong};
use crate::fault::Fault;
use crate::values::{hex, time};
use serde_json::{Map, Value, json};
use weir_kernel::Policy;
use weir_projection::{Moment, PolicyBegan};

const HISTORY: usize = 200;

/// `Query.configurations`.
pub fn all(ask: &Ask<'_>) -> Result<Out, Fault> {
    Ok(json!({ "pool": ask.pool()?.name() }).into())
}

fn of_parent(ask: &Ask<'_>) -> Result<Vec<PolicyBegan>, Fault> {
    Ok(ask.pool_named(ask.of_parent("pool")?)?.policies(ask.work())?)
}

fn parsed(policy: &PolicyBegan) -> Value {
    serde_json::from_str(&policy.json).unwrap_or_default()
}

fn value(list: &[PolicyBegan], place: usize) -> Value {
    let policy = &list[place];
    let defaults = || serde_json::to_value(Policy::default()).unwrap_or_default();
    let before = place.checked_sub(1).and_then(|place| list.get(place)).map_or_else(defaults, parsed);
    let now = parsed(policy);
    let mut changes = Vec::new();
    differences("", Some(&before), Some(&now), &mut changes);
    json!({
        "sequence": policy.spot.seq,
        "from": time(policy.spot.at),
        "until": list.get(place + 1).map(|next| time(next.spot.at)),
        "digest": hex(&policy.digest),
        "policy": now,
        "changes": changes,
    })
}

/// `Configurations.history`.
pub fn history(ask: &Ask<'_>) -> Result<Out, Fault> {
    let list = of_parent(ask)?;
    let shown = list.len().saturating_sub(HISTORY)..list.len();
    Ok(Out::Value(shown.map(|place| value(&list, place)).collect()))
}

/// `Configurations.at`.
pub fn at(ask: &Ask<'_>) -> Result<Out, Fault> {
    let list = of_parent(ask)?;
    let pool = ask.pool_named(ask.of_parent("pool")?)?;
    let moment = ask.moment(pool)?;
    let in_force = list.iter().rposition(|policy| match moment {
        Moment::Seq(seq) => policy.spot.seq <= seq,
        Moment::Time(at) => policy.spot.at <= at,
    });
    Ok(in_force.map_or(Out::None, |place| Out::Value(value(&list, place))))
}

/// `Configurations.diff`.
pub fn diff(ask: &Ask<'_>) -> Result<Out, Fault> {
    let list = of_parent(ask)?;
    let named = |argument: &'static str| {
        let seq = ask.number(argument)?.unwrap_or(0);
        let found = list.iter().find(|policy| policy.spot.seq == seq).map(parsed);
        let known = || list.iter().map(|policy| policy.spot.seq.to_string()).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| {
            wrong(argument, &seq.to_string(), &format!("a step that put settings in force: {}", known()))
        })
    };
    let (a, b) = (named("a")?, named("b")?);
    let mut changes = Vec::new();
    differences("", Some(&a), Some(&b), &mut changes);
    Ok(Out::Value(changes.into()))
}

/// Every leaf that differs, by its path.
pub fn differences(path: &str, before: Option<&Value>, after: Option<&Value>, out: &mut Vec<Value>) {
    if before == after {
        return;
    }
    let none = Map::new();
    let (left, right) = match (before, after) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => (left, right),
        (Some(Value::Object(left)), None) => (left, &none),
        (None, Some(Value::Object(right))) => (&none, right),
        _ => {
            out.push(json!({ "path": path, "before": before, "after": after }));
            return;
        }
    };
    for key in left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))) {
        let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        differences(&inner, left.get(key), right.get(key), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_that_differs_is_named_by_its_path() {
        let a = json!({ "x": 1, "bands": { "0": { "max": 5 }, "3": { "max": 1 } }, "same": [1] });
        let b = json!({ "x": 2, "bands": { "0": { "max": 5, "ttl": 9 } }, "same": [1] });
        let mut found = Vec::new();
        differences("", Some(&a), Some(&b), &mut found);
        let paths: Vec<&str> = found.iter().filter_map(|change| change["path"].as_str()).collect();
        assert_eq!(paths, ["bands.0.ttl", "bands.3.max", "x"]);
        assert_eq!((&found[2]["before"], &found[2]["after"]), (&json!(1), &json!(2)));
    }
}
