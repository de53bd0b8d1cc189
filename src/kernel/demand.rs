//! Demand-aware sizing: what of the state says how much room the demand that waits can use.
//!
//! The rule of one decision for one place in the queue relieves a deep burst by one request per round trip. This one looks
//! at all that wait and will still wait when the room is there. Not here: the arithmetic (`sizing.rs`), and whether a
//! decision may be made (`reclaim.rs`).

use crate::reclaim::Demand;
use crate::saturation::{self, EndpointLoad, Gauge};
use crate::sizing::{self, Demanded, Needed, Question};
use crate::{ConcurrencyMode, DemandSized, Detector, Fine, LeaseEnd, Micros, Ratio, Sizing, Slot, State};
use alloc::vec::Vec;

/// Requests that are counted of a queue, newest first: more of them than any decision has victims.
const COUNTED_MAX: u64 = 1_024;
/// A confirmed lease that no sample shows gone counts as pending for so long: four times the grace that follows from
/// the default sensor. Then others must be using the engine.
const HIDDEN_MAX: Micros = Micros::from_secs(2);

/// What is measured from one decision to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measure {
    /// When the last decision was made.
    pub(crate) at: Micros,
    /// Leases that had ended by themselves by then.
    pub(crate) ended: u64,
    /// Leases that had begun by then on faces that cannot see their end.
    pub(crate) untracked: u64,
    /// How long the last confirmation took.
    pub(crate) took: Micros,
}

/// The size of a decision for this demand, and all it rests on; what is hidden is added to what is pending and in flight.
pub(crate) fn sized(
    state: &State,
    demand: &Demand,
    question: &mut Question,
) -> Option<(Needed, DemandSized)> {
    let loads = loads(state);
    let slot = slot(state, &loads);
    let hidden = hidden(state);
    // The gauge still shows them, so they are among what makes it.
    question.in_flight = question.in_flight.saturating_add(hidden);
    let share = i128::from(hidden).saturating_mul(sizing::share(question, slot).0);
    question.pending = Ratio(question.pending.0.saturating_add(sizing::up(share).0));
    let measured = state.reclamation.measure;
    let took = measured.map_or(Micros::ZERO, |measure| measure.took);
    let since = measured.map_or(Micros::ZERO, |measure| state.now.since(measure.at));
    let ended = measured.map_or(0, |measure| ended(state, LeaseEnd::Completed).saturating_sub(measure.ended));
    let round_trip = took + state.policy.eviction.confirmation_grace;
    let natural = u128::from(ended) * u128::from(round_trip.0) / u128::from(since.0.max(1));
    let natural = if since.is_zero() { 0 } else { u64::try_from(natural).unwrap_or(u64::MAX) };
    let ask = |demand, charge| {
        sizing::needed_for(question, &Demanded { demand, charge, slot, natural })
            .map(|needed| (needed, demand, charge))
    };
    if !counts_tokens(&state.policy.detector) {
        // The whole queue asks for as much at the least, and costs nothing to know.
        ask(demand.depth, charge(state, &loads, question, 0))?;
    }
    let (count, tokens) = outlasting(state, demand.priority, state.now + round_trip);
    let charge = charge(state, &loads, question, tokens.checked_div(count).unwrap_or(0));
    let (needed, demand, charge) = ask(count, charge)?;
    let steps = |fine: Fine| u64::try_from(fine.0).unwrap_or(u64::MAX);
    let sized = DemandSized {
        number: state.reclamation.decided + 1,
        demand,
        charge: steps(charge),
        mean: steps(sizing::mean(question)),
        slot: slot.map(steps),
        took,
        round_trip,
        since,
        ended,
        natural,
        hidden,
        wanted: needed.wanted,
    };
    Some((needed, sized))
}

fn counts_tokens(detector: &Detector) -> bool {
    match detector {
        Detector::Concurrency { mode, .. } => *mode != ConcurrencyMode::Requests,
        Detector::Utilization { .. } | Detector::Pushed => false,
    }
}

/// Leases that ended like this so far.
fn ended(state: &State, end: LeaseEnd) -> u64 {
    state.counters.lease_ends[end as usize]
}

/// Requests of the band whose budget and deadline outlast an instant, and their tokens.
fn outlasting(state: &State, priority: i32, until: Micros) -> (u64, u64) {
    let (mut count, mut tokens, mut looked) = (0, 0_u64, 0);
    let estimate = match &state.policy.detector {
        Detector::Concurrency { output_estimate, .. } => *output_estimate,
        Detector::Utilization { .. } | Detector::Pushed => None,
    };
    for (_, class) in state.classes.iter().filter(|(key, _)| key.priority == priority) {
        // The newest is due last.
        for (id, marks) in class.fifo.iter().rev() {
            let due = state.clocks.due(*marks, class.budgets);
            if due.is_some_and(|due| due <= until) || looked >= COUNTED_MAX {
                break;
            }
            looked += 1;
            let Some(queued) = state.queued.get(id) else { continue };
            if queued.is_ready() && queued.deadline.is_none_or(|deadline| deadline > until) {
                count += 1;
                let own = saturation::estimate_tokens(u64::from(queued.prompt_tokens), estimate);
                tokens = tokens.saturating_add(own);
            }
        }
    }
    (count, tokens)
}

/// What the detector sees of the endpoints that the decision is sized by, in slot order; ends that no sample shows are
/// left out: they are pending.
fn loads(state: &State) -> Vec<EndpointLoad> {
    let fresh_only = state.policy.detector.reads_metrics();
    let all = state.loads().filter(|load| load.fresh || !fresh_only);
    all.map(|load| EndpointLoad { ended: Fine::ZERO, ..load }).collect()
}

/// `1 / (endpoints x queueDepthThreshold)`, rounded up, while the engines' queues make the gauge and not their memory.
fn slot(state: &State, loads: &[EndpointLoad]) -> Option<Fine> {
    let detector = &state.policy.detector;
    let Detector::Utilization { queue_depth, .. } = detector else { return None };
    let sum = |change: fn(&mut EndpointLoad)| {
        let mut gauge = Gauge::new(detector);
        for load in loads {
            let mut load = *load;
            change(&mut load);
            gauge.add(load.role, saturation::term(detector, &load, state.policy.in_flight_credit));
        }
        gauge.fine().2
    };
    let by_queue = sum(|load| load.sample.iter_mut().for_each(|sample| sample.kv = 0));
    let by_memory = sum(|load| {
        load.sample.iter_mut().for_each(|sample| sample.waiting = 0);
        load.slack = u64::MAX;
    });
    let slots = i128::from((*queue_depth).max(1)) * i128::try_from(loads.len()).unwrap_or(1);
    let bound = by_queue >= by_memory && by_queue > Fine::ZERO && slots > 0;
    bound.then(|| Fine((Fine::SCALE + slots - 1) / slots))
}

/// What one more request, of so many tokens, adds to the gauge where it would go (contract.md, *In-flight credit*). A
/// pushed figure says nothing of that: there it is the mean footprint.
fn charge(state: &State, loads: &[EndpointLoad], question: &Question, tokens: u64) -> Fine {
    let detector = &state.policy.detector;
    if let Detector::Pushed = detector {
        return Fine(Fine::from_ratio(question.saturation).0 / i128::from(question.in_flight.max(1)));
    }
    let score = |load: &EndpointLoad| saturation::endpoint_score(detector, load, true);
    let decoding = loads.iter().any(|load| load.role.decodes());
    let candidates = loads.iter().filter(|load| !decoding || load.role.decodes());
    let Some(least) = candidates.min_by_key(|load| (score(load), load.requests)) else { return Fine::ZERO };
    let mut gauge = Gauge::new(detector);
    for load in loads {
        gauge.add(load.role, saturation::term(detector, load, true));
    }
    let before = gauge.fine().2;
    let more = EndpointLoad {
        unseen: least.unseen + Fine::ONE,
        requests: least.requests + 1,
        tokens: least.tokens.saturating_add(tokens),
        ..*least
    };
    gauge.remove(least.role, saturation::term(detector, least, true));
    gauge.add(more.role, saturation::term(detector, &more, true));
    (gauge.fine().2 - before).max(Fine::ZERO)
}

/// Leases whose end is confirmed and over its grace, and that the samples still show.
fn hidden(state: &State) -> u64 {
    let cooling = &state.revocations.cooling;
    let cools = |number: u64| cooling.keys().any(|(until, cooling)| *until > state.now && *cooling == number);
    let before = state.reclamation.measure.map_or(0, |measure| measure.untracked);
    // Of those nobody knows whether they run still.
    let untracked =
        i64::try_from(ended(state, LeaseEnd::Untracked).saturating_sub(before)).unwrap_or(i64::MAX);
    let mut places: Vec<(Option<Slot>, i64)> = Vec::new();
    for release in state.revocations.releases.iter().filter(|release| counts(state, release.confirmed_at)) {
        let known = places.iter().find(|(slot, _)| *slot == release.slot).map_or(0, |(_, count)| *count);
        let Some((shown, ours)) = state.load_at(release.slot, None) else { continue };
        let beyond = shown.saturating_sub(ours).saturating_sub(release.beyond).saturating_sub(untracked);
        let unseen = state.sampled_at(release.slot) < release.confirmed_at;
        // What still cools is pending as it is.
        if (unseen || beyond > known) && !cools(release.number) {
            places.retain(|(slot, _)| *slot != release.slot);
            places.push((release.slot, known + 1));
        }
    }
    places.iter().map(|(_, count)| count.unsigned_abs()).sum()
}

fn counts(state: &State, confirmed_at: Micros) -> bool {
    state.policy.detector.reads_metrics() && confirmed_at + HIDDEN_MAX > state.now
}

impl State {
    /// When the last sample of a place was asked for.
    fn sampled_at(&self, slot: Option<Slot>) -> Micros {
        let table = &self.endpoints.table;
        match slot {
            Some(slot) => table.get(&slot).map_or(Micros::ZERO, |endpoint| endpoint.requested_at),
            None => table.values().map(|endpoint| endpoint.requested_at).max().unwrap_or_default(),
        }
    }

    /// When a lease that no sample shows gone counts as pending no longer.
    pub(crate) fn shown_deadline(&self) -> Option<Micros> {
        if self.policy.eviction.sizing != Sizing::Demand {
            return None;
        }
        let all = self.revocations.releases.iter().map(|release| release.confirmed_at);
        all.filter(|at| counts(self, *at)).map(|at| at + HIDDEN_MAX).min()
    }
}

pub(crate) fn apply_sized(state: &mut State) {
    let took = state.reclamation.measure.map_or(Micros::ZERO, |measure| measure.took);
    let (ended, untracked) = (ended(state, LeaseEnd::Completed), ended(state, LeaseEnd::Untracked));
    state.reclamation.measure = Some(Measure { at: state.now, ended, untracked, took });
}

/// A revocation was confirmed: so long does it take.
pub(crate) fn apply_confirmed(state: &mut State, took: Micros) {
    if let Some(measure) = &mut state.reclamation.measure {
        measure.took = took;
    }
}
