//! Until blocked: the highest band with queued work, while the gauge is below its ceiling.

use crate::ceilings::{self, Ceiling};
use crate::endpoints::Totals;
use crate::leases::Lease;
use crate::queues::{Queued, Ready, make_unready};
use crate::turn::Turn;
use crate::{
    BoundReached, Detector, Dispatched, Event, FlowId, Hold, Input, KeyAnswer, LeaseEnd, LeaseEnded, Micros,
    OrderKey, Outcome, Ratio, Regime, RequestId, State, UsageLimit, Whereabouts, fairness, gauge, reclaim,
    saturation, waits,
};
use alloc::boxed::Box;

/// Without in-flight credit the seed system's pace is the only brake: one request a millisecond.
const PACE: Micros = Micros::from_millis(1);
/// No request is taken to generate more tokens than this, so that sums of them stay exact.
const MOST_OUTPUT: u64 = 1 << 40;
/// While a band waits for an open tick of a soft-reflective ceiling, the next step is this near.
const TICK: Micros = Micros::from_millis(1);

/// Dispatches until nothing more can be, and takes leases back where that is what helps.
pub(crate) fn run(turn: &mut Turn<'_>) {
    until_blocked(turn);
    reclaim::consider(turn);
}

fn until_blocked(turn: &mut Turn<'_>) {
    if turn.state.paused.is_some() && !turn.state.active.is_empty() {
        return held_by(turn, Hold::Paused);
    }
    if is_still_held(turn) {
        return;
    }
    let mut paced = is_paced(turn.state) && !pace_allows(turn);
    while !turn.state.active.is_empty() && turn.has_room() && !paced {
        // What is due is ended first; if a step could not end it all, nothing is dispatched past it.
        if turn.behind || turn.state.has_backlog() {
            break;
        }
        match next(turn) {
            Ok(Candidate { id, turn_of, raw, effective, ceiling, bound }) => {
                if let Some(reached) = bound {
                    turn.emit(Event::BoundReached(reached));
                }
                if let Some((priority, flow)) = turn_of {
                    turn.emit(Event::TurnTaken { priority, last: Some(flow) });
                }
                dispatch(turn, id, raw, effective, ceiling);
                paced = is_paced(turn.state);
            }
            Err(hold) => return held_by(turn, hold),
        }
    }
    // Nothing left to hold, or the band that was held has been served: what stands first now may be another one.
    let outdated = match turn.state.hold {
        Some(Hold::Band { priority, .. }) => turn.state.active.last() != Some(&priority),
        Some(Hold::Regime(_) | Hold::Recovery) => turn.state.active.is_empty(),
        Some(Hold::Paused) => true,
        None => false,
    };
    if outdated {
        turn.emit(Event::HoldLifted);
    }
}

/// An arrival cannot lower the gauge: where it joins a queue whose first band is held by its ceiling, that band still
/// is. (What time alone does to the gauge has a deadline of its own.)
fn is_still_held(turn: &Turn<'_>) -> bool {
    let state = &*turn.state;
    let first = match state.hold {
        Some(Hold::Band { priority, .. }) => state.active.last() == Some(&priority),
        Some(Hold::Regime(_) | Hold::Recovery | Hold::Paused) | None => false,
    };
    first
        && turn.decided == 0
        && matches!(turn.input, Input::Arrived(_))
        && state.policy.flow_control
        && state.bounded.is_empty()
        && !is_paced(state)
        && !matches!(state.policy.usage_limit, UsageLimit::SoftReflective)
}

struct Candidate {
    id: RequestId,
    turn_of: Option<(i32, FlowId)>,
    raw: Ratio,
    effective: Ratio,
    ceiling: Ratio,
    /// Why it goes before all others.
    bound: Option<BoundReached>,
}

/// The next request to dispatch, or what holds it.
fn next(turn: &mut Turn<'_>) -> Result<Candidate, Hold> {
    let state = &*turn.state;
    let Some(priority) = state.active.last().copied() else { return Err(Hold::Regime(state.clocks.regime)) };
    let open = !state.policy.flow_control;
    if state.clocks.regime != Regime::HasEndpoints && !open {
        return Err(Hold::Regime(state.clocks.regime));
    }
    turn.state.keep_gauge();
    let state = &*turn.state;
    let (raw, effective) = state.saturation();
    if !open && let Some((reached, ceiling)) = waits::starved(turn, effective) {
        let (id, bound) = (reached.request, Some(reached));
        return Ok(Candidate { id, turn_of: None, raw, effective, ceiling, bound });
    }
    let state = &*turn.state;
    let ceiling = if open {
        Ratio::ONE
    } else {
        match ceilings::ceiling(&state.policy.usage_limit, effective, priority, &state.ranked) {
            Ceiling::Open(ceiling) => ceiling,
            Ceiling::Gated { period } => gated(turn, period),
        }
    };
    let state = &*turn.state;
    if effective >= ceiling && !open {
        let stale = if state.policy.detector.reads_metrics() {
            state.endpoints.len() - state.endpoints.fresh
        } else {
            0
        };
        let endpoints = state.endpoints.len();
        return Err(Hold::Band { priority, saturation: effective, ceiling, stale, endpoints });
    }
    waits::turn_order(turn, priority);
    let state = &*turn.state;
    let picked = state.bands.get(&priority).and_then(|band| fairness::pick(band, &state.flows, state.now));
    match picked {
        Some(((_, id), flow)) => {
            let turn_of = flow.map(|flow| (priority, flow));
            Ok(Candidate { id, turn_of, raw, effective, ceiling, bound: None })
        }
        // An active band always has a ready request (an invariant of `check`).
        None => Err(Hold::Regime(state.clocks.regime)),
    }
}

/// The alternation moves once a step in which a gated band with queued work is reached (contract.md row 21).
pub(crate) fn gated(turn: &mut Turn<'_>, period: u64) -> Ratio {
    if !turn.ticked {
        turn.ticked = true;
        let tick = turn.state.tick.wrapping_add(1);
        turn.emit(Event::CeilingTicked { tick });
    }
    if turn.state.tick.is_multiple_of(period.max(1)) { Ratio::ONE } else { Ratio::ZERO }
}

fn held_by(turn: &mut Turn<'_>, hold: Hold) {
    let same = match (turn.state.hold, hold) {
        (
            Some(Hold::Band { priority: a, stale: s, endpoints: n, .. }),
            Hold::Band { priority: b, stale, endpoints, .. },
        ) => a == b && (s == n) == (stale == endpoints),
        (Some(old), new) => old == new,
        (None, _) => false,
    };
    if !same {
        turn.emit(Event::Held { by: hold });
    }
}

pub(crate) fn is_paced(state: &State) -> bool {
    !state.policy.in_flight_credit && matches!(state.policy.detector, Detector::Utilization { .. })
}

/// One request per arrival or per millisecond, as the seed system does.
fn pace_allows(turn: &Turn<'_>) -> bool {
    matches!(turn.input, Input::Arrived(_)) || turn.now().since(turn.state.last_dispatch) >= PACE
}

fn dispatch(turn: &mut Turn<'_>, id: RequestId, raw: Ratio, effective: Ratio, ceiling: Ratio) {
    let state = &*turn.state;
    let Some(queued) = state.queued.get(&id) else { return };
    let sees_end = queued.face.sees_end();
    let output_estimate = match &state.policy.detector {
        Detector::Concurrency { output_estimate: Some(estimate), .. } => {
            let input = u64::from(queued.prompt_tokens);
            saturation::estimate_tokens(input, Some(*estimate)).saturating_sub(input).min(MOST_OUTPUT)
        }
        _other => 0,
    };
    let event = Dispatched {
        request: id,
        endpoint: if queued.choose_endpoint { state.choose_endpoint() } else { None },
        waited: state.now.since(queued.enqueued_at),
        raw,
        effective,
        ceiling,
        observed: state.endpoints.observed,
        output_estimate,
    };
    turn.emit_decision(Event::Dispatched(event));
    if !sees_end {
        turn.emit(Event::LeaseEnded(LeaseEnded {
            request: id,
            end: LeaseEnd::Untracked,
            ran: Micros::ZERO,
            cause: None,
        }));
    }
}

impl State {
    /// When dispatching must be tried again although nothing comes in.
    pub(crate) fn dispatch_deadline(&self) -> Option<Micros> {
        let top = *self.active.last()?;
        if self.paused.is_some() {
            return None;
        }
        let soonest = if is_paced(self) { (self.last_dispatch + PACE).max(self.now) } else { self.now };
        if !self.policy.flow_control {
            return Some(soonest);
        }
        if self.clocks.regime != Regime::HasEndpoints {
            // A hold by the regime is on record as soon as a step has had room to look.
            return self.hold.is_none().then_some(soonest);
        }
        let (_, effective) = self.saturation();
        match ceilings::ceiling(&self.policy.usage_limit, effective, top, &self.ranked) {
            Ceiling::Gated { .. } => Some(self.now + TICK),
            Ceiling::Open(ceiling) if effective < ceiling => Some(soonest),
            Ceiling::Open(_) if matches!(self.hold, Some(Hold::Band { priority, .. }) if priority == top) => {
                let bound = self.bound_deadline(effective).map(|due| due.max(soonest));
                self.credit_deadline().into_iter().chain(bound).min()
            }
            Ceiling::Open(_) => Some(soonest),
        }
    }
}

pub(crate) fn apply_turn(state: &mut State, priority: i32, served: Option<FlowId>) {
    if let Some(band) = state.bands.get_mut(&priority)
        && let Ready::Turns { last, .. } = &mut band.ready
    {
        *last = served;
    }
}

pub(crate) fn apply_dispatched(state: &mut State, e: &Dispatched) {
    let Some(queued) = remove_queued(state, e.request) else { return };
    let now = state.now;
    state.counters.outcomes[Outcome::Dispatched.index()] += 1;
    state.last_dispatch = now;
    if let Some(band) = state.bands.get_mut(&queued.priority) {
        band.note_dispatch(now);
    }
    if let Some(key) = queued.key {
        let answer = KeyAnswer {
            outcome: Outcome::Dispatched,
            reason: None,
            seq: state.seq,
            waited: e.waited,
            endpoint: e.endpoint,
        };
        state.keys.answer(&key, e.request, answer);
    }
    let untracked = u64::from(!queued.face.sees_end());
    gauge::note(state, e.endpoint, Totals { dispatched: 1, untracked, ended: 0 });
    let lease = Lease {
        priority: queued.priority,
        at: e.endpoint.map_or(Whereabouts::Unknown, Whereabouts::At),
        dispatched_at: now,
        heard_at: now,
        prompt_tokens: queued.prompt_tokens,
        output_estimate: e.output_estimate,
        program: queued.program,
        first_byte: false,
        face: queued.face,
        orphan: false,
        doomed: false,
        key: queued.key,
        revocation: None,
    };
    crate::leases::insert_lease(state, e.request, lease);
}

/// Takes a request out of the queue and out of every index.
pub(crate) fn remove_queued(state: &mut State, id: RequestId) -> Option<Box<Queued>> {
    let queued = state.queued.remove(&id)?;
    if queued.is_ready() {
        unready(state, id, queued.priority, queued.flow, queued.order);
    }
    let now = state.now;
    state.queued_bytes = state.queued_bytes.saturating_sub(queued.bytes);
    if let Some(deadline) = queued.deadline {
        state.deadlines.remove(&(deadline, id));
    }
    state.tickets.remove(&(queued.heard_at, id));
    if let Some(until) = queued.resumable_until {
        state.resumable.remove(&(until, id));
    }
    state.doomed_queued.remove(&id);
    state.purging.remove(&id);
    state.classes.remove(queued.class(), id, &state.clocks);
    if let Some(band) = state.bands.get_mut(&queued.priority) {
        band.requests = band.requests.saturating_sub(1);
        band.bytes = band.bytes.saturating_sub(queued.bytes);
        band.refusals = 0;
    }
    if let Some(flow) = state.flows.get_mut(&queued.flow) {
        flow.queued = flow.queued.saturating_sub(1);
        if flow.queued == 0 {
            flow.idle_since = Some(now);
            state.idle_flows.insert((now, queued.flow));
        }
    }
    Some(queued)
}

/// Makes a queued request undispatchable.
pub(crate) fn set_unready(state: &mut State, id: RequestId) {
    if let Some(queued) = state.queued.get(&id) {
        let (priority, flow, order) = (queued.priority, queued.flow, queued.order);
        unready(state, id, priority, flow, order);
    }
}

fn unready(state: &mut State, id: RequestId, priority: i32, flow_id: FlowId, order: OrderKey) {
    let place = (order, id);
    let (Some(band), Some(flow)) = (state.bands.get_mut(&priority), state.flows.get_mut(&flow_id)) else {
        return;
    };
    let service = match band.ready {
        Ready::Service { .. } => state.programs.get(&flow.name).map_or(0, |p| p.service),
        Ready::Strict(_) | Ready::Turns { .. } => 0,
    };
    let all = &state.queued;
    make_unready(band, flow_id, flow, place, service, &|id| {
        all.get(&id).map_or(Micros::ZERO, |q| q.enqueued_at)
    });
    let remembered = band.waits.is_some();
    if band.ready_requests == 0 {
        state.active.remove(&priority);
    }
    if remembered {
        waits::note_unready(state, priority, id);
    }
}
