//! Fairness choices, through `step`: a pool with room for one request, which some request always holds.
//!
//! A pick is what the kernel dispatches when that one ends. Flows with work keep two requests queued, so that a pick
//! takes nothing away, as in the vectors.

use super::engine::{Engine, at};
use super::results::{Outcomes, Results};
use super::settings;
use super::vector::{Step, list, text};
use super::{programs, pure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use weir_kernel::{
    Arrival, BandSettings, Cause, ConcurrencyMode, Detector, Fairness, Micros, Ordering, Policy,
    ProgramAware, Pushed, Ratio, RequestId, service,
};

/// The operations that this module knows.
pub const OPS: [&str; 3] = ["pick", "service", "read_service"];

/// The band in which the one place is kept, above the band that is picked from.
const HOLDERS: i32 = 1_000;

/// How long a flow without work is remembered here; long against anything in a vector.
const FLOW_IDLE: Micros = Micros::from_secs(1_000_000);

pub struct Picks {
    band: BandSettings,
    /// Charges so far, for the choices that depend on them.
    services: Vec<Step>,
    /// Round robin goes on from one pick to the next.
    turns: Option<Bench>,
}

impl Picks {
    pub fn new(config: &Value) -> Result<Picks, String> {
        let mut fairness = settings::fairness(&config["fairness"])?;
        if let Fairness::ProgramAware(params) = &mut fairness {
            // Records go at a sweep in the vectors, and these have none.
            params.state_ttl = Micros::ZERO;
        }
        // The order of victims is no order of a queue.
        let victims = config["ordering"]["type"] == "victim";
        let ordering = if victims { Ordering::Fcfs } else { settings::ordering(&config["ordering"])? };
        let band = BandSettings { ordering, fairness, ..BandSettings::default() };
        Ok(Picks { band, services: Vec::new(), turns: None })
    }

    /// Runs one operation.
    pub fn run(&mut self, step: &Step, results: &mut Results) -> Result<(), String> {
        let result = match step.op.as_str() {
            "service" => {
                self.services.push(step.clone());
                return Ok(());
            }
            "read_service" => Outcomes::Number(self.read_service(step)?),
            "pick" => self.pick(step)?,
            other => return Err(format!("operation {other} is not of a fairness policy")),
        };
        if let Some(name) = &step.name {
            results.named.insert(name.clone(), result);
        }
        Ok(())
    }

    /// The programs that have a record of service.
    pub fn services(&self, until_ms: i64) -> Result<BTreeSet<String>, String> {
        let Some(first) = self.services.first() else { return Ok(BTreeSet::new()) };
        let mut bench = Bench::new(&self.band, at(first.at_ms))?;
        self.replay_services(&mut bench, until_ms)?;
        bench.engine.until(at(until_ms))?;
        Ok(bench.engine.notes.services.keys().cloned().collect())
    }

    fn read_service(&self, step: &Step) -> Result<f64, String> {
        let start = self.services.first().map_or(step.at_ms, |first| first.at_ms.min(step.at_ms));
        let mut bench = Bench::new(&self.band, at(start))?;
        self.replay_services(&mut bench, step.at_ms)?;
        let now = at(step.at_ms);
        bench.engine.until(now)?;
        let scaled = bench.engine.notes.services.get(text(&step.fields, "program")?).copied().unwrap_or(0);
        let half_life = match &self.band.fairness {
            Fairness::ProgramAware(params) => params.half_life,
            _other => ProgramAware::default().half_life,
        };
        Ok(service::read(scaled, now, bench.engine.notes.service_epoch, half_life) as f64 / 1e6)
    }

    fn replay_services(&self, bench: &mut Bench, until_ms: i64) -> Result<(), String> {
        self.services
            .iter()
            .filter(|charge| charge.at_ms <= until_ms)
            .try_for_each(|charge| bench.charge(charge))
    }

    fn pick(&mut self, step: &Step) -> Result<Outcomes, String> {
        let flows = list(&step.fields["flows"]);
        let own_orderings: BTreeSet<String> =
            flows.iter().filter_map(|flow| flow["ordering"].as_str().map(str::to_owned)).collect();
        if own_orderings.len() > 1 {
            // The settings of a pool cannot say this: ordering is the band's, one for all of its flows.
            return Ok(Outcomes::Rejected(format!("incompatible orderings in one band: {own_orderings:?}")));
        }
        let mut picked = Vec::new();
        for _ in 0..step.fields["repeat"].as_u64().unwrap_or(1) {
            picked.push(match self.band.fairness {
                Fairness::RoundRobin => self.next_turn(step, flows)?,
                Fairness::GlobalStrict | Fairness::ProgramAware(_) => self.best(step, flows)?,
            });
        }
        Ok(Outcomes::Picked(picked))
    }

    fn next_turn(&mut self, step: &Step, flows: &[Value]) -> Result<Option<String>, String> {
        let mut bench = match self.turns.take() {
            Some(bench) => bench,
            None => Bench::new(&self.band, at(step.at_ms))?,
        };
        bench.align(flows)?;
        let picked = bench.release(bench.engine.state().now())?;
        self.turns = Some(bench);
        Ok(picked)
    }

    /// The best flow by what was charged and how long its head has waited; nothing is remembered between picks.
    fn best(&self, step: &Step, flows: &[Value]) -> Result<Option<String>, String> {
        let mut heads: Vec<(i64, &Value)> = Vec::new();
        for flow in flows.iter().filter(|flow| flow["len"].as_u64().unwrap_or(0) > 0) {
            heads.push((flow["head"]["enqueue_ms"].as_i64().unwrap_or(step.at_ms), flow));
        }
        heads.sort_by_key(|(enqueued, _)| *enqueued);
        let charges = self.services.iter().map(|charge| charge.at_ms);
        let start = heads.iter().map(|(enqueued, _)| *enqueued).chain(charges).chain([step.at_ms]).min();
        let mut bench = Bench::new(&self.band, at(start.unwrap_or(0)))?;
        let mut charges = self.services.iter().filter(|charge| charge.at_ms <= step.at_ms).peekable();
        for (enqueued, flow) in heads {
            while let Some(charge) = charges.next_if(|charge| charge.at_ms <= enqueued) {
                bench.charge(charge)?;
            }
            bench.queue(at(enqueued), text(flow, "flow")?, &flow["head"])?;
        }
        charges.try_for_each(|charge| bench.charge(charge))?;
        bench.release(at(step.at_ms))
    }
}

/// One pool with room for one request, and the request that holds it.
struct Bench {
    engine: Engine,
    holder: RequestId,
    queued: BTreeMap<String, Vec<RequestId>>,
}

impl Bench {
    fn new(band: &BandSettings, now: Micros) -> Result<Bench, String> {
        let mut policy = Policy {
            saturation_budget: Micros::ZERO,
            no_endpoint_budget: Micros::ZERO,
            flow_idle: FLOW_IDLE,
            band_idle: FLOW_IDLE,
            lease_timeout: Micros::ZERO,
            detector: Detector::Concurrency {
                mode: ConcurrencyMode::Requests,
                max_requests: 1,
                max_tokens: 1,
                headroom: Ratio::ZERO,
                output_estimate: None,
            },
            ..Policy::default()
        };
        policy.bands.insert(0, band.clone());
        policy.bands.insert(HOLDERS, band.clone());
        let mut engine = Engine::new(policy, now)?;
        engine.script(now, Ratio::ZERO)?;
        let mut bench = Bench { engine, holder: RequestId(0), queued: BTreeMap::new() };
        bench.holder = bench.arrive(now, "(holder)", HOLDERS, Arrival::default())?;
        if !bench.engine.runs(bench.holder) {
            return Err("the first request of an idle pool was not dispatched".to_owned());
        }
        Ok(bench)
    }

    fn arrive(&mut self, now: Micros, flow: &str, band: i32, arrival: Arrival) -> Result<RequestId, String> {
        let arrival = Arrival { fairness_id: flow.to_owned(), priority: Some(band), ..arrival };
        self.engine.arrive(now, arrival)
    }

    /// A completion of a program: it takes the place, and another holder follows it.
    fn charge(&mut self, step: &Step) -> Result<(), String> {
        let (now, program) = (at(step.at_ms), text(&step.fields, "program")?);
        let usage = programs::usage_of(&step.fields);
        let request = self.arrive(now, program, HOLDERS, Arrival::default())?;
        self.engine.end(now, self.holder, None)?;
        if !self.engine.runs(request) {
            return Err(format!("a request of {program} did not run in the place that was freed"));
        }
        let next = self.arrive(now, "(holder)", HOLDERS, Arrival::default())?;
        self.engine.end(now, request, Some(usage))?;
        self.holder = next;
        Ok(())
    }

    fn queue(&mut self, now: Micros, flow: &str, head: &Value) -> Result<(), String> {
        let arrival = if head.is_null() { Arrival::default() } else { pure::arrival(head)? };
        let request = self.arrive(now, flow, 0, arrival)?;
        self.queued.entry(flow.to_owned()).or_default().push(request);
        Ok(())
    }

    /// Frees the place and sees which flow gets it.
    fn release(&mut self, now: Micros) -> Result<Option<String>, String> {
        let before = self.engine.notes.dispatched.len();
        self.engine.end(now, self.holder, None)?;
        let picked = match self.engine.notes.dispatched.get(before..) {
            Some([]) => None,
            Some([one]) => Some(*one),
            more => return Err(format!("one place was freed and these took it: {more:?}")),
        };
        let Some(request) = picked else {
            let now = self.engine.state().now();
            self.holder = self.arrive(now, "(holder)", HOLDERS, Arrival::default())?;
            return Ok(None);
        };
        self.holder = request;
        for (flow, queued) in &mut self.queued {
            if let Some(index) = queued.iter().position(|other| *other == request) {
                queued.remove(index);
                return Ok(Some(flow.clone()));
            }
        }
        Err(format!("request {request} was not queued by a pick"))
    }

    /// Brings the queues in line with what a pick lists: two requests where there is work, none where there is not,
    /// and no flow at all where it is not listed.
    fn align(&mut self, flows: &[Value]) -> Result<(), String> {
        let now = self.engine.state().now();
        let mut listed = BTreeMap::new();
        for flow in flows {
            listed.insert(text(flow, "flow")?.to_owned(), flow["len"].as_u64().unwrap_or(0) > 0);
        }
        for (flow, has_work) in &listed {
            let queued = self.queued.get(flow).map_or(0, Vec::len);
            for _ in queued..if *has_work { 2 } else { 0 } {
                self.queue(now, flow, &Value::Null)?;
            }
        }
        let idle: Vec<String> =
            self.queued.keys().filter(|flow| listed.get(*flow) != Some(&true)).cloned().collect();
        for flow in idle {
            for request in self.queued.remove(&flow).unwrap_or_default() {
                self.engine.cancel(now, request, Cause::Other)?;
            }
        }
        let live: Vec<String> = self
            .engine
            .notes
            .flows
            .values()
            .filter(|(_, band)| *band == 0)
            .map(|(name, _)| name.clone())
            .collect();
        if live.iter().any(|flow| !listed.contains_key(flow)) {
            self.collect(&listed)?;
        }
        Ok(())
    }

    /// Waits until flows that are not listed are collected, while those that are listed stay.
    fn collect(&mut self, listed: &BTreeMap<String, bool>) -> Result<(), String> {
        let later = self.engine.state().now() + FLOW_IDLE;
        let just_before = Micros(later.0 - 1);
        for flow in listed.iter().filter(|(_, has_work)| !**has_work).map(|(flow, _)| flow) {
            let request = self.arrive(just_before, flow, 0, Arrival::default())?;
            self.engine.cancel(just_before, request, Cause::Other)?;
        }
        self.engine.look(later, Vec::new(), Pushed::Keep)
    }
}
