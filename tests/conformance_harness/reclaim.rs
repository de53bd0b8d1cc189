//! Vectors about taking leases back: they run against the kernel's own trigger, sizing and pacing.
//!
//! A tracked request is a lease put into the state as a snapshot would bring it. A decision that a vector asks for by
//! its numbers is provoked: that saturation, that ceiling, and one queued request of that priority. The test double
//! that lets everybody be a victim is the real filter with all priorities moved below zero.

use super::engine::{Engine, at};
use super::results::{Outcomes, Results, Taken};
use super::settings::ratio;
use super::vector::{Step, list, priority, text, whole};
use super::world::World;
use serde_json::Value;
use std::collections::BTreeMap;
use weir_kernel::sizing::{Question, needed};
use weir_kernel::{Arrival, Cause, Detector, Input, Micros, Ratio, RequestId, RevocationEnd, UsageLimit};

/// The operations of a pool that this module knows.
pub const OPS: [&str; 8] = ["track", "untrack", "peek", "victims", "evict", "reclaim", "gate", "confirm"];
/// Those that need no pool.
pub const PURE: [&str; 2] = ["size", "derive_grace"];

/// Where everybody may be a victim, all priorities are lower by this.
const BELOW: i32 = 1_000_000;

/// Runs an operation that needs no pool.
pub fn pure(step: &Step, results: &mut Results) -> Result<(), String> {
    let fields = &step.fields;
    let count = |name: &str| fields[name].as_u64().unwrap_or(0);
    let number = if step.op == "size" {
        let question = Question {
            saturation: ratio(&fields["saturation"], Ratio::ZERO),
            ceiling: ratio(&fields["ceiling"], Ratio::ZERO),
            pending: ratio(&fields["pending"], Ratio::ZERO),
            in_flight: count("in_flight"),
        };
        let wanted = needed(&question).map_or(0, |needed| needed.wanted);
        wanted.min(count("max_revocations")).min(count("evictable")) as f64
    } else {
        let Detector::Utilization { queue_depth, kv, headroom, .. } = Detector::utilization() else {
            return Err("it is that detector".to_owned());
        };
        let staleness = Micros::from_millis(count("staleness_ms"));
        let detector = match text(fields, "detector")? {
            "concurrency-detector" => Detector::concurrency(),
            _other => Detector::Utilization { queue_depth, kv, staleness, headroom },
        };
        weir_config::derived_grace(&detector, Micros::from_millis(count("refresh_ms"))).0 as f64 / 1e3
    };
    if let Some(name) = &step.name {
        results.named.insert(name.clone(), Outcomes::Number(number));
    }
    Ok(())
}

/// What is known of tracked requests.
#[derive(Default)]
pub struct Tracked {
    /// Is everybody a victim?
    pub all: bool,
    names: BTreeMap<RequestId, String>,
    last: u64,
    /// Victims that could not be told, as the vectors say.
    failed: Vec<RequestId>,
}

impl Tracked {
    pub fn new(all: bool) -> Tracked {
        Tracked { all, ..Tracked::default() }
    }
}

impl World {
    /// Runs one operation.
    pub fn reclaim(&mut self, step: &Step) -> Result<Outcomes, String> {
        let (now, fields) = (at(step.at_ms), &step.fields);
        let mut revoked = Vec::new();
        match step.op.as_str() {
            "track" => self.track(fields)?,
            "untrack" | "confirm" => {
                if let Some(request) = self.ids.get(text(fields, "id")?).copied() {
                    self.engine.end(now, request, None)?;
                }
            }
            "evict" => {
                let most = u32::try_from(whole(fields, "n")?).map_err(|_| "n is no count")?;
                let bound = self.lowered(priority(fields, "bound")?);
                if most > 0 {
                    // So much is wanted that the cap alone limits it.
                    let numbers = (Ratio(1_000_000_000), Ratio(1));
                    revoked = self.provoke(now, numbers, bound, Some(most), &fields["fail"])?;
                }
            }
            "reclaim" => {
                let numbers =
                    (ratio(&fields["saturation"], Ratio::ONE), ratio(&fields["ceiling"], Ratio::ONE));
                let bound = self.lowered(priority(fields, "demand_priority")?);
                revoked = self.provoke(now, numbers, bound, None, &fields["fail"])?;
            }
            _look => self.engine.pass(now)?,
        }
        Ok(Outcomes::Taken(self.taken_back(revoked)))
    }

    fn lowered(&self, priority: i32) -> i32 {
        if self.tracked.all { priority - BELOW } else { priority }
    }

    fn track(&mut self, fields: &Value) -> Result<(), String> {
        let id = text(fields, "id")?.to_owned();
        let dispatched_at = at(whole(fields, "dispatch_ms")?);
        let now = self.engine.state().now();
        if let Some(old) = self.ids.get(&id).copied().filter(|old| self.engine.runs(*old)) {
            self.engine.end(now, old, None)?;
        }
        self.tracked.last += 1;
        let request = RequestId((1 << 40) + self.tracked.last);
        let priority = self.lowered(priority(fields, "priority")?);
        self.engine.put_lease(request, priority, dispatched_at)?;
        self.tracked.names.insert(request, id.clone());
        self.ids.insert(id, request);
        Ok(())
    }

    /// Brings about a decision for demand of this priority, and takes the demand away again.
    fn provoke(
        &mut self,
        now: Micros,
        (saturation, ceiling): (Ratio, Ratio),
        demand: i32,
        most: Option<u32>,
        fail: &Value,
    ) -> Result<Vec<String>, String> {
        let mut policy = self.engine.state().policy().clone();
        policy.usage_limit = UsageLimit::Fixed { ceilings: BTreeMap::new(), default: ceiling };
        policy.eviction.enabled = true;
        if let Some(most) = most {
            // Such an operation asks no gate.
            policy.eviction.confirmation_grace = Micros::ZERO;
            policy.eviction.max_revocations = most;
        }
        self.engine.change_policy(now, policy)?;
        self.engine.script(now, saturation)?;
        let before = self.engine.notes.revoked.len();
        let arrival = Arrival { priority: Some(demand), received_at: now, ..Arrival::default() };
        let request = self.engine.arrive(now, arrival)?;
        let fails = |name: &str| list(fail).iter().any(|failing| failing == name);
        let mut next = before;
        while let Some((_, victim)) = self.engine.notes.revoked.get(next).copied() {
            next += 1;
            if fails(self.name_of(victim)) {
                self.tracked.failed.push(victim);
                self.engine.feed(now, Input::Undeliverable { request: victim })?;
            }
        }
        self.engine.cancel(now, request, Cause::Other)?;
        let issued = self.engine.notes.revoked[before..].iter();
        let names = issued.map(|(_, victim)| self.name_of(*victim)).filter(|name| !fails(name));
        Ok(names.map(str::to_owned).collect())
    }

    fn name_of(&self, request: RequestId) -> &str {
        self.tracked.names.get(&request).map_or("?", String::as_str)
    }

    fn taken_back(&self, revoked: Vec<String>) -> Taken {
        let state = self.engine.state();
        let best = state.victims().next().and_then(|id| {
            let own = state.lease(id)?.priority;
            let shown = if self.tracked.all { own + BELOW } else { own };
            Some((self.name_of(id).to_owned(), shown))
        });
        Taken {
            revoked,
            in_flight: state.in_flight(),
            evictable: state.evictable(),
            gate_open: state.gate_is_open(),
            pending: state.pending_reclaim().0 as f64 / 1e6,
            best,
        }
    }

    /// Hands over what became of every revocation.
    pub fn finish_reclaim(&self, results: &mut Results) {
        let state = self.engine.state();
        let counts = state.revocations();
        for end in RevocationEnd::ALL {
            results.counters.insert(format!("revocations/{}", end.word()), counts.ends[end as usize]);
        }
        results.counters.insert("revocations_issued".to_owned(), counts.issued);
        let told = self.engine.notes.revoked.iter().filter(|(_, id)| !self.tracked.failed.contains(id));
        results.revoked = told.map(|(at_us, id)| (*at_us, self.name_of(*id).to_owned())).collect();
        for (request, took) in &self.engine.notes.confirmed {
            *results.terminations.entry(self.name_of(*request).to_owned()).or_default() += 1;
            results.confirmation_ms.push(*took as f64 / 1e3);
        }
    }
}

impl Engine {
    /// A lease that is there, as a snapshot would bring it.
    pub fn put_lease(
        &mut self,
        request: RequestId,
        priority: i32,
        dispatched_at: Micros,
    ) -> Result<(), String> {
        self.restate(|events| weir::bench::eviction::restate_lease(events, request, priority, dispatched_at))
    }
}
