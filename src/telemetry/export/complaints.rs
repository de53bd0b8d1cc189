//! What is said of a receiver that does not take spans: each reason once, and again after a while.

use std::time::Duration;
use tokio::time::Instant;

/// A receiver that stays away for the same reason is complained about this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
/// Reasons within that time: words with a number in them are another reason each time.
const REASONS_MAX: usize = 4;

/// What was said of a receiver that fails.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    said: Vec<(String, Instant)>,
    open: bool,
}

impl Complaints {
    /// Is this to be said now? If so, it counts as said.
    pub(super) fn due(&mut self, why: &str, now: Instant) -> bool {
        self.said.retain(|(_, at)| now.saturating_duration_since(*at) < COMPLAIN_EVERY);
        if self.said.len() >= REASONS_MAX || self.said.iter().any(|(said, _)| said == why) {
            return false;
        }
        self.said.push((why.to_owned(), now));
        self.open = true;
        true
    }

    /// Was something said that is not true any more?
    pub(super) fn well(&mut self) -> bool {
        std::mem::take(&mut self.open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_reason_is_said_and_the_same_one_is_not_said_each_time() {
        let (mut complaints, begin) = (Complaints::default(), Instant::now());
        let mut due = |why: &str, second: u64| complaints.due(why, begin + Duration::from_secs(second));
        assert!(due("refused", 0) && !due("refused", 1));
        assert!(due("status 401", 2), "another reason of the same outage");
        assert!(!due("refused", 30) && !due("status 401", 61), "they flap");
        assert!(due("refused", 60) && due("status 401", 62));
        assert!(due("a", 63) && due("b", 63) && !due("c", 63), "at most four within a minute");
        assert!(complaints.well() && !complaints.well());
    }
}
