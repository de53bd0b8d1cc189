//! A pool that nothing was ever seen of holds its callers without a budget: no time is charged before its first view. Whoever
//! operates it hears so while requests wait.
//!
//! Not here: the rule itself (the kernel's), why nothing is seen (`discovery` says that of itself).

use std::time::{Duration, Instant};

/// A start takes a moment: requests that wait so long are said.
const PATIENCE: Duration = Duration::from_secs(5);
/// Said again after this long.
const SAID_AGAIN: Duration = Duration::from_secs(30);

/// Since when requests wait for a pool that was not seen yet, and when that was said.
#[derive(Debug, Default)]
pub struct NeverSeen {
    since: Option<Instant>,
    said: Option<Instant>,
}

impl NeverSeen {
    /// So many requests wait now, of a pool that was seen or not: is that to be said?
    pub fn due(&mut self, unknown: bool, waiting: u64, now: Instant) -> bool {
        if !unknown || waiting == 0 {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let long = |from: Instant, span| now.saturating_duration_since(from) >= span;
        let due = long(since, PATIENCE) && self.said.is_none_or(|said| long(said, SAID_AGAIN));
        if due {
            self.said = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_wait_for_a_pool_that_was_never_seen_are_said_now_and_then() {
        let (mut pool, begin) = (NeverSeen::default(), Instant::now());
        let mut at = |unknown: bool, waiting: u64, second: u64| {
            pool.due(unknown, waiting, begin + Duration::from_secs(second))
        };
        assert!(!at(true, 0, 0) && !at(true, 0, 100), "nobody waits");
        assert!(!at(true, 3, 101) && !at(true, 3, 105), "a start takes a moment");
        assert!(at(true, 3, 106));
        assert_eq!((107..200).filter(|second| at(true, 4, *second)).count(), 3, "and then each half minute");
        assert!(!at(false, 4, 300) && !at(true, 1, 301), "it was seen meanwhile");
        assert!(at(true, 1, 306));
    }
}
