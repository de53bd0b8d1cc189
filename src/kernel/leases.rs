//! Admitted requests that have not ended: they occupy capacity.
//!
//! Not here: how many the pool can bear (`gauge.rs`), taking them back.

use crate::endpoints::Totals;
use crate::revoke::{self, Revocation};
use crate::turn::Turn;
use crate::{
    Cancelled, Cause, Ended, Event, Face, Fairness, Idempotency, Ignored, LeaseEnd, LeaseEndCause,
    LeaseEnded, Micros, RequestId, Slot, State, Usage, Whereabouts, expiry, gauge, queues, reclaim, service,
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) priority: i32,
    pub(crate) at: Whereabouts,
    pub(crate) dispatched_at: Micros,
    pub(crate) heard_at: Micros,
    pub(crate) prompt_tokens: u32,
    pub(crate) output_estimate: u64,
    pub(crate) program: Option<Arc<str>>,
    pub(crate) first_byte: bool,
    pub(crate) face: Face,
    pub(crate) orphan: bool,
    pub(crate) doomed: bool,
    pub(crate) key: Option<Idempotency>,
    pub(crate) revocation: Option<Box<Revocation>>,
}

impl Lease {
    /// Only a lease without an open stream can lapse (contract.md, *Leases*). A fail-open stream that outlived a
    /// restart is not open with us any more: nobody would ever tell of its end.
    pub(crate) fn lapses(&self) -> bool {
        match self.face {
            Face::Held | Face::Ticket => true,
            Face::ExtProcOpen => self.heard_at > self.dispatched_at,
            Face::Stream | Face::Proxy | Face::ExtProcClosed | Face::Untracked => false,
        }
    }

    /// Tokens it holds: the prompt until its first byte, and the estimated output until its end.
    fn tokens(&self) -> u64 {
        let prompt = if self.first_byte { 0 } else { u64::from(self.prompt_tokens) };
        prompt.saturating_add(self.output_estimate)
    }

    /// Its place in the endpoint table; `None` where it loads no endpoint of the pool.
    fn place(&self) -> Option<Option<Slot>> {
        match self.at {
            Whereabouts::Unknown => Some(None),
            Whereabouts::At(slot) => Some(Some(slot)),
            Whereabouts::Gone => None,
        }
    }
}

/// A request is given up: queued, it leaves the queue at once; running, its lease ends.
pub(crate) fn cancelled(turn: &mut Turn<'_>, cancelled: &Cancelled) {
    let id = cancelled.request;
    if turn.state.queued.contains_key(&id) {
        expiry::evict(turn, id, cancelled.cause);
    } else if turn.state.leases.contains_key(&id) {
        end(turn, id, LeaseEnd::Completed, Some(LeaseEndCause::Cancelled(cancelled.cause)));
    } else {
        turn.emit(Event::Ignored { what: Ignored::UnknownRequest });
    }
}

/// The stream of a request ended. A queued one can only have ended in the real pool (observe mode) or with its caller.
pub(crate) fn ended(turn: &mut Turn<'_>, ended: &Ended) {
    let id = ended.request;
    if turn.state.queued.contains_key(&id) {
        let cause = if turn.state.policy.observe { Cause::EndedInPool } else { Cause::ClientDisconnect };
        return expiry::evict(turn, id, cause);
    }
    if !turn.state.leases.contains_key(&id) {
        return turn.emit(Event::Ignored { what: Ignored::UnknownRequest });
    }
    if let Some(usage) = ended.usage {
        charge(turn, id, usage);
    }
    end(turn, id, LeaseEnd::Completed, None);
}

pub(crate) fn lapsed(turn: &mut Turn<'_>, id: RequestId) {
    end(turn, id, LeaseEnd::Lost, Some(LeaseEndCause::Timeout));
}

pub(crate) fn end(turn: &mut Turn<'_>, id: RequestId, end: LeaseEnd, cause: Option<LeaseEndCause>) {
    let Some(lease) = turn.state.leases.get(&id) else { return };
    let ran = turn.now().since(lease.dispatched_at);
    let end = revoke::settle(turn, id, end);
    turn.emit_decision(Event::LeaseEnded(LeaseEnded { request: id, end, ran, cause }));
}

/// Attained service is charged at completion: prompt + 2 x completion tokens (seed-system.md 10.1).
fn charge(turn: &mut Turn<'_>, id: RequestId, usage: Usage) {
    let state = &*turn.state;
    let Some(lease) = state.leases.get(&id) else { return };
    let Some(program) = lease.program.as_ref().and_then(|name| state.programs.get(name)) else { return };
    let half_life = half_life(state, lease.priority);
    let before = program.service;
    if let Some(service::Rescale { epoch, shift }) =
        service::rescale_due(state.now, state.service_epoch, half_life)
    {
        turn.emit(Event::ServiceRescaled { epoch, shift });
        let program = turn.state.leases.get(&id).and_then(|lease| lease.program.as_ref());
        let before = program.and_then(|name| turn.state.programs.get(name)).map_or(0, |p| p.service);
        let service = service::charge(before, usage, turn.now(), epoch, half_life);
        return turn.emit(Event::ServiceCharged { request: id, service });
    }
    let service = service::charge(before, usage, state.now, state.service_epoch, half_life);
    turn.emit(Event::ServiceCharged { request: id, service });
}

fn half_life(state: &State, priority: i32) -> Micros {
    match state.bands.get(&priority).map(|band| &band.settings.fairness) {
        Some(Fairness::ProgramAware(params)) => params.half_life,
        _ => Micros::ZERO,
    }
}

pub(crate) fn first_byte(turn: &mut Turn<'_>, id: RequestId) {
    match turn.state.leases.get(&id) {
        Some(lease) if !lease.first_byte => turn.emit(Event::FirstByteNoted { request: id }),
        Some(_) => turn.emit(Event::Ignored { what: Ignored::NoChange }),
        None => turn.emit(Event::Ignored { what: Ignored::UnknownRequest }),
    }
}

pub(crate) fn renewed(turn: &mut Turn<'_>, id: RequestId) {
    let known = turn.state.leases.get(&id).is_some_and(|lease| lease.lapses())
        || turn.state.queued.get(&id).is_some_and(|q| q.face == Face::Ticket);
    if known {
        turn.emit(Event::RenewalNoted { request: id });
    } else {
        turn.emit(Event::Ignored { what: Ignored::UnknownRequest });
    }
}

/// Enters a lease into every index (also from a snapshot).
pub(crate) fn insert_lease(state: &mut State, id: RequestId, lease: Lease) {
    if lease.lapses() {
        state.lapsing.insert((lease.heard_at, id));
    }
    if lease.orphan {
        state.orphans.insert(id);
    }
    if lease.doomed {
        state.doomed_leases.insert(id);
    }
    if let Some(slot) = lease.place() {
        gauge::place_lease(state, slot, id, lease.tokens(), true);
    }
    let sheddable = lease.priority < 0;
    state.leases.insert(id, Box::new(lease));
    if sheddable {
        state.index_victim(id);
    }
}

fn remove_lease(state: &mut State, id: RequestId) -> Option<Box<Lease>> {
    let lease = state.leases.remove(&id)?;
    state.lapsing.remove(&(lease.heard_at, id));
    state.orphans.remove(&id);
    state.doomed_leases.remove(&id);
    revoke::remove_lease(state, id, &lease);
    reclaim::remove_lease(state, id, &lease);
    if let Some(slot) = lease.place() {
        gauge::place_lease(state, slot, id, lease.tokens(), false);
    }
    Some(lease)
}

pub(crate) fn apply_ended(state: &mut State, e: &LeaseEnded) {
    let Some(lease) = remove_lease(state, e.request) else { return };
    state.counters.lease_ends[e.end as usize] += 1;
    if e.end != LeaseEnd::Untracked
        && let Some(slot) = lease.place()
    {
        gauge::note(state, slot, Totals { ended: 1, ..Totals::default() });
    }
    if let Some(name) = &lease.program {
        leave_program(state, name);
    }
}

pub(crate) fn apply_renewed(state: &mut State, id: RequestId) {
    let now = state.now;
    if let Some(lease) = state.leases.get_mut(&id) {
        state.lapsing.remove(&(lease.heard_at, id));
        lease.heard_at = lease.heard_at.max(now);
        state.lapsing.insert((lease.heard_at, id));
    } else if let Some(queued) = state.queued.get_mut(&id) {
        state.tickets.remove(&(queued.heard_at, id));
        queued.heard_at = now;
        state.tickets.insert((now, id));
    }
}

pub(crate) fn apply_first_byte(state: &mut State, id: RequestId) {
    let Some(lease) = state.leases.get_mut(&id) else { return };
    let (place, before) = (lease.place(), lease.tokens());
    lease.first_byte = true;
    let after = lease.tokens();
    if let Some(slot) = place {
        gauge::weigh_lease(state, slot, id, before, after);
    }
}

/// The endpoint left: what ran there loads none of the others. (Called while the endpoint is still in the table.)
pub(crate) fn endpoint_left(state: &mut State, slot: Slot) {
    let Some(endpoint) = state.endpoints.table.get(&slot) else { return };
    let ids: Vec<RequestId> = endpoint.leases.iter().copied().collect();
    for id in ids {
        if let Some(lease) = state.leases.get_mut(&id) {
            lease.at = Whereabouts::Gone;
        }
    }
}

pub(crate) fn apply_service(state: &mut State, id: RequestId, service: u128) {
    let Some(name) = state.leases.get(&id).and_then(|lease| lease.program.clone()) else { return };
    if let Some(program) = state.programs.get_mut(&name) {
        program.service = service;
    }
    reindex_program(state, &name, service);
}

/// The program's flows stand elsewhere in their bands' order of service.
fn reindex_program(state: &mut State, name: &Arc<str>, service: u128) {
    let all = &state.queued;
    for band in state.bands.values_mut() {
        if !matches!(band.ready, queues::Ready::Service { .. }) {
            continue;
        }
        let Some(id) = band.flows.get(name).copied() else { continue };
        if let Some(flow) = state.flows.get(&id) {
            queues::reindex_flow(&mut band.ready, id, flow, service, &|id| {
                all.get(&id).map_or(Micros::ZERO, |q| q.enqueued_at)
            });
        }
    }
}

pub(crate) fn apply_rescaled(state: &mut State, epoch: Micros, shift: u32) {
    state.service_epoch = epoch;
    for program in state.programs.values_mut() {
        program.service = service::rescale(program.service, shift);
    }
    let all: Vec<(Arc<str>, u128)> = state.programs.iter().map(|(n, p)| (Arc::clone(n), p.service)).collect();
    for (name, service) in all {
        reindex_program(state, &name, service);
    }
}

/// One request of the program ended.
pub(crate) fn leave_program(state: &mut State, name: &Arc<str>) {
    if let Some(program) = state.programs.get_mut(name) {
        program.active = program.active.saturating_sub(1);
        if program.active == 0 {
            program.idle_since = Some(state.now);
            state.idle_programs.insert((state.now, Arc::clone(name)));
        }
    }
}

pub(crate) fn apply_program_forgotten(state: &mut State, name: &str) {
    let Some((key, program)) = state.programs.remove_entry(name) else { return };
    // Requests that were queued before their band kept accounts stand in its order without holding one.
    reindex_program(state, &key, 0);
    if let Some(since) = program.idle_since {
        state.idle_programs.remove(&(since, key));
    }
}

impl State {
    /// How long idle programs are remembered: the longest of any band; `None` = for ever. Without a band that asks
    /// for attained service there is nothing to remember them for.
    fn program_ttl(&self) -> Option<Micros> {
        let ttl = |fairness: &Fairness| match fairness {
            Fairness::ProgramAware(params) => Some(params.state_ttl),
            Fairness::GlobalStrict | Fairness::RoundRobin => None,
        };
        let mut longest = Micros::ZERO;
        for ttl in self.bands.values().filter_map(|band| ttl(&band.settings.fairness)) {
            if ttl.is_zero() {
                return None;
            }
            longest = longest.max(ttl);
        }
        Some(longest)
    }

    pub(crate) fn program_deadline(&self) -> Option<Micros> {
        let (since, _) = self.idle_programs.first()?;
        self.program_ttl().map(|ttl| *since + ttl)
    }
}
