//! The answer as JSON, with every caveat that the text has.

use super::caveats;
use super::found::Changed;
use super::lockstep::Answer;
use super::logged::Baseline;
use super::print::{FIGURES, changes, fate, interval_of, keys, place};
use super::tally::Tally;
use super::world::World;
use crate::model::PoolModel;
use crate::settings::Candidate;
use serde_json::{Value, json};
use weir_kernel::Micros;

fn tally_json(tally: &Tally) -> Value {
    let outcomes: serde_json::Map<String, Value> = weir_kernel::Outcome::ALL
        .iter()
        .map(|outcome| (outcome.word().to_owned(), json!(tally.outcomes[outcome.index()])))
        .collect();
    let reasons: serde_json::Map<String, Value> =
        tally.reasons.iter().map(|(reason, n)| (reason.word().to_owned(), json!(n))).collect();
    let ms = |q| tally.waits.quantile(q).map(|w: Micros| w.0 as f64 / 1e3);
    json!({
        "arrivals": tally.arrivals,
        "outcomes": outcomes,
        "stillWaiting": tally.waiting,
        "reasons": reasons,
        "shedRate": tally.shed_rate(),
        "waitMs": { "p50": ms(0.5), "p95": ms(0.95), "p99": ms(0.99) },
        "completed": tally.completed(),
        "tokens": tally.tokens,
        "evictions": tally.evictions(),
    })
}

fn beside(answer: &Answer, world: &World) -> Value {
    let empty = Tally::default();
    let pair = |a: Option<&Tally>, b: Option<&Tally>| json!({ "logged": tally_json(a.unwrap_or(&empty)), "candidate": tally_json(b.unwrap_or(&empty)) });
    let (a, b) = (&answer.logged, &world.tallies);
    let bands: serde_json::Map<String, Value> = keys(&a.bands, &b.bands)
        .into_iter()
        .map(|k| (k.to_string(), pair(a.bands.get(k), b.bands.get(k))))
        .collect();
    let objectives: serde_json::Map<String, Value> = keys(&a.objectives, &b.objectives)
        .into_iter()
        .map(|k| (k.clone(), pair(a.objectives.get(k), b.objectives.get(k))))
        .collect();
    let flows: Vec<Value> = keys(&a.flows, &b.flows)
        .into_iter()
        .map(|k| json!({ "priority": k.0, "flow": k.1, "outcomes": pair(a.flows.get(k), b.flows.get(k)) }))
        .collect();
    json!({ "all": pair(Some(&a.all), Some(&b.all)), "bands": bands, "objectives": objectives, "flows": flows })
}

/// The answer as an object.
pub fn json(pool: &str, candidate: &Candidate, answer: &Answer, model: &PoolModel) -> Value {
    let Some(world) = answer.worlds.first() else { return Value::Null };
    let shares = &world.shares;
    let found = interval_of(answer, |world| Some(&world.tallies.all));
    let intervals: serde_json::Map<String, Value> = FIGURES
        .iter()
        .zip(found)
        .filter_map(|((name, _), found)| Some(((*name).to_owned(), json!(found?))))
        .collect();
    let both = caveats::waiting(answer).unwrap_or_default();
    let fitted = !answer.options.open_loop;
    json!({
        "pool": pool,
        "candidate": candidate.shown(),
        "changes": changes(&answer.logged_policy, &answer.policy),
        "firstSequence": answer.range.0,
        "lastSequence": answer.range.1,
        "arrivals": answer.arrivals,
        "requestsInRange": { "logged": answer.requests, "candidate": world.asked },
        "stillWaiting": { "logged": both.0, "candidate": both.1 },
        "requests": { "exact": shares.exact, "shifted": shares.shifted, "flipped": shares.flipped, "unobserved": shares.unobserved },
        "leaseSeconds": fitted.then(|| json!({
            "exact": shares.lease_exact as f64 / 1e6,
            "modelled": shares.lease_modelled as f64 / 1e6,
            "unknown": shares.lease_unknown as f64 / 1e6,
        })),
        "firstDivergence": divergence(answer, world),
        "parted": world.parted_times,
        "outcomes": beside(answer, world),
        "intervals90": intervals,
        "changed": changed(world),
        "baseline": baseline(&answer.baseline),
        "assumptions": assumptions(answer),
        "warnings": caveats::warnings(answer, model),
        "modelRule": if fitted { "fitted" } else { "open-loop" },
        "openLoop": (!fitted).then_some(caveats::OPEN_LOOP),
        "model": fitted.then_some(&model.quality),
        "damaged": answer.damaged.as_ref().map(ToString::to_string),
    })
}

fn divergence(answer: &Answer, world: &World) -> Option<Value> {
    let first = world.first.as_ref()?;
    Some(json!({
        "sequence": first.seq.max(answer.range.0), "at": first.at, "input": first.input,
        "logged": first.logged, "candidate": first.candidate,
        "fromBeginning": first.seq < answer.range.0, "place": place(answer, first),
    }))
}

fn changed(world: &World) -> Option<Vec<Value>> {
    let one = |one: &Changed| {
        json!({
            "request": one.id, "requestId": one.caller_id, "flow": one.group.flow.1, "priority": one.group.band(),
            "logged": fate(one, false), "candidate": fate(one, true),
        })
    };
    Some(world.changed.as_ref()?.iter().map(one).collect())
}

fn baseline(found: &Baseline) -> Value {
    json!({
        "steps": found.steps,
        "taken": found.taken,
        "otherwise": found.otherwise,
        "foreign": found.foreign,
        "trustworthy": found.is_trustworthy(),
        "told": caveats::baseline(found),
    })
}

fn assumptions(answer: &Answer) -> Value {
    json!({
        "patience": caveats::patience_word(answer.options.patience),
        "retrySeconds": answer.options.retry.map(|after| after.0 as f64 / 1e6),
        "seed": answer.options.seed,
        "draws": answer.worlds.len().saturating_sub(1),
        "told": caveats::assumed(answer),
    })
}
