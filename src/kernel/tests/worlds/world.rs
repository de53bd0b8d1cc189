//! What happens in a random world: settings, arrivals, observations, restarts, drawn from a seed.

use std::collections::BTreeMap;
use weir_kernel::*;

/// A small generator of our own (xorshift64*), so that a seed means the same on every machine.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

fn fairness(dice: &mut Dice) -> Fairness {
    let aware = ProgramAware {
        half_life: Micros::from_millis(dice.pick(&[0, 20, 1_000])),
        state_ttl: Micros::from_millis(dice.pick(&[0, 300, 3_600_000])),
        ..ProgramAware::default()
    };
    dice.pick(&[Fairness::GlobalStrict, Fairness::RoundRobin, Fairness::ProgramAware(aware)])
}

fn ordering(dice: &mut Dice) -> Ordering {
    let target = Micros::from_millis(dice.pick(&[5, 60]));
    let window = Micros::from_millis(dice.pick(&[0, 30]));
    let turning = Ordering::NewestFirstWhenStanding { target, window };
    dice.pick(&[Ordering::Fcfs, Ordering::Edf, Ordering::SloDeadline, turning, turning])
}

fn bounds(dice: &mut Dice) -> BandBounds {
    let starvation = Micros::from_millis(dice.pick(&[0, 0, 20, 150]));
    BandBounds { starvation, reject_hopeless: dice.one_in(2) }
}

fn band(dice: &mut Dice) -> BandSettings {
    BandSettings {
        max_requests: if dice.one_in(5) { 400 } else { 1 + dice.below(40) },
        max_bytes: if dice.one_in(2) { 1 + dice.below(4_000) } else { 1_000_000 },
        ordering: ordering(dice),
        fairness: fairness(dice),
        saturation_budget: dice.one_in(3).then(|| Micros::from_millis(dice.below(900))),
        no_endpoint_budget: dice.one_in(3).then(|| Micros::from_millis(dice.below(900))),
    }
}

fn policy(dice: &mut Dice) -> Policy {
    let concurrency = |mode| Detector::Concurrency {
        mode,
        max_requests: 3,
        max_tokens: 2_000,
        headroom: Ratio::ZERO,
        output_estimate: Some(OutputEstimate { ratio: Ratio(1_500_000), cap: 300 }),
    };
    let mut bands = BTreeMap::from([(0, band(dice))]);
    for priority in [10, -5] {
        if dice.one_in(2) {
            bands.insert(priority, band(dice));
        }
    }
    let listed = bands.keys().copied().collect::<Vec<_>>();
    Policy {
        bounds: Bounds {
            bands: listed.into_iter().map(|priority| (priority, bounds(dice))).collect(),
            template: bounds(dice),
            negative_template: bounds(dice),
        },
        flow_control: !dice.one_in(12),
        observe: dice.one_in(8),
        max_requests: dice.pick(&[0, 0, 30]),
        max_bytes: dice.pick(&[0, 0, 5_000]),
        saturation_budget: Micros::from_millis(dice.pick(&[0, 200, 1_000])),
        no_endpoint_budget: Micros::from_millis(dice.pick(&[0, 150, 2_000])),
        bands,
        template: band(dice),
        negative_template: dice.one_in(2).then(|| band(dice)),
        max_dynamic_bands: dice.below(4) as u32,
        usage_limit: dice.pick(&[
            UsageLimit::Static { threshold: Ratio::ONE },
            UsageLimit::Holdback { min: Ratio(400_000), max: Ratio::ONE, domain: HoldbackDomain::Rank },
            UsageLimit::Holdback { min: Ratio(400_000), max: Ratio(900_000), domain: HoldbackDomain::Value },
            UsageLimit::SoftReflective,
        ]),
        detector: dice.pick(&[
            Detector::utilization(),
            Detector::utilization(),
            concurrency(ConcurrencyMode::Requests),
            concurrency(ConcurrencyMode::Tokens),
            concurrency(ConcurrencyMode::Hybrid),
            Detector::Pushed,
        ]),
        in_flight_credit: !dice.one_in(4),
        blind_after: Micros::from_millis(120),
        flow_idle: Micros::from_millis(dice.pick(&[50, 5_000])),
        band_idle: Micros::from_millis(dice.pick(&[100, 8_000])),
        lease_timeout: Micros::from_millis(dice.pick(&[0, 400, 60_000])),
        ticket_timeout: Micros::from_millis(dice.pick(&[100, 60_000])),
        resume_window: Micros::from_millis(50),
        idempotency_keys: dice.pick(&[2, 1_000]),
        eviction: Eviction {
            enabled: !dice.one_in(3),
            max_revocations: dice.pick(&[1, 2, 5]),
            confirmation_timeout: Micros::from_millis(dice.pick(&[5, 40, 10_000])),
            confirmation_grace: Micros::from_millis(dice.pick(&[0, 10, 500])),
            ..Eviction::default()
        },
    }
}

pub fn arrival(dice: &mut Dice, now: Micros) -> Arrival {
    let face = dice.pick(&[
        Face::Held,
        Face::Held,
        Face::Stream,
        Face::Ticket,
        Face::Proxy,
        Face::ExtProcClosed,
        Face::ExtProcOpen,
        Face::Untracked,
    ]);
    let key =
        |dice: &mut Dice| Idempotency { key: [dice.below(6) as u8; 16], body: [dice.below(2) as u8; 8] };
    let ttl = dice.one_in(4).then(|| Micros::from_millis(1 + dice.below(500)));
    let deadline = match dice.below(8) {
        // Now and then the caller's deadline and our own budget fall together.
        0 => Some(now + ttl.unwrap_or(Micros::from_millis(200))),
        1 | 2 => Some(now + Micros::from_millis(dice.below(600))),
        _ => None,
    };
    Arrival {
        caller_id: "caller".into(),
        objective: dice.one_in(2).then(|| dice.pick(&["critical", "batch", "unknown"]).into()),
        fairness_id: dice.pick(&["", "a", "b", "c", "d"]).into(),
        priority: dice.one_in(2).then(|| dice.pick(&[10, 3, 0, -1, -5, i32::MIN, i32::MAX])),
        model: None,
        bytes: dice.below(600),
        prompt_tokens: dice.one_in(2).then(|| dice.below(900) as u32),
        ttl,
        ttl_unreadable: false,
        slo_ttft: dice.one_in(3).then(|| Micros::from_millis(dice.below(500))),
        received_at: now,
        deadline,
        face,
        choose_endpoint: dice.one_in(2),
        idempotency: dice.one_in(3).then(|| key(dice)),
        trace: None,
    }
}

/// What the pool is like for a while, so that requests live through whole regimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Anything.
    Mixed,
    /// There is room.
    Open,
    /// There is none.
    Full,
    /// Nothing is sampled.
    Blind,
    /// Nothing is there.
    Empty,
}

pub fn mood(dice: &mut Dice) -> Mood {
    dice.pick(&[Mood::Mixed, Mood::Open, Mood::Full, Mood::Full, Mood::Blind, Mood::Empty])
}

pub fn observation(dice: &mut Dice, mood: Mood, now: Micros) -> Observation {
    let requested_at = now.since(Micros(dice.below(30_000)));
    let join = |slot| EndpointChange::Joined { slot, name: format!("e{}", slot.0), role: Role::Decode };
    let load = |slot, waiting| EndpointChange::Sampled { slot, waiting, running: 1, kv: 0 };
    let slots = [0, 1, 2, 3].map(Slot);
    let (changes, figure) = match mood {
        Mood::Mixed => return mixed(dice, requested_at),
        Mood::Open => ([join(slots[0]), load(slots[0], -99)].to_vec(), Ratio(300_000)),
        Mood::Full => {
            (slots.iter().flat_map(|slot| [join(*slot), load(*slot, 9)]).collect(), Ratio(1_300_000))
        }
        Mood::Blind => (slots.map(|slot| EndpointChange::Stale { slot }).to_vec(), Ratio::ONE),
        Mood::Empty => (slots.map(|slot| EndpointChange::Left { slot }).to_vec(), Ratio::ONE),
    };
    Observation { requested_at, changes, pushed: Pushed::Pool(figure) }
}

fn mixed(dice: &mut Dice, requested_at: Micros) -> Observation {
    let mut changes = Vec::new();
    for _ in 0..dice.below(4) {
        let slot = Slot(dice.below(4) as u16);
        changes.push(match dice.below(8) {
            0 | 1 => EndpointChange::Joined {
                slot,
                name: format!("e{}", slot.0),
                role: dice.pick(&[Role::Decode, Role::Decode, Role::Prefill, Role::Both, Role::Other]),
            },
            2 => EndpointChange::Left { slot },
            3 => EndpointChange::Stale { slot },
            _ => EndpointChange::Sampled {
                slot,
                waiting: dice.below(9) as i32 - 5,
                running: dice.below(9) as i32 - 4,
                kv: dice.below(4_000) as i32 - 2_000,
            },
        });
    }
    let pushed = match dice.below(6) {
        0 => Pushed::Pool(Ratio(dice.below(1_600_000) as i64)),
        1 => Pushed::Stages { prefill: Ratio(dice.below(1_600_000) as i64), decode: Ratio(500_000) },
        2 => Pushed::Clear,
        _ => Pushed::Keep,
    };
    Observation { requested_at, changes, pushed }
}

pub fn change(dice: &mut Dice) -> Input {
    let policy = Box::new(policy(dice));
    Input::PolicyChanged(PolicyChange { policy, digest: [0; 32] })
}

pub fn start() -> Input {
    Input::Started(Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "test".into(), wall: Micros::ZERO })
}

fn some_request(dice: &mut Dice, state: &State) -> RequestId {
    let all: Vec<RequestId> = state.queued_requests().chain(state.leases()).collect();
    if all.is_empty() || dice.one_in(20) { RequestId(dice.below(state.seq() + 2)) } else { dice.pick(&all) }
}

/// An operator's hand: a pool is paused now and then, and seldom for long.
pub fn by_hand(dice: &mut Dice, state: &State, now: Micros) -> Input {
    let action = match dice.below(12) {
        0 | 1 => AdminAction::Pause,
        2..=5 => AdminAction::Resume,
        6 | 7 => AdminAction::Purge { request: some_request(dice, state) },
        8 if dice.one_in(9) => AdminAction::Drain { until: now + Micros::from_millis(dice.below(50)) },
        _ => {
            let flows: Vec<(String, i32)> =
                state.flows().map(|(name, priority, _)| (name.to_owned(), priority)).collect();
            let unknown = ("nobody".to_owned(), dice.pick(&[0, 77]));
            let (fairness_id, priority) =
                if flows.is_empty() || dice.one_in(9) { unknown } else { dice.pick(&flows) };
            AdminAction::PurgeFlow { fairness_id, priority }
        }
    };
    Input::Admin(Admin { action, by: "ops".into(), why: "a drill".into() })
}

/// Whatever a driver may hand in together, rightly or not.
fn arrived_many(dice: &mut Dice, now: Micros) -> ArrivedMany {
    ArrivedMany {
        priority: dice.pick(&[10, 3, 0, -1, -5, i32::MAX]),
        count: dice.pick(&[0, 1, 2, 1_000]),
        bytes: dice.below(600),
        ttl: dice.one_in(3).then(|| Micros::from_millis(1 + dice.below(500))),
        deadline: dice.one_in(3).then(|| Micros::from_millis(dice.below(2_000_000))),
        since: now,
        received_at: now,
        ..ArrivedMany::default()
    }
}

pub fn input(dice: &mut Dice, mood: Mood, state: &State, now: Micros) -> Input {
    match dice.below(112) {
        0 => start(),
        1 => change(dice),
        2 => Input::ObjectivesChanged(ObjectivesChange {
            set: vec![(dice.pick(&["critical", "batch"]).into(), dice.pick(&[10, -5, 7]))],
            removed: if dice.one_in(2) { vec!["batch".into()] } else { vec![] },
        }),
        3 if dice.one_in(4) => {
            Input::Stopping { drain_until: now + Micros::from_millis(dice.pick(&[0, 50])) }
        }
        4 if dice.one_in(2) => Input::LogResumed { since: now, refused: dice.below(9) },
        4 => Input::ArrivedMany(arrived_many(dice, now)),
        60..=62 if dice.one_in(2) => by_hand(dice, state, now),
        5..=25 => Input::Observed(observation(dice, mood, now)),
        26..=35 => Input::Cancelled(Cancelled {
            request: some_request(dice, state),
            cause: dice.pick(&[Cause::ClientDisconnect, Cause::Purged, Cause::Other]),
        }),
        36..=55 => Input::Ended(Ended {
            request: some_request(dice, state),
            termination: Termination::Natural,
            usage: dice
                .one_in(2)
                .then(|| Usage { prompt: dice.below(500) as u32, completion: dice.below(500) as u32 }),
        }),
        56..=58 => Input::FirstByte { request: some_request(dice, state) },
        59..=62 => Input::Renewed { request: some_request(dice, state) },
        63..=66 => Input::TimePassed,
        100..=103 => {
            Input::Revoke { request: some_request(dice, state), by: "ops".into(), why: String::new() }
        }
        104 => Input::Undeliverable { request: some_request(dice, state) },
        105..=111 => Input::Watched { request: some_request(dice, state), watching: !dice.one_in(3) },
        _ => Input::Arrived(arrival(dice, now)),
    }
}
