//! How long a batch gathers before it is handed to the log.
//!
//! A batch costs several threads a turn and the disk a sync, whatever its size. So under load small batches follow each
//! other at a pace, and at a slower one where the processors are the limit: there fewer batches are more requests.
//! Whoever is alone never waits for it. The figures are those of `weir bench gateway` on two cores.

use std::time::{Duration, Instant};
use weir_background::burden;

/// A batch of so many steps that callers wait for is handed over without waiting for more; and one of so many steps in
/// all: nobody waits for what ends with a stream.
const FULL_AWAITED: usize = 192;
pub(super) const FULL: usize = 288;
/// After a batch of at least so many steps others are likely to follow.
const BUSY: usize = 8;
/// From one batch to the next, at least: while up to so large a share of the processors is taken, and from so large a
/// share on; in between it rises evenly.
const RELAXED: (f64, Duration) = (0.7, Duration::from_millis(1));
const CROWDED: (f64, Duration) = (0.85, Duration::from_millis(3));

/// Is a batch of so many steps and answers handed over without waiting for more?
pub(super) fn is_full(steps: usize, answers: usize) -> bool {
    // One step may answer many.
    steps.min(answers) >= FULL_AWAITED || steps >= FULL
}

/// The pace of one pool's batches.
#[derive(Debug, Default)]
pub(super) struct Pace {
    until: Option<Instant>,
}

impl Pace {
    /// Until when the next batch gathers, if it does.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// A batch that stands for so many steps was handed over.
    pub(super) fn handed_over(&mut self, now: Instant, steps: usize) {
        let share = burden(now);
        self.until = after(steps, share).map(|pace| now + pace);
    }
}

/// How long the next batch gathers after one of so many steps, where such a share of the processors is taken.
fn after(steps: usize, share: f64) -> Option<Duration> {
    let way = (share - RELAXED.0) / (CROWDED.0 - RELAXED.0);
    let pace = RELAXED.1 + (CROWDED.1 - RELAXED.1).mul_f64(way.clamp(0.0, 1.0));
    (steps >= BUSY).then_some(pace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_full_by_the_steps_that_somebody_waits_for() {
        assert!(is_full(192, 192) && !is_full(191, 191));
        assert!(!is_full(287, 150) && is_full(288, 150), "the rest are ends of streams");
        assert!(!is_full(3, 192), "answers of a few steps");
    }

    #[test]
    fn who_is_alone_does_not_wait_and_a_crowd_waits_longer() {
        assert_eq!(after(7, 1.0), None);
        assert_eq!(after(8, 0.0), Some(RELAXED.1));
        assert_eq!(after(192, 0.7), Some(RELAXED.1));
        let between = after(8, 0.775).unwrap().as_secs_f64();
        assert!((between - 0.002).abs() < 1e-6, "{between} s");
        assert_eq!(after(8, 0.85), Some(CROWDED.1));
        assert_eq!(after(8, 1.2), Some(CROWDED.1));
    }
}
