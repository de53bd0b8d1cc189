//! Mapping vectors: each outcome is brought about in a pool, and what its caller hears is read from the event.
//!
//! Combinations that no pool of ours can show (an `EvictedOther` that is an expiry, say) are put together from the
//! kernel's own words.

use super::engine::{Engine, at};
use super::headers;
use super::results::{Answer, Fate, Outcomes, Results};
use super::vector::{Step, list, text};
use serde_json::Value;
use weir_kernel::{
    Arrival, BandSettings, Cause, Detector, Event, Input, Micros, Policy, Pushed, Ratio, Reason,
};

/// The operations that this module knows.
pub const OPS: [&str; 3] = ["map_outcome", "infer_outcome", "resolve_ttl"];

/// Runs one operation.
pub fn run(step: &Step, results: &mut Results) -> Result<(), String> {
    let fields = &step.fields;
    let result = match step.op.as_str() {
        "map_outcome" => Outcomes::Http(map(fields)?),
        "infer_outcome" => Outcomes::Word(infer(fields)?),
        "resolve_ttl" => Outcomes::Number(resolve(fields)?),
        other => return Err(format!("operation {other} is not of a mapping")),
    };
    if let Some(name) = &step.name {
        results.named.insert(name.clone(), result);
    }
    Ok(())
}

fn map(fields: &Value) -> Result<Answer, String> {
    let outcome = text(fields, "outcome")?;
    let causes: Vec<&str> = list(&fields["causes"]).iter().filter_map(Value::as_str).collect();
    let empty = fields["pool_empty"].as_bool().unwrap_or(false);
    let fate = match outcome {
        "Dispatched" => return Ok(Answer::admitted()),
        "RejectedCapacity" => overflow(Some(Ratio::ONE))?,
        "RejectedNoEndpoints" => overflow(None)?,
        "EvictedTTL" => expired(Some(Ratio::ONE))?,
        "EvictedNoEndpoints" => expired(None)?,
        "EvictedContextCancelled" => cancelled(Cause::ClientDisconnect)?,
        "EvictedOther" if causes.contains(&"not-running") => stopped(true)?,
        "RejectedOther" if causes.contains(&"not-running") => stopped(false)?,
        "RejectedOther" if causes.contains(&"context-cancelled") && !causes.contains(&"ttl-expired") => {
            too_late()?
        }
        "EvictedOther" if causes == ["evicted"] => cancelled(Cause::Other)?,
        "EvictedOther" | "RejectedOther" | "NotYetFinalized" => {
            return Ok(Answer::refused(in_words(&causes, empty)));
        }
        other => return Err(format!("unknown outcome {other}")),
    };
    if fate.outcome.word() != outcome {
        return Err(format!("the pool that should give {outcome} gave {}", fate.outcome.word()));
    }
    Ok(fate.answer)
}

/// The reason of an outcome that only names its causes, in their order of precedence.
fn in_words(causes: &[&str], empty: bool) -> Reason {
    if causes.contains(&"not-running") {
        Cause::ShuttingDown.reason()
    } else if causes.contains(&"ttl-expired") {
        if empty { Reason::NoEndpoints } else { Reason::TtlExpired }
    } else if causes.contains(&"context-cancelled") {
        Cause::ClientDisconnect.reason()
    } else {
        Cause::Other.reason()
    }
}

fn infer(fields: &Value) -> Result<String, String> {
    let queued = fields["queued"].as_bool().unwrap_or(false);
    let fate = match (queued, fields["cause"].as_str()) {
        (true, Some("ttl-expired")) => expired(Some(Ratio::ONE))?,
        (true, Some("context-cancelled")) => cancelled(Cause::ClientDisconnect)?,
        (true, Some("not-running")) => stopped(true)?,
        (true, _other) => cancelled(Cause::Other)?,
        (false, Some("not-running")) => stopped(false)?,
        // What ends a request before it is queued is one outcome, whatever it was.
        (false, _other) => too_late()?,
    };
    Ok(fate.outcome.word().to_owned())
}

/// A pool with one endpoint at this figure, or none, and room for one request in the queue.
fn pool(figure: Option<Ratio>) -> Result<Engine, String> {
    let settings = BandSettings { max_requests: 1, ..BandSettings::default() };
    let mut policy = Policy { detector: Detector::Pushed, ..Policy::default() };
    policy.saturation_budget = Micros::from_millis(100);
    policy.no_endpoint_budget = Micros::from_millis(100);
    policy.bands.insert(0, settings);
    let mut engine = Engine::new(policy, at(0))?;
    match figure {
        Some(figure) => engine.script(at(0), figure)?,
        None => engine.look(at(0), Vec::new(), Pushed::Keep)?,
    }
    Ok(engine)
}

fn plain() -> Arrival {
    Arrival { received_at: at(0), ..Arrival::default() }
}

fn fate(engine: &Engine, request: weir_kernel::RequestId) -> Result<Fate, String> {
    engine.fate(request).cloned().ok_or_else(|| "the request is still queued".to_owned())
}

fn overflow(figure: Option<Ratio>) -> Result<Fate, String> {
    let mut engine = pool(figure)?;
    engine.arrive(at(0), plain())?;
    let refused = engine.arrive(at(1), plain())?;
    fate(&engine, refused)
}

fn expired(figure: Option<Ratio>) -> Result<Fate, String> {
    let mut engine = pool(figure)?;
    let request = engine.arrive(at(0), plain())?;
    engine.pass(at(100))?;
    fate(&engine, request)
}

fn cancelled(cause: Cause) -> Result<Fate, String> {
    let mut engine = pool(Some(Ratio::ONE))?;
    let request = engine.arrive(at(0), plain())?;
    engine.cancel(at(1), request, cause)?;
    fate(&engine, request)
}

fn stopped(queued: bool) -> Result<Fate, String> {
    let mut engine = pool(Some(Ratio::ONE))?;
    let mut request = engine.arrive(at(0), plain())?;
    engine.feed(at(1), Input::Stopping { drain_until: at(1) })?;
    if !queued {
        request = engine.arrive(at(2), plain())?;
    }
    fate(&engine, request)
}

/// An arrival whose caller has given up by then.
fn too_late() -> Result<Fate, String> {
    let mut engine = pool(Some(Ratio::ONE))?;
    let request = engine.arrive(at(2), Arrival { deadline: Some(at(1)), ..plain() })?;
    fate(&engine, request)
}

/// The effective saturation budget in ms, 0 = none: what the kernel queues it with, or the caller's deadline if sooner.
fn resolve(fields: &Value) -> Result<f64, String> {
    let span = |name: &str| fields[name].as_u64().map(Micros::from_millis);
    let mut policy = Policy { detector: Detector::Pushed, ..Policy::default() };
    policy.saturation_budget = span("global_ms").unwrap_or(policy.saturation_budget);
    policy.bands.insert(0, BandSettings { saturation_budget: span("band_ms"), ..BandSettings::default() });
    let mut engine = Engine::new(policy, at(0))?;
    engine.script(at(0), Ratio::ONE)?;
    let deadline_in = fields["deadline_in_ms"].as_i64();
    let mut arrival = Arrival { deadline: deadline_in.map(at), ..plain() };
    if let Some(header) = fields["header"].as_str() {
        headers::ttl(header, &mut arrival);
    }
    let events = engine.feed(at(0), Input::Arrived(arrival))?;
    let queued = events.iter().find_map(|event| match event {
        Event::Enqueued(enqueued) => Some(enqueued.saturation_budget.0 as f64 / 1e3),
        _other => None,
    });
    let budget = queued.ok_or("it was not queued")?;
    Ok(match deadline_in {
        Some(deadline) if budget == 0.0 => deadline as f64,
        Some(deadline) => budget.min(deadline as f64),
        None => budget,
    })
}
