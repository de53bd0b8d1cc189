//! `weir bench log`: decisions that are durable before they are released, beside a plain append of the same bytes.
//!
//! Each pair is one run of Weir (kernel, encoding, writer, flush) and then the same batches, as bytes that are ready,
//! appended to a plain file with `fdatasync` after each. As in the engine, at most four batches are in flight, and the
//! log makes those that wait for it durable together.

use super::rig::{Rig, Shape, roomy};
use super::{BenchError, Budget, Case, Findings};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use weir_kernel::{Micros, Step};
use weir_log::hot::{HotOptions, HotStore};
use weir_log::store::Store;
use weir_log::writer::{Writer, WriterHandle, WriterOptions};

/// Batches handed over and not yet durable, as in the engine.
const IN_FLIGHT: usize = 4;
/// Decisions in one run of a pair.
const RUN: usize = 16_384;
const POOL: &str = "default";

/// Measures both sizes of batches.
pub fn run(budget: Budget) -> Result<Findings, BenchError> {
    let mut findings = Findings::new("log");
    for size in [64, 256] {
        let pairs = Pairs::measure(size, budget.whole.mul_f64(0.4).min(Duration::from_secs(20)))?;
        let (weir, plain) = pairs.median();
        findings
            .cases
            .push(Case::beside(format!("log/{size}"), weir, "decisions/s", plain).target("ratio >= 0.5"));
        findings.notes.push(format!(
            "log/{size}: {} pairs, ratios {}; {:.0} bytes a batch, a commit takes {:.0} µs, a plain fdatasync {:.0} µs (means)",
            pairs.rates.len(),
            pairs.ratios(),
            pairs.bytes_per_batch,
            pairs.flush_us,
            pairs.plain_us,
        ));
    }
    findings.notes.push(
        "the pair with the median ratio is shown; files in the system's temporary directory".to_owned(),
    );
    Ok(findings)
}

/// Runs of Weir and of the plain file, one after the other.
struct Pairs {
    /// Decisions per second: (Weir, plain file).
    rates: Vec<(f64, f64)>,
    bytes_per_batch: f64,
    flush_us: f64,
    plain_us: f64,
}

impl Pairs {
    fn measure(size: usize, lasting: Duration) -> Result<Pairs, BenchError> {
        let failed = |e: &dyn std::fmt::Display| BenchError(format!("log/{size}: {e}"));
        let dir = tempfile::tempdir().map_err(|e| failed(&e))?;
        let store = HotStore::open(&dir.path().join("log"), HotOptions::default()).map_err(|e| failed(&e))?;
        let window = store.window();
        let writer = Writer::spawn(Box::new(store) as Box<dyn Store>, WriterOptions::default())
            .map_err(|e| failed(&e))?;
        let shape = Shape { bands: 1, flows: 100, churn: false, depth: 5_000, endpoints: 4, tick: Micros(2) };
        let (mut rig, first) = Rig::new(roomy(), shape);
        let mut weir = Weir { writer, pool: Arc::from(POOL), bytes: 0 };
        weir.commit(first.chunks(2 * size).map(<[Step]>::to_vec)).map_err(|e| failed(&e))?;
        let mut pairs = Pairs { rates: Vec::new(), bytes_per_batch: 0.0, flush_us: 0.0, plain_us: 0.0 };
        let (started, mut flushes, mut flushed) = (Instant::now(), 0, Duration::ZERO);
        while pairs.rates.len() < 5 || started.elapsed() < lasting {
            let from = rig.state.seq() + 1;
            weir.bytes = 0;
            let begun = Instant::now();
            weir.commit((0..RUN / size).map(|_| decide(&mut rig, size))).map_err(|e| failed(&e))?;
            let took = begun.elapsed();
            pairs.bytes_per_batch = weir.bytes as f64 / (RUN / size) as f64;
            let batches = weir.batches(from).map_err(|e| failed(&e))?;
            let plain = plain(dir.path(), &batches, &mut flushed).map_err(|e| failed(&e))?;
            flushes += batches.len();
            // Left behind, they would fill the disk.
            for closed in window.closed() {
                window.delete(closed.number).map_err(|e| failed(&e))?;
            }
            let rate = |took: Duration| RUN as f64 / took.as_secs_f64();
            pairs.rates.push((rate(took), rate(plain)));
        }
        pairs.plain_us = flushed.as_secs_f64() * 1e6 / flushes.max(1) as f64;
        pairs.flush_us = weir.flush_us();
        pairs.rates.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
        Ok(pairs)
    }

    fn median(&self) -> (f64, f64) {
        self.rates.get(self.rates.len() / 2).copied().unwrap_or_default()
    }

    fn ratios(&self) -> String {
        let ratio = |pair: Option<&(f64, f64)>| pair.map_or(0.0, |(weir, plain)| weir / plain);
        format!("{:.2} to {:.2}", ratio(self.rates.first()), ratio(self.rates.last()))
    }
}

/// A batch of this many decisions.
fn decide(rig: &mut Rig, size: usize) -> Vec<Step> {
    let mut steps = Vec::with_capacity(2 * size + 1);
    for _ in 0..size {
        steps.push(rig.arrive());
        steps.extend(rig.end());
    }
    steps
}

struct Weir {
    writer: WriterHandle,
    pool: Arc<str>,
    bytes: usize,
}

impl Weir {
    /// Hands the batches over as they are built; returns when the last is durable.
    fn commit(&mut self, batches: impl Iterator<Item = Vec<Step>>) -> Result<(), BenchError> {
        let (to, durable) = mpsc::channel();
        let mut in_flight = 0;
        let land = |bytes: &mut usize| match durable.recv() {
            Ok(Ok(size)) => {
                *bytes += size;
                Ok(())
            }
            Ok(Err(e)) => Err(BenchError(e)),
            Err(_) => Err(BenchError("the writer is gone".to_owned())),
        };
        for steps in batches {
            if in_flight == IN_FLIGHT {
                land(&mut self.bytes)?;
                in_flight -= 1;
            }
            let to = to.clone();
            let release = move |done: Result<weir_log::writer::Durable, weir_log::LogError>| {
                // Nobody listens any more after an error.
                let _gone = to.send(done.map(|durable| durable.bytes).map_err(|e| e.to_string()));
            };
            self.writer
                .submit_shared(&self.pool, Arc::new(steps), Box::new(release))
                .map_err(|e| BenchError(e.to_string()))?;
            in_flight += 1;
        }
        for _ in 0..in_flight {
            land(&mut self.bytes)?;
        }
        Ok(())
    }

    /// The batches from this step on, as bytes.
    fn batches(&self, from: u64) -> Result<Vec<Vec<u8>>, weir_log::LogError> {
        let frames = self.writer.frames();
        let (mut next, mut all) = (from, Vec::new());
        while next <= frames.head(&self.pool).seq {
            for frame in frames.read(&self.pool, next, 8 << 20)? {
                next = frame.header.last_seq() + 1;
                all.push(frame.bytes);
            }
        }
        Ok(all)
    }

    /// Mean time of the writer's commits.
    fn flush_us(&self) -> f64 {
        let metrics = self.writer.metrics();
        metrics.flush_us as f64 / metrics.commits.max(1) as f64
    }
}

/// Appends each batch to a plain file and makes it durable before the next.
fn plain(dir: &Path, batches: &[Vec<u8>], flushed: &mut Duration) -> std::io::Result<Duration> {
    let mut file = File::create(dir.join("plain"))?;
    let begun = Instant::now();
    for batch in batches {
        file.write_all(batch)?;
        let flush = Instant::now();
        file.sync_data()?;
        *flushed += flush.elapsed();
    }
    Ok(begun.elapsed())
}
