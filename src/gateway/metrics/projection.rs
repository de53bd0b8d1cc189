//! Counters and queue gauges of one pool, derived from its durable steps and from nothing else, so that they add up
//! to what the log holds.
//!
//! Not here: gauges that are read from the engine at a scrape, and the exposition (`encode.rs`).

use super::exemplar::Mark;
use super::histogram::{Histogram, bucket};
use super::labels::{Labels, OTHER};
use super::leases::{Known, Leases};
use super::revocations::Revocations;
use std::collections::{BTreeMap, HashMap};
use weir_kernel::{
    AdminAction, Arrival, Event, FlowId, Input, LeaseEnd, Micros, Outcome, Reason, Regime, RejectedMany,
    RequestId, RestatedFlow, RestatedQueued, Step,
};

/// The name of the flow of requests without a fairness id.
const DEFAULT_FLOW: &str = "default-flow";

/// Series of one pool of each of its two histograms by flow (waits, and the time until a decision to queue or refuse); beyond it flows
/// and models share `other`, so that nothing is lost but the names. Enough for a thousand flows that end in two ways. One
/// series has 23 lines, 5.2 and 3.7 KB with names of 20 bytes: both at their bound are 92,000 lines and 18 MB at each scrape.
pub(super) const WAIT_SERIES_MAX: usize = 2_000;
/// Series of one pool of each gauge of what is queued, of a line each; beyond it the same.
pub(super) const QUEUE_SERIES_MAX: usize = 4_000;

/// The label sets that all pools share.
#[derive(Debug)]
pub struct Shared {
    /// Fairness ids.
    pub flows: Labels,
    /// Models.
    pub models: Labels,
}

/// The labels of a queue series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    /// Fairness id.
    pub flow: u32,
    /// Priority.
    pub priority: i32,
    /// Model.
    pub model: u32,
}

/// What waits under one set of labels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// One pool's figures.
#[derive(Debug, Default)]
pub struct Projection {
    /// The last step that is in the figures.
    pub seq: u64,
    /// Arrivals.
    pub arrivals: u64,
    /// Arrivals that repeated an earlier one.
    pub repeated: u64,
    /// Arrivals whose objective is not in the table.
    pub objective_unknown: u64,
    /// Arrivals whose budget header could not be read.
    pub ttl_unreadable: u64,
    /// Queue outcomes by priority.
    pub outcomes: BTreeMap<(Outcome, i32), u64>,
    /// Refusals by reason.
    pub reasons: BTreeMap<Reason, u64>,
    /// Lease ends.
    pub lease_ends: BTreeMap<LeaseEnd, u64>,
    /// Changes of regime.
    pub regimes: BTreeMap<(Regime, Regime), u64>,
    /// Arrivals refused unseen while the log could not be written.
    pub refused_unlogged: u64,
    /// Orders of operators, by what they ordered.
    pub orders: BTreeMap<&'static str, u64>,
    /// Idempotency keys forgotten to make room.
    pub keys_forgotten: u64,
    /// What waits.
    pub queues: BTreeMap<QueueKey, Queue>,
    /// Queue waits by outcome.
    pub waits: BTreeMap<(QueueKey, Outcome), Histogram>,
    /// From receipt to the step that took it in, by priority.
    pub enqueues: BTreeMap<(QueueKey, Option<Outcome>), Histogram>,
    /// Revocations.
    pub revocations: Revocations,
    /// Running requests.
    pub leases: Leases,
    /// `Retry-After` as it was given.
    pub retry_after: Histogram,
    /// The last traced request of each outcome.
    pub marks: BTreeMap<Outcome, Mark>,
    /// The last traced request of each outcome and bucket of the waits, with its series.
    pub wait_marks: BTreeMap<(Outcome, usize), (QueueKey, Mark)>,
    flows: HashMap<FlowId, (u32, i32)>,
    waiting: HashMap<RequestId, Waiting>,
}

/// A queued request.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    key: QueueKey,
    /// Where it counts as queued: its key, or the shared one where there are too many.
    place: QueueKey,
    bytes: u64,
    known: Known,
}

impl Projection {
    /// Begins with what a snapshot of the state holds.
    pub fn restate(&mut self, events: &[Event], shared: &mut Shared) {
        for event in events {
            match event {
                Event::RestatedCore(core) => self.seq = core.seq,
                Event::RestatedFlow(flow) => self.restate_flow(flow, shared),
                Event::RestatedQueued(queued) => self.restate_queued(queued),
                other => self.leases.restate(other),
            }
        }
    }

    fn restate_flow(&mut self, flow: &RestatedFlow, shared: &mut Shared) {
        let label = shared.flows.take(name_of(&flow.name));
        self.flows.insert(flow.flow, (label, flow.priority));
    }

    fn restate_queued(&mut self, queued: &RestatedQueued) {
        let (flow, priority) = self.flows.get(&queued.flow).copied().unwrap_or((OTHER, 0));
        let known = Known { tokens: u64::from(queued.prompt_tokens), ..Known::default() };
        let key = QueueKey { flow, priority, model: OTHER };
        self.enter(queued.request, Waiting { key, place: key, bytes: queued.bytes, known });
    }

    /// Takes in one durable step.
    pub fn apply(&mut self, step: &Step, shared: &mut Shared) {
        if step.seq <= self.seq {
            return;
        }
        self.seq = step.seq;
        let arrival = match &step.input {
            Input::Arrived(arrival) => Some(arrival),
            _ => None,
        };
        if let Input::Observed(observation) = &step.input {
            self.leases.observed(&observation.changes);
        }
        if let Input::ArrivedMany(many) = &step.input {
            self.arrivals += many.count;
            self.ttl_unreadable += many.ttl_unreadable;
            self.objective_unknown += many.objective_unknown;
        }
        if let Input::Admin(order) = &step.input {
            *self.orders.entry(action(&order.action)).or_default() += 1;
        }
        if let Some(arrival) = arrival {
            self.arrivals += 1;
            self.ttl_unreadable += u64::from(arrival.ttl_unreadable);
        }
        for event in &step.events {
            self.event(step, arrival, event, shared);
        }
    }

    fn event(&mut self, step: &Step, arrival: Option<&Arrival>, event: &Event, shared: &mut Shared) {
        match event {
            Event::FlowOpened { flow, priority } => {
                let name = arrival.map_or(DEFAULT_FLOW, |arrival| name_of(&arrival.fairness_id));
                self.flows.insert(*flow, (shared.flows.take(name), *priority));
            }
            Event::FlowClosed { flow } => self.flow_closed(*flow, shared),
            Event::Enqueued(enqueued) => {
                self.objective_unknown += u64::from(enqueued.objective_unknown);
                let (flow, _) = self.flows.get(&enqueued.flow).copied().unwrap_or((OTHER, 0));
                let model = self.model(arrival, shared);
                let key = QueueKey { flow, priority: enqueued.priority, model };
                self.took(step, arrival, key, None);
                let bytes = arrival.map_or(0, |arrival| arrival.bytes);
                let known = arrival.map(known_of).unwrap_or_default();
                self.enter(RequestId(step.seq), Waiting { key, place: key, bytes, known });
            }
            Event::Rejected(rejected) => {
                self.objective_unknown += u64::from(rejected.objective_unknown);
                *self.reasons.entry(rejected.reason).or_default() += 1;
                if let Some(seconds) = rejected.retry_after {
                    self.retry_after.observe(u64::from(seconds) * 1_000_000);
                }
                let key = self.direct(arrival, rejected.priority, shared);
                self.took(step, arrival, key, Some(rejected.outcome));
                let key = self.left(key, rejected.outcome, 0);
                let mark = Mark::of(arrival.and_then(|arrival| arrival.trace), Micros::ZERO, step.at);
                self.mark(key, rejected.outcome, mark);
            }
            Event::RejectedMany(rejected) => self.rejected_many(step, rejected),
            Event::Dispatched(dispatched) => {
                let (key, known) = match self.leave(dispatched.request) {
                    Some(waiting) => (waiting.key, waiting.known),
                    None => (self.direct(arrival, 0, shared), arrival.map(known_of).unwrap_or_default()),
                };
                let waited = dispatched.waited;
                let series = self.left(key, Outcome::Dispatched, waited.0);
                self.mark(series, Outcome::Dispatched, Mark::of(known.trace, waited, step.at));
                let request = (key, known);
                self.leases.dispatched(dispatched.request, request, dispatched.endpoint, waited, shared);
            }
            Event::Evicted(evicted) => {
                *self.reasons.entry(evicted.reason).or_default() += 1;
                let waiting = self.leave(evicted.request);
                let trace = waiting.and_then(|waiting| waiting.known.trace);
                let key = waiting.map_or_else(|| self.direct(None, 0, shared), |waiting| waiting.key);
                let series = self.left(key, evicted.outcome, evicted.waited.0);
                self.mark(series, evicted.outcome, Mark::of(trace, evicted.waited, step.at));
            }
            Event::Repeated { .. } => self.repeated += 1,
            Event::LeaseEnded(ended) => {
                *self.lease_ends.entry(ended.end).or_default() += 1;
                if let Some(gone) = self.leases.ended(ended.request, step.at, shared) {
                    self.forget(gone);
                }
            }
            Event::RegimeChanged { from, to, .. } => *self.regimes.entry((*from, *to)).or_default() += 1,
            Event::RefusalsNoted { refused } => self.refused_unlogged += refused,
            Event::KeyForgotten { .. } => self.keys_forgotten += 1,
            // The rest moves none of these figures, or those of revocations.
            other => self.revocations.apply(other),
        }
    }

    /// Refused together: their flows and models are not known, and each is taken to have been as fast as the mean.
    fn rejected_many(&mut self, step: &Step, rejected: &RejectedMany) {
        let Input::ArrivedMany(many) = &step.input else { return };
        let (count, outcome) = (many.count, rejected.outcome);
        *self.reasons.entry(rejected.reason).or_default() += count;
        *self.outcomes.entry((outcome, many.priority)).or_default() += count;
        let key = QueueKey { flow: OTHER, priority: many.priority, model: OTHER };
        self.waits.entry((key, outcome)).or_default().observe_many(0, count);
        self.enqueues.entry((key, Some(outcome))).or_default().observe_many(many.took.0, count);
        if let [Some(first), Some(last)] = rejected.retry_after {
            // Each of them lies between these.
            let sum = (u64::from(first) + u64::from(last)) * 500_000 * count;
            self.retry_after.observe_many(sum, count);
        }
    }

    fn enter(&mut self, request: RequestId, mut waiting: Waiting) {
        if self.queues.len() >= QUEUE_SERIES_MAX && !self.queues.contains_key(&waiting.place) {
            waiting.place = QueueKey { flow: OTHER, model: OTHER, ..waiting.key };
        }
        let queue = self.queues.entry(waiting.place).or_default();
        queue.requests += 1;
        queue.bytes = queue.bytes.saturating_add(waiting.bytes);
        self.waiting.insert(request, waiting);
    }

    fn leave(&mut self, request: RequestId) -> Option<Waiting> {
        let waiting = self.waiting.remove(&request)?;
        if let Some(queue) = self.queues.get_mut(&waiting.place) {
            queue.requests = queue.requests.saturating_sub(1);
            queue.bytes = queue.bytes.saturating_sub(waiting.bytes);
        }
        Some(waiting)
    }

    /// A traced request of this series of waits ended so.
    fn mark(&mut self, series: QueueKey, outcome: Outcome, mark: Option<Mark>) {
        let Some(mark) = mark else { return };
        self.marks.insert(outcome, mark);
        self.wait_marks.insert((outcome, bucket(mark.micros())), (series, mark));
    }

    /// A flow's label will be another one's: what stood under it goes.
    fn forget(&mut self, flow: u32) {
        self.queues.retain(|key, _| key.flow != flow);
        self.waits.retain(|(key, _), _| key.flow != flow);
        self.enqueues.retain(|(key, _), _| key.flow != flow);
        self.wait_marks.retain(|_, (key, _)| key.flow != flow);
        self.leases.forget(flow);
    }

    /// A request left the queue. Gives the series that its wait is in.
    fn left(&mut self, key: QueueKey, outcome: Outcome, waited: u64) -> QueueKey {
        *self.outcomes.entry((outcome, key.priority)).or_default() += 1;
        let key = bounded(&self.waits, key, outcome);
        self.waits.entry((key, outcome)).or_default().observe(waited);
        key
    }

    /// How long it took to be taken in; without an outcome it was queued.
    fn took(&mut self, step: &Step, arrival: Option<&Arrival>, key: QueueKey, outcome: Option<Outcome>) {
        let Some(arrival) = arrival else { return };
        let took = step.at.since(arrival.received_at);
        let key = bounded(&self.enqueues, QueueKey { model: OTHER, ..key }, outcome);
        self.enqueues.entry((key, outcome)).or_default().observe(took.0);
    }

    /// The labels of a request that was never queued.
    fn direct(&mut self, arrival: Option<&Arrival>, priority: i32, shared: &mut Shared) -> QueueKey {
        let flow = arrival.map_or(OTHER, |arrival| shared.flows.look(name_of(&arrival.fairness_id)));
        QueueKey { flow, priority, model: self.model(arrival, shared) }
    }

    fn model(&self, arrival: Option<&Arrival>, shared: &mut Shared) -> u32 {
        match arrival.and_then(|arrival| arrival.model.as_deref()) {
            // Models are not counted out of use: there is no event that says so.
            Some(model) => match shared.models.look(model) {
                OTHER => shared.models.take(model),
                known => known,
            },
            None => shared.models.look(""),
        }
    }

    fn flow_closed(&mut self, flow: FlowId, shared: &mut Shared) {
        let Some((label, priority)) = self.flows.remove(&flow) else { return };
        let gone = shared.flows.release(label);
        if label == OTHER {
            return;
        }
        let closed = |key: &QueueKey| key.flow == label && (gone || key.priority == priority);
        if gone {
            self.leases.forget(label);
        }
        self.queues.retain(|key, _| !closed(key));
        self.waits.retain(|(key, _), _| !closed(key));
        self.enqueues.retain(|(key, _), _| !closed(key));
        self.wait_marks.retain(|_, (key, _)| !closed(key));
    }
}

fn known_of(arrival: &Arrival) -> Known {
    let tokens = u64::from(arrival.prompt_tokens.unwrap_or(0));
    Known { received_at: Some(arrival.received_at), tokens, trace: arrival.trace }
}

/// The key itself while there is room for its series, else the shared one.
fn bounded<O: Ord + Copy>(
    series: &BTreeMap<(QueueKey, O), Histogram>,
    key: QueueKey,
    outcome: O,
) -> QueueKey {
    if series.len() < WAIT_SERIES_MAX || series.contains_key(&(key, outcome)) {
        key
    } else {
        QueueKey { flow: OTHER, model: OTHER, ..key }
    }
}

const fn action(action: &AdminAction) -> &'static str {
    match action {
        AdminAction::Pause => "pause",
        AdminAction::Resume => "resume",
        AdminAction::Purge { .. } => "purge",
        AdminAction::PurgeFlow { .. } => "purge-flow",
        AdminAction::Drain { .. } => "drain",
    }
}

fn name_of(fairness_id: &str) -> &str {
    if fairness_id.is_empty() { DEFAULT_FLOW } else { fairness_id }
}
