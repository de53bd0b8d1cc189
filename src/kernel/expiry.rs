//! Budgets, deadlines and patience that ran out: each ends its request at its instant, never before.

use crate::dispatch::remove_queued;
use crate::leases;
use crate::revoke;
use crate::turn::Turn;
use crate::{
    BudgetKind, Cause, Event, Evicted, KeyAnswer, Micros, Outcome, Reason, Regime, RequestId, SpentBudget,
    State,
};

/// What is due first.
enum Due {
    Budget(RequestId),
    Deadline(RequestId),
    Resume(RequestId),
    Ticket(RequestId),
    Lease(RequestId),
    Revocation(RequestId),
}

/// The first instant at which something ends, and what. At one instant our own budget comes first
/// (contract.md row 1), then the caller's deadline, then the rest.
fn first(state: &State) -> Option<(Micros, u8, Due)> {
    let policy = &state.policy;
    let lapse = |entry: Option<&(Micros, RequestId)>, span: Micros| {
        entry.filter(|_| !span.is_zero()).map(|(since, id)| (*since + span, *id))
    };
    [
        state.classes.first_due().map(|(due, id, _)| (due, 0, Due::Budget(id))),
        state.deadlines.first().map(|(due, id)| (*due, 1, Due::Deadline(*id))),
        state.resumable.first().map(|(due, id)| (*due, 2, Due::Resume(*id))),
        lapse(state.tickets.first(), policy.ticket_timeout).map(|(due, id)| (due, 3, Due::Ticket(id))),
        lapse(state.lapsing.first(), policy.lease_timeout).map(|(due, id)| (due, 4, Due::Lease(id))),
        state.revocations.outstanding.first().map(|(due, id)| (*due, 5, Due::Revocation(*id))),
    ]
    .into_iter()
    .flatten()
    .min_by_key(|(due, rank, _)| (*due, *rank))
}

/// Is anything due at this instant? (The instants alone: this is asked in every step.)
pub(crate) fn is_due(state: &State) -> bool {
    let now = state.now;
    let past =
        |entry: Option<&(Micros, RequestId)>, span: Micros| entry.is_some_and(|(at, _)| *at + span <= now);
    let lapsed = |entry: Option<&(Micros, RequestId)>, span: Micros| !span.is_zero() && past(entry, span);
    state.classes.next_due().is_some_and(|due| due <= now)
        || past(state.deadlines.first(), Micros::ZERO)
        || past(state.revocations.outstanding.first(), Micros::ZERO)
        || past(state.resumable.first(), Micros::ZERO)
        || lapsed(state.tickets.first(), state.policy.ticket_timeout)
        || lapsed(state.lapsing.first(), state.policy.lease_timeout)
}

/// Ends what is due. If the step has no room for all of it, the turn knows: nothing is dispatched past it.
pub(crate) fn due(turn: &mut Turn<'_>) {
    turn.behind = is_due(turn.state);
    while turn.behind && turn.has_room() {
        match first(turn.state) {
            Some((due, _, what)) if due <= turn.now() => match what {
                Due::Budget(id) => budget_ended(turn, id),
                Due::Deadline(id) => evict(turn, id, Cause::ClientDeadline),
                Due::Resume(id) => evict(turn, id, Cause::Restarted),
                Due::Ticket(id) => evict(turn, id, Cause::TicketAbandoned),
                Due::Lease(id) => leases::lapsed(turn, id),
                Due::Revocation(id) => revoke::timed_out(turn, id),
            },
            _ => break,
        }
        turn.behind = is_due(turn.state);
    }
}

fn budget_ended(turn: &mut Turn<'_>, id: RequestId) {
    let state = &*turn.state;
    let Some(queued) = state.queued.get(&id) else { return };
    let spent = spent(state, id);
    let (outcome, reason) = match state.clocks.regime {
        Regime::NoEndpoints => (Outcome::EvictedNoEndpoints, Reason::NoEndpoints),
        Regime::NoFreshMetrics => (Outcome::EvictedNoEndpoints, Reason::NoFreshMetrics),
        // A blind sensor never reads as load (contract.md row 4).
        Regime::HasEndpoints if state.is_blind() => (Outcome::EvictedNoEndpoints, Reason::NoFreshMetrics),
        Regime::HasEndpoints | Regime::Unknown => (Outcome::EvictedTTL, Reason::TtlExpired),
    };
    let event = Evicted {
        request: id,
        outcome,
        reason,
        regime: state.clocks.regime,
        waited: state.now.since(queued.enqueued_at),
        budget: spent,
        cause: None,
        deadline: queued.deadline,
        held_by: state.hold,
    };
    turn.emit_decision(Event::Evicted(event));
}

/// Which of the three bounds of contract.md row 3 is due first.
pub(crate) fn spent(state: &State, id: RequestId) -> Option<SpentBudget> {
    let queued = state.queued.get(&id)?;
    let budgets = state.classes.get(queued.class())?.budgets;
    let due = state.clocks.due(queued.marks, budgets)?;
    let own = crate::clocks::Budgets { saturation: Micros::ZERO, no_endpoint: Micros::ZERO };
    let in_has_endpoints = state.clocks.regime == Regime::HasEndpoints;
    let only = if in_has_endpoints {
        crate::clocks::Budgets { saturation: budgets.saturation, ..own }
    } else {
        crate::clocks::Budgets { no_endpoint: budgets.no_endpoint, ..own }
    };
    let own_due = state.clocks.due(queued.marks, only);
    Some(if own_due == Some(due) {
        let which = if in_has_endpoints { BudgetKind::Saturation } else { BudgetKind::NoEndpoint };
        let charged_from =
            if in_has_endpoints { queued.enqueued_at.max(state.clocks.fresh_at) } else { queued.enqueued_at };
        let budget = if in_has_endpoints { budgets.saturation } else { budgets.no_endpoint };
        SpentBudget { which, budget, charged_from }
    } else {
        SpentBudget {
            which: BudgetKind::Whole,
            budget: budgets.saturation + budgets.no_endpoint,
            charged_from: queued.enqueued_at,
        }
    })
}

/// Ends a queued request for a cause other than a budget.
pub(crate) fn evict(turn: &mut Turn<'_>, id: RequestId, cause: Cause) {
    let state = &*turn.state;
    let Some(queued) = state.queued.get(&id) else { return };
    let event = Evicted {
        request: id,
        outcome: cause.outcome_when_queued(),
        reason: cause.reason(),
        regime: state.clocks.regime,
        waited: state.now.since(queued.enqueued_at),
        budget: None,
        cause: Some(cause),
        deadline: queued.deadline,
        held_by: state.hold,
    };
    turn.emit_decision(Event::Evicted(event));
}

pub(crate) fn apply_evicted(state: &mut State, e: &Evicted) {
    let Some(queued) = remove_queued(state, e.request) else { return };
    state.counters.outcomes[e.outcome.index()] += 1;
    state.revocations.watched.remove(&e.request);
    if let Some(key) = queued.key {
        let answer = KeyAnswer {
            outcome: e.outcome,
            reason: Some(e.reason),
            seq: state.seq,
            waited: e.waited,
            endpoint: None,
        };
        state.keys.answer(&key, e.request, answer);
    }
    if let Some(name) = &queued.program {
        leases::leave_program(state, name);
    }
}
