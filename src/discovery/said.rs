//! Which faults are due for a line of the process's log: each reason once, and again after a while.
//!
//! Pure: whoever asks says what time it is. Not here: the lines themselves (`teller`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The same reason in the same place is said again after this long, whatever was well in between.
pub const SAID_AGAIN: Duration = Duration::from_secs(30);
/// Reasons of one place that are said within that time: words with a number in them are another reason each time.
const REASONS_MAX: usize = 4;

/// What was said of one place.
#[derive(Debug, Default)]
struct Place {
    reasons: Vec<(String, Instant)>,
    /// Something was said of it, and not yet that it is well again.
    open: bool,
}

/// What was said, by place.
#[derive(Debug)]
pub struct Said {
    places_max: usize,
    places: BTreeMap<String, Place>,
}

impl Said {
    /// Nothing yet; of so many places at most.
    pub fn new(places_max: usize) -> Said {
        Said { places_max, places: BTreeMap::new() }
    }

    /// Is this to be said now? If so, it counts as said.
    pub fn due(&mut self, place: &str, reason: &str, now: Instant) -> bool {
        if !self.places.contains_key(place) {
            if self.places.len() >= self.places_max {
                // Those of which all is told make room.
                self.places.retain(|_, place| place.open || !place.forget(now));
            }
            if self.places.len() >= self.places_max {
                return false;
            }
        }
        let known = self.places.entry(place.to_owned()).or_default();
        known.forget(now);
        if known.reasons.len() >= REASONS_MAX || known.reasons.iter().any(|(said, _)| said == reason) {
            return false;
        }
        known.reasons.push((reason.to_owned(), now));
        known.open = true;
        true
    }

    /// Nothing is wrong there any more: is that to be said? It is wherever a fault was.
    pub fn well(&mut self, place: &str) -> bool {
        self.places.get_mut(place).is_some_and(|place| std::mem::take(&mut place.open))
    }
}

impl Place {
    /// Forgets what was said long ago. Is nothing left?
    fn forget(&mut self, now: Instant) -> bool {
        self.reasons.retain(|(_, at)| now.saturating_duration_since(*at) < SAID_AGAIN);
        self.reasons.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an operator reads every reason, and no reason floods the log. Method: looks of an outage at given seconds.
    #[test]
    fn a_reason_that_changes_is_said_and_one_that_stays_or_flaps_is_not_said_each_time() {
        let (mut said, begin) = (Said::new(2), Instant::now());
        let mut at = |place: &str, reason: &str, second: u64| {
            said.due(place, reason, begin + Duration::from_secs(second))
        };
        assert!(at("a", "refused", 0));
        assert!(!at("a", "refused", 1), "the same one is not said each round");
        assert!(at("a", "status 401", 2), "another reason of the same outage");
        assert!(!at("a", "refused", 3) && !at("a", "status 401", 29), "they flap");
        assert!(at("b", "refused", 3), "another place");
        assert!(at("a", "refused", 30) && !at("a", "status 401", 31) && at("a", "status 401", 32));
        let said = (40..50).filter(|n| at("a", &format!("{n} bytes"), *n)).count();
        assert_eq!(said, REASONS_MAX - 2, "words with a number in them");
    }

    #[test]
    fn that_it_is_well_is_said_as_often_as_that_it_was_not() {
        let (mut said, begin) = (Said::new(8), Instant::now());
        assert!(!said.well("a"));
        let mut lines = (0, 0);
        for second in 0..60 {
            lines.0 += u32::from(said.due("a", "refused", begin + Duration::from_secs(second)));
            lines.1 += u32::from(said.well("a"));
        }
        assert_eq!(lines, (2, 2), "a place that fails and works by turns");
    }

    #[test]
    fn places_that_are_well_make_room() {
        let (mut said, begin) = (Said::new(1), Instant::now());
        assert!(said.due("a", "refused", begin));
        assert!(!said.due("b", "refused", begin) && said.well("a"));
        assert!(!said.due("b", "refused", begin), "what was said of it counts for a while yet");
        assert!(said.due("b", "refused", begin + SAID_AGAIN));
        assert!(!said.due("c", "refused", begin + 9 * SAID_AGAIN), "one that is not well stays");
    }
}
