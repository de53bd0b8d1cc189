//! A log of any length by the virtual-time driver: arrivals, queueing, revocations and ends by the real kernel over truth
//! servers, in waves that now and then are more than the pool can serve, with restarts and other settings in between.
//!
//! It is made plan by plan, so that memory is bounded whatever its length, written as the service writes its log, and
//! sealed meanwhile. Not here: what is asked of it.

use crate::bench::BenchError;
use crate::load::{self, Classes};
use crate::sim::gate::{Choice, KernelGate};
use crate::sim::truth::Spec;
use crate::sim::world::{WorldSpec, run as run_world};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_kernel::{Eviction, Face, Micros, Policy, Step};
use weir_log::hot::{HotOptions, HotStore};
use weir_log::retention::Retention;
use weir_log::store::Store;
use weir_log::upkeep::Upkeep;
use weir_log::{Codec, Draft, LogError};

const POOL: &str = "default";
/// Steps of a batch.
const BATCH: usize = 256;
/// Batches between two syncs.
const SYNC_EVERY: u64 = 256;
/// Requests of one plan at the most; a short log has a few plans as well.
const PLAN: u64 = 50_000;
/// Model servers, and how much more than the mean load they can serve.
const ENDPOINTS: usize = 2;
const ROOM: f64 = 1.15;
/// The load of one plan after the other, beside its mean.
const WAVES: [f64; 8] = [0.7, 0.9, 1.0, 0.8, 1.3, 1.0, 0.6, 1.5];
/// Virtual time after the last arrival of a plan, in which everything ends.
const TAIL: Duration = Duration::from_secs(60);
/// Plans between two restarts, and between two changes of settings.
const RESTART_EVERY: u64 = 16;
const RELOAD_EVERY: u64 = 6;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Requests, about.
    pub requests: u64,
    /// Mean arrivals a second.
    pub rate: f64,
}

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Made {
    /// Requests.
    pub requests: u64,
    /// Steps.
    pub steps: u64,
    /// Virtual time, in seconds.
    pub seconds: f64,
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError(format!("making a log: {error}"))
}

/// Writes steps to a log as group commit does, batch by batch.
struct Writer {
    store: HotStore,
    pool: Arc<str>,
    batch: Vec<Step>,
    batches: u64,
    steps: u64,
    failed: Option<LogError>,
}

impl Writer {
    fn take(&mut self, step: Step) {
        self.steps += 1;
        self.batch.push(step);
        if self.batch.len() >= BATCH && self.failed.is_none() {
            self.failed = self.write().err();
        }
    }

    fn write(&mut self) -> Result<(), LogError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let draft = Draft::encode(self.store.format(), Codec::Plain, &self.pool, &self.batch)?;
        let frame = draft.seal(self.store.head(&self.pool).hash, Micros(0));
        self.batch.clear();
        self.store.write(std::slice::from_ref(&frame))?;
        self.batches += 1;
        if self.batches.is_multiple_of(SYNC_EVERY) { self.store.sync().map(drop) } else { Ok(()) }
    }
}

/// The settings: short budgets, and running batch work is taken back for interactive requests.
fn policy(turn: u64) -> Policy {
    Policy {
        saturation_budget: Micros::from_secs(15 + turn % 3 * 5),
        eviction: Eviction { enabled: true, ..Eviction::default() },
        ..Policy::default()
    }
}

/// Makes a log in an empty directory; `progress` hears how many requests are in it.
///
/// # Errors
/// The log cannot be written; a directory that holds one already.
pub fn make(dir: &Path, wanted: Wanted, mut progress: impl FnMut(u64)) -> Result<Made, BenchError> {
    if weir_log::dir::read_description(dir).map_err(failed)?.is_some() {
        return Err(failed(format!("{} holds a log already", dir.display())));
    }
    let store = HotStore::open(dir, HotOptions::default()).map_err(failed)?;
    let description =
        weir_log::dir::read_description(dir).map_err(failed)?.ok_or("no log").map_err(failed)?;
    let upkeep = Upkeep::new(
        dir,
        description.log_id_bytes(),
        description.format,
        store.window(),
        Retention::default(),
    );
    let upkeep = upkeep.spawn(Duration::from_secs(1)).map_err(failed)?;
    let (pool, batch) = (Arc::from(POOL), Vec::new());
    let writer = RefCell::new(Writer { store, pool, batch, batches: 0, steps: 0, failed: None });
    let mut made = Made::default();
    drive(wanted, &writer, |plan, seconds| {
        made.requests += plan;
        made.seconds += seconds;
        progress(made.requests);
    })?;
    let mut writer = writer.into_inner();
    writer.write().map_err(failed)?;
    writer.store.sync().map_err(failed)?;
    drop(upkeep);
    made.steps = writer.steps;
    writer.store.close().map_err(failed)?;
    Ok(made)
}

fn drive(
    wanted: Wanted,
    writer: &RefCell<Writer>,
    mut planned: impl FnMut(u64, f64),
) -> Result<(), BenchError> {
    let classes =
        Classes::parse(&["interactive=0.3".to_owned(), "batch=0.2".to_owned()], 20).map_err(failed)?;
    let priorities = [("interactive", 100), ("batch", -10)];
    // A server takes 100 us a token of a prompt, and a few milliseconds a request beside.
    let server_seconds = ENDPOINTS as f64 / (wanted.rate * ROOM);
    let prompt = ((server_seconds - 0.003) / 1e-4).clamp(16.0, 2_000.0) as u32;
    let sink = |step: Step| writer.borrow_mut().take(step);
    let gate = KernelGate::new(policy(0), &priorities, ENDPOINTS, Choice::Kernel, &classes, 0, sink);
    let mut gate = gate.map_err(failed)?.through(Face::Stream);
    let each = (wanted.requests / WAVES.len() as u64).clamp(500, PLAN);
    let (mut left, mut turn, mut before) = (wanted.requests, 0_u64, Micros::ZERO);
    while left > 0 {
        let rate = wanted.rate * WAVES[(turn % WAVES.len() as u64) as usize];
        let lasting = Duration::from_secs_f64(left.min(each) as f64 / rate);
        let plan = load::from_rate(rate, lasting, (prompt, 16), &classes, 7 + turn);
        gate.go_on(before, plan.len());
        if turn > 0 && turn.is_multiple_of(RESTART_EVERY) {
            gate.restart().map_err(failed)?;
        }
        if turn > 0 && turn.is_multiple_of(RELOAD_EVERY) {
            gate.adopt(policy(turn / RELOAD_EVERY), [(turn / RELOAD_EVERY) as u8; 32]);
        }
        let until = lasting + TAIL;
        before = Micros(until.as_micros() as u64);
        let world = WorldSpec {
            server: Spec::default(),
            endpoints: ENDPOINTS,
            scrape_every: Micros::from_millis(200),
            scrape_lag: Micros::from_millis(5),
            until: before,
            seed: 1 + turn,
        };
        run_world(&world, &plan, &mut gate);
        if let Some(error) = writer.borrow_mut().failed.take() {
            return Err(failed(error));
        }
        planned(plan.len() as u64, until.as_secs_f64());
        left = left.saturating_sub((plan.len() as u64).max(1));
        turn += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_kernel::{Event, Outcome, State, fold};
    use weir_log::reader::{Bound, Logs};

    #[test]
    fn the_log_reads_whole_and_holds_what_is_asked_about() {
        let dir = tempfile::tempdir().unwrap();
        let mut heard = 0;
        let wanted = Wanted { requests: 4_000, rate: 400.0 };
        let made = make(dir.path(), wanted, |requests| heard = requests).unwrap();
        assert_eq!(made.requests, heard);
        assert!((3_000..5_000).contains(&made.requests), "{made:?}");
        let logs = Logs::open(dir.path()).unwrap();
        let (mut state, mut steps, mut ends) = (State::new(), 0, 0);
        for step in logs.reader(POOL, Bound::Open, Bound::Open).steps() {
            let step = step.unwrap();
            fold(&mut state, &step);
            steps += 1;
            ends += step.events.iter().filter(|event| matches!(event, Event::LeaseEnded(_))).count() as u64;
        }
        state.check().unwrap();
        assert_eq!(steps, made.steps);
        assert_eq!((state.queued(), state.in_flight()), (0, 0), "all have ended");
        let dispatched = state.counters().outcomes[Outcome::Dispatched as usize];
        assert!(ends == dispatched && ends > 1_000, "{ends} of {dispatched}");
        drop(logs);
        let again = make(dir.path(), wanted, |_| {}).unwrap_err();
        assert!(again.to_string().contains("holds a log already"), "{again}");
    }
}
