//! A pool whose kernel failed on an input comes back without it: its state anew from the log and from the steps that
//! are on their way there. Whoever waits goes on waiting; nothing that was decided is lost.

use super::pool::Pool;
use super::service::EngineError;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_kernel::{Event, Input, Micros, State, Step, fold};
use weir_log::reader::Logs;
use weir_log::snapshot;
use weir_log::store::Frames;

/// Failures within [`FAILURES_SPAN`] after which a pool stays down: the fault is then not in one input.
const FAILURES_MAX: usize = 5;
const FAILURES_SPAN: Duration = Duration::from_secs(60);

/// Brings back a pool's state as its log has it.
pub(super) type Rebuild = Box<dyn Fn() -> Result<State, EngineError> + Send>;

/// From the data directory (snapshots, what is sealed, what is hot), or from memory.
pub(super) fn rebuild(dir: Option<PathBuf>, frames: Arc<dyn Frames>, pool: &str) -> Rebuild {
    let pool = pool.to_owned();
    Box::new(move || match &dir {
        Some(dir) => {
            let logs = Logs::of_dir(dir, Some(Arc::clone(&frames)))?;
            Ok(snapshot::recover(&logs, &pool)?.state)
        }
        None => super::place::fold_all(frames.as_ref(), &pool),
    })
}

/// When the kernel failed lately.
#[derive(Default)]
pub(super) struct Failures(VecDeque<Instant>);

impl Failures {
    /// One more. True if there are too many by now.
    fn note(&mut self) -> bool {
        let now = Instant::now();
        self.0.push_back(now);
        while self.0.front().is_some_and(|at| now.duration_since(*at) > FAILURES_SPAN) {
            self.0.pop_front();
        }
        self.0.len() >= FAILURES_MAX
    }
}

impl Pool {
    /// Decides one input at this time, which is not before the last step's. None if it, or one like it, made the kernel
    /// fail.
    pub(super) fn step_at(&mut self, at: Micros, input: Input) -> Option<u64> {
        if self.broken || self.shared.poison.refuses(&input) {
            return None;
        }
        let (decide, state) = (self.decide, &mut self.state);
        let (seq, began) = (state.seq() + 1, Instant::now());
        match catch_unwind(AssertUnwindSafe(|| decide(state, at, &input))) {
            Ok(events) => {
                self.timings.steps.add(began.elapsed());
                self.building_events += events.len().saturating_sub(1);
                let busy = self.state.queued() + self.state.in_flight() > 0;
                let let_go = events.iter().any(|event| matches!(event, Event::Dispatched(_)));
                self.shared.note_work(self.state.now(), busy, let_go);
                self.building.push(Step { seq, at: self.state.now(), input, events });
                Some(seq)
            }
            Err(panic) => {
                self.poisoned(&input, seq, at, panic.as_ref());
                None
            }
        }
    }

    /// The kernel failed on this input. Afterwards the pool is as it was before it, or broken for good.
    pub(super) fn poisoned(&mut self, input: &Input, seq: u64, at: Micros, panic: &(dyn Any + Send)) {
        let began = Instant::now();
        let words = words(panic);
        self.publish(|status| {
            status.recovering = true;
            status.faults += 1;
            status.views_lost += u64::from(matches!(input, Input::Observed(_)));
        });
        let kept = self.shared.poison.keep(input, seq, at, words);
        let (pool, kept) = (&self.shared.name, kept.map(|file| file.display().to_string()));
        tracing::error!(pool, seq, panic = words, kept, "the kernel failed on an input");
        if self.failures.note() {
            self.broken = true;
            tracing::error!(
                pool,
                "the kernel failed {FAILURES_MAX} times within a minute: the pool stays down"
            );
            return;
        }
        match self.comes_back(seq.saturating_sub(1)) {
            Ok(state) => {
                self.state = state;
                tracing::warn!(
                    pool,
                    ms = began.elapsed().as_millis() as u64,
                    "the pool is back without that input"
                );
                self.publish(|status| status.recovering = false);
            }
            Err(why) => {
                self.broken = true;
                tracing::error!(pool, why, "the pool's state cannot be brought back: it stays down");
            }
        }
    }

    /// The state after step `last`: what the log has, and after it what was decided and is not durable yet.
    fn comes_back(&self, last: u64) -> Result<State, String> {
        let mut state = (self.rebuild)().map_err(|error| error.to_string())?;
        let next = |state: &State, step: &Step| step.seq == state.seq() + 1;
        for step in self.flights.iter().flat_map(|flight| flight.steps.iter()).chain(&self.building) {
            if next(&state, step) {
                fold(&mut state, step);
            }
        }
        match state.seq() {
            seq if seq == last => Ok(state),
            seq => Err(format!("it ends at step {seq} in place of {last}")),
        }
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}
