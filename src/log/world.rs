//! For tests: a small world that drives the real kernel, so that a log holds real decisions.

use crate::chain::Head;
use crate::frame::Frame;
use crate::segment::tests::samples::{Random, arrived, ended};
use std::sync::Arc;
use weir_kernel::{
    EndpointChange, Input, KERNEL_BEHAVIOUR, Micros, Observation, Policy, PolicyChange, RequestId, Role,
    Slot, Started, State, Step, step,
};

/// A pool with its state, its log's head and a seed.
pub struct World {
    pub state: State,
    pub head: Head,
    pub pool: Arc<str>,
    random: Random,
    at: Micros,
}

impl World {
    pub fn new(pool: &str, seed: u64) -> World {
        World {
            state: State::new(),
            head: Head::default(),
            pool: Arc::from(pool),
            random: Random(seed),
            at: Micros(1_764_460_800_000_000),
        }
    }

    fn take(&mut self, input: Input, steps: &mut Vec<Step>) {
        self.at = Micros(self.at.0 + 50 + self.random.below(2_000));
        steps.push(step(&mut self.state, self.at, input));
    }

    /// The first steps of a run: a start, settings, four endpoints.
    fn start(&mut self, steps: &mut Vec<Step>) {
        let started =
            Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "0.1.0".to_owned(), wall: self.at };
        self.take(Input::Started(started), steps);
        let policy = Box::new(Policy { max_requests: 300, ..Policy::default() });
        self.take(Input::PolicyChanged(PolicyChange { policy, digest: [5; 32] }), steps);
        let mut changes: Vec<EndpointChange> = (0..4)
            .map(|slot| EndpointChange::Joined {
                slot: Slot(slot),
                name: format!("10.0.0.{slot}:8000"),
                role: Role::Decode,
            })
            .collect();
        changes.extend((0..4).map(|slot| sample(slot, 0, 1, 100)));
        let requested_at = self.at;
        let observation = Observation { requested_at, changes, ..Observation::default() };
        self.take(Input::Observed(observation), steps);
    }

    /// At least so many more steps of a busy pool.
    pub fn steps(&mut self, count: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.state.seq() == 0 {
            self.start(&mut steps);
        }
        while steps.len() < count {
            let seq = self.state.seq() + 1;
            match self.random.below(10) {
                0..5 => {
                    let input = arrived(&mut self.random, seq, self.at).input;
                    self.take(input, &mut steps);
                }
                5..9 => {
                    let leases: Vec<RequestId> = self.state.leases().collect();
                    let Some(longest) = leases.first() else { continue };
                    let input = ended(&mut self.random, seq, self.at, *longest).input;
                    self.take(input, &mut steps);
                }
                _ => {
                    let slot = self.random.below(4) as u16;
                    let waiting = self.random.below(9) as i32 - 4;
                    let changes = vec![sample(slot, waiting, 0, 3)];
                    let requested_at = self.at;
                    let observation = Observation { requested_at, changes, ..Observation::default() };
                    self.take(Input::Observed(observation), &mut steps);
                }
            }
        }
        steps
    }

    /// Batches of `batch` steps, the next in the chain.
    pub fn frames(&mut self, batches: usize, batch: usize) -> Vec<Frame> {
        (0..batches)
            .map(|_| {
                let steps = self.steps(batch);
                let frame = Frame::encode(&self.pool, self.head.hash, steps[0].at, &steps).unwrap();
                self.head = Head::of(&frame);
                frame
            })
            .collect()
    }
}

fn sample(slot: u16, waiting: i32, running: i32, kv: i32) -> EndpointChange {
    EndpointChange::Sampled { slot: Slot(slot), waiting, running, kv }
}
