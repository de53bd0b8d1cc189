//! How long a batch gathers before it is handed to the log.
//!
//! A batch costs several threads a turn and the disk a sync, about 1 ms of processor time in all, whatever its size. So
//! under load small batches follow each other at a pace. Whoever is alone never waits for it. The figures are those of
//! `weir bench gateway` on two cores.

use std::time::{Duration, Instant};

/// A batch of so many steps is handed over without waiting for more.
pub(super) const FULL: usize = 192;
/// After a batch of at least so many steps others are likely to follow.
const BUSY: usize = 8;
/// From one batch to the next, at least, while there is time.
const PACE: Duration = Duration::from_micros(500);
/// The same where the processors are the limit: there fewer batches are more requests.
const PACE_CROWDED: Duration = Duration::from_millis(3);
/// Steps a millisecond that are a crowd.
const CROWD: u128 = 48;
/// Over how long they are counted, at least.
const WINDOW: Duration = Duration::from_millis(4);

/// The pace of one pool's batches.
#[derive(Debug, Default)]
pub(super) struct Pace {
    until: Option<Instant>,
    /// Since when steps are counted, and how many there were.
    window: Option<(Instant, usize)>,
    crowded: bool,
}

impl Pace {
    /// Until when the next batch gathers, if it does.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// A batch that stands for so many steps was handed over.
    pub(super) fn handed_over(&mut self, now: Instant, steps: usize) {
        let (since, count) = self.window.map_or((now, 0), |(since, count)| (since, count + steps));
        let span = now.duration_since(since);
        self.window = Some((since, count));
        if span >= WINDOW {
            self.crowded = count as u128 * 1_000 >= CROWD * span.as_micros();
            self.window = Some((now, 0));
        }
        let pace = if self.crowded { PACE_CROWDED } else { PACE };
        self.until = (steps >= BUSY).then(|| now + pace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of so many steps, so far apart; how long the last one makes the next gather.
    fn after(steps: usize, apart_us: u64, batches: u32) -> Option<Duration> {
        let begun = Instant::now();
        let mut pace = Pace::default();
        let mut last = begun;
        for n in 0..batches {
            last = begun + Duration::from_micros(apart_us) * n;
            pace.handed_over(last, steps);
        }
        pace.until().map(|until| until - last)
    }

    #[test]
    fn who_is_alone_does_not_wait_and_a_crowd_waits_longer() {
        assert_eq!(after(7, 100, 100), None);
        assert_eq!(after(8, 2_000, 100), Some(PACE));
        assert_eq!(after(20, 500, 100), Some(PACE), "40 steps a millisecond");
        assert_eq!(after(25, 500, 100), Some(PACE_CROWDED), "50 steps a millisecond");
        assert_eq!(after(150, 3_000, 100), Some(PACE_CROWDED), "and it stays so while it lasts");
    }

    #[test]
    fn one_burst_is_no_crowd() {
        assert_eq!(after(500, 100, 3), Some(PACE), "300 µs say nothing");
    }
}
