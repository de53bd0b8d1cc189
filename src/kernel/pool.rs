//! The view of the pool and the regime that follows from it.
//!
//! Fresh and stale are edges that come in; only how long *all* have been stale is measured here.

use crate::turn::Turn;
use crate::{
    EndpointChange, Event, Hold, Ignored, Input, Micros, Observation, Ratio, Regime, Slot, State, leases,
    revoke,
};

/// Rounds with fresh samples that end a blind spell (contract.md row 4).
const FRESH_ROUNDS: u32 = 2;

pub(crate) fn observed(turn: &mut Turn<'_>, observation: &Observation) {
    if !observation.changes.iter().all(|change| fits(turn.state, observation, change)) {
        turn.emit(Event::Ignored { what: Ignored::UnknownSlot });
    }
    let before = figures(turn.state);
    turn.emit(Event::Viewed);
    move_gauge(turn, before);
    settle_regime(turn);
    revoke::note_releases(turn, observation.requested_at);
    crate::lifecycle::settle_orphans(turn);
}

/// Does the change speak of an endpoint that is there (or joins in the same round)?
fn fits(state: &State, observation: &Observation, change: &EndpointChange) -> bool {
    let known = |slot: &Slot| {
        state.endpoints.table.contains_key(slot)
            || observation
                .changes
                .iter()
                .any(|c| matches!(c, EndpointChange::Joined { slot: s, .. } if s == slot))
    };
    match change {
        EndpointChange::Joined { .. } => true,
        EndpointChange::Left { slot }
        | EndpointChange::Sampled { slot, .. }
        | EndpointChange::Stale { slot } => known(slot),
    }
}

fn figures(state: &State) -> (u16, u16, Ratio) {
    (state.endpoints.len(), state.endpoints.fresh, state.endpoints.raw)
}

/// Says so if the view now gives other figures.
pub(crate) fn move_gauge(turn: &mut Turn<'_>, before: (u16, u16, Ratio)) {
    let saturation = turn.state.gauge(false).effective;
    let (endpoints, fresh, _) = figures(turn.state);
    if (endpoints, fresh, saturation) != before {
        turn.emit(Event::GaugeMoved { endpoints, fresh, saturation });
    }
}

/// Brings the regime in line with the view and with time (all endpoints stale for `blindAfter`); says whether it
/// changed. Not while more is due than the step can end: a budget that ran out is not saved by a change of regime.
pub(crate) fn settle_regime(turn: &mut Turn<'_>) -> bool {
    let from = turn.state.clocks.regime;
    if turn.behind {
        return false;
    }
    let to = turn.state.regime_now();
    if from != to {
        let (endpoints, fresh) = (turn.state.endpoints.len(), turn.state.endpoints.fresh);
        turn.emit(Event::RegimeChanged { from, to, endpoints, fresh });
        if let Some(Hold::Regime(_)) = turn.state.hold {
            turn.emit(Event::HoldLifted);
        }
    }
    from != to
}

impl State {
    /// The regime that the view of the pool calls for at this instant.
    pub(crate) fn regime_now(&self) -> Regime {
        let view = &self.endpoints;
        let current = self.clocks.regime;
        if !view.seen {
            return Regime::Unknown;
        }
        if view.table.is_empty() {
            return Regime::NoEndpoints;
        }
        if !self.policy.detector.reads_metrics() {
            return Regime::HasEndpoints;
        }
        if view.fresh > 0 {
            let back = current != Regime::NoFreshMetrics || view.fresh_rounds >= FRESH_ROUNDS;
            return if back { Regime::HasEndpoints } else { Regime::NoFreshMetrics };
        }
        if current != Regime::HasEndpoints {
            return Regime::NoFreshMetrics;
        }
        match view.blind_since() {
            Some(since) if self.now < since + self.policy.blind_after => Regime::HasEndpoints,
            _ => Regime::NoFreshMetrics,
        }
    }

    /// When a pool whose endpoints are all stale becomes blind.
    pub(crate) fn blind_deadline(&self) -> Option<Micros> {
        let watching = self.clocks.regime == Regime::HasEndpoints && self.is_blind();
        if !watching {
            return None;
        }
        self.endpoints.blind_since().map(|since| since + self.policy.blind_after)
    }
}

pub(crate) fn apply_viewed(state: &mut State, input: &Input) {
    let Input::Observed(observation) = input else { return };
    for change in &observation.changes {
        if let EndpointChange::Left { slot } = change {
            leases::endpoint_left(state, *slot);
            revoke::apply_left(state, *slot);
        }
    }
    state.endpoints.observe(observation, state.now);
    state.endpoints.observed = state.seq;
    revoke::apply_viewed(state);
    let sampled = observation.changes.iter().any(|change| matches!(change, EndpointChange::Sampled { .. }));
    if state.clocks.regime == Regime::NoFreshMetrics {
        let any = sampled && state.endpoints.fresh > 0;
        state.endpoints.fresh_rounds = if any { state.endpoints.fresh_rounds.saturating_add(1) } else { 0 };
    }
}

pub(crate) fn apply_gauge(state: &mut State, saturation: Ratio) {
    state.endpoints.raw = saturation;
}

pub(crate) fn apply_regime(state: &mut State, to: Regime) {
    state.clocks.enter(to, state.now);
    state.endpoints.fresh_rounds = 0;
    if to == Regime::NoFreshMetrics && state.endpoints.fresh > 0 {
        // The round that brought the first fresh sample is the first of the two.
        state.endpoints.fresh_rounds = 1;
    }
    state.classes.reindex(&state.clocks);
}
