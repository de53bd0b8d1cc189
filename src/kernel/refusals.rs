//! When an arrival is refused instead of queued, and refusals that are decided many at a time.
//!
//! A driver under a flood asks beforehand ([`State::foresee`]) and hands in together what will be refused alike: one
//! step instead of thousands. What is decided is the same, one by one or together.

use crate::arrival::{self, identify};
use crate::hopeless::hopeless;
use crate::turn::Turn;
use crate::{
    Arrival, ArrivedMany, Cause, Event, Hopeless, Ignored, Input, Limit, LimitKind, Micros, Outcome, Ratio,
    Reason, Regime, RejectedMany, State,
};

/// What of an arrival can refuse it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) priority: i32,
    /// Whose it is; nothing where several are handed in together.
    pub(crate) flow: Option<&'a str>,
    pub(crate) bytes: u64,
    pub(crate) ttl: Option<Micros>,
    pub(crate) deadline: Option<Micros>,
    pub(crate) received_at: Micros,
}

impl Facts<'_> {
    pub(crate) fn of(arrival: &Arrival, priority: i32) -> Facts<'_> {
        let Arrival { bytes, ttl, deadline, received_at, .. } = *arrival;
        let flow = Some(arrival::fairness_id(arrival));
        Facts { priority, flow, bytes, ttl, deadline, received_at }
    }

    fn of_many(many: &ArrivedMany) -> Facts<'static> {
        let ArrivedMany { priority, bytes, ttl, deadline, received_at, .. } = *many;
        Facts { priority, flow: None, bytes, ttl, deadline, received_at }
    }
}

/// Why it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) outcome: Outcome,
    pub(crate) reason: Reason,
    pub(crate) cause: Option<Cause>,
    pub(crate) limit: Option<Limit>,
    /// The wait that is predicted, where that is why.
    pub(crate) hopeless: Option<Hopeless>,
}

/// What comes of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Refused(Refusal),
    /// Its band has to be opened before more can be said.
    NoBand,
    Queued,
}

/// What comes of an arrival at this instant, with everything that is due already ended.
pub(crate) fn verdict(state: &State, facts: &Facts<'_>) -> Verdict {
    let refused = |outcome, reason, cause| {
        Verdict::Refused(Refusal { outcome, reason, cause, limit: None, hopeless: None })
    };
    let policy = &state.policy;
    if state.draining_until.is_some() || state.stopped {
        return refused(Outcome::RejectedOther, Reason::ShuttingDown, Some(Cause::ShuttingDown));
    }
    if facts.deadline.is_some_and(|deadline| deadline <= state.now) {
        return refused(Outcome::RejectedOther, Reason::ContextCancelled, Some(Cause::ClientDeadline));
    }
    if !policy.flow_control && facts.priority < 0 && saturated_without_queue(state) {
        return refused(Outcome::RejectedCapacity, Reason::Saturated, None);
    }
    if !state.bands.contains_key(&facts.priority) {
        // Every band that is not provisioned is ranked.
        let provisioned = state.bands.len() - state.ranked.len();
        let full = provisioned >= usize::try_from(policy.max_dynamic_bands).unwrap_or(usize::MAX);
        return if full {
            refused(Outcome::RejectedCapacity, Reason::BandLimit, None)
        } else {
            Verdict::NoBand
        };
    }
    if policy.flow_control && is_spent(state, facts) {
        let reason = match capacity_outcome(state) {
            (_, Reason::Saturated) => Reason::TtlExpired,
            (_, reason) => reason,
        };
        return refused(Outcome::RejectedOther, reason, None);
    }
    // Without flow control nothing stays queued, unless an operator pauses the pool.
    let queues = policy.flow_control || state.paused.is_some();
    let limit = over_limit(state, facts).filter(|_| queues);
    let hopeless = if policy.flow_control && limit.is_none() { hopeless(state, facts) } else { None };
    if limit.is_none() && hopeless.is_none() {
        return Verdict::Queued;
    }
    let (outcome, reason) = capacity_outcome(state);
    Verdict::Refused(Refusal { outcome, reason, cause: None, limit, hopeless })
}

/// `Retry-After` of a refusal that comes after `ahead` others which are not counted yet.
pub(crate) fn retry_after(state: &State, refusal: &Refusal, priority: i32, ahead: u64) -> Option<u8> {
    if refusal.reason != Reason::Saturated || (refusal.limit.is_none() && refusal.hopeless.is_none()) {
        return None;
    }
    state.bands.get(&priority).and_then(|band| band.retry_after(state.now, ahead))
}

/// With flow control off there is no queue: the gauge alone decides on sheddable requests (contract.md row 32).
fn saturated_without_queue(state: &State) -> bool {
    state.saturation().1 >= Ratio::ONE
}

/// Did its budget end on the way here, between the face that received it and this step? Only time within the regime
/// in force is charged, so never too much; a receive time of zero is none.
fn is_spent(state: &State, facts: &Facts<'_>) -> bool {
    budget_here(state, facts)
        .is_some_and(|(budget, spent)| !budget.is_zero() && !facts.received_at.is_zero() && spent >= budget)
}

/// The budget that would run against it in the regime in force (zero = none), and what of it is spent on the way here.
pub(crate) fn budget_here(state: &State, facts: &Facts<'_>) -> Option<(Micros, Micros)> {
    let band = state.bands.get(&facts.priority)?;
    let (_, _, shorter) = arrival::budgets(&state.policy, &band.settings, facts.ttl);
    let header = shorter.map(|ttl| state.classes.header_class(ttl));
    let (budgets, _, _) = arrival::budgets(&state.policy, &band.settings, header);
    let budget = match state.clocks.regime {
        Regime::Unknown => Micros::ZERO,
        Regime::HasEndpoints => budgets.saturation,
        Regime::NoEndpoints | Regime::NoFreshMetrics => budgets.no_endpoint,
    };
    let from = if facts.received_at.is_zero() { state.now } else { facts.received_at };
    Some((budget, state.now.since(from.max(state.clocks.since))))
}

/// The first limit that one more request of this size would pass, in the order of seed-system.md 6.3.
fn over_limit(state: &State, facts: &Facts<'_>) -> Option<Limit> {
    let band = state.bands.get(&facts.priority)?;
    let (bytes, requests) = (facts.bytes, state.queued.len() as u64);
    [
        (LimitKind::GlobalBytes, state.queued_bytes, bytes, state.policy.max_bytes),
        (LimitKind::GlobalRequests, requests, 1, state.policy.max_requests),
        (LimitKind::BandBytes, band.bytes, bytes, band.settings.max_bytes),
        (LimitKind::BandRequests, band.requests, 1, band.settings.max_requests),
    ]
    .into_iter()
    .find(|(_, held, more, limit)| *limit > 0 && held.saturating_add(*more) > *limit)
    .map(|(which, held, _, limit)| Limit { which, held, limit })
}

/// How a refusal for lack of queue room is counted: by whether anything could serve at all.
fn capacity_outcome(state: &State) -> (Outcome, Reason) {
    match state.clocks.regime {
        Regime::Unknown => (Outcome::RejectedNoEndpoints, Reason::NotReady),
        Regime::NoEndpoints => (Outcome::RejectedNoEndpoints, Reason::NoEndpoints),
        Regime::NoFreshMetrics => (Outcome::RejectedNoEndpoints, Reason::NoFreshMetrics),
        Regime::HasEndpoints if state.is_blind() => (Outcome::RejectedNoEndpoints, Reason::NoFreshMetrics),
        Regime::HasEndpoints => (Outcome::RejectedCapacity, Reason::Saturated),
    }
}

/// A refusal as it would be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// The band.
    pub priority: i32,
    /// The objective was named but is not in the table.
    pub objective_unknown: bool,
    /// How it would be counted.
    pub outcome: Outcome,
    /// What its caller would hear.
    pub reason: Reason,
    /// The regime that would decide.
    pub regime: Regime,
    /// The limit that would refuse it.
    pub limit: Option<Limit>,
    /// A cause, where it would not be a limit.
    pub cause: Option<Cause>,
    /// Whole seconds for `Retry-After`.
    pub retry_after: Option<u8>,
}

impl State {
    /// How a step at `at` would refuse this arrival, `ahead` others of its band having been refused for a limit in the
    /// meantime. `None` if it would not, or if something else were decided first (a deadline that came, a repeated
    /// idempotency key, a band to be opened). The state is as before.
    pub fn foresee(&mut self, at: Micros, arrival: &Arrival, ahead: u64) -> Option<Foreseen> {
        if arrival.idempotency.is_some_and(|key| self.keys.get(&key.key).is_some()) {
            return None;
        }
        let who = identify(self, arrival);
        self.refusal_at(at, &Facts::of(arrival, who.priority), who.objective_unknown, ahead)
    }

    /// The same for arrivals that are handed in together.
    pub fn foresee_many(&mut self, at: Micros, many: &ArrivedMany, ahead: u64) -> Option<Foreseen> {
        self.refusal_at(at, &Facts::of_many(many), false, ahead)
    }

    fn refusal_at(
        &mut self,
        at: Micros,
        facts: &Facts<'_>,
        objective_unknown: bool,
        ahead: u64,
    ) -> Option<Foreseen> {
        let now = self.now;
        let at = at.max(now);
        if self.next_deadline().is_some_and(|due| due <= at) {
            return None;
        }
        self.now = at;
        let refusal = match verdict(self, facts) {
            // Each of them has a prediction of its own, which is to be in the log.
            Verdict::Refused(refusal) => Some(refusal).filter(|refusal| refusal.hopeless.is_none()),
            Verdict::NoBand | Verdict::Queued => None,
        };
        let retry_after = refusal.and_then(|refusal| retry_after(self, &refusal, facts.priority, ahead));
        let regime = self.clocks.regime;
        self.now = now;
        let Refusal { outcome, reason, cause, limit, .. } = refusal?;
        let priority = facts.priority;
        Some(Foreseen { priority, objective_unknown, outcome, reason, regime, limit, cause, retry_after })
    }
}

/// Arrivals that their driver foresaw to be refused. Under other settings they might not have been, but what they were
/// is no longer known: they stay refused, for want of room.
pub(crate) fn arrived_many(turn: &mut Turn<'_>, many: &ArrivedMany) {
    if many.count == 0 {
        return turn.emit(Event::Ignored { what: Ignored::NoChange });
    }
    let state = &*turn.state;
    let refusal = match verdict(state, &Facts::of_many(many)) {
        Verdict::Refused(refusal) => refusal,
        Verdict::NoBand | Verdict::Queued => {
            let (outcome, reason) = capacity_outcome(state);
            Refusal { outcome, reason, cause: None, limit: None, hopeless: None }
        }
    };
    let retry_after = [0, many.count - 1].map(|ahead| retry_after(state, &refusal, many.priority, ahead));
    let Refusal { outcome, reason, cause, limit, .. } = refusal;
    let (regime, saturation) = (state.clocks.regime, state.raw_saturation());
    let event = RejectedMany { outcome, reason, regime, limit, cause, retry_after, saturation };
    turn.emit_decision(Event::RejectedMany(event));
}

/// It counts among the refusals that spread `Retry-After`.
pub(crate) fn apply_hopeless(state: &mut State, priority: i32) {
    if let Some(band) = state.bands.get_mut(&priority) {
        band.refusals += 1;
    }
}

pub(crate) fn apply_rejected_many(state: &mut State, input: &Input, e: &RejectedMany) {
    let Input::ArrivedMany(many) = input else { return };
    state.counters.arrivals = state.counters.arrivals.saturating_add(many.count);
    let outcome = &mut state.counters.outcomes[e.outcome.index()];
    *outcome = outcome.saturating_add(many.count);
    if e.limit.is_some()
        && let Some(band) = state.bands.get_mut(&many.priority)
    {
        band.refusals = band.refusals.saturating_add(many.count);
    }
}

impl ArrivedMany {
    /// One arrival of this band, seen by its face as it says and handed in at `at`.
    pub fn one(at: Micros, arrival: &Arrival, foreseen: &Foreseen) -> ArrivedMany {
        ArrivedMany {
            priority: foreseen.priority,
            count: 1,
            objective_unknown: u64::from(foreseen.objective_unknown),
            ttl_unreadable: u64::from(arrival.ttl_unreadable),
            bytes: arrival.bytes,
            ttl: arrival.ttl,
            deadline: arrival.deadline,
            since: arrival.received_at,
            received_at: arrival.received_at,
            took: at.since(arrival.received_at),
        }
    }

    /// These and those, of one band.
    pub fn and(&self, other: &ArrivedMany) -> ArrivedMany {
        let latest = |a: Option<Micros>, b: Option<Micros>| a.zip(b).map(|(a, b)| a.max(b));
        ArrivedMany {
            priority: self.priority,
            count: self.count.saturating_add(other.count),
            objective_unknown: self.objective_unknown.saturating_add(other.objective_unknown),
            ttl_unreadable: self.ttl_unreadable.saturating_add(other.ttl_unreadable),
            bytes: self.bytes.min(other.bytes),
            ttl: latest(self.ttl, other.ttl),
            deadline: latest(self.deadline, other.deadline),
            since: self.since.min(other.since),
            received_at: self.received_at.max(other.received_at),
            took: self.took + other.took,
        }
    }
}
