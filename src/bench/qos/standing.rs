//! The standing queue: one class asks for more than the pool can give, without an end, and everybody may wait 15 s.
//!
//! Served in the order they came, all wait nearly as long as they may, and nobody is served soon. What is compared is how
//! many still are under other orders, and what refusing the hopeless at once changes.

use super::CEILING;
use super::figures::{SOON, ttft};
use super::plan::PRIORITIES;
use super::runs::{ENDPOINTS, classes, world};
use crate::load::Planned;
use crate::observer::TooMany;
use crate::sim::gate::{Choice, KernelGate};
use crate::sim::world::{Course, run};
use std::collections::BTreeMap;
use weir_kernel::{BandBounds, BandSettings, Micros, Ordering, Policy, Ratio, UsageLimit};

/// What is asked for, as a multiple of what the pool can give.
pub const OVERLOAD: f64 = 1.3;
/// How long a request may wait.
pub const TTL: Micros = Micros::from_secs(15);
/// The queue stands by then; earlier arrivals are not judged, nor are those that come so late that they might be cut off.
pub const STANDS_BY: Micros = Micros::from_secs(70);
const CUT_OFF: Micros = Micros::from_secs(25);
/// Where the order turns: the settings' own defaults.
const TARGET: Micros = Micros::from_secs(1);
const WINDOW: Micros = Micros::from_secs(5);

/// One way to keep the queue.
pub struct Row {
    pub name: &'static str,
    /// Of the judged arrivals: those with a first token within [`SOON`].
    pub soon: f64,
    /// Of the judged arrivals: those that were dispatched within [`SOON`].
    pub sent_soon: f64,
    /// Of the judged arrivals: those with a first token at all.
    pub served: f64,
    /// Of the judged arrivals: those that heard a refusal within [`SOON`].
    pub refused_soon: f64,
    /// Time to the first token of those that were served, in seconds: p50, p95.
    pub ttft: [f64; 2],
    /// How long those who were not served waited for their answer, in seconds: p50, p95.
    pub in_vain: [f64; 2],
    /// Tokens per second that the pool computed.
    pub tokens: f64,
}

/// All rows on one plan.
pub fn rows(steady: &[Planned], bursts: &[Planned]) -> Result<Vec<Row>, TooMany> {
    let turning = Ordering::NewestFirstWhenStanding { target: TARGET, window: WINDOW };
    [
        ("fcfs", Ordering::Fcfs, false, 1.0, steady),
        ("fcfs rejectHopeless", Ordering::Fcfs, true, 1.0, steady),
        ("newest-first", turning, false, 1.0, steady),
        ("newest-first ceiling", turning, false, CEILING, steady),
        ("bursts: fcfs", Ordering::Fcfs, false, 1.0, bursts),
        ("bursts: fcfs rejectHopeless", Ordering::Fcfs, true, 1.0, bursts),
        ("bursts: newest-first", turning, false, 1.0, bursts),
        ("bursts: newest-first ceiling", turning, false, CEILING, bursts),
    ]
    .into_iter()
    .map(|(name, ordering, hopeless, ceiling, plan)| measure(name, ordering, hopeless, ceiling, plan))
    .collect()
}

fn measure(
    name: &'static str,
    ordering: Ordering,
    reject_hopeless: bool,
    ceiling: f64,
    plan: &[Planned],
) -> Result<Row, TooMany> {
    let band = PRIORITIES[0].1;
    let until = plan.last().map_or(Micros::ZERO, |request| request.at);
    let threshold = Ratio((ceiling * 1e6).round() as i64);
    let usage_limit = UsageLimit::Static { threshold };
    let mut policy = Policy { saturation_budget: TTL, usage_limit, ..Policy::default() };
    policy.bands = BTreeMap::from([
        (0, BandSettings::default()),
        (band, BandSettings { ordering, ..BandSettings::default() }),
    ]);
    if reject_hopeless {
        policy.bounds.bands.insert(band, BandBounds { reject_hopeless, ..BandBounds::default() });
    }
    let mut gate =
        KernelGate::new(policy, &PRIORITIES, ENDPOINTS, Choice::Kernel, &classes(), plan.len(), |_| {})?;
    let seen = run(&world(until), plan, &mut gate);
    let judged = |request: &Planned| request.at >= STANDS_BY && request.at < until.since(CUT_OFF);
    let mine: Vec<(&Planned, &Course)> =
        plan.iter().zip(&seen.courses).filter(|(request, _)| judged(request)).collect();
    let mut waits: Vec<Micros> = mine
        .iter()
        .filter(|(_, course)| course.first_token.is_some())
        .map(|(request, course)| ttft(request, course, until))
        .collect();
    let mut in_vain: Vec<Micros> =
        mine.iter().filter_map(|(request, course)| Some(course.refused?.since(request.at))).collect();
    let sent: Vec<Micros> =
        mine.iter().filter_map(|(request, course)| Some(course.admitted?.since(request.at))).collect();
    waits.sort_unstable();
    in_vain.sort_unstable();
    let share = |count: usize| count as f64 / mine.len().max(1) as f64;
    let soon = |waits: &[Micros]| share(waits.iter().filter(|wait| **wait <= SOON).count());
    let seconds = |waits: &[Micros], q| super::figures::quantile(waits, q).0 as f64 / 1e6;
    let totals = &seen.totals;
    let computed = (totals.prefilled + totals.generated).saturating_sub(totals.dropped);
    Ok(Row {
        name,
        soon: soon(&waits),
        sent_soon: soon(&sent),
        served: share(waits.len()),
        refused_soon: soon(&in_vain),
        ttft: [0.5, 0.95].map(|q| seconds(&waits, q)),
        in_vain: [0.5, 0.95].map(|q| seconds(&in_vain, q)),
        tokens: computed as f64 * 1e6 / until.0.max(1) as f64,
    })
}
