//! Worlds whose queues stand: more comes than a pool of a few leases can serve, for many seconds, under orders that turn,
//! starvation bounds and refusal of the hopeless.

use crate::world::{Dice, Mood, arrival, by_hand, change, observation, start};
use weir_kernel::*;

/// Settings under which queues stand.
pub fn settings(dice: &mut Dice) -> Input {
    let Input::PolicyChanged(mut change) = change(dice) else { unreachable!("it changes the settings") };
    let policy = &mut change.policy;
    (policy.flow_control, policy.max_requests, policy.max_bytes) = (true, 0, 0);
    policy.detector = Detector::Concurrency {
        mode: ConcurrencyMode::Requests,
        max_requests: 1 + dice.below(3),
        max_tokens: 1_000_000,
        headroom: Ratio::ZERO,
        output_estimate: None,
    };
    policy.saturation_budget = Micros::from_secs(dice.pick(&[2, 5, 30]));
    policy.lease_timeout = Micros::from_secs(60);
    for band in policy.bands.values_mut().chain([&mut policy.template]).chain(&mut policy.negative_template) {
        let (target, window) =
            (Micros::from_millis(dice.pick(&[50, 700])), Micros::from_millis(dice.below(900)));
        let turning = Ordering::NewestFirstWhenStanding { target, window };
        band.ordering = dice.pick(&[Ordering::Fcfs, turning, turning]);
        band.fairness = dice.pick(&[Fairness::GlobalStrict, Fairness::RoundRobin]);
        (band.max_requests, band.max_bytes, band.saturation_budget) = (400, 1_000_000, None);
    }
    for bounds in policy.bounds.bands.values_mut().chain([&mut policy.bounds.template]) {
        bounds.starvation = Micros::from_millis(dice.pick(&[0, 300, 1_500]));
        bounds.reject_hopeless = !dice.one_in(4);
    }
    Input::PolicyChanged(change)
}

pub fn input(dice: &mut Dice, mood: Mood, state: &State, now: Micros) -> Input {
    let some = |dice: &mut Dice, all: Vec<RequestId>| {
        if all.is_empty() { RequestId(dice.below(state.seq() + 2)) } else { dice.pick(&all) }
    };
    match dice.below(100) {
        0 if dice.one_in(5) => start(),
        1 if dice.one_in(5) => settings(dice),
        2..=6 => Input::Observed(observation(dice, mood, now)),
        7..=36 => {
            let request = some(dice, state.leases().collect());
            Input::Ended(Ended { request, termination: Termination::Natural, usage: None })
        }
        37..=40 => {
            let request = some(dice, state.queued_requests().collect());
            Input::Cancelled(Cancelled { request, cause: Cause::ClientDisconnect })
        }
        41..=45 => Input::TimePassed,
        46 => by_hand(dice, state, now),
        _ => Input::Arrived(Arrival {
            priority: Some(dice.pick(&[10, 0, 0, 0, -5])),
            objective: None,
            face: dice.pick(&[Face::Proxy, Face::Held, Face::Ticket]),
            ttl: None,
            deadline: dice.one_in(5).then(|| now + Micros::from_millis(200 + dice.below(9_000))),
            ..arrival(dice, now)
        }),
    }
}
