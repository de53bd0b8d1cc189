//! The answer for people and as JSON, each figure beside how it was come by.

use super::command::{Args, ModelRule, WhatIfError};
use super::found::{Changed, Divergence, Shares};
use super::lockstep::Answer;
use super::tally::Tally;
use super::world::{PatienceRule, World};
use crate::model::PoolModel;
use crate::settings::Candidate;
use serde_json::{Value, json};
use std::io;
use weir_kernel::{Micros, Policy, RequestId};
use weir_log::describe::{show_span, show_time};
use weir_log::say;

/// Rows of flows that are printed.
const FLOWS_TOLD: usize = 20;

/// A figure of a row of counts.
type Figure = (&'static str, fn(&Tally) -> f64);

/// The figures of each row, in order.
pub const FIGURES: [Figure; 9] = [
    ("admitted", |t| (t.decided() - t.shed()) as f64),
    ("shed", |t| t.shed() as f64),
    ("shed rate %", |t| t.shed_rate() * 100.0),
    ("wait p50 ms", |t| wait(t, 0.5)),
    ("wait p95 ms", |t| wait(t, 0.95)),
    ("wait p99 ms", |t| wait(t, 0.99)),
    ("completed", |t| t.completed() as f64),
    ("tokens", |t| t.tokens as f64),
    ("evicted", |t| t.evictions() as f64),
];

fn wait(tally: &Tally, q: f64) -> f64 {
    tally.waits.quantile(q).map_or(0.0, |wait| wait.0 as f64 / 1e3)
}

/// The 90 % interval of a figure over runs with other draws.
fn interval(worlds: &[World], pick: impl Fn(&World) -> f64) -> Option<(f64, f64)> {
    if worlds.len() < 2 {
        return None;
    }
    let mut all: Vec<f64> = worlds.iter().map(pick).collect();
    all.sort_by(f64::total_cmp);
    let at = |q: f64| all[((all.len() - 1) as f64 * q).round() as usize];
    Some((at(0.05), at(0.95)))
}

/// Leaves of the canonical settings that differ: path, logged, candidate.
pub fn changes(logged: &Policy, candidate: &Policy) -> Vec<(String, String, String)> {
    fn walk(path: &str, a: &Value, b: &Value, into: &mut Vec<(String, String, String)>) {
        if a == b {
            return;
        }
        match (a, b) {
            (Value::Object(one), Value::Object(two)) if !one.is_empty() || !two.is_empty() => {
                let mut keys: Vec<&String> = one.keys().chain(two.keys()).collect();
                keys.sort();
                keys.dedup();
                for key in keys {
                    let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    walk(&at, a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null), into);
                }
            }
            _ => into.push((path.to_owned(), a.to_string(), b.to_string())),
        }
    }
    let value = |policy: &Policy| serde_json::to_value(policy).unwrap_or_default();
    let mut all = Vec::new();
    walk("", &value(logged), &value(candidate), &mut all);
    all
}

/// Prints the answer.
pub fn text(
    pool: &str,
    candidate: &Candidate,
    answer: &Answer,
    model: &PoolModel,
    args: &Args,
) -> Result<(), WhatIfError> {
    let Some(world) = answer.worlds.first() else { return Ok(()) };
    let (first, last) = answer.range;
    let (from, to) = answer.times;
    say!(
        "pool {pool}: sequences {first} to {last}, {} to {}, {} arrivals",
        show_time(from),
        show_time(to),
        answer.arrivals
    )?;
    say!("candidate: {}", candidate.shown())?;
    for (path, logged, now) in changes(&answer.logged_policy, &answer.policy) {
        say!("  {path}: {logged} -> {now}")?;
    }
    let all = &world.tallies.all;
    basis(&world.shares, all.decided() - all.shed(), model, args)?;
    let baseline = &answer.baseline;
    if let Some((seq, logged, now)) = &baseline.first {
        say!(
            "NOT TRUSTWORTHY: under the logged settings {} of {} steps are decided otherwise than logged, first sequence {seq}:",
            baseline.otherwise,
            baseline.steps
        )?;
        say!("  logged: {}", logged.join("; "))?;
        say!("  now:    {}", now.join("; "))?;
    } else {
        say!("baseline: {} steps decided again under the logged settings, all as logged", baseline.steps)?;
    }
    if baseline.taken > 0 {
        say!("  {} others, between those, are taken as logged; `verify` decides every step", baseline.taken)?;
    }
    if baseline.foreign > 0 {
        say!(
            "  {} steps were decided by another version of the kernel and are not compared",
            baseline.foreign
        )?;
    }
    if let Some(first) = &world.first {
        divergence(first, world.parted_times)?;
    } else {
        say!("the runs never part: every decision is as logged")?;
    }
    rows(answer, world)?;
    if args.requests {
        changed(world)?;
    }
    if let Some(error) = &answer.damaged {
        say!("DAMAGED: {error}; the figures are up to sequence {last}")?;
    }
    Ok(())
}

fn basis(shares: &Shares, admitted: u64, model: &PoolModel, args: &Args) -> io::Result<()> {
    let part = |n: u64, all: u64| n as f64 * 100.0 / all.max(1) as f64;
    let all = shares.exact + shares.shifted + shares.flipped;
    say!(
        "requests: {} exact ({:.1} %), {} shifted ({:.1} %), {} flipped ({:.1} %)",
        shares.exact,
        part(shares.exact, all),
        shares.shifted,
        part(shares.shifted, all),
        shares.flipped,
        part(shares.flipped, all)
    )?;
    let lease = shares.lease_exact + shares.lease_modelled + shares.lease_unknown;
    if args.model == ModelRule::OpenLoop {
        say!(
            "OPEN LOOP: recorded load and services, as if the candidate had not changed them; a naive baseline"
        )?;
    } else {
        say!(
            "lease time: exact {:.1} %, modelled {:.1} %, unknown (loads that the log never visited) {:.1} %",
            part(shares.lease_exact, lease),
            part(shares.lease_modelled, lease),
            part(shares.lease_unknown, lease)
        )?;
        let quality = &model.quality;
        say!(
            "model: {} services explained with a median error of {:.1} % (bias {:+.1} %, drift {:.1} %)",
            quality.requests,
            quality.median_error * 100.0,
            quality.bias.exp_m1() * 100.0,
            quality.drift * 100.0
        )?;
    }
    if shares.unobserved > 0 {
        say!(
            "unobserved: {} of {} admitted requests never came to their end in the log; their token counts are drawn \
             from requests of their priority and size (seed {})",
            shares.unobserved,
            admitted,
            args.seed
        )?;
    }
    let patience = match args.patience {
        PatienceRule::Observed => "callers give up when the log says so and never otherwise",
        PatienceRule::Infinite => "nobody gives up while queued",
        PatienceRule::KaplanMeier => {
            "beyond what the log shows, patience is drawn from its product-limit estimate"
        }
    };
    let retry = args.retry.0.map_or_else(
        || "shed requests do not come again".to_owned(),
        |after| format!("what only the candidate sheds comes again once after {}", show_span(after)),
    );
    say!("assumed: {patience}; {retry}; servers and sensor as logged")
}

fn divergence(first: &Divergence, times: u64) -> io::Result<()> {
    let nothing = || "(nothing)".to_owned();
    let joined = |texts: &[String]| if texts.is_empty() { nothing() } else { texts.join("; ") };
    say!("first divergence: sequence {} at {}: {}", first.seq, show_time(first.at), first.input)?;
    say!("  logged:    {}", joined(&first.logged))?;
    say!("  candidate: {}", joined(&first.candidate))?;
    say!("  the runs part {times} times")
}

fn rows(answer: &Answer, world: &World) -> io::Result<()> {
    say!("{:<34} {:<12} {:>12} {:>12} {:>12}  90 % interval", "", "", "logged", "candidate", "difference")?;
    let empty = Tally::default();
    row("all", &answer.logged.all, &world.tallies.all, interval_of(answer, |w| Some(&w.tallies.all)))?;
    let bands = keys(&answer.logged.bands, &world.tallies.bands);
    for band in bands {
        let a = answer.logged.bands.get(band).unwrap_or(&empty);
        let b = world.tallies.bands.get(band).unwrap_or(&empty);
        row(&format!("band {band}"), a, b, interval_of(answer, |w| w.tallies.bands.get(band)))?;
    }
    for name in keys(&answer.logged.objectives, &world.tallies.objectives) {
        let a = answer.logged.objectives.get(name).unwrap_or(&empty);
        let b = world.tallies.objectives.get(name).unwrap_or(&empty);
        let label = if name.is_empty() { "no objective".to_owned() } else { format!("objective {name}") };
        row(&label, a, b, interval_of(answer, |w| w.tallies.objectives.get(name)))?;
    }
    let flows = keys(&answer.logged.flows, &world.tallies.flows);
    let mut flows: Vec<_> = flows.into_iter().collect();
    let off = |flow: &&(i32, String)| {
        let shed = |t: Option<&Tally>| t.map_or(0, Tally::shed) as i64;
        -(shed(world.tallies.flows.get(*flow)) - shed(answer.logged.flows.get(*flow))).abs()
    };
    flows.sort_by_key(off);
    let left_out = flows.len().saturating_sub(FLOWS_TOLD);
    for flow in flows.into_iter().take(FLOWS_TOLD) {
        let a = answer.logged.flows.get(flow).unwrap_or(&empty);
        let b = world.tallies.flows.get(flow).unwrap_or(&empty);
        row(
            &format!("flow {} @ {}", flow.1, flow.0),
            a,
            b,
            interval_of(answer, |w| w.tallies.flows.get(flow)),
        )?;
    }
    if left_out > 0 {
        say!("{left_out} more flows, which change less: --json has them")?;
    }
    Ok(())
}

fn keys<'a, K: Ord, V>(
    one: &'a std::collections::BTreeMap<K, V>,
    two: &'a std::collections::BTreeMap<K, V>,
) -> std::collections::BTreeSet<&'a K> {
    one.keys().chain(two.keys()).collect()
}

type Intervals = [Option<(f64, f64)>; FIGURES.len()];

fn interval_of<'w>(answer: &'w Answer, tally: impl Fn(&'w World) -> Option<&'w Tally>) -> Intervals {
    FIGURES.map(|(_, figure)| {
        if answer.worlds.len() < 2 {
            return None;
        }
        let empty = Tally::default();
        let values: Vec<f64> = answer.worlds.iter().map(|w| figure(tally(w).unwrap_or(&empty))).collect();
        let mut sorted = values;
        sorted.sort_by(f64::total_cmp);
        let at = |q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
        Some((at(0.05), at(0.95)))
    })
}

fn row(label: &str, logged: &Tally, candidate: &Tally, intervals: Intervals) -> io::Result<()> {
    for (n, (name, figure)) in FIGURES.iter().enumerate() {
        let (a, b) = (figure(logged), figure(candidate));
        if n > 5 && a == 0.0 && b == 0.0 {
            continue;
        }
        let within = intervals[n].map_or_else(String::new, |(low, high)| format!("{low:.1} to {high:.1}"));
        let label = if n == 0 { label } else { "" };
        say!("{label:<34} {name:<12} {a:>12.1} {b:>12.1} {:>+12.1}  {within}", b - a)?;
    }
    for reason in keys(&logged.reasons, &candidate.reasons) {
        let count = |t: &Tally| t.reasons.get(reason).copied().unwrap_or(0) as f64;
        let (a, b) = (count(logged), count(candidate));
        say!("{:<34} {:<25} {a:>12.0} {b:>12.0} {:>+12.0}", "", reason.word(), b - a)?;
    }
    Ok(())
}

fn changed(world: &World) -> io::Result<()> {
    let Some(all) = &world.changed else { return Ok(()) };
    say!("requests whose fate changes: {}", all.len())?;
    for one in all {
        let (band, flow) = &one.group.flow;
        say!(
            "  {} ({}) {} @ {}: {} -> {}",
            RequestId(one.id),
            one.caller_id,
            flow,
            band,
            fate(one, false),
            fate(one, true)
        )?;
    }
    Ok(())
}

/// What became of it and why, in words.
fn fate(one: &Changed, candidate: bool) -> String {
    let course = if candidate { &one.candidate } else { &one.logged };
    let Some(fate) = course.fate else { return "not decided by the end of the range".to_owned() };
    let taken_back = if course.revoked { ", then revoked" } else { "" };
    match fate.reason {
        Some(reason) => {
            format!("{} ({}) after {}", fate.outcome.word(), reason.word(), show_span(fate.waited))
        }
        None => format!("{} after {}{taken_back}", fate.outcome.word(), show_span(fate.waited)),
    }
}

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
    let intervals: serde_json::Map<String, Value> = FIGURES
        .iter()
        .filter_map(|(name, figure)| {
            let found = interval(&answer.worlds, |world| figure(&world.tallies.all))?;
            Some(((*name).to_owned(), json!(found)))
        })
        .collect();
    let first = world.first.as_ref().map(|first| {
        json!({
            "sequence": first.seq, "at": first.at, "input": first.input,
            "logged": first.logged, "candidate": first.candidate,
        })
    });
    let list = world.changed.as_ref().map(|all| {
        let one = |one: &Changed| {
            json!({
                "request": one.id, "requestId": one.caller_id, "flow": one.group.flow.1, "priority": one.group.band(),
                "logged": fate(one, false), "candidate": fate(one, true),
            })
        };
        all.iter().map(one).collect::<Vec<_>>()
    });
    json!({
        "pool": pool,
        "candidate": candidate.shown(),
        "changes": changes(&answer.logged_policy, &answer.policy),
        "firstSequence": answer.range.0,
        "lastSequence": answer.range.1,
        "arrivals": answer.arrivals,
        "requests": { "exact": shares.exact, "shifted": shares.shifted, "flipped": shares.flipped, "unobserved": shares.unobserved },
        "leaseSeconds": {
            "exact": shares.lease_exact as f64 / 1e6,
            "modelled": shares.lease_modelled as f64 / 1e6,
            "unknown": shares.lease_unknown as f64 / 1e6,
        },
        "firstDivergence": first,
        "parted": world.parted_times,
        "outcomes": beside(answer, world),
        "intervals90": intervals,
        "changed": list,
        "baseline": {
            "steps": answer.baseline.steps,
            "taken": answer.baseline.taken,
            "otherwise": answer.baseline.otherwise,
            "foreign": answer.baseline.foreign,
            "trustworthy": answer.baseline.otherwise == 0,
        },
        "model": model.quality,
        "damaged": answer.damaged.as_ref().map(ToString::to_string),
    })
}
