//! `weir bench expiry`: how late budgets end at the decision, through a real engine with its thread and log.
//!
//! First 100,000 requests with budgets spread over seconds; then 100,000 that are all due at one instant (a saturated
//! pool appears, and every budget starts afresh with it) while arrivals keep coming.

use super::pool::{BenchPool, block_on, failed};
use super::rig::{arrival, roomy};
use super::{BenchError, Budget, Case, Findings};
use crate::engine::{Clock, Pending};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use weir_kernel::{Detector, Event, Input, Micros, Policy, Pushed, Ratio, Step};

const REQUESTS: usize = 100_000;
/// The shortest of the spread budgets.
const SPREAD_FROM: Micros = Micros::from_secs(4);
/// From the shortest to the longest.
const SPREAD: Micros = Micros::from_secs(6);
/// The budget that all share in the second part.
const AT_ONCE: Micros = Micros::from_secs(2);
/// From one arrival to the next while all are due.
const PROBE_EVERY: Duration = Duration::from_millis(1);
/// A bench that hangs is a bench that failed.
const PATIENCE: Duration = Duration::from_secs(50);

/// Measures both.
pub fn run(_budget: Budget) -> Result<Findings, BenchError> {
    let mut findings = Findings::new("expiry");
    block_on(async {
        let both = async {
            spread(&mut findings).await?;
            at_once(&mut findings).await
        };
        tokio::time::timeout(PATIENCE, both).await.map_err(|_| failed("expiry: not over after 50 s"))?
    })?;
    findings.notes.push(
        "late: the step's time less the end of the budget; durable: when the step could be read".to_owned(),
    );
    Ok(findings)
}

fn policy(saturation_budget: Micros) -> Policy {
    Policy { detector: Detector::Pushed, saturation_budget, ..roomy() }
}

const SATURATED: Pushed = Pushed::Pool(Ratio(2_000_000));

async fn spread(findings: &mut Findings) -> Result<(), BenchError> {
    let pool = BenchPool::start(policy(Micros::from_secs(60)))?;
    let steps = pool.handle.subscribe();
    pool.open(4, SATURATED)?;
    let watch = tokio::spawn(until_evicted(steps, pool.handle.clock().clone(), REQUESTS));
    let mut waiting = Vec::with_capacity(REQUESTS);
    for n in 0..REQUESTS as u64 {
        let ttl = Some(SPREAD_FROM + Micros(SPREAD.0 * (n.wrapping_mul(7_919) % 1_000) / 1_000));
        waiting.push(send(&pool, n, ttl)?);
    }
    let seen = watch.await.map_err(failed)??;
    drop(waiting);
    pool.stop().await?;
    let mut late: Vec<u64> = seen.iter().flat_map(lateness).collect();
    late.sort_unstable();
    for (name, quantile, target) in [("p50", 0.5, ""), ("p99", 0.99, "<= 1"), ("max", 1.0, "")] {
        let case = Case::alone(format!("expiry/spread/{name}"), quantile_ms(&late, quantile), "ms");
        findings.cases.push(case.target(target));
    }
    Ok(())
}

async fn at_once(findings: &mut Findings) -> Result<(), BenchError> {
    let pool = BenchPool::start(policy(AT_ONCE))?;
    let steps = pool.handle.subscribe();
    pool.empty()?;
    let mut waiting = Vec::with_capacity(2 * REQUESTS);
    for n in 0..REQUESTS as u64 {
        waiting.push(send(&pool, n, None)?);
    }
    pool.queued(REQUESTS as u64).await?;
    let watch = tokio::spawn(until_evicted(steps, pool.handle.clock().clone(), REQUESTS));
    pool.open(4, SATURATED)?;
    let mut probe = tokio::time::interval(PROBE_EVERY);
    let mut n = REQUESTS as u64;
    while !watch.is_finished() {
        probe.tick().await;
        waiting.push(send(&pool, n, None)?);
        n += 1;
    }
    let seen = watch.await.map_err(failed)??;
    drop(waiting);
    pool.stop().await?;
    let due = seen.iter().flat_map(dues).min().unwrap_or_default();
    let last = seen.iter().filter(|seen| dues(seen).next().is_some()).max_by_key(|seen| seen.step.at);
    let Some(last) = last else { return Err(failed("expiry: nothing was evicted")) };
    let meanwhile = |seen: &&Seen| seen.step.at >= due && seen.step.at <= last.step.at;
    let arrived = |seen: &Seen, at: Micros| match &seen.step.input {
        Input::Arrived(arrival) => Some(at.since(arrival.received_at).0),
        _ => None,
    };
    let mut decided: Vec<u64> =
        seen.iter().filter(meanwhile).filter_map(|seen| arrived(seen, seen.step.at)).collect();
    let mut durable: Vec<u64> =
        seen.iter().filter(meanwhile).filter_map(|seen| arrived(seen, seen.seen_at)).collect();
    decided.sort_unstable();
    durable.sort_unstable();
    let ms = |span: Micros| span.0 as f64 / 1e3;
    findings.cases.push(Case::alone("expiry/instant/last", ms(last.step.at.since(due)), "ms"));
    findings.cases.push(Case::alone("expiry/instant/last-durable", ms(last.seen_at.since(due)), "ms"));
    let p99 = Case::alone("expiry/instant/arrivals/p99", quantile_ms(&decided, 0.99), "ms");
    findings.cases.push(p99.target("<= 10"));
    let p99 = Case::alone("expiry/instant/arrivals/durable-p99", quantile_ms(&durable, 0.99), "ms");
    findings.cases.push(p99);
    findings.notes.push(format!("instant: {} arrivals came meanwhile", decided.len()));
    Ok(())
}

fn send(pool: &BenchPool, n: u64, ttl: Option<Micros>) -> Result<Pending, BenchError> {
    let fairness_id = format!("tenant-{:04}", n % 100);
    let mut arrival = arrival(n, None, fairness_id, pool.handle.clock().now());
    arrival.ttl = ttl;
    pool.handle.admit(arrival).map_err(failed)
}

/// A step, and when it could be read.
struct Seen {
    step: Step,
    seen_at: Micros,
}

/// Steps of a pool until this many requests have been evicted.
async fn until_evicted(
    mut steps: Receiver<Arc<Vec<Step>>>,
    clock: Clock,
    wanted: usize,
) -> Result<Vec<Seen>, BenchError> {
    let (mut all, mut evicted) = (Vec::new(), 0);
    while evicted < wanted {
        let batch = steps.recv().await.map_err(failed)?;
        let seen_at = clock.now();
        for step in batch.iter() {
            evicted += step.events.iter().filter(|event| matches!(event, Event::Evicted(_))).count();
            all.push(Seen { step: step.clone(), seen_at });
        }
    }
    Ok(all)
}

/// When the budgets that this step ended were over.
fn dues(seen: &Seen) -> impl Iterator<Item = Micros> {
    seen.step.events.iter().filter_map(|event| match event {
        Event::Evicted(evicted) => evicted.budget.map(|spent| spent.charged_from + spent.budget),
        _ => None,
    })
}

fn lateness(seen: &Seen) -> impl Iterator<Item = u64> {
    dues(seen).map(|due| seen.step.at.since(due).0)
}

/// Nearest rank of sorted microseconds, in milliseconds.
fn quantile_ms(sorted: &[u64], quantile: f64) -> f64 {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).map_or(0.0, |us| *us as f64 / 1e3)
}
