//! The closed loop (README of the vectors, section 8): the plant that `weir bench eviction` runs, with every step checked.
//!
//! After each step the state's invariants are checked, and a twin that only folds the steps must end up the same.

use super::results::{Outcomes, Results};
use super::settings::ratio;
use super::vector::Step;
use std::collections::BTreeMap;
use weir::bench::eviction::{Params, minimum, run_plant};
use weir_kernel::{Ratio, State, fold};

/// The operations that this module knows.
pub const OPS: [&str; 2] = ["min_evictions", "sim"];

pub type Metrics = BTreeMap<&'static str, f64>;

/// Runs one operation.
pub fn run(step: &Step, results: &mut Results) -> Result<(), String> {
    let metrics = match step.op.as_str() {
        "sim" => closed_loop(&Params::read(&step.fields["params"]).map_err(|error| error.to_string())?)?,
        _minimum => {
            let count = |name: &str| step.fields[name].as_i64().unwrap_or(0);
            let ceiling = ratio(&step.fields["ceiling"], Ratio::ONE);
            let (evictions, admittable) = minimum(count("preload"), count("hp"), count("capacity"), ceiling);
            BTreeMap::from([("min_evictions", evictions as f64), ("admittable", admittable as f64)])
        }
    };
    if let Some(name) = &step.name {
        results.named.insert(name.clone(), Outcomes::Metrics(metrics));
    }
    Ok(())
}

fn closed_loop(params: &Params) -> Result<Metrics, String> {
    let mut twin = State::new();
    let mut watch = |state: &State, step: Option<&weir_kernel::Step>| {
        let seq = step.map_or(0, |step| step.seq);
        state.check().map_err(|violation| format!("after step {seq}: {violation:?}"))?;
        match step {
            Some(step) => fold(&mut twin, step),
            None => twin = State::from_restated(&state.restate()).map_err(|error| error.to_string())?,
        }
        let same = twin.digest() == state.digest();
        if same { Ok(()) } else { Err(format!("step {seq} folds to another state")) }
    };
    run_plant(params, &mut watch).map_err(|error| error.to_string())
}
