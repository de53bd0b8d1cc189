//! Runs conformance vectors against the kernel and the configuration loader.
//!
//! What each file does: `vector` reads, `world`, `picks`, `programs`, `scenarios`, `pure` and `loader` run operations
//! (`engine` is the kernel under a clock, `settings` and `pool` translate), `expect` judges. `reclaim` takes leases back,
//! `plant` closes the loop around it.

mod engine;
mod expect;
mod headers;
mod loader;
mod picks;
mod plant;
mod pool;
mod programs;
mod pure;
mod reclaim;
mod results;
mod run;
mod scenarios;
mod settings;
mod taken;
mod vector;
mod world;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use vector::{Deviation, Vector};

/// What became of one vector.
pub enum Verdict {
    Agrees,
    Deviates,
    Skipped(&'static str),
    Fails(String),
}

/// The verdicts on all vectors of a folder whose id contains `filter`.
pub fn verdicts(folder: &Path, filter: &str) -> Result<Vec<(String, Verdict)>, String> {
    let (vectors, deviations) = vector::read(folder)?;
    for id in deviations.keys().filter(|id| !vectors.iter().any(|vector| &vector.id == *id)) {
        println!("note: {id} is listed as a deviation, but no vector has that name");
    }
    let chosen = vectors.into_iter().filter(|vector| vector.id.contains(filter));
    Ok(chosen.map(|vector| (vector.id.clone(), judge(&vector, &deviations))).collect())
}

/// Why a vector is not run, if it is not.
fn skipped(vector: &Vector) -> Option<&'static str> {
    if !vector.config["fault"].is_null() {
        return Some("faults cannot be injected into the kernel's policies");
    }
    None
}

fn judge(vector: &Vector, deviations: &BTreeMap<String, Deviation>) -> Verdict {
    if let Some(why) = skipped(vector) {
        return Verdict::Skipped(why);
    }
    let listed = deviations.get(&vector.id);
    let ours = listed.map(|deviation| deviation.expect.as_slice()).unwrap_or_default();
    let results = match std::panic::catch_unwind(AssertUnwindSafe(|| run::run(vector, ours))) {
        Ok(Ok(results)) => results,
        Ok(Err(error)) => return Verdict::Fails(error),
        Err(_) => return Verdict::Fails("it panicked".to_owned()),
    };
    let theirs = expect::check(&vector.expect, &results);
    match (listed, theirs) {
        (None, Ok(())) => Verdict::Agrees,
        (None, Err(why)) => Verdict::Fails(why),
        (Some(_), Ok(())) => Verdict::Fails("it is listed as a deviation, but agrees".to_owned()),
        (Some(_), Err(_)) => match expect::check(ours, &results) {
            Ok(()) => Verdict::Deviates,
            Err(why) => Verdict::Fails(format!("it differs from the listed deviation: {why}")),
        },
    }
}
