//! Steps as a busy pool writes them, from a seed.

use crate::chain::Hash;
use crate::frame::Frame;
use std::sync::Arc;
use weir_kernel::{
    Arrival, BudgetSource, Dispatched, Ended, EndpointChange, Enqueued, Event, FlowId, Input, LeaseEnd,
    LeaseEnded, Micros, Observation, OrderKey, Ratio, RequestId, Slot, Step, Termination, Usage,
};

/// A small generator: the same seed gives the same steps.
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

pub fn pool() -> Arc<str> {
    Arc::from("chat")
}

/// A request arrives and is admitted at once.
pub fn arrived(random: &mut Random, seq: u64, at: Micros) -> Step {
    let id = format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        random.next() as u32,
        random.next() as u16,
        random.below(4096),
        random.below(4096),
        random.below(1 << 48)
    );
    let received_at = Micros(at.0 - random.below(400));
    let arrival = Arrival {
        caller_id: id,
        objective: Some(["interactive", "batch", "agents"][random.below(3) as usize].to_owned()),
        fairness_id: format!("tenant-{}", random.below(200)),
        model: Some("meta-llama/Llama-3.1-70B-Instruct".to_owned()),
        bytes: 400 + random.below(20_000),
        prompt_tokens: Some(100 + random.below(8_000) as u32),
        received_at,
        ..Arrival::default()
    };
    let enqueued = Event::Enqueued(Enqueued {
        flow: FlowId(random.below(200) as u32),
        priority: 0,
        objective_unknown: false,
        saturation_budget: Micros::from_secs(60),
        no_endpoint_budget: Micros::from_secs(60),
        budget_source: BudgetSource::Global,
        header_class: None,
        order: OrderKey::default(),
        depth: 1,
    });
    let dispatched = Event::Dispatched(Dispatched {
        request: RequestId(seq),
        endpoint: Some(Slot(random.below(100) as u16)),
        waited: Micros::ZERO,
        raw: Ratio(random.below(900_000) as i64),
        effective: Ratio(random.below(900_000) as i64),
        ceiling: Ratio::ONE,
        observed: seq.saturating_sub(random.below(60)),
        output_estimate: 0,
    });
    Step { seq, at, input: Input::Arrived(arrival), events: vec![enqueued, dispatched] }
}

/// A running request completes.
pub fn ended(random: &mut Random, seq: u64, at: Micros, request: RequestId) -> Step {
    let usage = Usage { prompt: 100 + random.below(8_000) as u32, completion: random.below(900) as u32 };
    Step {
        seq,
        at,
        input: Input::Ended(Ended { request, termination: Termination::Natural, usage: Some(usage) }),
        events: vec![Event::LeaseEnded(LeaseEnded {
            request,
            end: LeaseEnd::Completed,
            ran: Micros(200_000 + random.below(20_000_000)),
            cause: None,
        })],
    }
}

/// A round over busy endpoints, all of which changed.
pub fn observed(random: &mut Random, seq: u64, at: Micros, endpoints: u16) -> Step {
    let changes = (0..endpoints)
        .map(|slot| EndpointChange::Sampled {
            slot: Slot(slot),
            waiting: random.below(5) as i32 - 2,
            running: random.below(9) as i32 - 4,
            kv: random.below(120) as i32 - 60,
        })
        .collect();
    let observation =
        Observation { requested_at: Micros(at.0 - random.below(9_000)), changes, ..Observation::default() };
    Step { seq, at, input: Input::Observed(observation), events: Vec::new() }
}

/// Half the steps are arrivals, half are ends; `per_second` requests, `batch` steps in each frame.
pub fn requests(seed: u64, count: u64, per_second: u64, batch: usize) -> Vec<Frame> {
    let mut random = Random(seed);
    let mut at = Micros(1_764_460_800_000_000);
    let mut steps = Vec::new();
    let mut running = Vec::new();
    let mut seq = 0;
    for _ in 0..count {
        for arrives in [true, false] {
            at = Micros(at.0 + random.below(1_000_000 / per_second) + 1);
            seq += 1;
            if arrives {
                steps.push(arrived(&mut random, seq, at));
                running.push(RequestId(seq));
            } else {
                let request = running.swap_remove(random.below(running.len() as u64) as usize);
                steps.push(ended(&mut random, seq, at, request));
                if running.is_empty() {
                    running.push(RequestId(seq));
                }
            }
        }
    }
    frames(&steps, batch)
}

/// Chains steps as batches.
pub fn frames(steps: &[Step], batch: usize) -> Vec<Frame> {
    let mut prev: Hash = [0; 32];
    steps
        .chunks(batch)
        .map(|chunk| {
            let frame = Frame::encode(&pool(), prev, Micros(chunk[0].at.0 + 350), chunk).unwrap();
            prev = frame.hash;
            frame
        })
        .collect()
}
