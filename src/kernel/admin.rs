//! What operators do by hand: pause, resume, purge, drain. Who and why is in the input.
//!
//! Not here: taking back what runs.

use crate::state::Paused;
use crate::turn::Turn;
use crate::{Admin, AdminAction, Cause, Event, Ignored, Input, RequestId, State, expiry, lifecycle, waits};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

pub(crate) fn ordered(turn: &mut Turn<'_>, order: &Admin) {
    match &order.action {
        AdminAction::Pause if turn.state.paused.is_none() => turn.emit(Event::Paused),
        AdminAction::Resume if turn.state.paused.is_some() => turn.emit(Event::Resumed),
        AdminAction::Pause | AdminAction::Resume => turn.emit(Event::Ignored { what: Ignored::NoChange }),
        AdminAction::Drain { until } => lifecycle::stopping(turn, *until),
        AdminAction::Purge { .. } | AdminAction::PurgeFlow { .. } => {
            match marked(turn.state, &order.action) {
                Ok(marked) => turn.emit(Event::PurgeBegun { requests: marked.len() as u64 }),
                Err(what) => turn.emit(Event::Ignored { what }),
            }
        }
    }
}

/// What is to be removed. Of a flow all that is queued: a look at every queued request, once per order of an operator.
fn marked(state: &State, action: &AdminAction) -> Result<BTreeSet<RequestId>, Ignored> {
    match action {
        AdminAction::Purge { request } if state.queued.contains_key(request) => Ok([*request].into()),
        AdminAction::Purge { request } if state.leases.contains_key(request) => Err(Ignored::NotQueued),
        AdminAction::Purge { .. } => Err(Ignored::UnknownRequest),
        AdminAction::PurgeFlow { fairness_id, priority } => {
            let band = state.bands.get(priority).ok_or(Ignored::EmptyFlow)?;
            let flow = band.flows.get(fairness_id.as_str()).ok_or(Ignored::EmptyFlow)?;
            let queued = state.queued.iter().filter(|(_, queued)| queued.flow == *flow);
            let queued: BTreeSet<RequestId> = queued.map(|(id, _)| *id).collect();
            if queued.is_empty() { Err(Ignored::EmptyFlow) } else { Ok(queued) }
        }
        AdminAction::Pause | AdminAction::Resume | AdminAction::Drain { .. } => Ok(BTreeSet::new()),
    }
}

/// Removes what is marked, within the bound of the step; until all of it is gone nothing is dispatched.
pub(crate) fn purge(turn: &mut Turn<'_>) {
    let room = crate::DECISIONS_PER_STEP.saturating_sub(turn.decided);
    let next: Vec<RequestId> = turn.state.purging.iter().copied().take(room).collect();
    for id in next {
        expiry::evict(turn, id, Cause::Purged);
    }
}

pub(crate) fn apply_paused(state: &mut State, input: &Input) {
    if let Input::Admin(Admin { by, why, .. }) = input {
        let (by, why) = (by.clone(), why.clone());
        state.paused = Some(Box::new(Paused { since: state.now, by, why }));
    }
}

pub(crate) fn apply_resumed(state: &mut State) {
    state.paused = None;
    waits::apply_resumed(state);
}

pub(crate) fn apply_purge(state: &mut State, input: &Input) {
    if let Input::Admin(order) = input
        && let Ok(mut marked) = marked(state, &order.action)
    {
        state.purging.append(&mut marked);
    }
}
