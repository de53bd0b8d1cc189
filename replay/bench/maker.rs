//! A log of any length in sealed segments, made in virtual time: truth servers behind the kernel, calm and bursts in turn.
//!
//! Memory is bounded by what is queued and running: arrivals are made when they are due, steps leave as batches.

use crate::fidelity::driver::{self, Truth};
use crate::fidelity::plan::{CLASSES, Planned};
use crate::progress::Progress;
use crate::settings::{Candidate, CandidateError};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use weir_kernel::{Micros, Policy, Step};
use weir_log::seal::Sealer;
use weir_log::{Frame, FrameError, LogError, SegmentError};
use weir_truth::Spec;
use weir_truth::rng::Rng;

/// The pool's name in the log.
pub const POOL: &str = "bench";
/// Steps in a batch: what a group commit holds at some thousand steps a second.
const BATCH: usize = 64;
/// Batches between making and sealing.
const AHEAD: usize = 64;
/// Servers.
const SERVERS: u16 = 8;
/// Arrivals per second that fill them: prompts of 288 tokens in the mean at 100 µs each, and a share of the steps.
const FULL: f64 = 250.0;
/// Calm, then a burst: how long, and at which share of [`FULL`].
const RHYTHM: [(f64, f64); 2] = [(60.0, 0.7), (20.0, 1.5)];
/// Flows of each class.
const FLOWS: u64 = 12;

/// Why no log was made.
#[derive(Debug, thiserror::Error)]
pub enum MakerError {
    /// Writing it.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A batch of it.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Its settings.
    #[error(transparent)]
    Settings(#[from] CandidateError),
}

fn truth() -> Truth {
    Truth {
        server: Spec {
            stall_every: Micros::from_secs(60),
            stall_for: Micros::from_millis(300),
            ..Spec::default()
        },
        endpoints: SERVERS,
        join_at: Micros::ZERO,
        scrape_every: Micros::from_millis(50),
        scrape_lag: Micros::from_millis(8),
        grain: Micros(150),
        confirm: Micros::from_millis(25),
        seed: 1,
    }
}

/// Arrivals without end, until `wanted` steps were made.
struct Arrivals<'a> {
    rng: Rng,
    at: f64,
    made: &'a Cell<u64>,
    wanted: u64,
}

impl Iterator for Arrivals<'_> {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        if self.made.get() >= self.wanted {
            return None;
        }
        let [(calm, low), (burst, high)] = RHYTHM;
        let share = if self.at % (calm + burst) < calm { low } else { high };
        self.at += self.rng.exponential(1.0 / (FULL * share));
        let mut pick = self.rng.unit();
        let class = CLASSES.iter().position(|(_, _, share)| {
            pick -= share;
            pick < 0.0
        });
        // Small flows are asked for less often than the first.
        let flow = self.rng.below(FLOWS).min(self.rng.below(FLOWS));
        Some(Planned {
            at: Micros((self.at * 1e6) as u64),
            prompt: 64 + self.rng.below(448) as u32,
            output: 4 + self.rng.below(29) as u32,
            class: class.unwrap_or(CLASSES.len() - 1),
            flow: flow as u32,
        })
    }
}

/// Makes a log of at least so many steps in `data`, and says how many became of it.
///
/// # Errors
/// A directory or file that cannot be written.
pub fn make(data: &Path, steps: u64) -> Result<u64, MakerError> {
    let words = ["priorityBands=[{priority: 100}, {priority: 0}, {priority: -10}]".to_owned()];
    let policy = Candidate::default().with(&words)?.resolve(&Policy::default(), POOL)?;
    let progress = Progress::new("making", Some(steps));
    let (to, from) = sync_channel::<Frame>(AHEAD);
    std::thread::scope(|scope| {
        let maker = scope.spawn(move || drive(&policy, steps, to, &progress));
        let frames = from.into_iter().map(Ok::<Frame, LogError>);
        let sealed = Sealer::new(data, [9; 16]).seal(POOL, Micros(1), frames);
        let made = maker.join().unwrap_or(Ok(0));
        sealed?;
        Ok(made?)
    })
}

fn drive(
    policy: &Policy,
    wanted: u64,
    to: SyncSender<Frame>,
    progress: &Progress,
) -> Result<u64, FrameError> {
    let made = Cell::new(0);
    let plan = Arrivals { rng: Rng::new(7), at: 0.0, made: &made, wanted };
    let pool: Arc<str> = Arc::from(POOL);
    let (mut batch, mut previous, mut failed) = (Vec::with_capacity(BATCH), [0; 32], None);
    let mut send = |batch: &mut Vec<Step>| {
        let Some(at) = batch.first().map(|step| step.at) else { return };
        match Frame::encode(&pool, previous, at, batch) {
            Ok(frame) => {
                previous = frame.hash;
                // Nobody takes it any more: what is wrong is told on the other side, and nothing more is made.
                if to.send(frame).is_err() {
                    made.set(wanted);
                }
            }
            Err(error) => failed = Some(error),
        }
        progress.add(batch.len() as u64);
        batch.clear();
    };
    let mut count = 0;
    driver::run_with(&truth(), plan, policy, &[], |step| {
        count += 1;
        made.set(made.get() + 1);
        batch.push(step);
        if batch.len() == BATCH {
            send(&mut batch);
        }
    });
    send(&mut batch);
    failed.map_or(Ok(count), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_kernel::{Event, Input, State, step};
    use weir_log::reader::{Bound, Logs};

    #[test]
    fn a_log_of_calm_and_bursts_is_made_and_follows_from_its_inputs() {
        let dir = tempfile::tempdir().unwrap();
        let made = make(dir.path(), 60_000).unwrap();
        assert!((60_000..70_000).contains(&made), "{made}");
        let logs = Logs::of_dir(dir.path(), None).unwrap();
        let (mut state, mut read, mut waited) = (State::new(), 0, 0);
        for logged in logs.reader(POOL, Bound::Open, Bound::Open).steps() {
            let logged = logged.unwrap();
            read += 1;
            waited += logged
                .events
                .iter()
                .filter(|event| matches!(event, Event::Dispatched(e) if e.waited.0 > 1_000_000))
                .count();
            let derived = step(&mut state, logged.at, logged.input.clone());
            assert_eq!(derived, logged);
        }
        assert_eq!(read, made);
        assert!(waited > 500, "bursts queue: {waited}");
        assert_eq!((state.queued(), state.in_flight()), (0, 0));
        let first = logs.reader(POOL, Bound::Seq(1), Bound::Seq(1)).steps().next();
        assert!(matches!(first, Some(Ok(Step { input: Input::Started(_), .. }))));
    }
}
