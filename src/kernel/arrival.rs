//! A request arrives: repeated, refused or queued.
//!
//! Not here: what refuses it (`refusals.rs`), whether it may run at once (`dispatch.rs`, in the same step).

use crate::clocks::Budgets;
use crate::queues::{Flow, Queued, Ready, make_ready};
use crate::refusals::{self, Facts, Refusal, Verdict};
use crate::turn::Turn;
use crate::{
    Arrival, BandOrigin, BandSettings, BudgetSource, Enqueued, Event, Face, FlowId, Input, Micros, OrderKey,
    Outcome, Policy, Reason, Rejected, RequestId, State, bands, ordering, waits,
};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;

/// The flow of requests that name none (seed-system.md section 4).
pub const DEFAULT_FLOW: &str = "default-flow";

const KEYS_FORGOTTEN_AT_ONCE: usize = 4;

pub(crate) fn fairness_id(arrival: &Arrival) -> &str {
    if arrival.fairness_id.is_empty() { DEFAULT_FLOW } else { &arrival.fairness_id }
}

/// The budgets that a band's settings and a caller's shorter wish give, and which scope set the first.
pub(crate) fn budgets(
    policy: &Policy,
    settings: &BandSettings,
    header: Option<Micros>,
) -> (Budgets, BudgetSource, Option<Micros>) {
    let (own, source) = match settings.saturation_budget {
        Some(budget) => (budget, BudgetSource::Band),
        None => (policy.saturation_budget, BudgetSource::Global),
    };
    let no_endpoint = settings.no_endpoint_budget.unwrap_or(policy.no_endpoint_budget);
    match header.filter(|ttl| !ttl.is_zero() && (own.is_zero() || *ttl < own)) {
        Some(ttl) => (Budgets { saturation: ttl, no_endpoint }, BudgetSource::Header, Some(ttl)),
        None => (Budgets { saturation: own, no_endpoint }, source, None),
    }
}

/// Who it is and where it would wait.
pub(crate) struct Identity {
    pub(crate) priority: i32,
    pub(crate) objective_unknown: bool,
}

pub(crate) fn identify(state: &State, arrival: &Arrival) -> Identity {
    let known = arrival.objective.as_ref().map(|name| state.objectives.get(name).copied());
    Identity {
        priority: arrival.priority.or(known.flatten()).unwrap_or(0),
        objective_unknown: matches!(known, Some(None)),
    }
}

pub(crate) fn arrived(turn: &mut Turn<'_>, arrival: &Arrival) {
    let who = identify(turn.state, arrival);
    if repeated(turn, arrival, &who) {
        return;
    }
    let facts = Facts::of(arrival, who.priority);
    let mut verdict = refusals::verdict(turn.state, &facts);
    if verdict == Verdict::NoBand {
        provision(turn, who.priority);
        verdict = refusals::verdict(turn.state, &facts);
    }
    match verdict {
        Verdict::Refused(refusal) => reject(turn, &who, refusal),
        Verdict::NoBand | Verdict::Queued => enqueue(turn, arrival, &who),
    }
}

/// The same idempotency key came before: this call shares that one's fate, or is a mistake.
fn repeated(turn: &mut Turn<'_>, arrival: &Arrival, who: &Identity) -> bool {
    let Some(key) = arrival.idempotency else { return false };
    let Some(entry) = turn.state.keys.get(&key.key) else { return false };
    if entry.body != key.body {
        let refusal = Refusal {
            outcome: Outcome::RejectedOther,
            reason: Reason::IdempotencyMismatch,
            cause: None,
            limit: None,
            hopeless: None,
        };
        reject(turn, who, refusal);
        return true;
    }
    let of = entry.request;
    let resumed = turn.state.queued.get(&of).is_some_and(|q| q.resumable_until.is_some());
    turn.emit(Event::Repeated { of, resumed });
    true
}

fn reject(turn: &mut Turn<'_>, who: &Identity, refusal: Refusal) {
    let retry_after = refusals::retry_after(turn.state, &refusal, who.priority, 0);
    let Refusal { outcome, reason, cause, limit, hopeless } = refusal;
    if let Some(hopeless) = hopeless {
        turn.emit(Event::FoundHopeless(hopeless));
    }
    let event = Event::Rejected(Rejected {
        outcome,
        reason,
        regime: turn.state.clocks.regime,
        priority: who.priority,
        objective_unknown: who.objective_unknown,
        limit,
        cause,
        retry_after,
        saturation: turn.state.raw_saturation(),
    });
    turn.emit_decision(event);
}

fn provision(turn: &mut Turn<'_>, priority: i32) {
    let settings = Box::new(turn.state.policy.template_for(priority).clone());
    turn.emit(Event::BandOpened { priority, origin: BandOrigin::Provisioned, settings });
    bands::rebound(turn, priority);
}

fn enqueue(turn: &mut Turn<'_>, arrival: &Arrival, who: &Identity) {
    let state = &*turn.state;
    let Some(band) = state.bands.get(&who.priority) else { return };
    let name = fairness_id(arrival);
    let known = band.flows.get(name).copied();
    let header = arrival.ttl.map(|ttl| state.classes.header_class(ttl));
    let (budgets, budget_source, header_class) = budgets(&state.policy, &band.settings, header);
    let order = ordering::order_key(band.settings.ordering, arrival, state.now, budgets.saturation);
    let depth = band.requests + 1;
    let flow = known.unwrap_or_else(|| free_flow(state));
    if arrival.idempotency.is_some() {
        forget_keys(turn);
    }
    if known.is_none() {
        turn.emit(Event::FlowOpened { flow, priority: who.priority });
    }
    turn.emit(Event::Enqueued(Enqueued {
        flow,
        priority: who.priority,
        objective_unknown: who.objective_unknown,
        saturation_budget: budgets.saturation,
        no_endpoint_budget: budgets.no_endpoint,
        budget_source,
        header_class,
        order,
        depth,
    }));
}

/// Makes room for one more idempotency key. After the limit was lowered, a few go at a time.
fn forget_keys(turn: &mut Turn<'_>) {
    let limit = usize::try_from(turn.state.policy.idempotency_keys).unwrap_or(usize::MAX);
    for _ in 0..KEYS_FORGOTTEN_AT_ONCE {
        match turn.state.keys.oldest() {
            Some(key) if turn.state.keys.len() >= limit => turn.emit(Event::KeyForgotten { key }),
            _ => return,
        }
    }
}

/// The next number that no flow has: numbers come round again after 2^32 flows.
fn free_flow(state: &State) -> FlowId {
    let mut id = FlowId(state.next_flow);
    while state.flows.contains_key(&id) {
        id = FlowId(id.0.wrapping_add(1));
    }
    id
}

pub(crate) fn apply_flow_opened(state: &mut State, input: &Input, id: FlowId, priority: i32) {
    let Input::Arrived(arrival) = input else { return };
    let name: Arc<str> = Arc::from(fairness_id(arrival));
    add_flow(state, id, name, priority);
}

pub(crate) fn add_flow(state: &mut State, id: FlowId, name: Arc<str>, priority: i32) {
    if let Some(band) = state.bands.get_mut(&priority) {
        band.flows.insert(Arc::clone(&name), id);
        if let Some(since) = band.idle_since.take() {
            state.idle_bands.remove(&(since, priority));
        }
    }
    let flow = Flow { name, priority, queued: 0, line: BTreeSet::new(), idle_since: None };
    state.flows.insert(id, flow);
    state.next_flow = id.0.wrapping_add(1);
}

pub(crate) fn apply_enqueued(state: &mut State, input: &Input, e: &Enqueued) {
    let Input::Arrived(arrival) = input else { return };
    let id = RequestId(state.seq);
    let now = state.now;
    state.counters.arrivals += 1;
    let queued = Queued {
        flow: e.flow,
        priority: e.priority,
        order: e.order,
        enqueued_at: now,
        marks: state.clocks.read(now),
        bytes: arrival.bytes,
        prompt_tokens: arrival.prompt_tokens.unwrap_or(0),
        header_class: e.header_class,
        deadline: arrival.deadline,
        face: arrival.face,
        choose_endpoint: arrival.choose_endpoint,
        key: arrival.idempotency,
        resumable_until: None,
        heard_at: now,
        doomed: false,
        program: program_of(state, e.flow, e.priority),
    };
    if let Some(name) = &queued.program {
        enter_program(state, name);
    }
    if let Some(key) = arrival.idempotency {
        state.keys.remember(key, id, None);
    }
    let budgets = Budgets { saturation: e.saturation_budget, no_endpoint: e.no_endpoint_budget };
    if let Some(band) = state.bands.get_mut(&e.priority) {
        band.active_since.get_or_insert(now);
    }
    insert_queued(state, id, queued, budgets);
}

/// Puts a queued request into every index (also from a snapshot).
pub(crate) fn insert_queued(state: &mut State, id: RequestId, queued: Queued, budgets: Budgets) {
    state.queued_bytes = state.queued_bytes.saturating_add(queued.bytes);
    if let Some(deadline) = queued.deadline {
        state.deadlines.insert((deadline, id));
    }
    if queued.face == Face::Ticket {
        state.tickets.insert((queued.heard_at, id));
    }
    if let Some(until) = queued.resumable_until {
        state.resumable.insert((until, id));
    }
    if queued.doomed {
        state.doomed_queued.insert(id);
    }
    state.classes.push(queued.class(), budgets, id, queued.marks, &state.clocks);
    if let Some(band) = state.bands.get_mut(&queued.priority) {
        band.requests += 1;
        band.bytes = band.bytes.saturating_add(queued.bytes);
    }
    if let Some(flow) = state.flows.get_mut(&queued.flow) {
        flow.queued += 1;
        if let Some(since) = flow.idle_since.take() {
            state.idle_flows.remove(&(since, queued.flow));
        }
    }
    let (ready, priority, flow, order) = (queued.is_ready(), queued.priority, queued.flow, queued.order);
    state.queued.insert(id, Box::new(queued));
    if ready {
        enter(state, id, priority, flow, order);
    }
}

/// Makes a queued request dispatchable.
pub(crate) fn set_ready(state: &mut State, id: RequestId) {
    if let Some(queued) = state.queued.get(&id) {
        let (priority, flow, order) = (queued.priority, queued.flow, queued.order);
        enter(state, id, priority, flow, order);
    }
}

fn enter(state: &mut State, id: RequestId, priority: i32, flow_id: FlowId, order: OrderKey) {
    let place = (order, id);
    let (Some(band), Some(flow)) = (state.bands.get_mut(&priority), state.flows.get_mut(&flow_id)) else {
        return;
    };
    let service = match band.ready {
        Ready::Service { .. } => state.programs.get(&flow.name).map_or(0, |p| p.service),
        Ready::Strict(_) | Ready::Turns { .. } => 0,
    };
    let all = &state.queued;
    make_ready(band, flow_id, flow, place, service, &|id| {
        all.get(&id).map_or(Micros::ZERO, |q| q.enqueued_at)
    });
    let remembered = band.waits.is_some();
    state.active.insert(priority);
    if remembered {
        waits::note_ready(state, priority, id);
    }
}

/// A band with least-attained-service fairness keeps its programs' accounts.
fn program_of(state: &State, flow: FlowId, priority: i32) -> Option<Arc<str>> {
    let aware = state.bands.get(&priority).is_some_and(|b| matches!(b.ready, Ready::Service { .. }));
    state.flows.get(&flow).filter(|_| aware).map(|flow| Arc::clone(&flow.name))
}

fn enter_program(state: &mut State, name: &Arc<str>) {
    let program = state.programs.entry(Arc::clone(name)).or_default();
    program.active += 1;
    if let Some(since) = program.idle_since.take() {
        state.idle_programs.remove(&(since, Arc::clone(name)));
    }
}

pub(crate) fn apply_rejected(state: &mut State, e: &Rejected) {
    state.counters.arrivals += 1;
    state.counters.outcomes[e.outcome.index()] += 1;
    if e.limit.is_some()
        && let Some(band) = state.bands.get_mut(&e.priority)
    {
        band.refusals += 1;
    }
}

pub(crate) fn apply_repeated(state: &mut State, input: &Input, of: RequestId, resumed: bool) {
    state.counters.repeated += 1;
    if !resumed {
        return;
    }
    let face = match input {
        Input::Arrived(arrival) => arrival.face,
        _other => Face::Held,
    };
    if let Some(queued) = state.queued.get_mut(&of)
        && let Some(until) = queued.resumable_until.take()
    {
        queued.face = face;
        queued.heard_at = state.now;
        let ticket = face == Face::Ticket;
        state.resumable.remove(&(until, of));
        if ticket {
            state.tickets.insert((state.now, of));
        }
        set_ready(state, of);
    }
}
