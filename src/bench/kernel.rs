//! `weir bench kernel`: decisions per second on one core, and memory per queued request; no log, no thread.

use super::rig::{Rig, Shape, roomy};
use super::{BenchError, Budget, Case, Findings, alloc};
use std::hint::black_box;
use std::time::{Duration, Instant};
use weir_kernel::{Fairness, Micros, Policy, RequestId};

/// Requests queued all the while.
const DEPTH: u32 = 5_000;
/// Decisions between two looks at the clock, with two rounds of samples: one per 20 ms at the target.
const SLICE: u32 = 20_000;
/// Requests queued when memory is measured.
const QUEUED: u32 = 100_000;

const STEADY: Shape = Shape { bands: 1, flows: 1, churn: false, depth: DEPTH, endpoints: 4, tick: Micros(2) };

/// Runs all shapes and the memory case.
pub fn run(budget: Budget) -> Result<Findings, BenchError> {
    let mut findings = Findings::new("kernel");
    let turns = Policy {
        bands: roomy()
            .bands
            .into_iter()
            .map(|(p, mut band)| {
                band.fairness = Fairness::RoundRobin;
                (p, band)
            })
            .collect(),
        ..roomy()
    };
    let mut cases = Vec::new();
    for bands in [1, 8] {
        for flows in [1, 100, 5_000] {
            let shape = Shape { bands, flows, ..STEADY };
            let plural = if bands == 1 { "" } else { "s" };
            cases.push((format!("kernel/{bands}-band{plural}/{flows}-flows"), shape, roomy(), false));
        }
    }
    cases.push((
        "kernel/1-band/5000-flows/round-robin".to_owned(),
        Shape { flows: 5_000, ..STEADY },
        turns,
        false,
    ));
    let large = Shape { flows: 5_000, endpoints: 100, ..STEADY };
    cases.push(("kernel/1-band/5000-flows/100-endpoints".to_owned(), large, roomy(), false));
    // One arrival per millisecond: with the default idle time 300,000 idle flows stand, and as many go as come.
    let churn = Shape { churn: true, tick: Micros::from_millis(1), ..STEADY };
    cases.push(("kernel/churn".to_owned(), churn, roomy(), false));
    cases.push(("kernel/cancel-half".to_owned(), Shape { flows: 100, ..STEADY }, roomy(), true));

    let each = budget.whole.mul_f64(0.8 / (cases.len() + 1) as f64).min(Duration::from_secs(4));
    for (name, shape, policy, cancel) in cases {
        let rate = decisions(&name, policy, shape, cancel, each)?;
        let target = if name == "kernel/1-band/5000-flows" { ">= 500,000" } else { "" };
        findings.cases.push(Case::alone(name, rate, "decisions/s").target(target));
    }
    findings.cases.push(Case::alone("kernel/memory", memory()?, "B/request").target("<= 1,024"));
    findings.notes.push(format!(
        "a decision: arrival, dispatch, completion; {DEPTH} queued all the while; 4 endpoints with in-flight credit; median of slices of {SLICE} by the thread's time on its core; with each \
         input its events, as they would go to the log"
    ));
    findings.notes.push(format!("memory: what the allocator takes, with {QUEUED} queued in 5,000 flows"));
    Ok(findings)
}

/// Median decisions per second over slices.
fn decisions(
    name: &str,
    policy: Policy,
    shape: Shape,
    cancel: bool,
    lasting: Duration,
) -> Result<f64, BenchError> {
    let (mut rig, _) = Rig::new(policy, shape);
    let warm = if shape.churn { 320_000 } else { SLICE };
    for n in 0..warm {
        decide(name, &mut rig, shape.depth, cancel, n)?;
    }
    let mut rates = Vec::new();
    let started = Instant::now();
    while rates.len() < 3 || started.elapsed() < lasting {
        let slice = cpu_time();
        for n in 0..SLICE {
            decide(name, &mut rig, shape.depth, cancel, n)?;
        }
        let requests = if cancel { SLICE * 2 } else { SLICE };
        rates.push(f64::from(requests) / cpu_time().saturating_sub(slice).as_secs_f64());
    }
    rig.state.check().map_err(|e| BenchError(format!("{name}: the state is broken: {e:?}")))?;
    if rig.state.queued().abs_diff(u64::from(shape.depth)) > u64::from(shape.depth / 50) {
        return Err(BenchError(format!(
            "{name}: {} queued at the end, not {}",
            rig.state.queued(),
            shape.depth
        )));
    }
    rates.sort_unstable_by(f64::total_cmp);
    Ok(rates[rates.len() / 2])
}

/// One request arrives (and where half are cancelled another one arrives and goes), one ends, one is admitted.
fn decide(name: &str, rig: &mut Rig, depth: u32, cancel: bool, n: u32) -> Result<(), BenchError> {
    if cancel {
        let goes = RequestId(black_box(rig.arrive()).seq);
        black_box(rig.cancel(goes));
    }
    if n == SLICE / 2 {
        black_box(rig.observe(1));
    } else if n == SLICE - 1 {
        black_box(rig.observe(-1));
    }
    // Fresh samples let a few more in, until those that run are all shown.
    while rig.state.queued() <= u64::from(depth) {
        black_box(rig.arrive());
    }
    match rig.end() {
        Some(step) => drop(black_box(step)),
        None => return Err(BenchError(format!("{name}: the pool admits nothing more"))),
    }
    Ok(())
}

/// Time that this thread has been on a core: what else runs on the machine does not count.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Bytes that a queued request takes.
fn memory() -> Result<f64, BenchError> {
    let (mut rig, steps) = Rig::new(roomy(), Shape { flows: 5_000, ..STEADY });
    drop(steps);
    let before = alloc::held();
    for _ in 0..QUEUED {
        drop(rig.arrive());
    }
    let held = alloc::held() - before;
    if rig.state.queued() != u64::from(QUEUED + DEPTH) {
        return Err(BenchError(format!("memory: {} queued", rig.state.queued())));
    }
    Ok(held as f64 / f64::from(QUEUED))
}
