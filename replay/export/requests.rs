//! One row a request: when it came, how it left the queue, how its lease ended.

use crate::what_if::{Fact, Facts, Keep, Stage, take};
use serde_json::{Value, json};
use std::collections::HashMap;
use weir_kernel::{Event, Input, Micros, Slot, Step, Usage};
use weir_log::reader::Bound;

/// What the course of a request does not hold.
#[derive(Clone, Copy, Debug, Default)]
struct More {
    bytes: u64,
    decided: Option<Micros>,
    slot: Option<Slot>,
    first: Option<Micros>,
    ended: Option<Micros>,
    usage: Option<Usage>,
}

/// Requests that are not over.
pub struct Requests {
    pool: String,
    from: Bound,
    facts: Facts,
    more: HashMap<u64, More>,
}

impl Requests {
    /// Requests that are over before `from` are left out.
    pub fn new(pool: &str, from: Bound) -> Requests {
        Requests { pool: pool.to_owned(), from, facts: Facts::default(), more: HashMap::new() }
    }

    /// Takes a step; the rows of the requests that are over with it.
    pub fn take(&mut self, step: &Step) -> Vec<Value> {
        let mut touched = Vec::new();
        take(&mut self.facts, None, step, Keep { caller_ids: true, arrivals: false }, &mut touched);
        if let Input::Arrived(arrival) = &step.input {
            self.more.insert(step.seq, More { bytes: arrival.bytes, ..More::default() });
        }
        for event in &step.events {
            let about = match event {
                Event::Rejected(_) | Event::Repeated { .. } => step.seq,
                Event::Evicted(e) => e.request.0,
                Event::Dispatched(e) => e.request.0,
                Event::FirstByteNoted { request } => request.0,
                Event::LeaseEnded(e) => e.request.0,
                _ => continue,
            };
            if let Some(more) = self.more.get_mut(&about) {
                more.take(step, event);
            }
        }
        let within = !self.from.excludes_before(step.seq, step.at);
        let mut rows = Vec::new();
        for id in touched {
            let over = self.facts.get(&id).is_some_and(|fact| fact.course.stage == Stage::Gone);
            if over && let Some(fact) = self.facts.remove(&id) {
                let more = self.more.remove(&id).unwrap_or_default();
                if within {
                    rows.push(self.row(id, &fact, &more));
                }
            }
        }
        rows
    }

    /// Rows of those that are not over at the end, by number.
    pub fn rest(&self) -> Vec<Value> {
        let mut ids: Vec<&u64> = self.facts.keys().collect();
        ids.sort_unstable();
        let row = |id: &&u64| {
            let fact = self.facts.get(id)?;
            Some(self.row(**id, fact, &self.more.get(id).copied().unwrap_or_default()))
        };
        ids.iter().filter_map(row).collect()
    }

    fn row(&self, id: u64, fact: &Fact, more: &More) -> Value {
        let fate = fact.course.fate;
        json!({
            "pool": self.pool,
            "request": id,
            "request_id": fact.caller_id,
            "arrived_us": fact.arrived.0,
            "priority": fact.group.band(),
            "flow": fact.group.flow.1,
            "objective": fact.group.objective,
            "bytes": more.bytes,
            "prompt_tokens": fact.prompt,
            "outcome": fate.map(|fate| fate.outcome.word()),
            "reason": fate.and_then(|fate| fate.reason).map(weir_kernel::Reason::word),
            "waited_us": fate.map(|fate| fate.waited.0),
            "decided_us": more.decided.map(|at| at.0),
            "endpoint_slot": more.slot.map(|slot| slot.0),
            "first_byte_us": more.first.map(|at| at.0),
            "lease_end": fact.course.end.map(weir_kernel::LeaseEnd::word),
            "ended_us": more.ended.map(|at| at.0),
            "completion_tokens": more.usage.map(|usage| usage.completion),
            "revoked": fact.course.revoked,
        })
    }
}

impl More {
    fn take(&mut self, step: &Step, event: &Event) {
        match event {
            Event::Dispatched(e) => (self.decided, self.slot) = (Some(step.at), e.endpoint),
            Event::FirstByteNoted { .. } => self.first = Some(step.at),
            Event::LeaseEnded(e) => {
                self.ended = Some(step.at);
                if let Input::Ended(ended) = &step.input {
                    self.usage = ended.usage.filter(|_| ended.request == e.request);
                }
            }
            _ => self.decided = Some(step.at),
        }
    }
}
