//! Vectors about a running pool: arrivals, cancellations, pool changes, flows and bands, through `step`.
//!
//! The pool's saturation is scripted by the vectors, so it is a pushed figure; a detector that counts leases of
//! strangers is computed with the kernel's own arithmetic and pushed as well. Leases of the registry are requests
//! that stay queued, which is what holds a flow in Weir.

use super::engine::{Engine, at, vector_us};
use super::reclaim::{self, Tracked};
use super::results::{Answer, Outcomes, Results, View};
use super::vector::{Step, list, priority, text, whole};
use super::{headers, pool, settings};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_kernel::{
    Arrival, Cause, EndpointChange, Input, Micros, ObjectivesChange, Policy, Pushed, RequestId, Slot,
};

/// The operations that this module knows.
pub const OPS: [&str; 12] = [
    "admit",
    "cancel",
    "tick",
    "pool",
    "shutdown",
    "complete",
    "lease",
    "release",
    "gc",
    "desired",
    "band_leases",
    "legacy_admit",
];

pub struct World {
    policy: Policy,
    pub(super) engine: Engine,
    /// Requests by the vector's id, and back.
    pub(super) ids: BTreeMap<String, RequestId>,
    names: BTreeMap<RequestId, String>,
    leased: BTreeMap<(String, i32), VecDeque<RequestId>>,
    desired: BTreeSet<i32>,
    /// The pool entry in force.
    pool: Option<Value>,
    /// When the metrics of endpoints become too old.
    stale_at: Vec<(Micros, Slot)>,
    /// Pool entries count only where something is admitted: a lease is a queued request, and stays one.
    sees_pool: bool,
    pub(super) tracked: Tracked,
}

impl World {
    pub fn new(config: &Value, steps: &[Step]) -> Result<World, String> {
        let policy = settings::policy(config)?;
        let mut running = policy.clone();
        running.detector = pool::detector_at_run_time(&policy.detector);
        let start = steps.first().map_or(0, |step| step.at_ms).min(0);
        let has = |op: &str| steps.iter().any(|step| step.op == op);
        let mut engine = Engine::new(running, at(start))?;
        // Flows and bands are collected when the vector says so, not in between.
        engine.fires_early = !has("gc");
        Ok(World {
            engine,
            policy,
            ids: BTreeMap::new(),
            names: BTreeMap::new(),
            leased: BTreeMap::new(),
            desired: BTreeSet::new(),
            pool: None,
            stale_at: Vec::new(),
            sees_pool: has("admit") || !has("lease"),
            tracked: Tracked::new(config["eviction"]["filter"] == "accept-all"),
        })
    }

    /// Runs one operation.
    pub fn run(&mut self, step: &Step, results: &mut Results) -> Result<(), String> {
        let (now, fields) = (at(step.at_ms), &step.fields);
        self.age(now)?;
        let result = match step.op.as_str() {
            "pool" => {
                self.pool = Some(fields.clone());
                if self.sees_pool {
                    let round = pool::round(&self.policy.detector, fields, step.at_ms, &mut self.engine);
                    self.engine.look(now, round.changes, round.pushed)?;
                    self.stale_at = round.stale_at;
                }
                None
            }
            "admit" => Some(self.admit(step)?),
            "cancel" => {
                let cause = match text(fields, "cause")? {
                    "client" => Cause::ClientDisconnect,
                    "deadline" => Cause::ClientDeadline,
                    _other => Cause::Other,
                };
                if let Some(request) = self.ids.get(text(fields, "id")?).copied() {
                    self.engine.cancel(now, request, cause)?;
                }
                None
            }
            "complete" => {
                if let Some(request) = self.ids.get(text(fields, "id")?).copied() {
                    self.engine.end(now, request, None)?;
                }
                None
            }
            "tick" | "gc" => {
                for _ in 0..fields["cycles"].as_u64().unwrap_or(1) {
                    self.engine.pass(now)?;
                }
                Some(Outcomes::Bands(self.bands()))
            }
            "shutdown" => {
                self.engine.feed(now, Input::Stopping { drain_until: now })?;
                None
            }
            "lease" => Some(self.lease(now, fields)?),
            "release" => {
                let key = (text(fields, "flow")?.to_owned(), priority(fields, "priority")?);
                let oldest = self.leased.get_mut(&key).and_then(VecDeque::pop_front);
                let request = oldest.ok_or_else(|| format!("{key:?} holds no lease"))?;
                self.engine.cancel(now, request, Cause::Other)?;
                None
            }
            "desired" => {
                self.desire(now, fields)?;
                Some(Outcomes::Bands(self.bands()))
            }
            "band_leases" => {
                let wanted = priority(fields, "priority")?;
                let flows = self.engine.notes.flows.values().filter(|(_, band)| *band == wanted).count();
                Some(Outcomes::Number(flows as f64))
            }
            "legacy_admit" => Some(Outcomes::Http(self.legacy(now, fields)?)),
            op if reclaim::OPS.contains(&op) => Some(self.reclaim(step)?),
            other => return Err(format!("operation {other} is not of a pool")),
        };
        if let (Some(name), Some(result)) = (&step.name, result) {
            results.named.insert(name.clone(), result);
        }
        Ok(())
    }

    /// Tells the kernel of metrics that have become too old by now, as the observer would have.
    fn age(&mut self, now: Micros) -> Result<(), String> {
        self.stale_at.sort();
        while let Some((due, slot)) = self.stale_at.first().copied().filter(|(due, _)| *due <= now) {
            self.engine.look(due, vec![EndpointChange::Stale { slot }], Pushed::Keep)?;
            self.stale_at.remove(0);
        }
        Ok(())
    }

    fn bands(&self) -> BTreeMap<i32, weir_kernel::BandSettings> {
        self.engine.state().bands().map(|band| (band.priority, band.settings.clone())).collect()
    }

    fn admit(&mut self, step: &Step) -> Result<Outcomes, String> {
        let fields = &step.fields;
        let id = text(fields, "id")?;
        let wait = fields["lease_wait_ms"].as_i64().unwrap_or(0);
        let mut arrival = Arrival {
            caller_id: id.to_owned(),
            fairness_id: fields["flow"].as_str().unwrap_or_default().to_owned(),
            priority: Some(priority(fields, "priority")?),
            bytes: fields["bytes"].as_u64().unwrap_or(1),
            received_at: at(fields["received_ms"].as_i64().unwrap_or(step.at_ms - wait)),
            deadline: fields["deadline_ms"].as_i64().map(at),
            ..Arrival::default()
        };
        headers::read(&fields["headers"], &mut arrival);
        if let Some(header) = fields["header_ttl"].as_str() {
            headers::ttl(header, &mut arrival);
        }
        let request = self.engine.arrive(at(step.at_ms), arrival)?;
        self.ids.insert(id.to_owned(), request);
        self.names.insert(request, id.to_owned());
        Ok(self.taken(request))
    }

    fn lease(&mut self, now: Micros, fields: &Value) -> Result<Outcomes, String> {
        let (flow, band) = (text(fields, "flow")?.to_owned(), priority(fields, "priority")?);
        let arrival = Arrival {
            fairness_id: flow.clone(),
            priority: Some(band),
            received_at: now,
            ..Arrival::default()
        };
        let request = self.engine.arrive(now, arrival)?;
        let taken = self.taken(request);
        if let Outcomes::Accepted(_) = taken {
            self.leased.entry((flow, band)).or_default().push_back(request);
        }
        Ok(taken)
    }

    /// Was a request that just arrived taken in?
    fn taken(&self, request: RequestId) -> Outcomes {
        match self.engine.fate(request) {
            Some(fate) if fate.answer.reason.is_some() => Outcomes::Rejected(format!("{:?}", fate.answer)),
            _taken => Outcomes::Accepted(Value::Null),
        }
    }

    /// The control plane's wanted bands are those that some objective names.
    fn desire(&mut self, now: Micros, fields: &Value) -> Result<(), String> {
        let wanted: BTreeSet<i32> = list(&fields["priorities"])
            .iter()
            .filter_map(|value| value.as_i64().and_then(|value| i32::try_from(value).ok()))
            .collect();
        let name = |priority: &i32| format!("objective-{priority}");
        let change = ObjectivesChange {
            set: wanted.difference(&self.desired).map(|priority| (name(priority), *priority)).collect(),
            removed: self.desired.difference(&wanted).map(name).collect(),
        };
        self.desired = wanted;
        self.engine.feed(now, Input::ObjectivesChanged(change)).map(|_| ())
    }

    /// Admission with flow control off, over the pool in force.
    fn legacy(&self, now: Micros, fields: &Value) -> Result<Answer, String> {
        let detector = pool::detector_at_run_time(&self.policy.detector);
        let policy = Policy { flow_control: false, detector, ..self.policy.clone() };
        let mut engine = Engine::new(policy, now)?;
        if let Some(entry) = &self.pool {
            let ms = vector_us(now) / 1_000;
            let round = pool::round(&self.policy.detector, entry, ms, &mut engine);
            engine.look(now, round.changes, round.pushed)?;
        }
        let wanted = Some(priority(fields, "priority")?);
        let arrival = Arrival { priority: wanted, received_at: now, ..Arrival::default() };
        let request = engine.arrive(now, arrival)?;
        let fate = engine.fate(request).ok_or("it was queued although flow control is off")?;
        Ok(fate.answer.clone())
    }

    /// What exists after everything up to this instant.
    pub fn view(&mut self, ms: i64) -> Result<View, String> {
        self.engine.until(at(ms))?;
        Ok(self.look_around())
    }

    fn look_around(&self) -> View {
        let mut view = View {
            flows: self.engine.notes.flows.values().cloned().collect(),
            bands: self.engine.state().bands().map(|band| band.priority).collect(),
            ..View::default()
        };
        let share = |held: u64, limit: u64| if limit == 0 { None } else { Some(held as f64 / limit as f64) };
        let (state, policy) = (self.engine.state(), self.engine.state().policy());
        let mut gauge = |name: String, value| view.gauges.insert(name, value);
        gauge("global_capacity_utilization_requests".to_owned(), share(state.queued(), policy.max_requests));
        gauge("global_capacity_utilization_bytes".to_owned(), share(state.queued_bytes(), policy.max_bytes));
        for band in state.bands() {
            let of = |what: &str| format!("capacity_utilization_{what}/{}", band.priority);
            gauge(of("requests"), share(band.requests, band.settings.max_requests));
            gauge(of("bytes"), share(band.bytes, band.settings.max_bytes));
        }
        let stale = state.endpoints().filter(|endpoint| endpoint.stale).count();
        gauge("stale_endpoints".to_owned(), Some(stale as f64));
        view
    }

    /// Hands over what became of every request.
    pub fn finish(self, results: &mut Results) {
        self.finish_reclaim(results);
        results.last = self.look_around();
        for band in self.engine.state().bands() {
            results.occupancy.insert(band.priority, (band.requests, band.bytes));
        }
        for (outcome, count) in weir_kernel::Outcome::ALL.iter().zip(self.engine.state().counters().outcomes)
        {
            results.dropped.insert(outcome.word(), count);
        }
        results.arrived = self.ids.keys().cloned().collect();
        for (id, request) in &self.ids {
            if let Some(fates) = self.engine.notes.fates.get(request) {
                results.fates.insert(id.clone(), fates.clone());
            }
        }
        let named = self.engine.notes.dispatched.iter().filter_map(|request| self.names.get(request));
        results.dispatch_order = named.cloned().collect();
    }
}

/// A request whose flow took a while to acquire arrives that much later, having been received at the time given.
pub fn delay_admissions(steps: &mut [Step]) {
    for step in steps.iter_mut().filter(|step| step.op == "admit") {
        step.at_ms += whole(&step.fields, "lease_wait_ms").unwrap_or(0).max(0);
    }
    steps.sort_by_key(|step| step.at_ms);
}
