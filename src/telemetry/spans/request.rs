//! One request: what is kept while it is open, and the spans that it leaves.

use super::ending;
use super::moments::{Moments, hold};
use super::{empty, link};
use crate::context::Context;
use crate::names;
use crate::span::{Attribute, Kind, Link, Span, SpanEvent, Status, Value, attribute};
use std::sync::Arc;
use weir_kernel::{
    Arrival, Dispatched, Ended, Enqueued, Evicted, Face, LeaseEnded, Micros, Outcome, Rejected, RequestId,
    Step, Termination,
};

/// Events of one lease.
const EVENTS_MAX: usize = 64;

/// An open request.
#[derive(Debug)]
pub struct Open {
    /// Its ids.
    pub context: Context,
    /// Its band, once it has one.
    pub priority: i32,
    /// None if it is not sampled.
    facts: Option<Box<Facts>>,
}

/// What its spans are made of.
#[derive(Debug)]
pub struct Facts {
    pool: Arc<str>,
    seq: u64,
    /// When the step of its arrival was taken.
    at: Micros,
    arrival: Arrival,
    observe: bool,
    queued: Option<Enqueued>,
    lease: Option<Lease>,
}

/// A lease so far.
#[derive(Debug)]
struct Lease {
    since: Micros,
    seq: u64,
    dispatched: Dispatched,
    endpoint: Option<String>,
    events: Vec<SpanEvent>,
    events_dropped: u32,
    links: Vec<Link>,
    ended: Option<Ended>,
}

impl Facts {
    /// Of an arrival.
    pub fn new(pool: Arc<str>, step: &Step, arrival: &Arrival, observe: bool) -> Self {
        let arrival = arrival.clone();
        Facts { pool, seq: step.seq, at: step.at, arrival, observe, queued: None, lease: None }
    }
}

impl Open {
    /// Without facts it leaves no spans.
    pub fn new(context: Context, facts: Option<Box<Facts>>) -> Self {
        Open { context, priority: 0, facts }
    }

    /// It is queued.
    pub fn queued(mut self, enqueued: &Enqueued) -> Self {
        self.priority = enqueued.priority;
        if let Some(facts) = &mut self.facts {
            facts.queued = Some(enqueued.clone());
        }
        self
    }

    /// It is refused at once.
    pub fn rejected(self, step: &Step, rejected: &Rejected) -> Option<Span> {
        let facts = self.facts?;
        let mut span = facts.admission(&self.context, step, Some(rejected.priority), rejected.outcome);
        span.attributes.push(attribute(names::REGIME, rejected.regime.word()));
        span.attributes.push(attribute(names::SATURATION_RAW, rejected.saturation));
        ending::limit(&mut span.attributes, rejected.limit);
        if let Some(seconds) = rejected.retry_after {
            span.attributes.push(Attribute(names::RETRY_AFTER, Value::Texts(vec![seconds.to_string()])));
        }
        let mut attributes = Vec::new();
        span.status = ending::refusal(&mut attributes, rejected.reason, rejected.cause);
        span.attributes.extend_from_slice(&attributes);
        span.events.push(SpanEvent { name: names::REFUSED, at: step.at, attributes });
        Some(span)
    }

    /// It is the same as an earlier one, whose fate it shares.
    pub fn repeated(self, step: &Step, of: RequestId, first: Option<Context>) -> Option<Span> {
        let facts = self.facts?;
        let mut span = facts.whole(&self.context, step.at);
        span.attributes.push(attribute(names::SEQUENCE, step.seq));
        span.attributes.push(attribute(names::REPEATED, of.0));
        span.links.extend(first.map(|first| link(&first, first.admission, "repeated")));
        Some(span)
    }

    /// It is admitted: the wait is over.
    pub fn dispatched(
        &mut self,
        step: &Step,
        dispatched: &Dispatched,
        endpoint: Option<String>,
        moments: &Moments,
    ) -> Option<Span> {
        let facts = self.facts.as_mut()?;
        facts.lease = Some(Lease {
            since: step.at,
            seq: step.seq,
            dispatched: dispatched.clone(),
            endpoint,
            events: vec![SpanEvent { name: names::DISPATCHED, at: step.at, attributes: Vec::new() }],
            events_dropped: 0,
            links: Vec::new(),
            ended: None,
        });
        let mut span = facts.waited(&self.context, step, moments)?;
        let mut attributes = vec![
            attribute(names::SATURATION_RAW, dispatched.raw),
            attribute(names::SATURATION, dispatched.effective),
            attribute(names::CEILING, dispatched.ceiling),
            attribute(names::OBSERVED, dispatched.observed),
        ];
        span.events.push(SpanEvent { name: names::DISPATCHED, at: step.at, attributes: attributes.clone() });
        attributes.push(Attribute(names::OUTCOME, Value::Word(Outcome::Dispatched.word())));
        span.attributes.append(&mut attributes);
        Some(span)
    }

    /// It ended in the queue.
    pub fn evicted(self, step: &Step, evicted: &Evicted, moments: &Moments) -> Vec<Span> {
        let Some(facts) = self.facts else { return Vec::new() };
        let mut attributes = Vec::new();
        let status = ending::refusal(&mut attributes, evicted.reason, evicted.cause);
        attributes.push(Attribute(names::REGIME, Value::Word(evicted.regime.word())));
        if let Some(spent) = evicted.budget {
            let which = match spent.which {
                weir_kernel::BudgetKind::Saturation => "saturation",
                weir_kernel::BudgetKind::NoEndpoint => "no-endpoint",
                weir_kernel::BudgetKind::Whole => "whole",
            };
            attributes.push(Attribute(names::BUDGET_SPENT, Value::Word(which)));
            attributes.push(attribute(names::BUDGET, spent.budget));
        }
        attributes.extend(evicted.held_by.map(hold).unwrap_or_default());
        let mut spans = Vec::with_capacity(2);
        if let Some(mut span) = facts.waited(&self.context, step, moments) {
            span.events.push(SpanEvent { name: names::REFUSED, at: step.at, attributes: attributes.clone() });
            span.attributes.push(Attribute(names::OUTCOME, Value::Word(evicted.outcome.word())));
            span.attributes.push(attribute(names::ERROR_TYPE, evicted.reason.word()));
            span.status = status.clone();
            spans.push(span);
        }
        let mut span = facts.admission(&self.context, step, Some(self.priority), evicted.outcome);
        span.attributes.push(attribute(names::WAITED, evicted.waited));
        span.attributes.append(&mut attributes);
        span.status = status;
        spans.push(span);
        spans
    }

    /// Something happened to its lease.
    pub fn note(&mut self, at: Micros, name: &'static str, attributes: impl FnOnce() -> Vec<Attribute>) {
        let Some(lease) = self.facts.as_mut().and_then(|facts| facts.lease.as_mut()) else { return };
        if lease.events.len() < EVENTS_MAX {
            lease.events.push(SpanEvent { name, at, attributes: attributes() });
        } else {
            lease.events_dropped = lease.events_dropped.saturating_add(1);
        }
    }

    /// Its lease has to do with that.
    pub fn link(&mut self, to: Link) {
        if let Some(lease) = self.facts.as_mut().and_then(|facts| facts.lease.as_mut()) {
            lease.links.push(to);
        }
    }

    /// Its stream ended.
    pub fn ending(&mut self, at: Micros, ended: &Ended) {
        if let Some(usage) = ended.usage {
            self.note(at, names::USAGE, || {
                vec![
                    attribute(names::INPUT_TOKENS, usage.prompt),
                    attribute(names::OUTPUT_TOKENS, usage.completion),
                ]
            });
        }
        if let Some(lease) = self.facts.as_mut().and_then(|facts| facts.lease.as_mut()) {
            lease.ended = Some(ended.clone());
        }
    }

    /// Its lease ended, and with it the request.
    pub fn lease_ended(self, step: &Step, ended: &LeaseEnded) -> Vec<Span> {
        let Some(mut facts) = self.facts else { return Vec::new() };
        let Some(lease) = facts.lease.take() else { return Vec::new() };
        let termination = lease.ended.as_ref().map(|ended| ended.termination);
        let usage = lease.ended.as_ref().and_then(|ended| ended.usage);
        let mut end = Vec::new();
        let status = ending::lease(&mut end, ended.end, ended.cause, termination);
        let mut whole = facts.admission(&self.context, step, None, Outcome::Dispatched);
        whole.attributes.push(attribute(names::PRIORITY, self.priority));
        whole.attributes.push(attribute(names::WAITED, lease.dispatched.waited));
        whole.attributes.extend_from_slice(&end);
        if facts.arrival.face == Face::Held && termination != Some(Termination::ClientDisconnect) {
            whole.attributes.push(Attribute(names::STATUS_CODE, Value::Int(200)));
        }
        let mut span = lease.span(&self.context, &facts);
        span.end = step.at;
        span.events.push(SpanEvent { name: names::ENDED, at: step.at, attributes: end.clone() });
        span.attributes.append(&mut end);
        for span in [&mut span, &mut whole] {
            if let Some(usage) = usage {
                span.attributes.push(attribute(names::INPUT_TOKENS, usage.prompt));
                span.attributes.push(attribute(names::OUTPUT_TOKENS, usage.completion));
            }
            span.status = status.clone();
        }
        vec![span, whole]
    }
}

impl Lease {
    fn span(self, context: &Context, facts: &Facts) -> Span {
        let mut span = empty(context, context.lease(), names::LEASE);
        span.parent = Some(context.admission);
        span.start = self.since;
        // The proxy itself asks the model server; of other faces the holder does.
        span.kind = if facts.arrival.face == Face::Proxy { Kind::Client } else { Kind::Internal };
        span.attributes = vec![attribute(names::POOL, &*facts.pool), attribute(names::SEQUENCE, self.seq)];
        if let Some(endpoint) = self.endpoint {
            span.attributes.push(attribute(names::SERVER_ADDRESS, endpoint));
        }
        if let Some(model) = &facts.arrival.model {
            span.attributes.push(attribute(names::MODEL, &**model));
        }
        (span.events, span.events_dropped) = (self.events, self.events_dropped);
        span.links = self.links;
        span
    }
}

impl Facts {
    /// The span of the whole request, ended now with an outcome of the queue.
    fn admission(&self, context: &Context, step: &Step, priority: Option<i32>, outcome: Outcome) -> Span {
        let mut span = self.whole(context, step.at);
        if let Some(priority) = priority {
            span.attributes.push(attribute(names::PRIORITY, priority));
        }
        span.attributes.push(attribute(names::SEQUENCE, step.seq));
        span.attributes.push(Attribute(names::OUTCOME, Value::Word(outcome.word())));
        span
    }

    /// The same with nothing of its end.
    fn whole(&self, context: &Context, end: Micros) -> Span {
        let mut span = empty(context, context.admission, names::ADMISSION);
        span.parent = context.parent;
        span.parent_is_remote = context.parent.is_some();
        span.kind = Kind::Server;
        // A face that saw it "after" its step stamped with another reading of the clock.
        span.start = self.arrival.received_at.min(self.at);
        span.end = end;
        span.attributes = self.attributes();
        span.status = Status::Unset;
        span
    }

    fn attributes(&self) -> Vec<Attribute> {
        let arrival = &self.arrival;
        let mut all = vec![
            attribute(names::POOL, &*self.pool),
            attribute(names::REQUEST, self.seq),
            Attribute(names::FACE, Value::Word(arrival.face.word())),
            attribute(names::BYTES, arrival.bytes),
        ];
        match arrival.face {
            Face::Held | Face::Stream | Face::Ticket => {
                all.push(Attribute(names::METHOD, Value::Word("POST")));
                all.push(Attribute(names::ROUTE, Value::Word("/v1/admissions")));
            }
            Face::ExtProcClosed | Face::ExtProcOpen => {
                let service = "envoy.service.ext_proc.v3.ExternalProcessor";
                all.push(Attribute(names::RPC_SYSTEM, Value::Word("grpc")));
                all.push(Attribute(names::RPC_SERVICE, Value::Word(service)));
            }
            // Which of their paths it was is not in the log.
            Face::Proxy | Face::Untracked => {}
        }
        if !arrival.caller_id.is_empty() {
            all.push(Attribute(names::REQUEST_ID, Value::Texts(vec![arrival.caller_id.clone()])));
        }
        if !arrival.fairness_id.is_empty() {
            all.push(attribute(names::FLOW, &*arrival.fairness_id));
        }
        if let Some(objective) = &arrival.objective {
            all.push(attribute(names::OBJECTIVE, &**objective));
        }
        if let Some(model) = &arrival.model {
            all.push(attribute(names::MODEL, &**model));
        }
        if let Some(tokens) = arrival.prompt_tokens {
            all.push(attribute(names::PROMPT_TOKENS, tokens));
        }
        if self.observe {
            all.push(attribute(names::OBSERVE, true));
        }
        all
    }

    /// The span of the wait, ended now, with what happened to the pool meanwhile.
    fn waited(&self, context: &Context, step: &Step, moments: &Moments) -> Option<Span> {
        let terms = self.queued.as_ref()?;
        let mut span = empty(context, context.queue(), names::QUEUE);
        span.parent = Some(context.admission);
        (span.start, span.end) = (self.at, step.at);
        span.attributes = vec![
            attribute(names::POOL, &*self.pool),
            attribute(names::PRIORITY, terms.priority),
            attribute(names::SEQUENCE, step.seq),
        ];
        let enqueued = SpanEvent {
            name: names::ENQUEUED,
            at: self.at,
            attributes: vec![
                attribute(names::DEPTH, terms.depth),
                attribute(names::BUDGET_SATURATION, terms.saturation_budget),
                attribute(names::BUDGET_NO_ENDPOINT, terms.no_endpoint_budget),
            ],
        };
        let (mut seen, dropped) = moments.since(self.seq, terms);
        span.events = vec![enqueued];
        span.events.append(&mut seen);
        span.events_dropped = dropped;
        Some(span)
    }
}
