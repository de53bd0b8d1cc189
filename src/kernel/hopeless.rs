//! Refusal of an arrival that would wait longer than it may (`rejectHopeless`).
//!
//! Predicted is `ahead x window / drained`: the requests that would be served before it, over the rate at which the band
//! has been drained while it had queued work. That rate has in it what higher bands take. No figure, and so no refusal,
//! where there is none to give: right after the band began to queue, in a pool that cannot serve, or where nothing was
//! drained.

use crate::queues::{Band, DRAIN_WINDOW_SECONDS, Ready};
use crate::refusals::{self, Facts};
use crate::{Hopeless, Micros, Ordering, Regime, State};

/// A rate is taken over this much at least.
const SHORTEST: Micros = Micros::from_secs(5);
const SECOND: u64 = 1_000_000;

/// Will it wait longer than it may?
pub(crate) fn hopeless(state: &State, facts: &Facts<'_>) -> Option<Hopeless> {
    let band = state.bands.get(&facts.priority)?;
    if !band.bounds.reject_hopeless
        || state.clocks.regime != Regime::HasEndpoints
        || state.is_blind()
        || state.paused.is_some()
    {
        return None;
    }
    let ahead = ahead(state, band, facts.flow?)?;
    let left = left(state, facts)?;
    let (drained, window) = drained(state, band)?;
    let predicted = u128::from(ahead) * u128::from(window.0) / u128::from(drained);
    let predicted = Micros(u64::try_from(predicted).unwrap_or(u64::MAX));
    let priority = facts.priority;
    (predicted > left).then_some(Hopeless { priority, predicted, left, ahead, drained, window })
}

/// Requests of the band that would be served before one of this flow that came now; `None` where its place is not
/// known when it comes.
fn ahead(state: &State, band: &Band, flow: &str) -> Option<u64> {
    match band.settings.ordering {
        Ordering::NewestFirstWhenStanding { .. } if band.is_newest_first() => return Some(0),
        Ordering::Fcfs | Ordering::NewestFirstWhenStanding { .. } => {}
        Ordering::Edf | Ordering::SloDeadline => return None,
    }
    match &band.ready {
        Ready::Strict(_) => Some(band.requests),
        // A turn each: whoever of the others waits is served once more than there are requests of this flow before it.
        Ready::Turns { flows, .. } => {
            let mine = band.flows.get(flow).and_then(|id| state.flows.get(id)).map_or(0, |flow| flow.queued);
            let others = (flows.len() - usize::from(flows.contains_key(flow))) as u64;
            Some(band.requests.min(mine.saturating_add(others.saturating_mul(mine.saturating_add(1)))))
        }
        Ready::Service { .. } => None,
    }
}

/// How long it may wait still; `None` = for ever.
fn left(state: &State, facts: &Facts<'_>) -> Option<Micros> {
    let (budget, spent) = refusals::budget_here(state, facts)?;
    let own = (!budget.is_zero()).then(|| budget.since(spent));
    let callers = facts.deadline.map(|deadline| deadline.since(state.now));
    own.into_iter().chain(callers).min()
}

/// Dispatches of the band in the whole seconds since it has had queued work that could be served, and how long that is.
fn drained(state: &State, band: &Band) -> Option<(u64, Micros)> {
    let since = band.waits.as_ref()?.backlog_since?;
    let oldest = state.now.since(Micros::from_secs(DRAIN_WINDOW_SECONDS));
    let first = since.max(oldest).max(state.clocks.since).0.div_ceil(SECOND);
    let window = state.now.since(Micros(first.saturating_mul(SECOND)));
    let drained: u64 = band.drained.iter().filter(|(second, _)| *second >= first).map(|(_, n)| *n).sum();
    (window >= SHORTEST && drained > 0).then_some((drained, window))
}
