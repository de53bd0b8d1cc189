//! The closed loop: the kernel against a synthetic pool whose sensor lags (README of the vectors, section 8).
//!
//! The gauge is the engine's queue over its threshold, without in-flight credit: so the kernel dispatches one request
//! per arrival or millisecond and looks again in between, as the vectors ask.

use super::engine::{Engine, at};
use super::results::{Outcomes, Results};
use super::settings::ratio;
use super::vector::{Step, list};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use weir_kernel::{
    Arrival, BandSettings, Detector, EndpointChange, Eviction, Face, Micros, Policy, Pushed, Ratio,
    RequestId, Role, Slot, UsageLimit,
};

/// The operations that this module knows.
pub const OPS: [&str; 2] = ["min_evictions", "sim"];

pub type Metrics = BTreeMap<&'static str, f64>;

/// Runs one operation.
pub fn run(step: &Step, results: &mut Results) -> Result<(), String> {
    let metrics = match step.op.as_str() {
        "sim" => Plant::new(&step.fields["params"])?.run()?,
        _minimum => minimum(
            count(&step.fields, "preload"),
            count(&step.fields, "hp"),
            count(&step.fields, "capacity"),
            ratio(&step.fields["ceiling"], Ratio::ONE),
        ),
    };
    if let Some(name) = &step.name {
        results.named.insert(name.clone(), Outcomes::Metrics(metrics));
    }
    Ok(())
}

fn count(fields: &Value, name: &str) -> i64 {
    fields[name].as_i64().unwrap_or(0)
}

/// What must be taken back at the least so that as many as can be are admitted.
fn minimum(preload: i64, arriving: i64, capacity: i64, ceiling: Ratio) -> Metrics {
    let below = units(ceiling, capacity) - 1;
    let admittable = arriving.min(below + 1);
    let evictions = if admittable > 0 { (preload + admittable - 1 - below).clamp(0, preload) } else { 0 };
    BTreeMap::from([("min_evictions", evictions as f64), ("admittable", admittable as f64)])
}

/// `ceil(share x capacity)`.
fn units(share: Ratio, capacity: i64) -> i64 {
    (share.0 * capacity + 999_999).div_euclid(1_000_000)
}

enum Due {
    /// The stream of a revoked lease ends.
    Terminates(RequestId),
    /// A lease ends by itself.
    Ends(RequestId),
    /// A request of high priority has been served.
    Served,
    /// A unit is seen to be free.
    Free,
}

struct Plant {
    engine: Engine,
    capacity: i64,
    visible: i64,
    preload: i64,
    ceiling: Ratio,
    lag: i64,
    termination: i64,
    service: i64,
    limit: i64,
    window: Option<i64>,
    /// Can more be admitted than there is room for now?
    moves: bool,
    tracks: bool,
    arrivals: VecDeque<i64>,
    due: BTreeMap<(i64, u64), Due>,
    scheduled: u64,
    seen: (usize, usize),
    most_visible: i64,
    most_waiting: u64,
    waits: Vec<i64>,
    first: Option<i64>,
    confirmed: i64,
}

impl Plant {
    fn new(params: &Value) -> Result<Plant, String> {
        let (capacity, preload) = (count(params, "capacity"), count(params, "preload"));
        let ceiling = ratio(&params["hp_ceiling"], Ratio::ONE);
        let evicts = params["eviction"].as_bool().unwrap_or(true);
        let ms = |name: &str| Micros::from_millis(params[name].as_u64().unwrap_or(0));
        let policy = Policy {
            saturation_budget: Micros::ZERO,
            no_endpoint_budget: Micros::ZERO,
            bands: BTreeMap::from([(0, BandSettings::default())]),
            usage_limit: UsageLimit::Fixed { ceilings: BTreeMap::new(), default: ceiling },
            detector: Detector::Utilization {
                queue_depth: u32::try_from(capacity).map_err(|_| "capacity is no count")?,
                kv: Ratio::ONE,
                staleness: Micros::from_secs(1),
                headroom: Ratio::ZERO,
            },
            in_flight_credit: false,
            eviction: Eviction {
                enabled: evicts,
                max_revocations: u32::try_from(count(params, "max_revocations_per_decision")).unwrap_or(1),
                confirmation_timeout: ms("confirmation_timeout_ms"),
                confirmation_grace: ms("grace_ms"),
            },
            ..Policy::default()
        };
        let mut plant = Plant {
            engine: Engine::new(policy, at(0))?,
            capacity,
            visible: preload,
            preload,
            ceiling,
            lag: count(params, "free_visibility_lag_ms"),
            termination: count(params, "termination_latency_ms"),
            service: count(params, "service_ms"),
            limit: count(params, "scenario_timeout_ms"),
            window: params["window_ms"].as_i64(),
            moves: evicts || params["churn_mean_ms"].is_number(),
            tracks: params["track_hp"].as_bool().unwrap_or(false),
            arrivals: arrivals(&params["arrivals_ms"], params["window_ms"].as_i64()),
            due: BTreeMap::new(),
            scheduled: 0,
            seen: (0, 0),
            most_visible: preload,
            most_waiting: 0,
            waits: Vec::new(),
            first: None,
            confirmed: 0,
        };
        let slot = Slot(1);
        let join = EndpointChange::Joined { slot, name: "plant".to_owned(), role: Role::Decode };
        let waiting = i32::try_from(preload).map_err(|_| "too many units")?;
        let sampled = EndpointChange::Sampled { slot, waiting, running: 0, kv: 0 };
        plant.engine.look(at(0), vec![join, sampled], Pushed::Keep)?;
        plant.load(params)?;
        Ok(plant)
    }

    /// The sheddable leases that are there at first, the newest last, and when each ends by itself.
    fn load(&mut self, params: &Value) -> Result<(), String> {
        for index in 0..self.preload {
            let request = RequestId((1 << 40) + index.unsigned_abs());
            self.engine.put_lease(request, -1, at(index - self.preload))?;
            if let Some(mean) = params["churn_mean_ms"].as_f64() {
                let share = 1.0 - (index as f64 + 0.5) / self.preload as f64;
                self.schedule((-mean * share.ln()).ceil() as i64, Due::Ends(request));
            }
        }
        Ok(())
    }

    fn schedule(&mut self, when: i64, what: Due) {
        self.scheduled += 1;
        self.due.insert((when, self.scheduled), what);
    }

    fn sample(&mut self, now: i64, change: i64) -> Result<(), String> {
        let waiting = i32::try_from(change).map_err(|_| "too many units")?;
        let sampled = EndpointChange::Sampled { slot: Slot(1), waiting, running: 0, kv: 0 };
        self.engine.look(at(now), vec![sampled], Pushed::Keep)
    }

    fn run(mut self) -> Result<Metrics, String> {
        let arriving = self.arrivals.len() as i64;
        let mut metrics = minimum(self.preload, arriving, self.capacity, self.ceiling);
        let admittable = metrics["admittable"];
        let mut now = 0;
        let timed_out = loop {
            self.plant_events(now)?;
            while self.arrivals.front().is_some_and(|due| *due <= now) {
                self.arrivals.pop_front();
                let face = if self.tracks { Face::Held } else { Face::Untracked };
                self.engine.arrive(at(now), Arrival { face, received_at: at(now), ..Arrival::default() })?;
                self.react(now)?;
            }
            self.engine.pass(at(now))?;
            self.react(now)?;
            match self.window {
                Some(window) if now >= window => break false,
                None if self.moves && self.waits.len() as f64 >= admittable => break false,
                None if now >= self.limit => break true,
                _on => now += 1,
            }
        };
        let signaled = self.engine.notes.revoked.len() as f64;
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let share = |share: f64| match waits.len() {
            0 => 0.0,
            n => waits[(share * (n - 1) as f64).floor() as usize] as f64,
        };
        let bound = self.preload.max(units(self.ceiling, self.capacity));
        let admitted = waits.len() as f64;
        metrics.extend([
            ("ttfr_ms", self.first.unwrap_or(0) as f64),
            ("p50_ms", share(0.5)),
            ("p95_ms", share(0.95)),
            ("admitted", admitted),
            ("elapsed_ms", now as f64),
            ("goodput_per_s", if now > 0 { admitted * 1e3 / now as f64 } else { 0.0 }),
            ("evicted_confirmed", self.confirmed as f64),
            ("evicted_signaled", signaled),
            ("over_evicted", (self.confirmed as f64 - metrics["min_evictions"]).max(0.0)),
            ("max_hp_waiting", self.most_waiting as f64),
            ("overshoot", (self.most_visible - bound).max(0) as f64),
            ("timed_out", f64::from(u8::from(timed_out))),
        ]);
        Ok(metrics)
    }

    fn plant_events(&mut self, now: i64) -> Result<(), String> {
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Due::Terminates(request) => {
                    self.confirmed += 1;
                    self.engine.end(at(now), request, None)?;
                    self.freed(now)?;
                }
                Due::Ends(request) if self.engine.runs(request) => {
                    self.engine.end(at(now), request, None)?;
                    self.freed(now)?;
                }
                Due::Ends(_) => {}
                Due::Served => self.freed(now)?,
                Due::Free => {
                    self.visible -= 1;
                    self.sample(now, -1)?;
                }
            }
            self.react(now)?;
        }
        Ok(())
    }

    /// A unit is free; the sensor shows it after its lag.
    fn freed(&mut self, now: i64) -> Result<(), String> {
        if self.lag > 0 {
            self.schedule(now + self.lag, Due::Free);
            return Ok(());
        }
        self.visible -= 1;
        self.sample(now, -1)
    }

    /// Whoever was admitted loads the pool at once; whoever was revoked ends a little later.
    fn react(&mut self, now: i64) -> Result<(), String> {
        loop {
            let (dispatched, revoked) = self.seen;
            if let Some(request) = self.engine.notes.dispatched.get(dispatched).copied() {
                self.seen.0 += 1;
                self.visible += 1;
                self.most_visible = self.most_visible.max(self.visible);
                self.first = self.first.or(Some(now));
                let waited = self.engine.notes.waited_us.get(&request).copied().unwrap_or(0);
                self.waits.push(i64::try_from(waited / 1_000).unwrap_or(i64::MAX));
                if self.service > 0 {
                    self.schedule(now + self.service, Due::Served);
                }
                self.sample(now, 1)?;
            } else if let Some((_, request)) = self.engine.notes.revoked.get(revoked).copied() {
                self.seen.1 += 1;
                self.schedule(now + self.termination, Due::Terminates(request));
            } else {
                self.most_waiting = self.most_waiting.max(self.engine.state().queued());
                return Ok(());
            }
        }
    }
}

/// A list, or so many from an instant on at a pace; none once the window is over.
fn arrivals(value: &Value, window: Option<i64>) -> VecDeque<i64> {
    let listed = list(value).iter().filter_map(Value::as_i64);
    let paced = (0..count(value, "count")).map(|n| count(value, "first_ms") + n * count(value, "gap_ms"));
    let all = if value.is_array() { listed.collect::<Vec<i64>>() } else { paced.collect() };
    all.into_iter().filter(|due| window.is_none_or(|window| *due < window)).collect()
}
