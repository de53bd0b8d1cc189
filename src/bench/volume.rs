//! `weir bench volume`: what the log takes per request and per hour of observation: encoded, hot, and sealed.
//!
//! Steps come from the kernel in virtual time over truth servers; they are cut into batches as group commit does when
//! a flush takes a millisecond, written to a hot window, and sealed. In the pools of 100 endpoints no request goes
//! through Weir: all that is logged is what it observes.

use super::{BenchError, Budget, Case, Findings};
use crate::load::{self, Classes, Planned};
use crate::sim::gate::{Choice, KernelGate};
use crate::sim::truth::{Gauges, Spec};
use crate::sim::world::{Gate, PushAll, WorldSpec, run as run_world};
use std::sync::Arc;
use std::time::Duration;
use weir_kernel::{Micros, Policy, Step};
use weir_log::hot::{HotOptions, HotStore};
use weir_log::seal::Sealer;
use weir_log::store::Store;
use weir_log::{Frame, LogError};

const POOL: &str = "default";
/// Steps of one such span are one batch.
const FLUSH: Micros = Micros(1_000);

/// What a log took.
#[derive(Clone, Copy, Debug)]
struct Taken {
    encoded: f64,
    hot: f64,
    sealed: f64,
}

/// Measures all four.
pub fn run(budget: Budget) -> Result<Findings, BenchError> {
    let mut findings = Findings::new("volume");
    // More virtual time gives no other figures, only steadier ones.
    let scale = (budget.whole.as_secs_f64() / 60.0).clamp(0.1, 10.0);
    for (rate, endpoints, seconds) in [(10.0, 4, 300.0), (1_000.0, 40, 30.0)] {
        let (taken, requests) = requests(rate, endpoints, seconds * scale)?;
        let name = format!("volume/{rate:.0}-rps");
        for (what, bytes) in [("encoded", taken.encoded), ("hot", taken.hot), ("sealed", taken.sealed)] {
            let case = Case::alone(format!("{name}/{what}"), bytes / requests as f64, "B/request");
            findings.cases.push(case.target(if what == "sealed" { "<= 200" } else { "" }));
        }
    }
    for (name, busy) in [("idle", false), ("busy", true)] {
        let seconds = 120.0 * scale;
        let taken = observations(100, seconds, busy)?;
        let per_hour = |bytes: f64| bytes * 3_600.0 / seconds / 1e6;
        for (what, bytes) in [("encoded", taken.encoded), ("hot", taken.hot), ("sealed", taken.sealed)] {
            findings.cases.push(Case::alone(format!("volume/100-{name}/{what}"), per_hour(bytes), "MB/hour"));
        }
        let day = Case::alone(
            format!("volume/100-{name}/sealed/day"),
            per_hour(taken.sealed) * 24.0 / 1e3,
            "GB/day",
        );
        findings.cases.push(day.target("<= 1"));
    }
    findings.notes.push(
        "requests: 4 endpoints at 10/s with sizes of the trace, 40 at 1,000/s with 256 tokens in, 32 out; \
                         samples each 50 ms; the samples' share is included"
            .to_owned(),
    );
    findings.notes.push(
        "100-idle, 100-busy: observation alone, no request through Weir; hot: what is used of the database files".to_owned(),
    );
    Ok(findings)
}

/// Requests through Weir: what their log took, and how many there were.
fn requests(rate: f64, endpoints: usize, seconds: f64) -> Result<(Taken, usize), BenchError> {
    let classes = classes()?;
    let lasting = Duration::from_secs_f64(seconds);
    let mut plan = load::from_rate(rate, lasting, (256, 32), &classes, 7);
    if rate < 100.0 {
        sizes_of_the_trace(&mut plan)?;
    }
    let mut steps = Vec::new();
    let mut gate = gate(endpoints, &classes, plan.len(), |step| steps.push(step))?;
    let world = world(endpoints, seconds + 5.0);
    let seen = run_world(&world, &plan, &mut gate);
    if seen.totals.finished == 0 {
        return Err(BenchError("volume: nothing was served".to_owned()));
    }
    Ok((taken(&steps)?, plan.len()))
}

/// A pool that Weir only watches: what that log took.
fn observations(endpoints: usize, seconds: f64, busy: bool) -> Result<Taken, BenchError> {
    let classes = classes()?;
    let mut plan = Vec::new();
    if busy {
        // Somewhat less than 100 servers can do with the sizes of the trace.
        plan = load::from_rate(4.0 * endpoints as f64, Duration::from_secs_f64(seconds), (1, 1), &classes, 7);
        sizes_of_the_trace(&mut plan)?;
    }
    let mut steps = Vec::new();
    let watched = gate(endpoints, &classes, 0, |step| steps.push(step))?;
    let mut gate = Watched { pool: PushAll::new(endpoints, plan.len()), watched };
    run_world(&world(endpoints, seconds), &plan, &mut gate);
    taken(&steps)
}

fn classes() -> Result<Classes, BenchError> {
    Classes::parse(&["interactive=0.3".to_owned()], 20).map_err(|e| BenchError(format!("volume: {e}")))
}

fn gate<S: FnMut(Step)>(
    endpoints: usize,
    classes: &Classes,
    requests: usize,
    sink: S,
) -> Result<KernelGate<S>, BenchError> {
    let priorities = [("interactive", 100)];
    KernelGate::new(Policy::default(), &priorities, endpoints, Choice::Kernel, classes, requests, sink)
        .map_err(|e| BenchError(format!("volume: {e}")))
}

fn world(endpoints: usize, seconds: f64) -> WorldSpec {
    WorldSpec {
        server: Spec::default(),
        endpoints,
        scrape_every: Micros::from_millis(50),
        scrape_lag: Micros::from_millis(5),
        until: Micros((seconds * 1e6) as u64),
        seed: 1,
    }
}

fn sizes_of_the_trace(plan: &mut [Planned]) -> Result<(), BenchError> {
    let rows = load::parse(crate::demo::TRACE_NAME, crate::demo::TRACE)
        .map_err(|e| BenchError(format!("volume: {e}")))?;
    for (planned, row) in plan.iter_mut().zip(rows.iter().cycle()) {
        (planned.prompt, planned.output) = (row.input, row.output);
    }
    Ok(())
}

/// Writes the steps as a log and seals it.
fn taken(steps: &[Step]) -> Result<Taken, BenchError> {
    let failed = |e: &dyn std::fmt::Display| BenchError(format!("volume: {e}"));
    let dir = tempfile::tempdir().map_err(|e| failed(&e))?;
    let frames = batches(steps).map_err(|e| failed(&e))?;
    let encoded: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
    let hot_dir = dir.path().join("hot");
    let mut store = HotStore::open(&hot_dir, HotOptions::default()).map_err(|e| failed(&e))?;
    // Durability is not measured here: many batches share one flush.
    for frames in frames.chunks(256) {
        store.write(frames).and_then(|()| store.sync()).map_err(|e| failed(&e))?;
    }
    let hot = store.window().used_bytes();
    store.close().map_err(|e| failed(&e))?;
    drop(store);
    let sealer = Sealer::new(&dir.path().join("sealed"), [7; 16]);
    let segments = sealer
        .seal(POOL, Micros(1), frames.into_iter().map(Ok::<Frame, LogError>))
        .map_err(|e| failed(&e))?;
    let sealed: u64 = segments.iter().map(|segment| segment.bytes).sum();
    Ok(Taken { encoded: encoded as f64, hot: hot as f64, sealed: sealed as f64 })
}

/// Cuts as group commit does: what comes within one flush goes into one batch.
fn batches(steps: &[Step]) -> Result<Vec<Frame>, weir_log::FrameError> {
    let pool: Arc<str> = Arc::from(POOL);
    let (mut frames, mut previous, mut rest) = (Vec::new(), [0; 32], steps);
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|step| step.at.since(first.at) < FLUSH).count().clamp(1, 1_024);
        let (batch, after) = rest.split_at(count);
        let frame = Frame::encode(&pool, previous, first.at, batch)?;
        previous = frame.hash;
        frames.push(frame);
        rest = after;
    }
    Ok(frames)
}

/// Traffic that goes around Weir, which only observes.
struct Watched<S> {
    pool: PushAll,
    watched: KernelGate<S>,
}

impl<S: FnMut(Step)> Gate for Watched<S> {
    fn arrive(&mut self, at: Micros, n: usize, request: &Planned) {
        self.pool.arrive(at, n, request);
    }

    fn observe(&mut self, at: Micros, requested_at: Micros, samples: &[Gauges]) {
        self.watched.observe(at, requested_at, samples);
    }

    fn end(&mut self, at: Micros, n: usize, request: &Planned) {
        self.pool.end(at, n, request);
    }

    fn deadline(&self) -> Option<Micros> {
        self.watched.deadline()
    }

    fn pass(&mut self, at: Micros) {
        self.watched.pass(at);
    }

    fn admitted(&mut self, into: &mut Vec<(usize, usize)>) {
        self.pool.admitted(into);
    }
}
