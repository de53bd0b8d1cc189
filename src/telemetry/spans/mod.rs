//! Steps of a pool's log in, ended spans out. A fold: the same steps give the same spans.
//!
//! A request whose arrival is not among the steps (the log was trimmed, or the reading began later) has no spans; it is
//! counted.

mod ending;
mod moments;
mod reclamation;
mod request;
#[cfg(test)]
mod tests;

use crate::context::Context;
use crate::names;
use crate::sampler::Sampler;
use crate::span::{Kind, Link, Span, Status, attribute};
use moments::{Moment, Moments};
use reclamation::Reclamations;
use request::{Facts, Open};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use weir_kernel::{
    Arrival, Dispatched, EndpointChange, Event, Input, LeaseEnded, Policy, RejectedMany, RequestId, Slot,
    Step,
};

/// Waiting requests of the demand band that a reclamation decision is linked to: the longest waiting.
const DEMAND_LINKS: usize = 8;

/// The spans of one pool.
#[derive(Debug)]
pub struct Spans {
    pool: Arc<str>,
    sampler: Sampler,
    open: HashMap<RequestId, Open>,
    /// Queued requests by band.
    waiting: BTreeMap<i32, BTreeSet<RequestId>>,
    endpoints: HashMap<Slot, String>,
    observe: bool,
    moments: Moments,
    reclamations: Reclamations,
    missed: u64,
    quiet: bool,
    skipped: u64,
}

impl Spans {
    /// Of a pool, from a step on.
    pub fn new(pool: &str, sampler: Sampler) -> Self {
        Spans {
            pool: Arc::from(pool),
            sampler,
            open: HashMap::new(),
            waiting: BTreeMap::new(),
            endpoints: HashMap::new(),
            observe: false,
            moments: Moments::default(),
            reclamations: Reclamations::default(),
            missed: 0,
            quiet: false,
            skipped: 0,
        }
    }

    /// While quiet, requests that arrive leave no spans, and are counted as skipped.
    pub fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Sampled requests that were skipped since this was last asked.
    pub fn take_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.skipped)
    }

    /// Begins with what a snapshot tells of the pool. Of the requests in it nothing is known but that they are there.
    pub fn restate(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::RestatedEndpoint(endpoint) => {
                    self.endpoints.insert(endpoint.slot, endpoint.name.clone());
                }
                Event::RestatedPolicy { policy } => self.policy(policy),
                _ => {}
            }
        }
    }

    /// Requests that have begun and not ended.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Requests that ended and of which no beginning was seen.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Steps were missed: what was open may have ended in them, and has no spans. Gives how many that are.
    pub fn gap(&mut self) -> u64 {
        let lost = self.open.len() as u64;
        self.open.clear();
        self.waiting.clear();
        self.moments = Moments::default();
        self.reclamations = Reclamations::default();
        lost
    }

    /// Takes in a step; what ended with it is added to `out`.
    pub fn apply(&mut self, step: &Step, out: &mut Vec<Span>) {
        let arrival = match &step.input {
            Input::Arrived(arrival) => Some(arrival),
            Input::Observed(observation) => {
                self.observed(&observation.changes);
                None
            }
            Input::PolicyChanged(change) => {
                self.policy(&change.policy);
                None
            }
            Input::Ended(ended) => {
                if let Some(open) = self.open.get_mut(&ended.request) {
                    open.ending(step.at, ended);
                }
                None
            }
            _ => None,
        };
        for event in &step.events {
            self.event(step, arrival, event, out);
        }
        // The end of a lease confirms its revocation in the same step: what is said of that belongs to the lease.
        for event in &step.events {
            if let Event::LeaseEnded(ended) = event {
                self.lease_ended(step, ended, out);
            }
        }
        self.reclamations.close(step.at, &self.pool, out);
        self.moments.keep_from(self.waiting.values().filter_map(BTreeSet::first).min().copied());
    }

    fn policy(&mut self, policy: &Policy) {
        self.observe = policy.observe;
    }

    fn observed(&mut self, changes: &[EndpointChange]) {
        for change in changes {
            if let EndpointChange::Joined { slot, name, .. } = change {
                self.endpoints.insert(*slot, name.clone());
            }
        }
    }

    fn event(&mut self, step: &Step, arrival: Option<&Arrival>, event: &Event, out: &mut Vec<Span>) {
        match event {
            Event::Enqueued(enqueued) => {
                if let Some(arrival) = arrival {
                    let open = self.begin(step, arrival).queued(enqueued);
                    self.waiting.entry(enqueued.priority).or_default().insert(RequestId(step.seq));
                    self.open.insert(RequestId(step.seq), open);
                }
            }
            Event::Rejected(rejected) => {
                if let Some(arrival) = arrival {
                    out.extend(self.begin(step, arrival).rejected(step, rejected));
                }
            }
            Event::Repeated { of, .. } => {
                if let Some(arrival) = arrival {
                    let first = self.open.get(of).map(|open| open.context);
                    out.extend(self.begin(step, arrival).repeated(step, *of, first));
                }
            }
            Event::Dispatched(dispatched) => self.dispatched(step, arrival, dispatched, out),
            Event::Evicted(evicted) => match self.leave(evicted.request) {
                Some(open) => out.extend(open.evicted(step, evicted, &self.moments)),
                None => self.missed += 1,
            },
            Event::FirstByteNoted { request } => {
                if let Some(open) = self.open.get_mut(request) {
                    open.note(step.at, names::FIRST_BYTE, Vec::new);
                }
            }
            Event::RegimeChanged { .. }
            | Event::Held { .. }
            | Event::HoldLifted
            | Event::ClassRebudgeted { .. } => self.moments.push(Moment::of(step, event)),
            Event::ReclamationDecided(decided) => {
                let mut links = Vec::new();
                let demand = self.waiting.get(&decided.demand).into_iter().flatten().take(DEMAND_LINKS);
                for open in demand.filter_map(|request| self.open.get(request)) {
                    links.push(link(&open.context, open.context.admission, "demand"));
                }
                self.reclamations.decided(step.at, decided, &self.pool, &self.sampler, links);
            }
            Event::RevocationIssued(issued) => {
                let victim = self.open.get_mut(&issued.request);
                self.reclamations.issued(step.at, issued, victim);
            }
            Event::RevocationEnded(ended) => {
                let victim = self.open.get_mut(&ended.request);
                self.reclamations.ended(step.at, ended, victim);
            }
            Event::Reclaimed(reclaimed) => self.reclamations.reclaimed(step.at, reclaimed),
            Event::RejectedMany(rejected) => out.extend(self.rejected_many(step, rejected)),
            _ => {}
        }
    }

    /// What is kept of a request: its ids, and the facts of its spans if they are wanted.
    fn begin(&mut self, step: &Step, arrival: &Arrival) -> Open {
        let request = RequestId(step.seq);
        let context = Context::of(&self.pool, request, arrival.received_at, arrival.trace, &self.sampler);
        self.skipped += u64::from(context.sampled && self.quiet);
        let facts = (context.sampled && !self.quiet).then(|| {
            let (pool, observe) = (Arc::clone(&self.pool), self.observe);
            Box::new(Facts::new(pool, step, arrival, observe))
        });
        Open::new(context, facts)
    }

    /// A request that leaves the queue, and everything.
    fn leave(&mut self, request: RequestId) -> Option<Open> {
        let open = self.open.remove(&request)?;
        self.leave_queue(open.priority, request);
        Some(open)
    }

    fn leave_queue(&mut self, priority: i32, request: RequestId) {
        if let Some(band) = self.waiting.get_mut(&priority) {
            band.remove(&request);
            if band.is_empty() {
                self.waiting.remove(&priority);
            }
        }
    }

    fn dispatched(
        &mut self,
        step: &Step,
        arrival: Option<&Arrival>,
        dispatched: &Dispatched,
        out: &mut Vec<Span>,
    ) {
        let request = dispatched.request;
        // Without flow control a request is admitted without having been queued.
        if let (Some(arrival), true, false) =
            (arrival, request.0 == step.seq, self.open.contains_key(&request))
        {
            let open = self.begin(step, arrival);
            self.open.insert(request, open);
        }
        let endpoint = dispatched.endpoint.and_then(|slot| self.endpoints.get(&slot)).cloned();
        if let Some(open) = self.open.get_mut(&request) {
            out.extend(open.dispatched(step, dispatched, endpoint, &self.moments));
            let priority = open.priority;
            self.leave_queue(priority, request);
        }
    }

    fn lease_ended(&mut self, step: &Step, ended: &LeaseEnded, out: &mut Vec<Span>) {
        match self.open.remove(&ended.request) {
            Some(open) => out.extend(open.lease_ended(step, ended)),
            None => self.missed += 1,
        }
    }

    /// One span for all of them: nothing is known of each.
    fn rejected_many(&self, step: &Step, rejected: &RejectedMany) -> Option<Span> {
        let Input::ArrivedMany(many) = &step.input else { return None };
        let context = Context::of_pool("refusals", &self.pool, step.seq, step.at, &self.sampler);
        if !context.sampled {
            return None;
        }
        let mut attributes = vec![
            attribute(names::POOL, &*self.pool),
            attribute(names::SEQUENCE, step.seq),
            attribute(names::PRIORITY, many.priority),
            attribute(names::COUNT, many.count),
            attribute(names::OUTCOME, rejected.outcome.word()),
            attribute(names::REGIME, rejected.regime.word()),
            attribute(names::SATURATION_RAW, rejected.saturation),
        ];
        ending::limit(&mut attributes, rejected.limit);
        let status = ending::refusal(&mut attributes, rejected.reason, rejected.cause);
        Some(Span {
            trace_id: context.trace_id,
            span_id: context.admission,
            parent: None,
            parent_is_remote: false,
            name: names::REFUSALS,
            kind: Kind::Server,
            start: many.since.min(step.at),
            end: step.at,
            attributes,
            events: Vec::new(),
            events_dropped: 0,
            links: Vec::new(),
            status,
        })
    }
}

/// A link to a span of that trace.
fn link(context: &Context, span_id: [u8; 8], what: &'static str) -> Link {
    let attributes = vec![attribute(names::LINK, what)];
    Link { trace_id: context.trace_id, span_id, attributes }
}

/// A span of our own making within a trace, with nothing in it yet.
fn empty(context: &Context, span_id: [u8; 8], name: &'static str) -> Span {
    Span {
        trace_id: context.trace_id,
        span_id,
        parent: None,
        parent_is_remote: false,
        name,
        kind: Kind::Internal,
        start: weir_kernel::Micros::ZERO,
        end: weir_kernel::Micros::ZERO,
        attributes: Vec::new(),
        events: Vec::new(),
        events_dropped: 0,
        links: Vec::new(),
        status: Status::Unset,
    }
}
