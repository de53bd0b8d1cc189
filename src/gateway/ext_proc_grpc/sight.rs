//! Can the end of a request be seen? Learned from the streams of a pool themselves.
//!
//! No message says which headers and trailers Envoy was told to send. A filter without `response_trailer_mode: SEND`
//! ends its stream as soon as the last part it has to send is answered: that is when the answer begins, not when it
//! ends. A lease that ended there would give room to the next request long before there is any. So once a few streams
//! in a row end like that, the requests of that pool are taken as those of a face that cannot see ends, until a
//! stream shows more.
//!
//! How a stream was over tells little: Envoy closes or resets it as timing has it. How long it stayed open tells more. Only
//! event streams count for the worse, since other responses come whole with their headers, and their end is seen either
//! way. Streams that carry response bodies see every end and take no part in this.

use super::peer::Over;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So many streams in a row, and it is no accident.
const STREAK: u32 = 5;

/// A stream that stays open for longer than this after our last answer shows more than the part that was answered.
const BRIEF: Duration = Duration::from_millis(250);

/// How far a stream had come when it was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The request was let go on; of its response nothing was shown.
    Nothing,
    /// The headers of a response with a body, nothing after.
    Headers,
    /// All of it: a response that ended with its headers says nothing about how others end.
    All,
}

/// How one stream was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// What it had shown.
    pub shown: Shown,
    /// In which way.
    pub over: Over,
    /// How long it had stayed open after what it showed last.
    pub lasted: Duration,
    /// Its response is an event stream.
    pub events: bool,
}

impl Ending {
    /// It ended with a part after which more of the response must have come.
    fn early(self) -> bool {
        let may = match self.shown {
            Shown::Nothing => true,
            Shown::Headers => self.events,
            Shown::All => false,
        };
        may && self.over == Over::Reset && self.lasted < BRIEF
    }

    /// It stayed open while its response passed by.
    fn patient(self) -> bool {
        self.over != Over::Broken && self.lasted >= BRIEF
    }
}

#[derive(Debug, Default)]
struct Pool {
    streak: u32,
    blind: bool,
    responds: bool,
}

/// What has been learned, by pool.
#[derive(Debug, Default)]
pub struct Sights(Mutex<HashMap<String, Pool>>);

impl Sights {
    /// Are the ends of this pool's requests out of sight?
    pub fn blind(&self, pool: &str) -> bool {
        let pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pools.get(pool).is_some_and(|pool| pool.blind)
    }

    /// Has a response ever been shown? Else a release may be what ends its stream.
    pub fn responds(&self, pool: &str) -> bool {
        let pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pools.get(pool).is_some_and(|pool| pool.responds)
    }

    /// A response is shown.
    pub fn response(&self, pool: &str) {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match pools.get_mut(pool) {
            Some(pool) => pool.responds = true,
            None => pools.entry(pool.to_owned()).or_default().responds = true,
        }
    }

    /// Takes in how one more stream without response bodies was over. True if that changes what is thought.
    pub fn learn(&self, pool: &str, ending: Ending) -> bool {
        let early = ending.early();
        if !early && !ending.patient() {
            return false;
        }
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = match pools.get_mut(pool) {
            Some(pool) => pool,
            None => pools.entry(pool.to_owned()).or_default(),
        };
        let before = pool.blind;
        pool.streak = if early { (pool.streak + 1).min(STREAK) } else { 0 };
        // A client that left before its response began says nothing of how responses end.
        pool.blind = match ending.shown {
            _ if early => pool.blind || pool.streak == STREAK,
            Shown::Headers => false,
            Shown::Nothing | Shown::All => pool.blind,
        };
        pool.blind != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(shown: Shown, over: Over, ms: u64, events: bool) -> Ending {
        Ending { shown, over, lasted: Duration::from_millis(ms), events }
    }

    #[test]
    fn a_few_early_ends_in_a_row_are_no_accident() {
        let sights = Sights::default();
        let early = || sights.learn("p", ending(Shown::Headers, Over::Reset, 2, true));
        for _ in 1..STREAK {
            assert!(!early());
        }
        // A response that was seen to pass by begins the count anew; what says nothing does not.
        assert!(!sights.learn("p", ending(Shown::Headers, Over::Reset, 900, true)));
        for _ in 1..STREAK {
            assert!(!early());
            assert!(
                !sights.learn("p", ending(Shown::Headers, Over::Reset, 2, false)),
                "whole with its headers"
            );
            assert!(!sights.learn("p", ending(Shown::Nothing, Over::Clean, 2, false)), "a client that left");
            assert!(
                !sights.learn("p", ending(Shown::Nothing, Over::Broken, 2, false)),
                "a connection that broke"
            );
        }
        assert!(!sights.blind("p"));
        assert!(early());
        assert!(sights.blind("p") && !sights.blind("q"));
        assert!(!early(), "known already");
        assert!(
            !sights.learn("p", ending(Shown::Nothing, Over::Clean, 900, false)),
            "a client that left, later"
        );
        assert!(sights.blind("p"));
        assert!(sights.learn("p", ending(Shown::Headers, Over::Clean, 900, true)));
        assert!(!sights.blind("p"));
    }

    #[test]
    fn a_filter_that_shows_no_response_at_all_is_noticed() {
        let sights = Sights::default();
        let early = || sights.learn("p", ending(Shown::Nothing, Over::Reset, 1, false));
        assert_eq!((1..=STREAK).filter(|_| early()).count(), 1);
        assert!(sights.blind("p"));
    }
}
