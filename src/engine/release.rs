//! Who waits for what, and the answers that a step gives them. An answer is held until its step is durable.

use super::about::{Queued, Running, Seen};
use super::decision::{Admitted, Change, Decision, Fate, LeaseNotice, Refused, Unavailable};
use super::inbox::SeenTo;
use super::pending::{Promise, Slot};
use super::revocation::{Listeners, Revocation, Revoking, outstanding};
use super::tickets::Tickets;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::oneshot;
use weir_kernel::{
    DEFAULT_FLOW, Dispatched, Event, Evicted, Face, Ignored, Input, KeyAnswer, Outcome, Reason, Rejected,
    RequestId, State, Step, Whereabouts,
};

/// One answer, not yet given.
pub(super) enum Release {
    Decision(Promise, Decision),
    Fate(oneshot::Sender<Fate>, Fate),
    Change(oneshot::Sender<Result<Change, Unavailable>>, Change),
    Lease(oneshot::Sender<LeaseNotice>, LeaseNotice),
    Revoked(oneshot::Sender<Revocation>, Revocation),
    Revoking(oneshot::Sender<Revoking>, Revoking),
    Queued(oneshot::Sender<Box<Queued>>, Box<Queued>),
    Asked(oneshot::Sender<Decision>, Decision),
    Seen(SeenTo, Box<(Seen, Option<String>)>),
    Reply(super::inbox::Reply),
}

impl Release {
    /// Gives the answer. Somebody who has stopped listening is no fault.
    pub fn give(self) {
        match self {
            Release::Decision(promise, decision) => promise.answer(decision),
            Release::Fate(to, fate) => drop(to.send(fate)),
            Release::Change(to, change) => drop(to.send(Ok(change))),
            Release::Lease(to, notice) => drop(to.send(notice)),
            Release::Revoked(to, revocation) => drop(to.send(revocation)),
            Release::Revoking(to, answer) => drop(to.send(answer)),
            Release::Queued(to, queued) => drop(to.send(queued)),
            Release::Asked(to, decision) => drop(to.send(decision)),
            Release::Seen(to, seen) => drop(to.send(Ok(*seen))),
            Release::Reply(reply) => reply(),
        }
    }

    /// Gives word that the answer will never be known.
    pub fn deny(self, why: Unavailable) {
        match self {
            Release::Decision(promise, _) => promise.answer(Decision::Unavailable(why)),
            Release::Fate(to, _) => drop(to.send(Fate::Unavailable(why))),
            Release::Change(to, _) => drop(to.send(Err(why))),
            Release::Asked(to, _) => drop(to.send(Decision::Unavailable(why))),
            Release::Seen(to, _) => drop(to.send(Err(why))),
            // Dropping the sender tells the other side.
            Release::Lease(..) | Release::Queued(..) | Release::Revoked(..) | Release::Reply(_) => {}
            Release::Revoking(to, _) => drop(to.send(Revoking::Unavailable(why))),
        }
    }
}

/// A queued request that somebody waits for.
struct Waiter {
    promise: Promise,
    /// Later calls with the same idempotency key.
    more: Vec<Promise>,
    flow: String,
    priority: i32,
    face: Face,
}

/// All who wait on one pool. Owned by its thread: no locks, no races.
#[derive(Default)]
pub(super) struct Waiters {
    queued: HashMap<RequestId, Waiter>,
    leases: HashMap<RequestId, Vec<oneshot::Sender<LeaseNotice>>>,
    /// Leases that cannot outlive the process, for an orderly stop.
    tied: HashSet<RequestId>,
    pub listeners: Listeners,
    tickets: Tickets,
}

impl Waiters {
    /// Of a recovered state: tickets wait on, though nobody waits for them.
    pub fn of(state: &State) -> Self {
        let mut waiters = Waiters::default();
        for id in state.queued_requests() {
            let Some(view) = state.queued_request(id).filter(|view| view.face == Face::Ticket) else {
                continue;
            };
            let (promise, flow) = (Promise::to_nobody(), view.flow.to_owned());
            let waiter = Waiter { promise, more: Vec::new(), flow, priority: view.priority, face: view.face };
            waiters.queued.insert(id, waiter);
        }
        waiters
    }

    /// Leases whose streams would be cut if the process ended now.
    pub fn tied(&self) -> usize {
        self.tied.len()
    }

    /// The arrival of this step waits for its decision. Call before [`Waiters::settle`].
    pub fn arrived(&mut self, step: &Step, face: Face, promise: Promise) {
        let id = RequestId(step.seq);
        promise.slot().name(id);
        if let (Face::Ticket, Input::Arrived(arrival)) = (face, &step.input) {
            self.tickets.arrived(id, arrival.caller_id.clone());
        }
        let waiter = Waiter { promise, more: Vec::new(), flow: String::new(), priority: 0, face };
        self.queued.insert(id, waiter);
    }

    pub fn watch_lease(&mut self, request: RequestId, to: oneshot::Sender<LeaseNotice>) {
        self.leases.entry(request).or_default().push(to);
    }

    /// Somebody waits to hear what is decided about a queued request.
    pub fn ask(&mut self, request: RequestId, to: oneshot::Sender<Decision>) {
        self.tickets.ask(request, to);
    }

    /// What a request is, and what its caller calls it where that is known here.
    pub fn seen(&mut self, state: &State, request: RequestId) -> (Seen, Option<String>) {
        let label = self.tickets.label(request).cloned();
        if let Some(queued) = Queued::of(state, request) {
            return (Seen::Queued(Box::new(queued)), label);
        }
        let decision = self.tickets.decision(request);
        let Some(lease) = state.lease(request) else {
            return (
                decision.map_or(Seen::Gone, |decision| Seen::Decided(Box::new(decision.clone()))),
                label,
            );
        };
        let admitted = match decision {
            Some(Decision::Admitted(admitted)) => Some(admitted.clone()),
            _ => None,
        };
        let endpoint = match lease.at {
            Whereabouts::At(slot) => state.endpoint_name(slot).map(str::to_owned),
            Whereabouts::Unknown | Whereabouts::Gone => None,
        };
        let running = Running {
            at: state.now(),
            since: lease.dispatched_at,
            lapses_at: lease.lapses_at,
            priority: lease.priority,
            face: lease.face,
            endpoint,
            admitted,
            revoked: outstanding(state, &lease),
            unheard: lease.face == Face::Ticket && self.tickets.hear(request),
        };
        (Seen::Running(Box::new(running)), label)
    }

    /// This caller waits no longer. True if that leaves nobody for the request (or nobody waited for it any more).
    pub fn left(&mut self, request: RequestId, slot: &Arc<Slot>) -> bool {
        let Some(waiter) = self.queued.get_mut(&request) else {
            return true;
        };
        if Arc::ptr_eq(waiter.promise.slot(), slot) {
            match waiter.more.pop() {
                Some(other) => waiter.promise = other,
                None => {
                    self.queued.remove(&request);
                    return true;
                }
            }
        } else {
            waiter.more.retain(|other| !Arc::ptr_eq(other.slot(), slot));
        }
        false
    }

    /// Collects the answers that this step gives, with the state right after it.
    pub fn settle(&mut self, state: &State, step: &Step, to: &mut Vec<Release>) {
        let id = RequestId(step.seq);
        for event in &step.events {
            match event {
                Event::Enqueued(e) => {
                    if let Some(waiter) = self.queued.get_mut(&id) {
                        waiter.flow = state.flow_name(e.flow).unwrap_or_default().to_owned();
                        waiter.priority = e.priority;
                        tell_queued(&mut waiter.promise, state, id, to);
                    }
                }
                Event::Rejected(e) => self.rejected(step, e, to),
                Event::Repeated { of, .. } => self.repeated(state, step, *of, to),
                Event::Dispatched(e) => self.dispatched(state, step, e, to),
                Event::Evicted(e) => self.evicted(step, e, to),
                Event::RevocationIssued(e) => self.listeners.issued(state, step, e, to),
                Event::LeaseEnded(e) => {
                    self.tied.remove(&e.request);
                    self.listeners.over(e.request);
                    for watcher in self.leases.remove(&e.request).unwrap_or_default() {
                        let notice = LeaseNotice { seq: step.seq, end: e.end, cause: e.cause, ran: e.ran };
                        to.push(Release::Lease(watcher, notice));
                    }
                }
                _ => {}
            }
        }
    }

    /// In observe mode nobody is held: the arrival's caller goes on, whatever was decided.
    pub fn settle_shadow(&mut self, state: &State, step: &Step, to: &mut Vec<Release>) {
        let id = RequestId(step.seq);
        let Some(waiter) = self.queued.remove(&id) else {
            return;
        };
        // A repeated call goes by the name of the first one.
        let named = step.events.iter().find_map(|event| match event {
            Event::Repeated { of, .. } => Some(*of),
            _ => None,
        });
        let enqueued = step.events.iter().find_map(|event| match event {
            Event::Enqueued(e) => Some((e.priority, state.flow_name(e.flow).unwrap_or_default())),
            Event::Rejected(e) => Some((e.priority, "")),
            _ => None,
        });
        let (priority, flow) = enqueued.unwrap_or_default();
        let admitted = Admitted {
            id: named.unwrap_or(id),
            seq: step.seq,
            waited: weir_kernel::Micros::ZERO,
            priority,
            flow: flow.to_owned(),
            endpoint: None,
            regime: state.regime(),
            face: waiter.face,
            shadow: true,
            repeated: named.is_some(),
        };
        to.push(Release::Decision(waiter.promise, Decision::Admitted(admitted)));
    }

    fn rejected(&mut self, step: &Step, e: &Rejected, to: &mut Vec<Release>) {
        let id = RequestId(step.seq);
        let Some(waiter) = self.queued.remove(&id) else {
            return;
        };
        if waiter.face == Face::Ticket {
            self.tickets.dropped(id);
        }
        let refused = Refused {
            id,
            seq: step.seq,
            outcome: e.outcome,
            reason: e.reason,
            regime: e.regime,
            waited: weir_kernel::Micros::ZERO,
            priority: e.priority,
            retry_after: e.retry_after,
            limit: e.limit,
            cause: e.cause,
            repeated: false,
        };
        waiter.answer(Decision::Refused(refused), to);
    }

    fn dispatched(&mut self, state: &State, step: &Step, e: &Dispatched, to: &mut Vec<Release>) {
        let Some(mut waiter) = self.queued.remove(&e.request) else {
            return;
        };
        if waiter.face.sees_end() && !waiter.face.survives_restart() {
            self.tied.insert(e.request);
        }
        let admitted = Admitted {
            id: e.request,
            seq: step.seq,
            waited: e.waited,
            priority: waiter.priority,
            flow: std::mem::take(&mut waiter.flow),
            endpoint: e.endpoint.and_then(|slot| state.endpoint_name(slot)).map(str::to_owned),
            regime: state.regime(),
            face: waiter.face,
            shadow: false,
            repeated: false,
        };
        for promise in waiter.more.iter_mut().chain([&mut waiter.promise]) {
            if let Some(ended) = promise.ended() {
                self.leases.entry(e.request).or_default().push(ended);
            }
        }
        let decision = Decision::Admitted(admitted);
        self.tickets.decided(e.request, waiter.face, &decision, to);
        waiter.answer(decision, to);
    }

    fn evicted(&mut self, step: &Step, e: &Evicted, to: &mut Vec<Release>) {
        self.listeners.over(e.request);
        let Some(waiter) = self.queued.remove(&e.request) else {
            return;
        };
        let refused = Refused {
            id: e.request,
            seq: step.seq,
            outcome: e.outcome,
            reason: e.reason,
            regime: e.regime,
            waited: e.waited,
            priority: waiter.priority,
            retry_after: None,
            limit: None,
            cause: e.cause,
            repeated: false,
        };
        let decision = Decision::Refused(refused);
        self.tickets.decided(e.request, waiter.face, &decision, to);
        waiter.answer(decision, to);
    }

    /// The arrival shares the fate of an earlier one: known already, or still to come.
    fn repeated(&mut self, state: &State, step: &Step, of: RequestId, to: &mut Vec<Release>) {
        let Some(mut repeat) = self.queued.remove(&RequestId(step.seq)) else {
            return;
        };
        if repeat.face == Face::Ticket {
            self.tickets.dropped(RequestId(step.seq));
        }
        repeat.promise.slot().name(of);
        tell_queued(&mut repeat.promise, state, of, to);
        let Input::Arrived(arrival) = &step.input else {
            return;
        };
        if let Some((_, Some(answer))) = arrival.idempotency.and_then(|key| state.key_answer(&key)) {
            let decision = from_key(state, of, &answer, &arrival.fairness_id);
            if let (Some(ended), true) = (repeat.promise.ended(), state.lease(of).is_some()) {
                self.watch_lease(of, ended);
            }
            to.push(Release::Decision(repeat.promise, decision));
        } else if let Some(first) = self.queued.get_mut(&of) {
            first.more.push(repeat.promise);
        } else {
            // Queued before a restart: this caller is the first to come back for it.
            let view = state.queued_request(of);
            let (flow, priority) = view.map_or(("", 0), |view| (view.flow, view.priority));
            self.queued.insert(of, Waiter { flow: flow.to_owned(), priority, ..repeat });
        }
    }

    /// Nobody will be answered any more.
    pub fn abort(&mut self, why: Unavailable) {
        for (_, waiter) in self.queued.drain() {
            for promise in waiter.more.into_iter().chain([waiter.promise]) {
                promise.answer(Decision::Unavailable(why));
            }
        }
        self.leases.clear();
        self.listeners.clear();
        self.tickets.abort();
    }
}

/// Whoever wants to know that its request waits is told, if it does.
fn tell_queued(promise: &mut Promise, state: &State, request: RequestId, to: &mut Vec<Release>) {
    if let Some(told) = promise.queued()
        && let Some(queued) = Queued::of(state, request)
    {
        to.push(Release::Queued(told, Box::new(queued)));
    }
}

impl Waiter {
    fn answer(self, decision: Decision, to: &mut Vec<Release>) {
        for promise in self.more {
            let mut shared = decision.clone();
            match &mut shared {
                Decision::Admitted(admitted) => admitted.repeated = true,
                Decision::Refused(refused) => refused.repeated = true,
                Decision::Unavailable(_) => {}
            }
            to.push(Release::Decision(promise, shared));
        }
        to.push(Release::Decision(self.promise, decision));
    }
}

/// The answer to a repeated call whose first call has been decided.
fn from_key(state: &State, id: RequestId, answer: &KeyAnswer, fairness_id: &str) -> Decision {
    if answer.outcome == Outcome::Dispatched {
        let lease = state.lease(id);
        return Decision::Admitted(Admitted {
            id,
            seq: answer.seq,
            waited: answer.waited,
            priority: lease.as_ref().map_or(0, |lease| lease.priority),
            flow: if fairness_id.is_empty() { DEFAULT_FLOW } else { fairness_id }.to_owned(),
            endpoint: answer.endpoint.and_then(|slot| state.endpoint_name(slot)).map(str::to_owned),
            regime: state.regime(),
            face: lease.map_or(Face::Held, |lease| lease.face),
            shadow: false,
            repeated: true,
        });
    }
    Decision::Refused(Refused {
        id,
        seq: answer.seq,
        outcome: answer.outcome,
        reason: answer.reason.unwrap_or(Reason::Internal),
        regime: state.regime(),
        waited: answer.waited,
        priority: 0,
        retry_after: None,
        limit: None,
        cause: None,
        repeated: true,
    })
}

/// What a step says became of the cancellation, end or renewal that it was given.
pub(super) fn fate(step: &Step) -> Fate {
    for event in &step.events {
        match event {
            Event::Ignored { what: Ignored::UnknownRequest } => return Fate::Unknown,
            Event::Ignored { what: Ignored::AlreadyEnded } => return Fate::AlreadyEnded,
            _ => {}
        }
    }
    Fate::Done { seq: step.seq }
}
