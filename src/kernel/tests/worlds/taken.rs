//! Worlds where leases are taken back all the time: full pools, sheddable leases, victims that are deaf, late or out of
//! reach, and restarts between the order and its end.

use crate::world::{Dice, Mood, arrival, change, observation, start};
use weir_kernel::*;

/// Settings under which much is taken back.
pub fn settings(dice: &mut Dice, sizing: Sizing) -> Input {
    let Input::PolicyChanged(mut change) = change(dice) else { unreachable!("it changes the settings") };
    let policy = &mut change.policy;
    policy.flow_control = true;
    policy.eviction = Eviction {
        enabled: true,
        max_revocations: dice.pick(&[1, 2, 5, 200]),
        confirmation_timeout: Micros::from_millis(dice.pick(&[5, 40, 300])),
        confirmation_grace: Micros::from_millis(dice.pick(&[0, 3, 30])),
        sizing,
        max_revocations_on_demand: dice.pick(&[1, 3, 16, 200]),
    };
    for band in policy.bands.values_mut().chain([&mut policy.template]).chain(&mut policy.negative_template) {
        (band.max_requests, band.max_bytes) = (400, 1_000_000);
    }
    (policy.max_requests, policy.max_bytes, policy.max_dynamic_bands) = (0, 0, 8);
    policy.saturation_budget = Micros::from_secs(20);
    Input::PolicyChanged(change)
}

/// Whom to end, tell of, or give up: mostly one whose revocation is outstanding.
fn victim(dice: &mut Dice, state: &State) -> RequestId {
    let (revoked, all): (Vec<_>, Vec<_>) = (state.revoked().collect(), state.leases().collect());
    match (revoked.is_empty() || dice.one_in(6), all.is_empty()) {
        (false, _) => dice.pick(&revoked),
        (true, false) => dice.pick(&all),
        (true, true) => RequestId(dice.below(state.seq() + 2)),
    }
}

/// Now and then engines whose queues are about full, beside whatever else they show.
fn queued(dice: &mut Dice, mood: Mood, mut round: Observation) -> Observation {
    if matches!(mood, Mood::Open | Mood::Full) && dice.one_in(3) {
        let waiting = 4 + dice.below(3) as i32;
        for slot in [0, 1, 2, 3].map(Slot) {
            // Differences to the sample before: none, then so many.
            let load = |waiting| EndpointChange::Sampled { slot, waiting, running: 1, kv: 0 };
            round.changes.extend([load(-1_000_000), load(waiting)]);
        }
    }
    round
}

pub fn input(dice: &mut Dice, mood: Mood, state: &State, now: Micros) -> Input {
    let sizing = state.policy().eviction.sizing;
    match dice.below(100) {
        0 => start(),
        1 if dice.one_in(4) => settings(dice, sizing),
        2..=20 => {
            let round = observation(dice, mood, now);
            Input::Observed(queued(dice, mood, round))
        }
        21..=36 => {
            let (request, termination) = (victim(dice, state), Termination::Evicted);
            Input::Ended(Ended { request, termination, usage: None })
        }
        37..=44 => Input::Undeliverable { request: victim(dice, state) },
        45..=50 => Input::Watched { request: victim(dice, state), watching: !dice.one_in(4) },
        51 => Input::Revoke { request: victim(dice, state), by: "ops".into(), why: String::new() },
        52..=56 => Input::TimePassed,
        _ => Input::Arrived(Arrival {
            priority: Some(dice.pick(&[10, 0, -1, -1, -5, -5])),
            objective: None,
            face: dice.pick(&[Face::Proxy, Face::Stream, Face::ExtProcOpen, Face::ExtProcClosed, Face::Held]),
            idempotency: None,
            deadline: None,
            ..arrival(dice, now)
        }),
    }
}
