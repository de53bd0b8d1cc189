//! A pool that lives through everything, driven at random through the real kernel, and its log.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use weir_kernel::{
    Arrival, BandSettings, Cancelled, Cause, Ended, EndpointChange, Eviction, Face, Fairness, Input,
    KERNEL_BEHAVIOUR, Micros, ObjectivesChange, Observation, Ordering, Policy, PolicyChange, RequestId, Role,
    Slot, Started, State, Step, Termination, Usage, step,
};
use weir_log::memory::{MemoryDisk, MemoryStore};
use weir_log::store::Store;
use weir_log::{Codec, Draft};

/// When every world begins: 2025-11-30T00:00:00Z.
pub const BASE: u64 = 1_764_460_800_000_000;

/// A small generator: the same seed gives the same world.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

pub struct World {
    pub state: State,
    pub steps: Vec<Step>,
    pub at: u64,
    pub random: Random,
    endpoints: u16,
    waiting: [i32; 8],
}

pub fn policy() -> Policy {
    let mut policy = Policy {
        max_requests: 30,
        saturation_budget: Micros::from_millis(1_500),
        no_endpoint_budget: Micros::from_millis(2_500),
        eviction: Eviction { enabled: true, ..Eviction::default() },
        ..Policy::default()
    };
    policy.bands.insert(
        10,
        BandSettings { max_requests: 12, fairness: Fairness::RoundRobin, ..BandSettings::default() },
    );
    policy
        .bands
        .insert(-10, BandSettings { max_requests: 14, ordering: Ordering::Edf, ..BandSettings::default() });
    policy
}

impl World {
    /// It starts, with settings and objectives, and four endpoints.
    pub fn new(seed: u64) -> World {
        let mut world = World {
            state: State::new(),
            steps: Vec::new(),
            at: BASE,
            random: Random(seed),
            endpoints: 0,
            waiting: [0; 8],
        };
        world.start();
        let policy = policy();
        world.adopt(policy);
        let set = vec![("interactive".to_owned(), 10), ("batch".to_owned(), -10)];
        world.take(Input::ObjectivesChanged(ObjectivesChange { set, removed: vec![] }));
        world.join(4);
        world
    }

    pub fn start(&mut self) {
        let wall = Micros(self.at);
        self.take(Input::Started(Started {
            kernel_behaviour: KERNEL_BEHAVIOUR,
            version: "0.1.0".to_owned(),
            wall,
        }));
    }

    pub fn adopt(&mut self, policy: Policy) {
        let digest = [policy.saturation_budget.0 as u8; 32];
        self.take(Input::PolicyChanged(PolicyChange { policy: Box::new(policy), digest }));
    }

    pub fn take(&mut self, input: Input) -> &Step {
        let made = step(&mut self.state, Micros(self.at), input);
        self.at = made.at.0;
        self.steps.push(made);
        self.steps.last().unwrap()
    }

    /// Time goes on, with a step at each deadline.
    pub fn wait(&mut self, micros: u64) {
        let until = self.at + micros;
        while let Some(due) = self.state.next_deadline().filter(|due| due.0 <= until) {
            self.at = self.at.max(due.0);
            self.take(Input::TimePassed);
        }
        self.at = until;
    }

    pub fn observe(&mut self, changes: Vec<EndpointChange>) {
        let requested_at = Micros(self.at.saturating_sub(3_000));
        self.take(Input::Observed(Observation { requested_at, changes, ..Observation::default() }));
    }

    /// So many endpoints, freshly sampled, with nothing to do.
    pub fn join(&mut self, count: u16) {
        let mut changes: Vec<EndpointChange> = (0..count)
            .map(|slot| EndpointChange::Joined {
                slot: Slot(slot),
                name: format!("10.0.0.{slot}:8000"),
                role: Role::Decode,
            })
            .collect();
        changes.extend((0..count).map(|slot| sample(slot, 0)));
        (self.endpoints, self.waiting) = (count, [0; 8]);
        self.observe(changes);
    }

    pub fn leave(&mut self) {
        let changes = (0..self.endpoints).map(|slot| EndpointChange::Left { slot: Slot(slot) }).collect();
        self.endpoints = 0;
        self.observe(changes);
    }

    /// Every endpoint shows so many waiting.
    pub fn load(&mut self, waiting: i32) {
        let changes =
            (0..self.endpoints).map(|slot| sample(slot, waiting - self.waiting[slot as usize])).collect();
        self.waiting = [waiting; 8];
        self.observe(changes);
    }

    pub fn blind(&mut self) {
        let changes = (0..self.endpoints).map(|slot| EndpointChange::Stale { slot: Slot(slot) }).collect();
        self.observe(changes);
    }

    pub fn arrive(&mut self, arrival: Arrival) -> u64 {
        let arrival = Arrival { received_at: Micros(self.at.saturating_sub(80)), ..arrival };
        self.take(Input::Arrived(arrival)).seq
    }

    pub fn end(&mut self, request: u64) {
        let usage = Some(Usage { prompt: 100, completion: 50 });
        self.take(Input::Ended(Ended {
            request: RequestId(request),
            termination: Termination::Natural,
            usage,
        }));
    }

    fn any_arrival(&mut self) -> Arrival {
        let kind = self.random.below(3) as usize;
        Arrival {
            caller_id: format!("call-{}", self.random.below(1 << 40)),
            objective: [Some("interactive".to_owned()), Some("batch".to_owned()), None][kind].clone(),
            fairness_id: ["", "tenant-a", "tenant-b", "tenant-c"][self.random.below(4) as usize].to_owned(),
            model: Some(["llama", "qwen"][self.random.below(2) as usize].to_owned()),
            bytes: 100 + self.random.below(9_000),
            prompt_tokens: Some(self.random.below(4_000) as u32),
            ttl: (self.random.below(9) == 0).then(|| Micros(1_000 + self.random.below(900_000))),
            deadline: (self.random.below(11) == 0).then(|| Micros(self.at + self.random.below(800_000))),
            face: [Face::Held, Face::Proxy, Face::Stream, Face::Ticket, Face::Untracked]
                [self.random.below(5) as usize],
            choose_endpoint: self.random.below(2) == 0,
            ..Arrival::default()
        }
    }

    fn any_queued(&mut self) -> Option<RequestId> {
        let all: Vec<RequestId> = self.state.queued_requests().collect();
        (!all.is_empty()).then(|| all[self.random.below(all.len() as u64) as usize])
    }

    fn any_lease(&mut self) -> Option<RequestId> {
        let all: Vec<RequestId> = self.state.leases().collect();
        (!all.is_empty()).then(|| all[self.random.below(all.len() as u64) as usize])
    }

    /// Something happens.
    pub fn turn(&mut self) {
        let pause = 100 + self.random.below(12_000);
        self.wait(pause);
        match self.random.below(400) {
            0..190 => {
                let arrival = self.any_arrival();
                self.arrive(arrival);
            }
            190..290 => {
                if let Some(request) = self.any_lease() {
                    self.end(request.0);
                }
            }
            290..320 => {
                if let Some(request) = self.any_lease() {
                    self.take(Input::FirstByte { request });
                }
            }
            320..330 => {
                let request = self.any_queued().or_else(|| self.any_lease());
                if let Some(request) = request {
                    self.take(Input::Cancelled(Cancelled { request, cause: Cause::ClientDisconnect }));
                }
            }
            330..334 => {
                if let Some(request) = self.any_lease() {
                    self.take(Input::Revoke { request, by: "ops".to_owned(), why: "a test".to_owned() });
                }
            }
            334..385 if self.endpoints > 0 => {
                let waiting = [0, 0, 2, 5, 6, 9][self.random.below(6) as usize];
                self.load(waiting);
            }
            385..388 => self.blind(),
            388..390 => self.leave(),
            390..396 => {
                let count = 1 + self.random.below(4) as u16;
                self.leave();
                self.join(count);
            }
            396 => {
                self.at += 7_000_000;
                self.start();
                self.join(4);
            }
            397 => {
                let millis = 500 + self.random.below(3_000);
                self.adopt(Policy { saturation_budget: Micros::from_millis(millis), ..policy() });
            }
            _ => self.wait(4_000_000),
        }
    }

    pub fn run(mut self, steps: usize) -> Vec<Step> {
        while self.steps.len() < steps {
            self.turn();
        }
        self.steps
    }
}

fn sample(slot: u16, waiting: i32) -> EndpointChange {
    EndpointChange::Sampled { slot: Slot(slot), waiting, running: 1, kv: 0 }
}

/// Appends steps to a log, in batches of up to `batch`.
pub fn append(store: &mut dyn Store, pool: &str, steps: &[Step], batch: usize) {
    let pool: Arc<str> = Arc::from(pool);
    for chunk in steps.chunks(batch) {
        let draft = Draft::encode(store.format(), Codec::Plain, &pool, chunk).unwrap();
        let frame = draft.seal(store.head(&pool).hash, Micros(7));
        store.write(std::slice::from_ref(&frame)).unwrap();
        store.sync().unwrap();
    }
}

/// A log in memory.
pub fn memory(pool: &str, steps: &[Step]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    append(&mut MemoryStore::open(&disk), pool, steps, 37);
    disk
}
