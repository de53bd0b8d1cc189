//! Running requests and whole requests of one pool: how many are at which endpoint, how long they took, how long programs
//! waited. Derived from durable steps, like the rest of the projection.

use super::exemplar::Mark;
use super::histogram::{Histogram, bucket};
use super::labels::OTHER;
use super::projection::{QueueKey, Shared};
use std::collections::{BTreeMap, HashMap};
use weir_kernel::{EndpointChange, Event, Micros, RequestId, Slot, Trace, Whereabouts, service};

/// Series of running requests; beyond it flows share `other`.
const SERIES_MAX: usize = 4_000;

/// The labels of running requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseKey {
    /// Where they run, if that is known.
    pub endpoint: Option<Slot>,
    /// Fairness id.
    pub flow: u32,
    /// Priority.
    pub priority: i32,
}

/// What runs under one set of labels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Requests.
    pub requests: u64,
    /// Prompt tokens, as far as they are known.
    pub tokens: u64,
}

/// What is known of a request from its queue on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// When its face saw it; none if it began before the figures did.
    pub received_at: Option<Micros>,
    /// Its prompt.
    pub tokens: u64,
    /// Its caller's trace.
    pub trace: Option<Trace>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    key: LeaseKey,
    /// The flow whose label it keeps in use.
    flow: u32,
    known: Known,
}

/// Waits of one program, over all bands.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    sum_micros: u64,
    count: u64,
}

/// The figures.
#[derive(Debug, Default)]
pub struct Leases {
    endpoints: HashMap<Slot, String>,
    running: HashMap<RequestId, Running>,
    /// What runs.
    pub loads: BTreeMap<LeaseKey, Load>,
    /// From receipt to the end, of requests that were admitted.
    pub processing: Histogram,
    /// The last traced request of each of its buckets.
    pub processing_marks: BTreeMap<usize, Mark>,
    programs: BTreeMap<u32, Waits>,
}

impl Leases {
    /// Begins with what a snapshot of the state holds.
    pub fn restate(&mut self, event: &Event) {
        match event {
            Event::RestatedEndpoint(endpoint) => {
                self.endpoints.insert(endpoint.slot, endpoint.name.clone());
            }
            Event::RestatedLease(lease) => {
                let endpoint = match lease.at {
                    Whereabouts::At(slot) => Some(slot),
                    Whereabouts::Unknown | Whereabouts::Gone => None,
                };
                let key = LeaseKey { endpoint, flow: OTHER, priority: lease.priority };
                let known = Known { tokens: u64::from(lease.prompt_tokens), ..Known::default() };
                self.enter(lease.request, Running { key, flow: OTHER, known });
            }
            _ => {}
        }
    }

    /// The pool's endpoints changed.
    pub fn observed(&mut self, changes: &[EndpointChange]) {
        for change in changes {
            if let EndpointChange::Joined { slot, name, .. } = change {
                self.endpoints.insert(*slot, name.clone());
            }
        }
    }

    /// A request is admitted.
    pub fn dispatched(
        &mut self,
        request: RequestId,
        (queue, known): (QueueKey, Known),
        endpoint: Option<Slot>,
        waited: Micros,
        shared: &mut Shared,
    ) {
        let waits = self.programs.entry(queue.flow).or_default();
        waits.sum_micros = waits.sum_micros.saturating_add(waited.0);
        waits.count += 1;
        // Its label must not become another one's while it runs.
        shared.flows.hold(queue.flow);
        let mut key = LeaseKey { endpoint, flow: queue.flow, priority: queue.priority };
        if self.loads.len() >= SERIES_MAX && !self.loads.contains_key(&key) {
            key.flow = OTHER;
        }
        self.enter(request, Running { key, flow: queue.flow, known });
    }

    fn enter(&mut self, request: RequestId, running: Running) {
        let load = self.loads.entry(running.key).or_default();
        load.requests += 1;
        load.tokens += running.known.tokens;
        self.running.insert(request, running);
    }

    /// A lease ended. Gives the label of its flow, if nothing uses that any more.
    pub fn ended(&mut self, request: RequestId, at: Micros, shared: &mut Shared) -> Option<u32> {
        let running = self.running.remove(&request)?;
        if let Some(load) = self.loads.get_mut(&running.key) {
            load.requests = load.requests.saturating_sub(1);
            load.tokens = load.tokens.saturating_sub(running.known.tokens);
            if load.requests == 0 {
                self.loads.remove(&running.key);
            }
        }
        if let Some(received_at) = running.known.received_at {
            let took = at.since(received_at);
            self.processing.observe(took.0);
            if let Some(mark) = Mark::of(running.known.trace, took, at) {
                self.processing_marks.insert(bucket(took.0), mark);
            }
        }
        shared.flows.release(running.flow).then_some(running.flow)
    }

    /// A flow's label is no longer in use.
    pub fn forget(&mut self, flow: u32) {
        self.programs.remove(&flow);
    }

    /// The name of the endpoint of a series.
    pub fn endpoint(&self, key: &LeaseKey) -> &str {
        key.endpoint.and_then(|slot| self.endpoints.get(&slot)).map_or("", String::as_str)
    }

    /// The mean wait of each program that was served, in microseconds.
    pub fn mean_waits(&self) -> impl Iterator<Item = (u32, u64)> {
        self.programs.iter().map(|(flow, waits)| (*flow, waits.sum_micros / waits.count.max(1)))
    }

    /// Jain's index of those: 1.0 if all wait alike, also where there are fewer than two.
    pub fn jain(&self) -> f64 {
        let means: Vec<u64> = self.mean_waits().map(|(_, mean)| mean).collect();
        if means.len() < 2 { 1.0 } else { service::jain(&means).micros() as f64 / 1e6 }
    }
}
