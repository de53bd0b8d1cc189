//! How much of the processors this process takes for what cannot wait.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

/// Measured over at least so long, so that one burst says nothing.
const WINDOW: Duration = Duration::from_millis(20);

static MEASURED: Mutex<Option<Burden>> = Mutex::new(None);
/// Bits of the last figure.
static LATEST: AtomicU64 = AtomicU64::new(0);

/// From 0 (idle) to about 1 (every processor is busy with what cannot wait), as of the last whole window of 20 ms. One
/// figure for the process, measured once a window by whoever asks. It never waits: who comes meanwhile gets the last one,
/// so that an engine is not held up by a thread of little weight that is measuring.
pub fn burden(now: Instant) -> f64 {
    let measured = match MEASURED.try_lock() {
        Ok(measured) => Some(measured),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    };
    if let Some(mut measured) = measured {
        let share = measured.get_or_insert_with(Burden::default).share(now);
        LATEST.store(share.to_bits(), Ordering::Relaxed);
        return share;
    }
    f64::from_bits(LATEST.load(Ordering::Relaxed))
}

/// The share of the processors that was taken in the last window.
#[derive(Debug)]
struct Burden {
    processors: f64,
    since: Option<(Instant, Duration)>,
    share: f64,
}

impl Default for Burden {
    fn default() -> Self {
        // With the quota of a container counted in.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Burden { processors: processors as f64, since: None, share: 0.0 }
    }
}

impl Burden {
    fn share(&mut self, now: Instant) -> f64 {
        if self.since.is_none_or(|(since, _)| now.duration_since(since) >= WINDOW) {
            self.measured(now, processor_time());
        }
        self.share
    }

    fn measured(&mut self, now: Instant, taken: Duration) {
        if let Some((since, before)) = self.since {
            let span = now.duration_since(since).as_secs_f64() * self.processors;
            self.share = taken.saturating_sub(before).as_secs_f64() / span.max(f64::MIN_POSITIVE);
        }
        self.since = Some((now, taken));
    }
}

/// Of the threads of this process since it began. What threads take whose work can wait is there for the asking.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let all = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0));
    all.saturating_sub(crate::taken())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_all_processors_and_of_one_window() {
        let mut burden = Burden { processors: 2.0, since: None, share: 0.0 };
        let begun = Instant::now();
        let ms = Duration::from_millis;
        burden.measured(begun, ms(500));
        assert_eq!(burden.share, 0.0, "nothing is known yet");
        burden.measured(begun + ms(20), ms(530));
        assert!((burden.share - 0.75).abs() < 1e-9);
        burden.measured(begun + ms(120), ms(530));
        assert_eq!(burden.share, 0.0);
    }

    #[test]
    fn processor_time_is_that_of_work() {
        let before = processor_time();
        let mut work = 0_u64;
        while processor_time() < before + Duration::from_millis(5) {
            work = std::hint::black_box(work.wrapping_add(1));
        }
        assert!(work > 0);
    }
}
