//! What a run of the closed loop is about, in numbers, and its reading from the form that the vectors have.

use crate::bench::BenchError;
use serde_json::Value;
use weir_kernel::{Ratio, Sizing};

/// One run; times in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Units that the pool has.
    pub capacity: i64,
    /// Sheddable leases at the start, of one unit each.
    pub preload: i64,
    /// The ceiling of the one band that arrivals wait in.
    pub ceiling: Ratio,
    /// Until the gauge shows that a unit is free.
    pub lag: i64,
    /// Until the stream of a revoked lease ends.
    pub termination: i64,
    /// How long an admitted request runs; 0 = for good.
    pub service: i64,
    /// When each request arrives, in order.
    pub arrivals: Vec<i64>,
    /// The run lasts this long; without it, until as many are admitted as can be.
    pub window: Option<i64>,
    /// Where it ends at the latest.
    pub limit: i64,
    /// Are leases taken back?
    pub evicts: bool,
    /// The mean life of a sheddable lease, where they end by themselves.
    pub churn: Option<f64>,
    /// Is an admitted request a lease, so that its end is seen?
    pub tracks: bool,
    /// `confirmationGrace`.
    pub grace: i64,
    /// `confirmationTimeout`.
    pub timeout: i64,
    /// `maxRevocationsPerDecision`, or with `sizing: demand` `maxRevocationsOnDemand`.
    pub cap: u32,
    /// `sizing`.
    pub sizing: Sizing,
}

impl Default for Params {
    /// The pool of the vectors: 20 units, full, 3 ms to end a stream.
    fn default() -> Params {
        Params {
            capacity: 20,
            preload: 20,
            ceiling: Ratio(900_000),
            lag: 0,
            termination: 3,
            service: 0,
            arrivals: Vec::new(),
            window: None,
            limit: 8_000,
            evicts: true,
            churn: None,
            tracks: false,
            grace: 0,
            timeout: 10_000,
            cap: 2,
            sizing: Sizing::Deficit,
        }
    }
}

impl Params {
    /// Reads the `params` of an operation `sim`; what is absent is 0, or none.
    ///
    /// # Errors
    /// A number that cannot be one of these, named.
    pub fn read(params: &Value) -> Result<Params, BenchError> {
        let window = params["window_ms"].as_i64();
        let cap = count(params, "max_revocations_per_decision");
        Ok(Params {
            capacity: count(params, "capacity"),
            preload: count(params, "preload"),
            ceiling: ratio(&params["hp_ceiling"]),
            lag: count(params, "free_visibility_lag_ms"),
            termination: count(params, "termination_latency_ms"),
            service: count(params, "service_ms"),
            arrivals: arrivals(&params["arrivals_ms"], window),
            window,
            limit: count(params, "scenario_timeout_ms"),
            evicts: params["eviction"].as_bool().unwrap_or(true),
            churn: params["churn_mean_ms"].as_f64(),
            tracks: params["track_hp"].as_bool().unwrap_or(false),
            grace: count(params, "grace_ms"),
            timeout: count(params, "confirmation_timeout_ms"),
            cap: u32::try_from(cap)
                .map_err(|_| BenchError(format!("max_revocations_per_decision: {cap}, not a count")))?,
            sizing: Sizing::Deficit,
        })
    }

    /// Arrivals: so many from an instant on at a pace.
    #[must_use]
    pub fn arriving(self, first: i64, gap: i64, count: i64) -> Params {
        let all = (0..count).map(|n| first + n * gap);
        let arrivals = all.filter(|due| self.window.is_none_or(|window| *due < window)).collect();
        Params { arrivals, ..self }
    }
}

/// What must be taken back at the least so that as many as can be are admitted: evictions, and who can be admitted.
pub fn minimum(preload: i64, arriving: i64, capacity: i64, ceiling: Ratio) -> (i64, i64) {
    let below = units(ceiling, capacity) - 1;
    let admittable = arriving.min(below + 1);
    let evictions = if admittable > 0 { (preload + admittable - 1 - below).clamp(0, preload) } else { 0 };
    (evictions, admittable)
}

/// `ceil(share x capacity)`.
pub fn units(share: Ratio, capacity: i64) -> i64 {
    (share.0 * capacity + 999_999).div_euclid(1_000_000)
}

fn count(fields: &Value, name: &str) -> i64 {
    fields[name].as_i64().unwrap_or(0)
}

fn ratio(value: &Value) -> Ratio {
    value.as_f64().map_or(Ratio::ONE, |share| Ratio((share * 1e6).round() as i64))
}

/// A list, or so many from an instant on at a pace; none once the window is over.
fn arrivals(value: &Value, window: Option<i64>) -> Vec<i64> {
    let all: Vec<i64> = match value.as_array() {
        Some(listed) => listed.iter().filter_map(Value::as_i64).collect(),
        None => {
            let (first, gap) = (count(value, "first_ms"), count(value, "gap_ms"));
            (0..count(value, "count")).map(|n| first + n * gap).collect()
        }
    };
    all.into_iter().filter(|due| window.is_none_or(|window| *due < window)).collect()
}
