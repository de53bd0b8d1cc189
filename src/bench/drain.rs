//! `weir bench drain`: 5,000 are queued when the pool opens; how long until the last of them is admitted.
//!
//! Beside each figure stands the seed system's pace of one dispatch per millisecond: 5,000 ms. The pool has room for
//! all (10 endpoints of 1,000 leases each), so that the way out of the queue is all that is measured.

use super::pool::{BenchPool, POOL, block_on, failed};
use super::rig::{arrival, roomy};
use super::{BenchError, Budget, Case, Findings, drain_http};
use crate::engine::{Decision, Pending};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use weir_kernel::{
    Detector, EndpointChange, Input, KERNEL_BEHAVIOUR, Micros, Observation, Policy, PolicyChange, Pushed,
    Role, Slot, Started, State, Step, step,
};
use weir_log::hot::{HotOptions, HotStore};
use weir_log::writer::{Writer, WriterHandle, WriterOptions};

/// Requests queued when the pool opens.
const QUEUED: u64 = 5_000;
/// What the seed system needs for them at one per millisecond.
const SEED_MS: f64 = 5_000.0;
/// Steps in one batch and batches in flight, as in the engine.
const BATCH: usize = 64;
const IN_FLIGHT: usize = 2;
const ROUNDS: usize = 5;
const ENDPOINTS: u16 = 10;

/// Measures kernel and log alone, the engine, and the gateway.
pub fn run(_budget: Budget) -> Result<Findings, BenchError> {
    let mut findings = Findings::new("drain");
    let kernel = median(|_| kernel_and_log())?;
    findings.cases.push(Case::beside("drain/kernel+log", kernel, "ms", SEED_MS));
    let engine = median(|_| block_on(engine()))?;
    findings.cases.push(Case::beside("drain/engine", engine, "ms", SEED_MS));
    let gateway = median(|_| block_on(drain_http::gateway(QUEUED, ENDPOINTS)))?;
    findings.cases.push(Case::beside("drain/gateway", gateway, "ms", SEED_MS));
    findings.notes.push(format!(
        "{QUEUED} queued when the pool opens; from there to the last one durable; median of {ROUNDS}"
    ));
    findings.notes.push("reference: one per millisecond, the seed system's pace".to_owned());
    Ok(findings)
}

fn median(mut once: impl FnMut(usize) -> Result<Duration, BenchError>) -> Result<f64, BenchError> {
    let mut all = (0..ROUNDS).map(&mut once).collect::<Result<Vec<_>, _>>()?;
    all.sort_unstable();
    Ok(all[ROUNDS / 2].as_secs_f64() * 1e3)
}

/// Room for all that are queued.
fn policy() -> Policy {
    let detector = match Detector::concurrency() {
        Detector::Concurrency { mode, max_tokens, headroom, output_estimate, .. } => {
            Detector::Concurrency { mode, max_requests: 1_000, max_tokens, headroom, output_estimate }
        }
        other => other,
    };
    Policy { detector, ..roomy() }
}

/// The kernel on this thread, its steps durable in batches; no engine.
fn kernel_and_log() -> Result<Duration, BenchError> {
    let dir = tempfile::tempdir().map_err(failed)?;
    let store = HotStore::open(&dir.path().join("log"), HotOptions::default()).map_err(failed)?;
    let writer = Writer::spawn(Box::new(store), WriterOptions::default()).map_err(failed)?;
    let (to, landed) = mpsc::channel();
    let mut log = Log { writer, pool: Arc::from(POOL), to, landed, in_flight: 0 };
    let (mut state, clock) = (State::new(), Instant::now());
    let base = Micros::from_secs(1_700_000_000);
    let now = || base + Micros(u64::try_from(clock.elapsed().as_micros()).unwrap_or(0));
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let mut first = vec![
        Input::Started(Started { kernel_behaviour: KERNEL_BEHAVIOUR, version, wall: base }),
        Input::PolicyChanged(PolicyChange { policy: Box::new(policy()), digest: [0; 32] }),
        Input::Observed(Observation { requested_at: base, ..Observation::default() }),
    ];
    for n in 0..QUEUED {
        first.push(Input::Arrived(arrival(n, None, format!("tenant-{:04}", n % 100), now())));
    }
    let steps: Vec<Step> = first.into_iter().map(|input| step(&mut state, now(), input)).collect();
    for batch in steps.chunks(256) {
        log.submit(batch)?;
    }
    log.wait()?;
    if state.queued() != QUEUED {
        return Err(failed(format!("drain: {} queued", state.queued())));
    }
    let begun = Instant::now();
    let joined =
        |i| EndpointChange::Joined { slot: Slot(i), name: format!("10.0.0.{i}:8000"), role: Role::Decode };
    let observation = Observation {
        requested_at: now(),
        changes: (0..ENDPOINTS).map(joined).collect(),
        ..Observation::default()
    };
    let mut batch = vec![step(&mut state, now(), Input::Observed(observation))];
    while state.queued() > 0 {
        if state.next_deadline().is_none_or(|at| at > now()) {
            return Err(failed(format!("drain: {} stay queued", state.queued())));
        }
        batch.push(step(&mut state, now(), Input::TimePassed));
        if batch.len() >= BATCH {
            log.submit(&std::mem::take(&mut batch))?;
        }
    }
    if !batch.is_empty() {
        log.submit(&batch)?;
    }
    log.wait()?;
    Ok(begun.elapsed())
}

/// The writer with a bound on what is in flight.
struct Log {
    writer: WriterHandle,
    pool: Arc<str>,
    to: mpsc::Sender<Result<(), String>>,
    landed: mpsc::Receiver<Result<(), String>>,
    in_flight: usize,
}

impl Log {
    fn submit(&mut self, steps: &[Step]) -> Result<(), BenchError> {
        while self.in_flight >= IN_FLIGHT {
            self.land()?;
        }
        let to = self.to.clone();
        let release = move |done: Result<weir_log::writer::Durable, weir_log::LogError>| {
            // Nobody listens any more after an error.
            let _gone = to.send(done.map(|_| ()).map_err(|e| e.to_string()));
        };
        self.writer.submit(&self.pool, steps, Box::new(release)).map_err(failed)?;
        self.in_flight += 1;
        Ok(())
    }

    fn land(&mut self) -> Result<(), BenchError> {
        self.in_flight -= 1;
        self.landed.recv().map_err(failed)?.map_err(BenchError)
    }

    fn wait(&mut self) -> Result<(), BenchError> {
        while self.in_flight > 0 {
            self.land()?;
        }
        Ok(())
    }
}

/// The engine's thread and its log, callers waiting as futures.
async fn engine() -> Result<Duration, BenchError> {
    let pool = BenchPool::start(policy())?;
    pool.empty()?;
    let mut waiting: Vec<Pending> = Vec::new();
    for n in 0..QUEUED {
        let arrival = arrival(n, None, format!("tenant-{:04}", n % 100), pool.handle.clock().now());
        waiting.push(pool.handle.admit(arrival).map_err(failed)?);
    }
    pool.queued(QUEUED).await?;
    let begun = Instant::now();
    pool.open(ENDPOINTS, Pushed::Keep)?;
    for pending in waiting {
        match pending.await {
            Decision::Admitted(_) => {}
            other => return Err(failed(format!("drain: a request was not admitted: {other:?}"))),
        }
    }
    let took = begun.elapsed();
    pool.stop().await?;
    Ok(took)
}
