//! The answer for people, each figure beside how it was come by.
//!
//! Not here: JSON (`json.rs`), the page (`page.rs`), what doubts there are (`caveats.rs`).

use super::caveats;
use super::command::WhatIfError;
use super::found::{Changed, Divergence, Shares};
use super::lockstep::Answer;
use super::tally::Tally;
use super::world::World;
use crate::model::PoolModel;
use crate::settings::Candidate;
use serde_json::Value;
use std::io;
use weir_kernel::{Policy, RequestId};
use weir_log::describe::{show_span, show_time};
use weir_log::say;

/// What the intervals of the draws are of.
pub const INTERVAL: &str = "candidate's 90 % interval";

/// Rows of flows that are printed.
const FLOWS_TOLD: usize = 20;

/// A figure of a row of counts.
pub(super) type Figure = (&'static str, fn(&Tally) -> f64);

/// The figures of each row, in order.
pub const FIGURES: [Figure; 10] = [
    ("admitted", |t| (t.decided() - t.shed()) as f64),
    ("shed", |t| t.shed() as f64),
    ("shed rate %", |t| t.shed_rate() * 100.0),
    ("wait p50 ms", |t| wait(t, 0.5)),
    ("wait p95 ms", |t| wait(t, 0.95)),
    ("wait p99 ms", |t| wait(t, 0.99)),
    ("completed", |t| t.completed() as f64),
    ("tokens", |t| t.tokens as f64),
    ("evicted", |t| t.evictions() as f64),
    ("still waiting", |t| t.waiting as f64),
];

fn wait(tally: &Tally, q: f64) -> f64 {
    tally.waits.quantile(q).map_or(0.0, |wait| wait.0 as f64 / 1e3)
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
    basis(answer, world, model)?;
    for warning in caveats::warnings(answer, model) {
        say!("WARNING: {warning}")?;
    }
    let mut lines = caveats::baseline(&answer.baseline).into_iter();
    if let Some(line) = lines.next() {
        say!("{line}")?;
    }
    if let Some((_, logged, now)) = &answer.baseline.first {
        say!("  logged: {}", logged.join("; "))?;
        say!("  now:    {}", now.join("; "))?;
    }
    lines.try_for_each(|line| say!("  {line}"))?;
    if let Some(first) = &world.first {
        divergence(answer, first, world.parted_times)?;
    } else {
        say!("the runs never part: every decision is as logged")?;
    }
    rows(answer, world)?;
    if let Some((logged, candidate)) = caveats::waiting(answer) {
        say!("still waiting at the end of the range: logged {logged}, candidate {candidate}")?;
    }
    changed(world)?;
    if let Some(error) = &answer.damaged {
        say!("DAMAGED: {error}; the figures are up to sequence {last}")?;
    }
    Ok(())
}

fn basis(answer: &Answer, world: &World, model: &PoolModel) -> io::Result<()> {
    let (shares, all) = (&world.shares, &world.tallies.all);
    let part = |n: u64, all: u64| n as f64 * 100.0 / all.max(1) as f64;
    let sum = shares.exact + shares.shifted + shares.flipped;
    say!(
        "requests: {} exact ({:.1} %), {} shifted ({:.1} %), {} flipped ({:.1} %)",
        shares.exact,
        part(shares.exact, sum),
        shares.shifted,
        part(shares.shifted, sum),
        shares.flipped,
        part(shares.flipped, sum)
    )?;
    if answer.options.open_loop {
        say!("OPEN LOOP: {}", caveats::OPEN_LOOP.trim_start_matches("open loop: "))?;
    } else {
        model_told(shares, model)?;
    }
    if shares.unobserved > 0 {
        say!(
            "unobserved: {} of {} admitted requests never came to their end in the log; their token counts are drawn \
             from requests of their priority and size (seed {})",
            shares.unobserved,
            all.decided() - all.shed(),
            answer.options.seed
        )?;
    }
    say!("assumed: {}", caveats::assumed(answer))
}

fn model_told(shares: &Shares, model: &PoolModel) -> io::Result<()> {
    let lease = shares.lease_exact + shares.lease_modelled + shares.lease_unknown;
    let part = |n: u64| n as f64 * 100.0 / lease.max(1) as f64;
    say!(
        "lease time: exact {:.1} %, modelled {:.1} %, unknown (loads that the log never visited) {:.1} %",
        part(shares.lease_exact),
        part(shares.lease_modelled),
        part(shares.lease_unknown)
    )?;
    let quality = &model.quality;
    say!(
        "model: {} services explained with a median error of {:.1} % (bias {:+.1} %, drift {:.1} %)",
        quality.requests,
        quality.median_error * 100.0,
        quality.bias.exp_m1() * 100.0,
        quality.drift * 100.0
    )
}

fn divergence(answer: &Answer, first: &Divergence, times: u64) -> io::Result<()> {
    let nothing = || "(nothing)".to_owned();
    let joined = |texts: &[String]| if texts.is_empty() { nothing() } else { texts.join("; ") };
    say!("first divergence: {} at {}: {}", place(answer, first), show_time(first.at), first.input)?;
    say!("  logged:    {}", joined(&first.logged))?;
    say!("  candidate: {}", joined(&first.candidate))?;
    say!("  the runs part {times} times")
}

/// Where the runs first part; the candidate's settings come in before the first step of the range.
pub fn place(answer: &Answer, first: &Divergence) -> String {
    if first.seq < answer.range.0 {
        return format!("from the beginning, before sequence {} (other settings)", answer.range.0);
    }
    format!("sequence {}", first.seq)
}

fn rows(answer: &Answer, world: &World) -> io::Result<()> {
    let drawn = if answer.worlds.len() > 1 { INTERVAL } else { "" };
    let head =
        format!("{:<34} {:<13} {:>12} {:>12} {:>12}  {drawn}", "", "", "logged", "candidate", "difference");
    say!("{}", head.trim_end())?;
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

/// The keys of both.
pub(super) fn keys<'a, K: Ord, V>(
    one: &'a std::collections::BTreeMap<K, V>,
    two: &'a std::collections::BTreeMap<K, V>,
) -> std::collections::BTreeSet<&'a K> {
    one.keys().chain(two.keys()).collect()
}

/// Of each figure: its 90 % interval over runs with other draws.
pub(super) type Intervals = [Option<(f64, f64)>; FIGURES.len()];

pub(super) fn interval_of<'w>(
    answer: &'w Answer,
    tally: impl Fn(&'w World) -> Option<&'w Tally>,
) -> Intervals {
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
        say!("{label:<34} {name:<13} {a:>12.1} {b:>12.1} {:>+12.1}  {within}", b - a)?;
    }
    for reason in keys(&logged.reasons, &candidate.reasons) {
        let count = |t: &Tally| t.reasons.get(reason).copied().unwrap_or(0) as f64;
        let (a, b) = (count(logged), count(candidate));
        say!("{:<34} {:<26} {a:>12.0} {b:>12.0} {:>+12.0}", "", reason.word(), b - a)?;
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
pub(super) fn fate(one: &Changed, candidate: bool) -> String {
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
