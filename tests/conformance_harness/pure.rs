//! Operations that ask one policy one question: order, ceilings, detectors, normalization, the fairness index.

use super::engine::at;
use super::results::{Outcomes, Results};
use super::vector::{Step, list, whole};
use super::{headers, pool, settings};
use serde_json::Value;
use std::collections::BTreeMap;
use weir_kernel::saturation::{EndpointLoad, Gauge, estimate_tokens, filter, term};
use weir_kernel::{
    Arrival, Detector, Fine, Micros, Ordering, Ratio, RequestId, UsageLimit, ceilings, ordering, service,
    victim_key,
};

/// The operations that this module knows.
pub const OPS: [&str; 8] = [
    "compare",
    "compute_limit",
    "saturation",
    "filter",
    "partition",
    "estimate_tokens",
    "normalize",
    "fairness_index",
];

/// The configured policies, and the phase that soft-reflective ceilings share between calls.
pub struct Policies {
    ordering: Value,
    limit: UsageLimit,
    detector: Detector,
    tick: u64,
    /// How many endpoints the detector last found stale, by instant.
    pub stale: BTreeMap<i64, f64>,
}

impl Policies {
    pub fn new(config: &Value) -> Result<Policies, String> {
        Ok(Policies {
            ordering: config["ordering"].clone(),
            limit: settings::usage_limit(&config["usage_limit"])?,
            detector: settings::detector(&config["saturation"])?,
            tick: 0,
            stale: BTreeMap::new(),
        })
    }

    /// Runs one operation.
    pub fn run(&mut self, step: &Step, results: &mut Results) -> Result<(), String> {
        let fields = &step.fields;
        let result = match step.op.as_str() {
            "compare" => Outcomes::Less(self.compare(&fields["a"], &fields["b"])?),
            "compute_limit" => Outcomes::Ceilings(self.compute_limit(fields)),
            "saturation" => Outcomes::Number(self.saturation(fields, step.at_ms)),
            "filter" => Outcomes::Kept(self.filter(fields, step.at_ms)),
            "partition" => self.partition(fields),
            "estimate_tokens" => {
                let input = u64::try_from(whole(fields, "input_tokens")?).unwrap_or(0);
                Outcomes::Number(estimate_tokens(input, Some(settings::output_estimate())) as f64)
            }
            "normalize" => {
                let steps =
                    |name: &str| fields[name].as_f64().map(|value| (value * 1e6).round().max(0.0) as u128);
                let field = |name: &str| steps(name).ok_or_else(|| format!("{name} is no number"));
                Outcomes::Number(decimal(service::normalize(field("value")?, field("min")?, field("max")?)))
            }
            "fairness_index" => {
                let micros = |wait: &Value| (wait.as_f64().unwrap_or(0.0) * 1e3).round() as u64;
                let waits: Vec<u64> = list(&fields["mean_waits_ms"]).iter().map(micros).collect();
                Outcomes::Number(decimal(service::jain_fine(&waits)))
            }
            other => return Err(format!("operation {other} is not of a policy")),
        };
        if let Some(name) = &step.name {
            results.named.insert(name.clone(), result);
        }
        Ok(())
    }

    /// Something goes before nothing; equal keys go by arrival, which in a vector is the enqueue time.
    fn compare(&self, a: &Value, b: &Value) -> Result<bool, String> {
        if self.ordering["type"] == "victim" {
            let place = |victim: &Value| {
                let priority = super::vector::priority(victim, "priority")?;
                let dispatched_at = at(whole(victim, "dispatch_ms")?);
                Ok::<_, String>(victim_key(priority, dispatched_at, RequestId(0)))
            };
            return Ok(place(a)? < place(b)?);
        }
        let policy = settings::ordering(&self.ordering)?;
        if a.is_null() || b.is_null() {
            return Ok(!a.is_null());
        }
        Ok(place(policy, a)? < place(policy, b)?)
    }

    fn compute_limit(&mut self, fields: &Value) -> Vec<Ratio> {
        let saturation = settings::ratio(&fields["saturation"], Ratio::ZERO);
        let priorities: Vec<i32> = list(&fields["priorities"])
            .iter()
            .filter_map(|value| value.as_i64().and_then(|value| i32::try_from(value).ok()))
            .collect();
        if ceilings::alternates(&self.limit, saturation) {
            self.tick += 1;
        }
        (0..priorities.len())
            .map(|rank| ceilings::ceiling_at(&self.limit, saturation, rank, &priorities).at_tick(self.tick))
            .collect()
    }

    fn saturation(&mut self, fields: &Value, at_ms: i64) -> f64 {
        let loads = self.loads(fields, at_ms);
        self.stale.insert(at_ms, loads.iter().filter(|load| !load.fresh).count() as f64);
        let mut gauge = Gauge::new(&self.detector);
        for load in &loads {
            gauge.add(load.role, term(&self.detector, load, false));
        }
        let (_, _, effective) = gauge.fine();
        decimal(effective)
    }

    fn loads(&self, fields: &Value, at_ms: i64) -> Vec<EndpointLoad> {
        let listed = pool::endpoints(&self.detector, &fields["endpoints"], at_ms);
        listed.into_iter().map(|listed| listed.load).collect()
    }

    fn filter(&self, fields: &Value, at_ms: i64) -> Vec<String> {
        let listed = pool::endpoints(&self.detector, &fields["endpoints"], at_ms);
        let loads: Vec<EndpointLoad> = listed.iter().map(|listed| listed.load).collect();
        let kept = filter(&self.detector, &loads);
        kept.iter().map(|index| listed[*index].id.clone().unwrap_or_default()).collect()
    }

    fn partition(&self, fields: &Value) -> Outcomes {
        let listed = pool::endpoints(&self.detector, &fields["endpoints"], 0);
        let members = |belongs: fn(&EndpointLoad) -> bool| {
            let all = listed.iter().filter(|listed| belongs(&listed.load));
            all.map(|listed| listed.id.clone().unwrap_or_default()).collect()
        };
        Outcomes::Stages {
            prefill: members(|load| load.role.prefills()),
            decode: members(|load| load.role.decodes()),
        }
    }
}

fn place(policy: Ordering, item: &Value) -> Result<(weir_kernel::OrderKey, Micros), String> {
    let enqueued = at(whole(item, "enqueue_ms")?);
    let budget = Micros::from_millis(item["ttl_ms"].as_u64().unwrap_or(0));
    Ok((ordering::order_key(policy, &arrival(item)?, enqueued, budget), enqueued))
}

/// An item of a queue as the arrival that put it there.
pub fn arrival(item: &Value) -> Result<Arrival, String> {
    let enqueued = whole(item, "enqueue_ms")?;
    let mut arrival =
        Arrival { received_at: at(item["received_ms"].as_i64().unwrap_or(enqueued)), ..Arrival::default() };
    headers::read(&item["headers"], &mut arrival);
    if let Some(ttl) = item["ttl_ms"].as_u64().filter(|ttl| *ttl > 0) {
        arrival.ttl = Some(Micros::from_millis(ttl));
    }
    Ok(arrival)
}

/// A fixed-point number for a comparison with the vectors' floating point.
pub fn decimal(value: Fine) -> f64 {
    value.0 as f64 / Fine::SCALE as f64
}
