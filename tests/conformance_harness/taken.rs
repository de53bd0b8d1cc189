//! Do the expectations hold that are about leases taken back, and about the closed loop?

use super::expect::{equal, same, texts, value};
use super::plant::Metrics;
use super::results::{Outcomes, Results, Taken};
use super::vector::text;
use serde_json::Value;
use std::collections::BTreeMap;

/// Right after a step.
pub fn after_a_step(kind: &str, want: &Value, after: &Taken) -> Result<(), String> {
    match kind {
        "revoked" => revoked(want, &after.revoked),
        "in_flight" => {
            same(&want["in_flight"], after.in_flight)?;
            same(&want["evictable"], after.evictable)
        }
        "gate" => same(&want["open"], after.gate_open),
        "pending_reclaim" => value(want, after.pending),
        "peek" => {
            same(&want["id"], after.best.as_ref().map(|(name, _)| name.clone()))?;
            same(&want["priority"], after.best.as_ref().map(|(_, priority)| *priority))
        }
        other => Err(format!("such a step has no {other}")),
    }
}

/// Who was revoked, or how many.
pub fn revoked(want: &Value, names: &[String]) -> Result<(), String> {
    if want["ids"].is_array() {
        equal(&texts(&want["ids"]), &names.to_vec())
    } else {
        bounded(want, "count", names.len() as f64).map_err(|found| format!("{found}: {names:?}"))
    }
}

/// Exactly so many, or within bounds.
pub fn bounded(want: &Value, exact: &str, got: f64) -> Result<(), String> {
    let holds = want[exact].as_f64().is_none_or(|want| want == got)
        && want["min"].as_f64().is_none_or(|min| got >= min)
        && want["max"].as_f64().is_none_or(|max| got <= max);
    if holds { Ok(()) } else { Err(format!("found {got}")) }
}

/// How often the end of a revoked request was reported.
pub fn terminations(want: &Value, results: &Results) -> Result<(), String> {
    let wanted = want["counts"].as_object().ok_or("counts is no object")?;
    let wanted: BTreeMap<String, u64> =
        wanted.iter().map(|(name, count)| (name.clone(), count.as_u64().unwrap_or(0))).collect();
    equal(&wanted, &results.terminations)
}

/// Recorded values, in any order.
pub fn observations(want: &Value, results: &Results) -> Result<(), String> {
    let mut got = results.confirmation_ms.clone();
    got.sort_by(f64::total_cmp);
    let wanted: Vec<f64> = super::vector::list(&want["equals"]).iter().filter_map(Value::as_f64).collect();
    match text(want, "name")? {
        "revocation_confirmation_ms" => equal(&wanted, &got),
        other => Err(format!("nobody records {other}")),
    }
}

/// What the caller of a running request hears: the reason of a revocation, or nothing.
pub fn response(want: &Value, results: &Results) -> Result<(), String> {
    let id = text(want, "id")?;
    let reason = weir_kernel::Reason::Evicted;
    let told = results.revoked.iter().any(|(_, name)| name == id);
    same(&want["status"], told.then(|| reason.status()))?;
    same(&want["reason"], told.then(|| reason.llm_d_word()))
}

/// One metric of a closed loop.
pub fn metric(want: &Value, metrics: &Metrics) -> Result<(), String> {
    let name = text(want, "name")?;
    let got = metrics.get(name).copied().ok_or_else(|| format!("there is no metric {name}"))?;
    match want["equals"].as_bool() {
        Some(flag) => same(&Value::from(flag), got != 0.0),
        None => value(want, got).map_err(|found| format!("{found} among {metrics:?}")),
    }
}

/// One metric against another times a factor.
pub fn compare(want: &Value, results: &Results) -> Result<(), String> {
    let side = |side: &str| match results.of(&want[side])? {
        Outcomes::Metrics(metrics) => {
            let name = text(&want[side], "name")?;
            metrics.get(name).copied().ok_or_else(|| format!("there is no metric {name}"))
        }
        other => Err(format!("the step gave {other:?}, which has no metrics")),
    };
    let (left, right) = (side("left")?, side("right")? * want["factor"].as_f64().unwrap_or(1.0));
    let holds = match text(want, "op")? {
        "lt" => left < right,
        "le" => left <= right,
        "gt" => left > right,
        "ge" => left >= right,
        "eq" => left == right,
        other => return Err(format!("there is no comparison {other}")),
    };
    if holds { Ok(()) } else { Err(format!("found {left} and {right}")) }
}
