//! Bands and flows coming and going: by configuration, by objective, by request, by idleness.

use crate::classes::ClassKey;
use crate::clocks::Budgets;
use crate::queues::{Band, Ready, make_ready};
use crate::turn::Turn;
use crate::{
    BandOrigin, BandSettings, Event, FlowId, Ignored, Input, Micros, ObjectivesChange, PolicyChange,
    RequestId, State, arrival, pool, waits,
};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub(crate) fn policy_changed(turn: &mut Turn<'_>, change: &PolicyChange) {
    if *turn.state.policy == *change.policy && turn.state.bands.contains_key(&0) {
        return turn.emit(Event::Ignored { what: Ignored::NoChange });
    }
    let before = (turn.state.endpoints.len(), turn.state.endpoints.fresh, turn.state.endpoints.raw);
    turn.emit(Event::PolicyAdopted);
    reconcile(turn);
    rebudget(turn);
    pool::move_gauge(turn, before);
    pool::settle_regime(turn);
}

pub(crate) fn objectives_changed(turn: &mut Turn<'_>, change: &ObjectivesChange) {
    if change.set.is_empty() && change.removed.is_empty() {
        return turn.emit(Event::Ignored { what: Ignored::NoChange });
    }
    turn.emit(Event::ObjectivesAdopted);
    reconcile(turn);
}

/// Makes the set of bands what configuration and objectives ask for. A band that nobody asks for any more goes at
/// once if it has no flow, else it becomes one that is collected when idle.
fn reconcile(turn: &mut Turn<'_>) {
    let state = &*turn.state;
    let desired: BTreeSet<i32> = state.objectives.values().copied().collect();
    let configured: BTreeSet<i32> = state.policy.bands.keys().copied().chain([0]).collect();
    let all: BTreeSet<i32> = state
        .bands
        .keys()
        .copied()
        .chain(configured.iter().copied())
        .chain(desired.iter().copied())
        .collect();
    for priority in all.into_iter().rev() {
        let state = &*turn.state;
        let origin = if configured.contains(&priority) {
            BandOrigin::Configured
        } else if desired.contains(&priority) {
            BandOrigin::Desired
        } else {
            BandOrigin::Provisioned
        };
        let wanted =
            state.policy.bands.get(&priority).unwrap_or_else(|| state.policy.template_for(priority)).clone();
        let event = match state.bands.get(&priority) {
            None => Some(Event::BandOpened { priority, origin, settings: Box::new(wanted) }),
            Some(band)
                if origin == BandOrigin::Provisioned && band.origin != origin && band.flows.is_empty() =>
            {
                Some(Event::BandClosed { priority })
            }
            Some(band) if band.origin != origin || band.settings != wanted => {
                Some(Event::BandChanged { priority, origin, settings: Box::new(wanted) })
            }
            Some(_) => None,
        };
        if let Some(event) = event {
            turn.emit(event);
        }
        rebound(turn, priority);
    }
}

/// Gives a band the bounds that the settings in force give it.
pub(crate) fn rebound(turn: &mut Turn<'_>, priority: i32) {
    let bounds = turn.state.policy.bounds_for(priority);
    if turn.state.bands.get(&priority).is_some_and(|band| band.bounds != bounds) {
        turn.emit(Event::BandBounded { priority, bounds });
    }
}

/// Queued requests go on under the new budgets, measured from the same instants: one change per class.
fn rebudget(turn: &mut Turn<'_>) {
    let state = &*turn.state;
    let changed: Vec<(ClassKey, Budgets)> = state
        .classes
        .iter()
        .filter_map(|(key, class)| {
            let band = state.bands.get(&key.priority)?;
            let (budgets, _, _) = arrival::budgets(&state.policy, &band.settings, key.header);
            (budgets != class.budgets).then_some((*key, budgets))
        })
        .collect();
    for (key, budgets) in changed {
        turn.emit(Event::ClassRebudgeted {
            priority: key.priority,
            header_class: key.header,
            saturation_budget: budgets.saturation,
            no_endpoint_budget: budgets.no_endpoint,
        });
    }
}

/// Collects what has been idle for long enough, within the step's bound.
pub(crate) fn collect(turn: &mut Turn<'_>) {
    while turn.has_room() {
        let state = &*turn.state;
        let due = |since: Micros, span: Micros| since + span <= state.now;
        let event = if let Some((_, flow)) =
            state.idle_flows.first().filter(|(s, _)| due(*s, state.policy.flow_idle))
        {
            Event::FlowClosed { flow: *flow }
        } else if let Some((_, priority)) =
            state.idle_bands.first().filter(|(s, _)| due(*s, state.policy.band_idle))
        {
            Event::BandClosed { priority: *priority }
        } else if let Some(program) =
            state.program_deadline().filter(|due| *due <= state.now).and(state.idle_programs.first())
        {
            Event::ProgramForgotten { program: program.1.as_ref().into() }
        } else {
            return;
        };
        turn.emit_decision(event);
    }
}

pub(crate) fn apply_policy(state: &mut State, input: &Input) {
    if let Input::PolicyChanged(change) = input {
        state.policy = Arc::new((*change.policy).clone());
        state.endpoints.touch(None);
    }
}

pub(crate) fn apply_objectives(state: &mut State, input: &Input) {
    let Input::ObjectivesChanged(change) = input else { return };
    for name in &change.removed {
        state.objectives.remove(name);
    }
    for (name, priority) in &change.set {
        state.objectives.insert(name.clone(), *priority);
    }
}

pub(crate) fn apply_opened(state: &mut State, priority: i32, origin: BandOrigin, settings: &BandSettings) {
    insert_band(state, priority, Band::new(origin, settings.clone(), state.now));
}

pub(crate) fn insert_band(state: &mut State, priority: i32, band: Band) {
    if band.is_collectable()
        && let Some(since) = band.idle_since
    {
        state.idle_bands.insert((since, priority));
    }
    state.bands.insert(priority, band);
    rank(state);
}

pub(crate) fn apply_changed(state: &mut State, priority: i32, origin: BandOrigin, settings: &BandSettings) {
    let Some(band) = state.bands.get_mut(&priority) else { return };
    if let Some(since) = band.idle_since {
        state.idle_bands.remove(&(since, priority));
    }
    let other_line = band.settings.fairness != settings.fairness;
    let other_order = band.settings.ordering != settings.ordering;
    band.origin = origin;
    band.settings = settings.clone();
    if band.is_collectable() {
        let since = *band.idle_since.get_or_insert(state.now);
        state.idle_bands.insert((since, priority));
    }
    if other_line {
        rebuild_line(state, priority);
    }
    if other_order {
        waits::resettle(state, priority, true);
    }
    rank(state);
}

/// Another fairness policy picks from other indexes. Requests keep the place that they were given when they came.
fn rebuild_line(state: &mut State, priority: i32) {
    let ready: Vec<RequestId> = state
        .queued
        .iter()
        .filter(|(_, q)| q.priority == priority && q.is_ready())
        .map(|(id, _)| *id)
        .collect();
    let Some(band) = state.bands.get_mut(&priority) else { return };
    band.ready = Ready::new(&band.settings.fairness);
    band.ready_requests = 0;
    for flow in band.flows.values() {
        if let Some(flow) = state.flows.get_mut(flow) {
            flow.line.clear();
        }
    }
    let all = &state.queued;
    for id in ready {
        let Some(queued) = all.get(&id) else { continue };
        let Some(flow) = state.flows.get_mut(&queued.flow) else { continue };
        let service = state.programs.get(&flow.name).map_or(0, |p| p.service);
        make_ready(band, queued.flow, flow, (queued.order, id), service, &|id| {
            all.get(&id).map_or(Micros::ZERO, |q| q.enqueued_at)
        });
    }
}

pub(crate) fn apply_closed(state: &mut State, priority: i32) {
    if let Some(band) = state.bands.remove(&priority)
        && let Some(since) = band.idle_since
    {
        state.idle_bands.remove(&(since, priority));
    }
    state.active.remove(&priority);
    state.bounded.remove(&priority);
    rank(state);
}

pub(crate) fn apply_rebudgeted(
    state: &mut State,
    priority: i32,
    header: Option<Micros>,
    saturation: Micros,
    no_endpoint: Micros,
) {
    let budgets = Budgets { saturation, no_endpoint };
    state.classes.rebudget(ClassKey { priority, header }, budgets, &state.clocks);
}

pub(crate) fn apply_flow_closed(state: &mut State, id: FlowId) {
    let Some(flow) = state.flows.remove(&id) else { return };
    if let Some(since) = flow.idle_since {
        state.idle_flows.remove(&(since, id));
    }
    let Some(band) = state.bands.get_mut(&flow.priority) else { return };
    band.flows.remove(&flow.name);
    if let Ready::Turns { last, .. } = &mut band.ready
        && *last == Some(id)
    {
        // The flow served last is gone: the next turn starts over.
        *last = None;
    }
    if band.flows.is_empty() {
        band.idle_since = Some(state.now);
        if band.is_collectable() {
            state.idle_bands.insert((state.now, flow.priority));
        }
    }
}

fn rank(state: &mut State) {
    state.ranked = state
        .bands
        .iter()
        .rev()
        .filter(|(_, b)| b.origin != BandOrigin::Provisioned)
        .map(|(p, _)| *p)
        .collect();
}
