//! The closed loop: the kernel against a synthetic pool whose sensor lags (the conformance vectors call it `sim`).
//!
//! The gauge is the engine's queue over its threshold, without in-flight credit: so the kernel dispatches one request
//! per arrival or millisecond and looks again in between. Each millisecond: what is due in the pool, then arrivals, each
//! with one attempt to dispatch, then one more attempt. Not here: which runs there are (`grid.rs`).

use super::kernel::{Kernel, Watch, at, restate_lease};
use super::params::{Params, minimum, units};
use crate::bench::BenchError;
use std::collections::{BTreeMap, VecDeque};
use weir_kernel::{
    Arrival, BandSettings, Detector, EndpointChange, Eviction, Face, Input, Micros, Policy, Ratio, RequestId,
    Role, Slot, UsageLimit,
};

/// The figures of one run by the names that the vectors give them.
pub type Metrics = BTreeMap<&'static str, f64>;

/// The one endpoint.
const PLANT: Slot = Slot(1);

enum Due {
    /// The stream of a revoked lease ends.
    Terminates(RequestId),
    /// A lease ends by itself.
    Ends(RequestId),
    /// A request of high priority has been served.
    Served(RequestId),
    /// A unit is seen to be free.
    Free,
}

/// One run from start to end.
///
/// # Errors
/// What the watch says of a step, and a pool that cannot be.
pub fn run(params: &Params, watch: Watch<'_>) -> Result<Metrics, BenchError> {
    Plant::new(params, watch)?.run()
}

struct Plant<'a> {
    params: &'a Params,
    kernel: Kernel<'a>,
    visible: i64,
    arrivals: VecDeque<i64>,
    due: BTreeMap<(i64, u64), Due>,
    scheduled: u64,
    /// How many of those admitted and of those revoked the pool has reacted to.
    seen: (usize, usize),
    most_visible: i64,
    most_waiting: u64,
    waits: Vec<i64>,
    first: Option<i64>,
    confirmed: i64,
}

impl<'a> Plant<'a> {
    fn new(params: &'a Params, watch: Watch<'a>) -> Result<Plant<'a>, BenchError> {
        let mut plant = Plant {
            params,
            kernel: Kernel::new(policy(params)?, watch)?,
            visible: params.preload,
            arrivals: params.arrivals.iter().copied().collect(),
            due: BTreeMap::new(),
            scheduled: 0,
            seen: (0, 0),
            most_visible: params.preload,
            most_waiting: 0,
            waits: Vec::new(),
            first: None,
            confirmed: 0,
        };
        let join = EndpointChange::Joined { slot: PLANT, name: "plant".to_owned(), role: Role::Decode };
        plant.kernel.look(0, vec![join, sampled(params.preload)?])?;
        plant.load()?;
        Ok(plant)
    }

    /// The sheddable leases that are there at first, the newest last, and when each ends by itself.
    fn load(&mut self) -> Result<(), BenchError> {
        let preload = self.params.preload;
        let request = |index: i64| RequestId((1 << 40) + index.unsigned_abs());
        self.kernel.restate(|events| {
            for index in 0..preload {
                restate_lease(events, request(index), -1, at(index - preload));
            }
        })?;
        if let Some(mean) = self.params.churn {
            for index in 0..preload {
                let share = 1.0 - (index as f64 + 0.5) / preload as f64;
                self.schedule((-mean * share.ln()).ceil() as i64, Due::Ends(request(index)));
            }
        }
        Ok(())
    }

    fn schedule(&mut self, when: i64, what: Due) {
        self.scheduled += 1;
        self.due.insert((when, self.scheduled), what);
    }

    fn run(mut self) -> Result<Metrics, BenchError> {
        let params = self.params;
        let (least, admittable) =
            minimum(params.preload, params.arrivals.len() as i64, params.capacity, params.ceiling);
        // Can more be admitted than there is room for now?
        let moves = params.evicts || params.churn.is_some();
        let face = if params.tracks { Face::Held } else { Face::Untracked };
        let mut now = 0;
        let timed_out = loop {
            self.plant_events(now)?;
            while self.arrivals.front().is_some_and(|due| *due <= now) {
                self.arrivals.pop_front();
                let arrival = Arrival { face, received_at: at(now), ..Arrival::default() };
                self.kernel.feed(now, Input::Arrived(arrival))?;
                self.react(now)?;
            }
            self.kernel.pass(now)?;
            self.react(now)?;
            match params.window {
                Some(window) if now >= window => break false,
                None if moves && self.waits.len() as i64 >= admittable => break false,
                None if now >= params.limit => break true,
                _on => now += 1,
            }
        };
        Ok(self.metrics(now, timed_out, least, admittable))
    }

    fn metrics(&self, now: i64, timed_out: bool, least: i64, admittable: i64) -> Metrics {
        let params = self.params;
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let share = |share: f64| match waits.len() {
            0 => 0.0,
            n => waits.get((share * (n - 1) as f64).floor() as usize).map_or(0.0, |wait| *wait as f64),
        };
        let bound = params.preload.max(units(params.ceiling, params.capacity));
        let admitted = waits.len() as f64;
        BTreeMap::from([
            ("min_evictions", least as f64),
            ("admittable", admittable as f64),
            ("ttfr_ms", self.first.unwrap_or(0) as f64),
            ("p50_ms", share(0.5)),
            ("p95_ms", share(0.95)),
            ("admitted", admitted),
            ("elapsed_ms", now as f64),
            ("goodput_per_s", if now > 0 { admitted * 1e3 / now as f64 } else { 0.0 }),
            ("evicted_confirmed", self.confirmed as f64),
            ("evicted_signaled", self.kernel.revoked.len() as f64),
            ("over_evicted", (self.confirmed - least).max(0) as f64),
            ("max_hp_waiting", self.most_waiting as f64),
            ("overshoot", (self.most_visible - bound).max(0) as f64),
            ("timed_out", f64::from(u8::from(timed_out))),
        ])
    }

    fn plant_events(&mut self, now: i64) -> Result<(), BenchError> {
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Due::Terminates(request) => {
                    self.confirmed += 1;
                    self.kernel.end(now, request)?;
                    self.freed(now)?;
                }
                Due::Ends(request) if self.kernel.state().lease(request).is_some() => {
                    self.kernel.end(now, request)?;
                    self.freed(now)?;
                }
                Due::Ends(_) => {}
                Due::Served(request) => {
                    if self.params.tracks {
                        self.kernel.end(now, request)?;
                    }
                    self.freed(now)?;
                }
                Due::Free => {
                    self.visible -= 1;
                    self.kernel.look(now, vec![sampled(-1)?])?;
                }
            }
            self.react(now)?;
        }
        Ok(())
    }

    /// A unit is free; the sensor shows it after its lag.
    fn freed(&mut self, now: i64) -> Result<(), BenchError> {
        if self.params.lag > 0 {
            self.schedule(now + self.params.lag, Due::Free);
            return Ok(());
        }
        self.visible -= 1;
        self.kernel.look(now, vec![sampled(-1)?])
    }

    /// Whoever was admitted loads the pool at once; whoever was revoked ends a little later.
    fn react(&mut self, now: i64) -> Result<(), BenchError> {
        loop {
            let (dispatched, revoked) = self.seen;
            if let Some((request, waited)) = self.kernel.dispatched.get(dispatched).copied() {
                self.seen.0 += 1;
                self.visible += 1;
                self.most_visible = self.most_visible.max(self.visible);
                self.first = self.first.or(Some(now));
                self.waits.push(i64::try_from(waited.0 / 1_000).unwrap_or(i64::MAX));
                if self.params.service > 0 {
                    self.schedule(now + self.params.service, Due::Served(request));
                }
                self.kernel.look(now, vec![sampled(1)?])?;
            } else if let Some(request) = self.kernel.revoked.get(revoked).copied() {
                self.seen.1 += 1;
                self.schedule(now + self.params.termination, Due::Terminates(request));
            } else {
                self.most_waiting = self.most_waiting.max(self.kernel.state().queued());
                return Ok(());
            }
        }
    }
}

/// The gauge moved by so many units.
fn sampled(change: i64) -> Result<EndpointChange, BenchError> {
    let waiting = i32::try_from(change).map_err(|_| BenchError(format!("{change} units are too many")))?;
    Ok(EndpointChange::Sampled { slot: PLANT, waiting, running: 0, kv: 0 })
}

fn policy(params: &Params) -> Result<Policy, BenchError> {
    let ms = |ms: i64| Micros::from_millis(ms.unsigned_abs());
    let capacity = params.capacity;
    Ok(Policy {
        saturation_budget: Micros::ZERO,
        no_endpoint_budget: Micros::ZERO,
        bands: BTreeMap::from([(0, BandSettings::default())]),
        usage_limit: UsageLimit::Fixed { ceilings: BTreeMap::new(), default: params.ceiling },
        detector: Detector::Utilization {
            queue_depth: u32::try_from(capacity)
                .map_err(|_| BenchError(format!("capacity: {capacity}, not a count")))?,
            kv: Ratio::ONE,
            staleness: Micros::from_secs(1),
            headroom: Ratio::ZERO,
        },
        in_flight_credit: false,
        eviction: Eviction {
            enabled: params.evicts,
            max_revocations: params.cap,
            max_revocations_on_demand: params.cap,
            sizing: params.sizing,
            confirmation_timeout: ms(params.timeout),
            confirmation_grace: ms(params.grace),
        },
        ..Policy::default()
    })
}
