//! A kernel under a steady load: a standing queue, a pool that takes one request for each that ends.

use std::collections::VecDeque;
use weir_kernel::{
    Arrival, Cancelled, Cause, Ended, EndpointChange, Event, Face, Input, KERNEL_BEHAVIOUR, Micros,
    ObjectivesChange, Observation, Policy, PolicyChange, RequestId, Role, Slot, Started, State, Step,
    Termination, Usage, step,
};

/// Requests that each is shown to run.
const RUNNING: i32 = 20;
/// Requests that wait in each: one fewer than what reads as saturated. Their KV share is zero, since a dispatch charges
/// KV until the next sample, and a bench sends thousands between two.
const WAITING: i32 = 4;

/// The shape of a load.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Priorities in use, at least 1.
    pub bands: u32,
    /// Flows in use, at least 1.
    pub flows: u32,
    /// A flow of its own for each request instead.
    pub churn: bool,
    /// Requests queued all the while.
    pub depth: u32,
    /// Model servers of the pool, at least 1.
    pub endpoints: u16,
    /// Time that passes with each arrival.
    pub tick: Micros,
}

/// A kernel, its time, and what it has admitted.
pub struct Rig {
    /// The kernel.
    pub state: State,
    /// Its time.
    pub now: Micros,
    shape: Shape,
    sent: u64,
    running: VecDeque<RequestId>,
    flows: Vec<String>,
    objectives: Vec<String>,
}

/// A policy in which no queue is ever too long.
pub fn roomy() -> Policy {
    let mut policy = Policy::default();
    policy.template.max_requests = 10_000_000;
    policy.template.max_bytes = u64::MAX / 4;
    for band in policy.bands.values_mut() {
        *band = policy.template.clone();
    }
    policy
}

impl Rig {
    /// A kernel at its first start, its pool seen and full, its queue at the shape's depth; every step so far.
    pub fn new(policy: Policy, shape: Shape) -> (Rig, Vec<Step>) {
        let mut rig = Rig {
            state: State::new(),
            now: Micros::from_secs(1_700_000_000),
            shape,
            sent: 0,
            running: VecDeque::new(),
            flows: (0..shape.flows).map(|i| format!("tenant-{i:06}")).collect(),
            objectives: (0..shape.bands).map(|i| format!("objective-{i}")).collect(),
        };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let started = Started { kernel_behaviour: KERNEL_BEHAVIOUR, version, wall: rig.now };
        let set = rig.objectives.iter().cloned().zip(0..).collect();
        let mut steps = vec![
            rig.feed(Input::Started(started)),
            rig.feed(Input::PolicyChanged(PolicyChange { policy: Box::new(policy), digest: [0; 32] })),
            rig.feed(Input::ObjectivesChanged(ObjectivesChange { set, removed: Vec::new() })),
        ];
        steps.push(rig.open_pool());
        // The pool takes a few at once; after that, arrivals stay in the queue.
        while rig.state.queued() < u64::from(shape.depth) {
            steps.push(rig.arrive());
        }
        (rig, steps)
    }

    /// The pool appears, and its first samples.
    pub fn open_pool(&mut self) -> Step {
        let mut changes = Vec::new();
        for i in 0..self.shape.endpoints {
            let slot = Slot(i);
            changes.push(EndpointChange::Joined {
                slot,
                name: format!("10.0.0.{i}:8000"),
                role: Role::Decode,
            });
            changes.push(EndpointChange::Sampled { slot, waiting: WAITING, running: RUNNING, kv: 0 });
        }
        self.feed(Input::Observed(Observation { requested_at: self.now, changes, ..Observation::default() }))
    }

    /// A round of samples in which nothing but the number of running requests differs.
    pub fn observe(&mut self, running: i32) -> Step {
        let change = |i| EndpointChange::Sampled { slot: Slot(i), waiting: 0, running, kv: 0 };
        let changes = (0..self.shape.endpoints).map(change).collect();
        self.feed(Input::Observed(Observation { requested_at: self.now, changes, ..Observation::default() }))
    }

    /// The next arrival.
    pub fn arrive(&mut self) -> Step {
        let n = self.sent;
        self.sent += 1;
        self.now = self.now + self.shape.tick;
        let fairness_id = if self.shape.churn {
            format!("tenant-{n:06}")
        } else {
            self.flows.get((n % self.flows.len().max(1) as u64) as usize).cloned().unwrap_or_default()
        };
        let objective = self.objectives.get((n % self.objectives.len().max(1) as u64) as usize).cloned();
        self.feed(Input::Arrived(arrival(n, objective, fairness_id, self.now)))
    }

    /// The request that was admitted first ends; the kernel then admits another.
    pub fn end(&mut self) -> Option<Step> {
        let request = self.running.pop_front()?;
        let usage = Some(Usage { prompt: 2_048, completion: 128 });
        Some(self.feed(Input::Ended(Ended { request, termination: Termination::Natural, usage })))
    }

    /// The caller of a request goes away.
    pub fn cancel(&mut self, request: RequestId) -> Step {
        self.feed(Input::Cancelled(Cancelled { request, cause: Cause::ClientDisconnect }))
    }

    /// Gives the kernel one input.
    pub fn feed(&mut self, input: Input) -> Step {
        let step = step(&mut self.state, self.now, input);
        for event in &step.events {
            if let Event::Dispatched(dispatched) = event {
                self.running.push_back(dispatched.request);
            }
        }
        step
    }
}

/// An arrival as a gateway would hand it in.
pub fn arrival(n: u64, objective: Option<String>, fairness_id: String, now: Micros) -> Arrival {
    Arrival {
        caller_id: format!("5f9d8c1e-7a3b-4c2d-9e8f-{n:012x}"),
        objective,
        fairness_id,
        model: Some("llama-3.1-8b-instruct".to_owned()),
        bytes: 8_192,
        prompt_tokens: Some(2_048),
        received_at: now,
        face: Face::Held,
        choose_endpoint: true,
        ..Arrival::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_admits_one_for_each_that_ends() {
        let shape = Shape { bands: 2, flows: 3, churn: false, depth: 100, endpoints: 3, tick: Micros(2) };
        let (mut rig, steps) = Rig::new(roomy(), shape);
        assert_eq!(rig.state.seq(), steps.len() as u64);
        for n in 0..500 {
            rig.arrive();
            if n % 50 == 0 {
                rig.observe(if n % 100 == 0 { 1 } else { -1 });
            }
            assert!(rig.end().is_some(), "{n}: {:?} {:?}", rig.state.regime(), rig.state.saturation());
            rig.state.check().unwrap();
        }
    }
}
