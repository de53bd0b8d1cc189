//! Goal: notice when the kernel decides otherwise than the release that wrote a log. Method: small fixed worlds, the
//! digest of whose decisions is stored here.
//!
//! If a digest moves on purpose, raise `KERNEL_BEHAVIOUR` and put the new number and digests into [`GOLDEN`]: logs of
//! the earlier behaviour are then fold-checked instead of derived again. Nothing else may change a world below.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_kernel::*;

/// A world: its name, its settings, the digest of what is decided in it.
type World = (&'static str, fn() -> Policy, &'static str);

/// The behaviour that these digests are of, and the worlds.
const GOLDEN: (u32, [World; 8]) = (
    2,
    [
        ("defaults", Policy::default, "73f42c1fc1edf7fcbdda5e323fa8042f1b37a54958237c8ddf16b225b4c41b20"),
        ("turns", turns, "f342fa26fff2ef6b2703b8e0c9005c3fe79094b2c5dfd16b8aaa21446d5c4f11"),
        ("service", service, "ce2faf73d7b0c726ad63691740a0f81380877d8ef9422263ada52c5e5a154a41"),
        ("gated", gated, "cb68dcd91bb411d89f95621e3db9769de25173e5a0155fff6b1a3b2b4397416f"),
        ("raw", raw, "1e51ca549052edd384bac73827ac59520cd3f38e4006ed25f2c40cdea7ba2138"),
        ("reclaimed", reclaimed, "8d219c9f9e9934d62b811c045a03da18d5a29e2c5b7b1a1864cd70102ce54553"),
        ("revoked", revoked, "473add1aece815b769ceec92dbe35f06d62e202964abe465bbf10f42599022a6"),
        ("sensed", sensed, "3aee05e6898580d66fcab767846b3a06b3e69f2c1d8ec23e984ced944c9effb2"),
    ],
);

fn with_bands(policy: Policy, fairness: &Fairness, ordering: Ordering) -> Policy {
    let band = |max_requests| BandSettings {
        max_requests,
        fairness: fairness.clone(),
        ordering,
        ..BandSettings::default()
    };
    Policy {
        bands: BTreeMap::from([(10, band(30)), (0, band(20)), (-10, band(10))]),
        saturation_budget: Micros::from_secs(2),
        no_endpoint_budget: Micros::from_secs(3),
        blind_after: Micros::from_millis(500),
        flow_idle: Micros::from_secs(4),
        band_idle: Micros::from_secs(6),
        lease_timeout: Micros::from_secs(5),
        ticket_timeout: Micros::from_secs(1),
        resume_window: Micros::from_millis(300),
        idempotency_keys: 8,
        ..policy
    }
}

fn turns() -> Policy {
    let holdback =
        UsageLimit::Holdback { min: Ratio(500_000), max: Ratio::ONE, domain: HoldbackDomain::Rank };
    let policy = with_bands(Policy::default(), &Fairness::RoundRobin, Ordering::Fcfs);
    Policy { usage_limit: holdback, max_dynamic_bands: 2, ..policy }
}

fn service() -> Policy {
    let aware = ProgramAware { half_life: Micros::from_secs(1), ..ProgramAware::default() };
    let detector = Detector::Concurrency {
        mode: ConcurrencyMode::Hybrid,
        max_requests: 3,
        max_tokens: 2_000,
        headroom: Ratio(200_000),
        output_estimate: Some(OutputEstimate { ratio: Ratio(1_500_000), cap: 300 }),
    };
    let policy = with_bands(Policy::default(), &Fairness::ProgramAware(aware), Ordering::Edf);
    Policy { detector, ..policy }
}

fn gated() -> Policy {
    let policy = with_bands(Policy::default(), &Fairness::GlobalStrict, Ordering::SloDeadline);
    Policy { usage_limit: UsageLimit::SoftReflective, detector: Detector::Pushed, ..policy }
}

fn raw() -> Policy {
    let policy = with_bands(Policy::default(), &Fairness::GlobalStrict, Ordering::Fcfs);
    Policy { in_flight_credit: false, observe: true, ..policy }
}

/// As `turns`, and its leases are revoked (see `input`).
fn revoked() -> Policy {
    let eviction = Eviction {
        confirmation_timeout: Micros::from_millis(400),
        confirmation_grace: Micros::from_millis(90),
        ..Eviction::default()
    };
    Policy { eviction, ..turns() }
}

/// As `revoked`, and sheddable leases are taken back for others.
fn reclaimed() -> Policy {
    let mut policy = Policy { detector: Detector::concurrency(), ..revoked() };
    policy.eviction.enabled = true;
    if let Detector::Concurrency { max_requests, .. } = &mut policy.detector {
        *max_requests = 2;
    }
    policy
}

/// As `reclaimed`, with the gauge of scraped engines.
fn sensed() -> Policy {
    let detector = Detector::Utilization {
        queue_depth: 3,
        kv: Ratio(800_000),
        staleness: Micros::from_millis(200),
        headroom: Ratio::ZERO,
    };
    let mut policy = Policy { detector, ..reclaimed() };
    policy.eviction.sizing = Sizing::Demand;
    policy
}

/// Knuth's 64-bit linear congruential generator, its upper half.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn arrival(draw: &mut Draw, now: Micros) -> Input {
    let faces = [Face::Held, Face::Proxy, Face::Ticket, Face::Stream, Face::Untracked, Face::ExtProcOpen];
    let mut maybe = |one_in: u64, most: u64| (draw.below(one_in) == 0).then(|| 1 + draw.below(most));
    let ttl = maybe(4, 1_500).map(Micros::from_millis);
    let deadline = maybe(5, 2_000).map(|ms| now + Micros::from_millis(ms));
    let slo_ttft = maybe(3, 900).map(Micros::from_millis);
    let key = maybe(4, 12).map(|key| Idempotency { key: [key as u8; 16], body: [1; 8] });
    let priority = maybe(3, 30).map(|above| above as i32 - 16);
    let prompt_tokens = maybe(2, 800).map(|tokens| tokens as u32);
    Input::Arrived(Arrival {
        objective: (draw.below(3) == 0).then(|| ["chat", "batch", "typo"][draw.below(3) as usize].into()),
        fairness_id: ["", "a", "b", "c"][draw.below(4) as usize].into(),
        priority,
        bytes: draw.below(900),
        prompt_tokens,
        ttl,
        slo_ttft,
        received_at: now,
        deadline,
        face: faces[draw.below(6) as usize],
        choose_endpoint: draw.below(2) == 0,
        idempotency: key,
        ..Arrival::default()
    })
}

fn observation(draw: &mut Draw, now: Micros) -> Input {
    let slot = Slot(draw.below(3) as u16);
    let sample = |draw: &mut Draw| EndpointChange::Sampled {
        slot,
        waiting: draw.below(5) as i32 - 3,
        running: draw.below(7) as i32 - 3,
        kv: draw.below(2_000) as i32 - 1_000,
    };
    let changes = match draw.below(9) {
        0 => vec![EndpointChange::Left { slot }],
        1 | 2 => vec![EndpointChange::Stale { slot }],
        3 | 4 => {
            let joined = EndpointChange::Joined { slot, name: format!("e{}", slot.0), role: Role::Decode };
            vec![joined, sample(draw)]
        }
        _ => vec![sample(draw)],
    };
    let pushed = Pushed::Pool(Ratio(draw.below(12) as i64 * 100_000));
    Input::Observed(Observation {
        requested_at: now.since(Micros::from_millis(draw.below(30))),
        changes,
        pushed,
    })
}

fn input(draw: &mut Draw, state: &State, now: Micros) -> Input {
    let all: Vec<RequestId> = state.queued_requests().chain(state.leases()).collect();
    let request = match all.len() as u64 {
        0 => RequestId(draw.below(9)),
        n => all[draw.below(n) as usize],
    };
    let kinds = if state.policy().eviction == Eviction::default() { 60 } else { 72 };
    match draw.below(kinds) {
        60..=65 => Input::Revoke { request, by: "ops".into(), why: "golden".into() },
        66..=70 => Input::Watched { request, watching: draw.below(3) > 0 },
        71 => Input::Undeliverable { request },
        0 => start(),
        1 => Input::Stopping { drain_until: now + Micros::from_millis(200) },
        2 => Input::ObjectivesChanged(ObjectivesChange {
            set: vec![("chat".into(), 10), ("batch".into(), -10 - draw.below(2) as i32)],
            removed: Vec::new(),
        }),
        3..=18 => observation(draw, now),
        19..=23 => Input::Cancelled(Cancelled { request, cause: Cause::ClientDisconnect }),
        24..=34 => {
            let usage = Some(Usage { prompt: draw.below(400) as u32, completion: draw.below(400) as u32 });
            Input::Ended(Ended { request, termination: Termination::Natural, usage })
        }
        35 | 36 => Input::FirstByte { request },
        37 | 38 => Input::Renewed { request },
        _ => arrival(draw, now),
    }
}

fn start() -> Input {
    Input::Started(Started { kernel_behaviour: 0, version: String::new(), wall: Micros::ZERO })
}

/// The decisions of 2,500 inputs and of all that became due between them, hashed.
fn digest(policy: Policy) -> (String, u64) {
    let (mut state, mut hash, mut draw) = (State::new(), Sha256::new(), Draw(42));
    let mut now = Micros::from_secs(1_000);
    let mut take = |state: &mut State, at: Micros, input: Input| {
        let step = step(state, at, input);
        state.check().unwrap();
        let decided = (step.seq, step.at, &step.events);
        hash.update(bincode::serde::encode_to_vec(decided, bincode::config::standard()).unwrap());
    };
    take(&mut state, now, start());
    take(&mut state, now, Input::PolicyChanged(PolicyChange { policy: Box::new(policy), digest: [0; 32] }));
    for _ in 0..2_500 {
        now = now + Micros::from_millis(draw.below(60));
        while let Some(due) = state.next_deadline().filter(|due| *due <= now) {
            take(&mut state, due, Input::TimePassed);
        }
        let input = input(&mut draw, &state, now);
        take(&mut state, now, input);
    }
    let digest = hash.finalize().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    (digest, state.seq())
}

#[test]
fn the_decisions_of_the_golden_worlds_have_not_moved() {
    let (behaviour, worlds) = GOLDEN;
    assert_eq!(behaviour, KERNEL_BEHAVIOUR, "the digests are of another behaviour: renew them");
    let mut moved = String::new();
    for (name, policy, want) in worlds {
        let (got, steps) = digest(policy());
        println!("{name}: {got} over {steps} steps");
        if got != want {
            writeln!(moved, "    {name}: {got}").unwrap();
        }
    }
    assert!(
        moved.is_empty(),
        "what the kernel decides has changed; if that is meant, raise KERNEL_BEHAVIOUR above {behaviour} and store:\n{moved}"
    );
}
