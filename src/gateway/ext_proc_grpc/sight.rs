//! Can the end of a request be seen? Learned from the streams of a pool themselves.
//!
//! No message says which headers and trailers Envoy was told to send. A filter without `response_trailer_mode: SEND`
//! ends its stream as soon as the last part it has to send is answered: that is when the answer begins, not when it
//! ends. A lease that ended there would give room to the next request long before there is any. So once a few streams
//! in a row end like that, the requests of that pool are taken as those of a face that cannot see ends, until a
//! stream shows more.
//!
//! Streams that carry response bodies see every end and take no part in this.

use super::peer::Over;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// So many streams in a row, and it is no accident.
const STREAK: u32 = 3;

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

#[derive(Debug, Default)]
struct Pool {
    streak: u32,
    blind: bool,
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

    /// Takes in how one more stream without response bodies was over. True if that changes what is thought.
    pub fn learn(&self, pool: &str, shown: Shown, over: Over) -> bool {
        let sees = match (shown, over) {
            (Shown::Nothing | Shown::Headers, Over::Reset) => false,
            (Shown::Headers, Over::Clean) => true,
            // A client that left, a connection that broke, a response without a body.
            _ => return false,
        };
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = match pools.get_mut(pool) {
            Some(pool) => pool,
            None => pools.entry(pool.to_owned()).or_default(),
        };
        let before = pool.blind;
        pool.streak = if sees { 0 } else { (pool.streak + 1).min(STREAK) };
        pool.blind = pool.streak == STREAK;
        pool.blind != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_early_ends_in_a_row_are_no_accident() {
        let sights = Sights::default();
        let early = |shown| sights.learn("p", shown, Over::Reset);
        assert!(!early(Shown::Nothing));
        assert!(!early(Shown::Headers));
        assert!(!sights.blind("p"));
        assert!(early(Shown::Headers));
        assert!(sights.blind("p") && !sights.blind("q"));
        assert!(!early(Shown::Headers), "known already");
        // Clients that leave and connections that break teach nothing.
        assert!(!sights.learn("p", Shown::Nothing, Over::Clean));
        assert!(!sights.learn("p", Shown::Headers, Over::Broken));
        assert!(!sights.learn("p", Shown::All, Over::Clean));
        assert!(sights.blind("p"));
        assert!(sights.learn("p", Shown::Headers, Over::Clean));
        assert!(!sights.blind("p"));
    }
}
