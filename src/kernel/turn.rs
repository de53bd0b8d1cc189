//! One step: decide, and apply what is decided as it is decided.

use crate::{
    DECISIONS_PER_STEP, Event, Ignored, Input, Micros, State, Step, admin, arrival, bands, dispatch, expiry,
    leases, lifecycle, pool, reclaim, refusals, revoke, waits,
};
use alloc::vec::Vec;

/// The deciding half of a step: it reads the state and emits events.
pub(crate) struct Turn<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) input: &'a Input,
    pub(crate) events: Vec<Event>,
    /// Requests admitted or ended in this step.
    pub(crate) decided: usize,
    /// The alternation of ceilings moved in this step.
    pub(crate) ticked: bool,
    /// More is due at this instant than the step has room to end.
    pub(crate) behind: bool,
}

impl Turn<'_> {
    /// The only way to change the state: what is emitted is applied, and what is applied is in the log.
    pub(crate) fn emit(&mut self, event: Event) {
        apply(self.state, self.input, &event);
        self.events.push(event);
    }

    /// An event that admits or ends a request.
    pub(crate) fn emit_decision(&mut self, event: Event) {
        self.decided += 1;
        self.emit(event);
    }

    /// May this step decide one more request?
    pub(crate) fn has_room(&self) -> bool {
        self.decided < DECISIONS_PER_STEP
    }

    pub(crate) fn now(&self) -> Micros {
        self.state.now
    }
}

/// Takes one fact in at `at`, decides everything that follows from it, and applies that. Never panics.
///
/// An `at` before the last step's time counts as that time: a log never runs backwards.
pub fn step(state: &mut State, at: Micros, input: Input) -> Step {
    let events = decide(state, at, &input);
    Step { seq: state.seq, at: state.now, input, events }
}

/// The same for a driver that wants to keep the input whatever happens: sequence and time are the state's own.
pub fn decide(state: &mut State, at: Micros, input: &Input) -> Vec<Event> {
    decide_within(state, at, input, Vec::new())
}

/// The same in the room of events that are of no interest any more, for a driver that keeps none.
pub fn decide_within(state: &mut State, at: Micros, input: &Input, mut room: Vec<Event>) -> Vec<Event> {
    room.clear();
    state.begin(state.seq + 1, at);
    let mut turn = Turn { state, input, events: room, decided: 0, ticked: false, behind: false };
    take(&mut turn);
    turn.events
}

/// Applies a logged step without deciding anything: the same end state as the step that made it.
pub fn fold(state: &mut State, step: &Step) {
    state.begin(step.seq, step.at);
    for event in &step.events {
        apply(state, &step.input, event);
    }
}

fn take(turn: &mut Turn<'_>) {
    // A start comes before the time that passed while we were down can expire anything.
    if let Input::Started(_) = turn.input {
        lifecycle::started(turn);
    }
    lifecycle::recover(turn);
    time_passed(turn);
    match turn.input {
        Input::Started(_) | Input::TimePassed => {}
        Input::Arrived(arrival) => arrival::arrived(turn, arrival),
        Input::Cancelled(cancelled) => leases::cancelled(turn, cancelled),
        Input::Observed(observation) => pool::observed(turn, observation),
        Input::Ended(ended) => leases::ended(turn, ended),
        Input::FirstByte { request } => leases::first_byte(turn, *request),
        Input::Renewed { request } => leases::renewed(turn, *request),
        Input::PolicyChanged(change) => bands::policy_changed(turn, change),
        Input::ObjectivesChanged(change) => bands::objectives_changed(turn, change),
        Input::Stopping { drain_until } => lifecycle::stopping(turn, *drain_until),
        Input::Stopped => turn.emit(Event::StopNoted),
        Input::LogResumed { refused, .. } => turn.emit(Event::RefusalsNoted { refused: *refused }),
        Input::Admin(order) => admin::ordered(turn, order),
        Input::ArrivedMany(many) => refusals::arrived_many(turn, many),
        Input::Revoke { request, .. } => revoke::ordered(turn, *request),
        Input::Undeliverable { request } => revoke::undeliverable(turn, *request),
        Input::Watched { request, watching } => revoke::watched(turn, *request, *watching),
    }
    if turn.behind || !matches!(turn.input, Input::Arrived(_) | Input::Ended(_)) {
        // Another regime or other budgets may have made something due at this very instant.
        time_passed(turn);
    }
    admin::purge(turn);
    lifecycle::drain(turn);
    dispatch::run(turn);
    bands::collect(turn);
}

/// What ended under the regime in force ends first; then time itself may have brought another regime.
fn time_passed(turn: &mut Turn<'_>) {
    expiry::due(turn);
    if pool::settle_regime(turn) {
        expiry::due(turn);
    }
}

/// The only place where the state changes. No logic here: one call per event, into the file of its concern.
pub(crate) fn apply(state: &mut State, input: &Input, event: &Event) {
    match event {
        Event::StartNoted { resumable_until, .. } => lifecycle::apply_start(state, *resumable_until),
        Event::PolicyAdopted => bands::apply_policy(state, input),
        Event::ObjectivesAdopted => bands::apply_objectives(state, input),
        Event::BandOpened { priority, origin, settings } => {
            bands::apply_opened(state, *priority, *origin, settings)
        }
        Event::BandChanged { priority, origin, settings } => {
            bands::apply_changed(state, *priority, *origin, settings);
        }
        Event::BandClosed { priority } => bands::apply_closed(state, *priority),
        Event::ClassRebudgeted { priority, header_class, saturation_budget, no_endpoint_budget } => {
            bands::apply_rebudgeted(state, *priority, *header_class, *saturation_budget, *no_endpoint_budget);
        }
        Event::FlowOpened { flow, priority } => arrival::apply_flow_opened(state, input, *flow, *priority),
        Event::FlowClosed { flow } => bands::apply_flow_closed(state, *flow),
        Event::Enqueued(e) => arrival::apply_enqueued(state, input, e),
        Event::Rejected(e) => arrival::apply_rejected(state, e),
        Event::Repeated { of, resumed } => arrival::apply_repeated(state, input, *of, *resumed),
        Event::KeyForgotten { key } => state.keys.forget(key),
        Event::Dispatched(e) => dispatch::apply_dispatched(state, e),
        Event::Evicted(e) => expiry::apply_evicted(state, e),
        Event::LeaseEnded(e) => leases::apply_ended(state, e),
        Event::RenewalNoted { request } => leases::apply_renewed(state, *request),
        Event::FirstByteNoted { request } => leases::apply_first_byte(state, *request),
        Event::Viewed => pool::apply_viewed(state, input),
        Event::GaugeMoved { saturation, .. } => pool::apply_gauge(state, *saturation),
        Event::RegimeChanged { to, .. } => pool::apply_regime(state, *to),
        Event::Held { by } => state.hold = Some(*by),
        Event::HoldLifted => state.hold = None,
        Event::TurnTaken { priority, last } => dispatch::apply_turn(state, *priority, *last),
        Event::ServiceCharged { request, service } => leases::apply_service(state, *request, *service),
        Event::ServiceRescaled { epoch, shift } => leases::apply_rescaled(state, *epoch, *shift),
        Event::ProgramForgotten { program } => leases::apply_program_forgotten(state, program),
        Event::CeilingTicked { tick } => state.tick = *tick,
        Event::DrainBegun { until } => state.draining_until = Some(*until),
        Event::StopNoted => state.stopped = true,
        Event::RefusalsNoted { refused } => {
            state.counters.refused_outside = state.counters.refused_outside.saturating_add(*refused);
        }
        Event::Ignored { what } => match what {
            Ignored::UnknownRequest
            | Ignored::AlreadyEnded
            | Ignored::UnknownSlot
            | Ignored::NoChange
            | Ignored::NotQueued
            | Ignored::EmptyFlow
            | Ignored::AlreadyRevoked
            | Ignored::NotRunning => {}
        },
        Event::RecoveryEnded => state.recovering = false,
        Event::OrphansSettled { .. } => lifecycle::apply_orphans_settled(state),
        Event::Paused => admin::apply_paused(state, input),
        Event::Resumed => admin::apply_resumed(state),
        Event::PurgeBegun { .. } => admin::apply_purge(state, input),
        Event::RejectedMany(e) => refusals::apply_rejected_many(state, input, e),
        Event::RestatedCore(_)
        | Event::RestatedPolicy { .. }
        | Event::RestatedObjective { .. }
        | Event::RestatedBand(_)
        | Event::RestatedFlow(_)
        | Event::RestatedEndpoint(_)
        | Event::RestatedQueued(_)
        | Event::RestatedLease(_)
        | Event::RestatedKey(_)
        | Event::RestatedProgram(_)
        | Event::RestatedPause(_)
        | Event::RestatedPurge { .. }
        | Event::RestatedRevocation(_)
        | Event::RestatedRevocations(_)
        | Event::RestatedReclamation(_)
        | Event::RestatedLine(_) => crate::restate::apply(state, event),
        Event::RevocationIssued(e) => revoke::apply_issued(state, e),
        Event::RevocationEnded(e) => revoke::apply_ended(state, e),
        Event::ConfirmedLate { .. } => state.revocations.late += 1,
        Event::Reclaimed(e) => revoke::apply_reclaimed(state, e.number),
        Event::WatchNoted { request, watching } => revoke::apply_watched(state, *request, *watching),
        Event::ReclamationDecided(e) => reclaim::apply_decided(state, e),
        Event::DemandSized(_) => crate::demand::apply_sized(state),
        Event::ReclamationShut { until } => state.reclamation.shut_until = *until,
        Event::BandBounded { priority, bounds } => waits::apply_bounded(state, *priority, *bounds),
        Event::OrderTurned(e) => waits::apply_turned(state, e),
        // What follows from it is the dispatch.
        Event::BoundReached(_) => {}
        Event::FoundHopeless(e) => refusals::apply_hopeless(state, e.priority),
    }
}
