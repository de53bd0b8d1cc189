//! Rounds of samples as the candidate would have seen them: logged + model(candidate) − model(log).
//!
//! Joins, leaves and edges are as logged: the sensor and the size of the pool are taken not to depend on the settings.

use crate::model::Pool;
use weir_kernel::{EndpointChange, Micros, Observation, Pushed, Slot, State};

/// Differences of the KV share that a round leaves out, in ten-thousandths (as the service's own observer).
const DEADBAND: u32 = 50;

/// What the model says that the candidate's pool has more (or less) of than the logged one.
pub struct Apart<'a> {
    /// Of the candidate.
    pub own: &'a Pool,
    /// Of the log.
    pub logged: &'a Pool,
    /// The candidate's alone counts, whatever was logged.
    pub detached: bool,
}

type Sample = (u32, u32, u32);

/// The sample of a server in a state.
fn sample_of(state: &State, slot: Slot) -> Option<Sample> {
    state.endpoints().find(|endpoint| endpoint.slot == slot).and_then(|endpoint| endpoint.sample)
}

fn shifted(sample: Sample, apart: Option<&Apart<'_>>, slot: Slot, requested: Micros) -> Sample {
    let Some(apart) = apart else { return sample };
    let (own, logged) = (apart.own.gauge_at(slot, requested), apart.logged.gauge_at(slot, requested));
    if apart.detached {
        return (own.waiting, own.running, own.kv);
    }
    let by = |value: u32, own: u32, logged: u32| {
        (i64::from(value) + i64::from(own) - i64::from(logged)).clamp(0, i64::from(u32::MAX)) as u32
    };
    (
        by(sample.0, own.waiting, logged.waiting),
        by(sample.1, own.running, logged.running),
        by(sample.2, own.kv, logged.kv).min(10_000),
    )
}

fn delta(slot: Slot, now: Sample, before: Sample) -> EndpointChange {
    let by = |now: u32, before: u32| (i64::from(now) - i64::from(before)) as i32;
    EndpointChange::Sampled {
        slot,
        waiting: by(now.0, before.0),
        running: by(now.1, before.1),
        kv: by(now.2, before.2),
    }
}

const fn slot_of(change: &EndpointChange) -> Slot {
    match change {
        EndpointChange::Joined { slot, .. }
        | EndpointChange::Left { slot }
        | EndpointChange::Sampled { slot, .. }
        | EndpointChange::Stale { slot } => *slot,
    }
}

/// A logged round for the candidate. `logged` is the logged state after it.
pub fn round(
    observation: &Observation,
    logged: &State,
    own: &State,
    apart: Option<&Apart<'_>>,
) -> Observation {
    let requested_at = observation.requested_at;
    let mut changes = Vec::with_capacity(observation.changes.len());
    for change in &observation.changes {
        let EndpointChange::Sampled { slot, .. } = change else {
            changes.push(change.clone());
            continue;
        };
        let Some(sample) = sample_of(logged, *slot) else {
            changes.push(change.clone());
            continue;
        };
        let joins = |c: &EndpointChange| matches!(c, EndpointChange::Joined { slot: s, .. } if s == slot);
        let joined = observation.changes.iter().any(joins);
        let before = if joined { None } else { sample_of(own, *slot) };
        let now = shifted(sample, apart, *slot, requested_at);
        changes.push(delta(*slot, now, before.unwrap_or_default()));
    }
    if apart.is_some() {
        let more = unseen(&changes, requested_at, logged, own, apart);
        changes.extend(more);
        changes.sort_by_key(slot_of);
    }
    Observation { requested_at, changes, pushed: observation.pushed }
}

/// A round that the log left out because nothing had changed there.
pub fn silent(requested_at: Micros, logged: &State, own: &State, apart: &Apart<'_>) -> Option<Observation> {
    let changes = unseen(&[], requested_at, logged, own, Some(apart));
    if changes.is_empty() {
        return None;
    }
    Some(Observation { requested_at, changes, pushed: Pushed::Keep })
}

/// Servers that the round says nothing of, but whose sample would have changed for the candidate.
fn unseen(
    said: &[EndpointChange],
    requested_at: Micros,
    logged: &State,
    own: &State,
    apart: Option<&Apart<'_>>,
) -> Vec<EndpointChange> {
    let mut changes = Vec::new();
    for endpoint in logged.endpoints().filter(|endpoint| !endpoint.stale) {
        let slot = endpoint.slot;
        let Some(sample) = endpoint.sample else { continue };
        if said.iter().any(|change| slot_of(change) == slot) {
            continue;
        }
        let Some(before) = sample_of(own, slot) else { continue };
        let now = shifted(sample, apart, slot, requested_at);
        if (now.0, now.1) != (before.0, before.1) || now.2.abs_diff(before.2) > DEADBAND {
            changes.push(delta(slot, now, before));
        }
    }
    changes
}
