//! The one clock that the kernel's inputs are stamped with: a base plus monotonic elapsed time.
//!
//! It never goes backwards, also not against the log of an earlier run, and does not notice when the wall clock is
//! set. The wall clock's own reading is available for display alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_kernel::Micros;

type Listener = Box<dyn Fn() + Send + Sync>;

/// Shared and cheap to clone; every clone reads the same time.
#[derive(Clone)]
pub struct Clock(Arc<Source>);

enum Source {
    Real { base: Micros, started: Instant },
    Manual { now: AtomicU64, listeners: Mutex<Vec<Listener>> },
}

impl Clock {
    /// A clock that starts at the wall clock's reading, or at `last_logged` if that is later.
    pub fn starting_after(last_logged: Micros) -> Clock {
        Clock::with_base(Clock::wall(), last_logged)
    }

    /// The same with a given reading of the wall clock.
    pub fn with_base(wall: Micros, last_logged: Micros) -> Clock {
        Clock(Arc::new(Source::Real { base: wall.max(last_logged), started: Instant::now() }))
    }

    /// A clock that moves only when told to, for tests.
    pub fn manual(start: Micros) -> Clock {
        Clock(Arc::new(Source::Manual { now: AtomicU64::new(start.0), listeners: Mutex::new(Vec::new()) }))
    }

    /// Now, in the time of the log.
    pub fn now(&self) -> Micros {
        match &*self.0 {
            Source::Real { base, started } => *base + micros(started.elapsed()),
            Source::Manual { now, .. } => Micros(now.load(Ordering::Acquire)),
        }
    }

    /// How long a thread may sleep until `deadline`: `None` for a manual clock, which wakes sleepers itself.
    pub fn until(&self, deadline: Micros) -> Option<Duration> {
        match &*self.0 {
            Source::Real { .. } => Some(Duration::from_micros(deadline.since(self.now()).0)),
            Source::Manual { .. } => None,
        }
    }

    /// Moves a manual clock forward and wakes whoever waits for it. A real clock takes no notice.
    pub fn advance(&self, by: Micros) {
        if let Source::Manual { now, listeners } = &*self.0 {
            now.fetch_add(by.0, Ordering::AcqRel);
            for listener in listeners.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                listener();
            }
        }
    }

    /// Calls `listener` after each move of a manual clock.
    pub fn on_advance(&self, listener: impl Fn() + Send + Sync + 'static) {
        if let Source::Manual { listeners, .. } = &*self.0 {
            listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
        }
    }

    /// The wall clock's own reading; 0 if it is set before 1970.
    pub fn wall() -> Micros {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(Micros::ZERO, micros)
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clock({})", self.now().0)
    }
}

fn micros(span: Duration) -> Micros {
    Micros(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// The base is the later of the wall clock and the log; what the wall clock does afterwards is not read.
    #[test]
    fn c140_never_behind_the_log_whatever_the_wall_clock_says() {
        for (wall, logged, at_least) in [(1_000, 5_000, 5_000), (5_000, 1_000, 5_000), (0, 0, 0)] {
            let clock = Clock::with_base(Micros(wall), Micros(logged));
            let first = clock.now();
            assert!(first >= Micros(at_least), "wall {wall}, log {logged}: {first:?}");
            assert!(clock.now() >= first);
        }
    }

    #[test]
    fn a_manual_clock_moves_when_told_and_wakes_its_listeners() {
        let clock = Clock::manual(Micros(10));
        let woken = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&woken);
        clock.on_advance(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        });
        clock.clone().advance(Micros(5));
        assert_eq!((clock.now(), woken.load(Ordering::SeqCst)), (Micros(15), 1));
        assert_eq!(clock.until(Micros(20)), None);
    }
}
