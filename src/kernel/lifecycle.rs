//! Start, recovery, drain and stop (DESIGN.md, *Recovery*; contract.md rows 14 and 15).

use crate::expiry;
use crate::turn::Turn;
use crate::{
    Cause, DECISIONS_PER_STEP, Event, Face, LeaseEnd, LeaseEndCause, Micros, Regime, RequestId, State,
    Whereabouts, leases, reclaim, revoke,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A run begins: on an old log, whoever cannot come back is ended by [`recover`], within the bound of each step.
pub(crate) fn started(turn: &mut Turn<'_>) {
    let state = &*turn.state;
    turn.emit(Event::StartNoted {
        queued: state.queued.len() as u64,
        leases: state.leases.len() as u64,
        resumable_until: state.now + state.policy.resume_window,
    });
    let state = &*turn.state;
    let in_doubt =
        !state.leases.is_empty() || state.revocations.cooling.keys().any(|(until, _)| *until > state.now);
    if in_doubt && state.policy.eviction.enabled {
        turn.emit(Event::ReclamationShut { until: Micros::MAX });
    }
}

pub(crate) fn apply_start(state: &mut State, resumable_until: Micros) {
    let (before, now) = (state.before, state.now);
    state.clocks.restart(before, now);
    state.endpoints.forget_view();
    state.hold = None;
    state.draining_until = None;
    state.stopped = false;
    state.tickets.clear();
    state.lapsing.clear();
    let queued: Vec<RequestId> = state.queued.keys().copied().collect();
    for id in queued {
        detach(state, id, resumable_until);
    }
    for (id, lease) in &mut state.leases {
        // Later than the dispatch, always: by that a lease is known to have outlived a restart.
        lease.heard_at = now.max(lease.dispatched_at + Micros(1));
        if lease.face.survives_restart() {
            lease.orphan = true;
            state.orphans.insert(*id);
            if lease.lapses() {
                state.lapsing.insert((lease.heard_at, *id));
            }
        } else {
            lease.doomed = true;
            state.doomed_leases.insert(*id);
        }
    }
    revoke::apply_start(state, now.since(before));
    reclaim::apply_start(state);
    state.recovering = !state.doomed_queued.is_empty() || !state.doomed_leases.is_empty();
    state.classes.reindex(&state.clocks);
}

/// Its caller is gone. Tickets wait on; who has an idempotency key may come back; the rest is ended.
fn detach(state: &mut State, id: RequestId, resumable_until: Micros) {
    let now = state.now;
    let Some(queued) = state.queued.get(&id) else { return };
    let (face, keyed, ready) = (queued.face, queued.key.is_some(), queued.is_ready());
    if face == Face::Ticket {
        state.tickets.insert((now, id));
        if let Some(queued) = state.queued.get_mut(&id) {
            queued.heard_at = now;
        }
        return;
    }
    if ready {
        crate::dispatch::set_unready(state, id);
    }
    let Some(queued) = state.queued.get_mut(&id) else { return };
    if let Some(until) = queued.resumable_until.take() {
        state.resumable.remove(&(until, id));
    }
    if keyed && matches!(face, Face::Held | Face::Stream) {
        queued.resumable_until = Some(resumable_until);
        state.resumable.insert((resumable_until, id));
    } else {
        queued.doomed = true;
        state.doomed_queued.insert(id);
    }
}

/// Ends what could not survive the restart, a bounded number per step.
pub(crate) fn recover(turn: &mut Turn<'_>) {
    if !turn.state.recovering && turn.state.doomed_leases.is_empty() {
        return;
    }
    while turn.has_room() {
        if let Some(id) = turn.state.doomed_queued.first().copied() {
            expiry::evict(turn, id, Cause::Restarted);
        } else if let Some(id) = turn.state.doomed_leases.first().copied() {
            let cause =
                if turn.state.recovering { LeaseEndCause::Restart } else { LeaseEndCause::NotAtEngine };
            leases::end(turn, id, LeaseEnd::Lost, Some(cause));
        } else {
            break;
        }
    }
    let done = turn.state.doomed_queued.is_empty() && turn.state.doomed_leases.is_empty();
    if turn.state.recovering && done {
        turn.emit(Event::RecoveryEnded);
    }
}

/// With the first fresh samples after a restart: orphans beyond what the endpoints show are no longer there.
pub(crate) fn settle_orphans(turn: &mut Turn<'_>) {
    let state = &*turn.state;
    let ready = !state.recovering
        && !state.orphans.is_empty()
        && state.clocks.regime == Regime::HasEndpoints
        // Whatever the detector reads: where nothing is sampled, orphans lapse.
        && usize::from(state.endpoints.fresh) == state.endpoints.table.len();
    if !ready {
        return;
    }
    let lost = unaccounted(state).len() as u64;
    let kept = state.orphans.len() as u64 - lost;
    turn.emit(Event::OrphansSettled { kept, lost });
    recover(turn);
}

/// The orphans that no endpoint shows, oldest first: on each endpoint those beyond what it runs and queues; of those
/// whose endpoint is not known, those beyond what is left over in the pool.
fn unaccounted(state: &State) -> Vec<RequestId> {
    let mut room: BTreeMap<_, u64> = state
        .endpoints
        .table
        .iter()
        .map(|(slot, e)| (*slot, e.sample.map_or(0, |s| u64::from(s.waiting) + u64::from(s.running))))
        .collect();
    let mut lost = Vec::new();
    let mut unplaced = Vec::new();
    // Youngest first: they are the likeliest to run still.
    for id in state.orphans.iter().rev() {
        match state.leases.get(id).map(|lease| lease.at) {
            Some(Whereabouts::At(slot)) => match room.get_mut(&slot) {
                Some(left) if *left > 0 => *left -= 1,
                _ => lost.push(*id),
            },
            Some(Whereabouts::Unknown) => unplaced.push(*id),
            Some(Whereabouts::Gone) => lost.push(*id),
            None => {}
        }
    }
    let left: u64 = room.values().sum();
    lost.extend(unplaced.into_iter().skip(usize::try_from(left).unwrap_or(usize::MAX)));
    lost.sort_unstable();
    lost
}

pub(crate) fn apply_orphans_settled(state: &mut State) {
    let lost = unaccounted(state);
    for id in &state.orphans {
        if let Some(lease) = state.leases.get_mut(id) {
            lease.orphan = false;
        }
    }
    state.orphans.clear();
    for id in lost {
        if let Some(lease) = state.leases.get_mut(&id) {
            lease.doomed = true;
            state.doomed_leases.insert(id);
        }
        state.index_victim(id);
    }
}

pub(crate) fn stopping(turn: &mut Turn<'_>, until: Micros) {
    turn.emit(Event::DrainBegun { until });
}

/// Once the drain is over, what is still queued ends; tickets stay for the next run.
pub(crate) fn drain(turn: &mut Turn<'_>) {
    if turn.state.draining_until.is_none_or(|until| until > turn.now()) {
        return;
    }
    if !turn.state.has_drainable() {
        return;
    }
    let room = DECISIONS_PER_STEP.saturating_sub(turn.decided);
    let callers = turn.state.queued.iter().filter(|(_, queued)| queued.face != Face::Ticket);
    let ids: Vec<RequestId> = callers.map(|(id, _)| *id).take(room).collect();
    for id in ids {
        expiry::evict(turn, id, Cause::ShuttingDown);
    }
}
