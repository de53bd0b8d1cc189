//! Why read models are folded anew, and when that is over: said in the log of the service, so that nobody wonders where
//! the answers are.

use crate::db::FORMAT;
use std::path::Path;
use std::time::Instant;

/// Steps behind the log from which catching up is worth a word.
const WORTH_SAYING: u64 = 100_000;

/// Why the database was made anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Anew {
    /// There was none.
    #[error("there are none")]
    None,
    /// There is one that cannot be read.
    #[error("those that are there cannot be read ({0})")]
    Unreadable(String),
    /// It does not say what it is of: its beginning was lost.
    #[error("those that are there do not say of which log they are: they were cut")]
    Cut,
    /// Of another version.
    #[error("those that are there are of format {found}, wanted is format {FORMAT}")]
    Format {
        /// The format that it says.
        found: String,
    },
    /// Of another log.
    #[error("those that are there are of the log {found:?}, this is the log {wanted:?}")]
    OtherLog {
        /// The log that it is of.
        found: String,
        /// This log.
        wanted: String,
    },
}

impl Anew {
    /// What these words at the head of a database mean; nothing if it is the one that is wanted.
    pub(crate) fn of_meta(meta: Option<&[u8]>, log_id: &str) -> Option<Anew> {
        let Some(meta) = meta else { return Some(Anew::Cut) };
        let text = String::from_utf8_lossy(meta);
        let (format, log) = text.split_once(' ').unwrap_or((&text, ""));
        if format != FORMAT.to_string() {
            return Some(Anew::Format { found: format.to_owned() });
        }
        (log != log_id).then(|| Anew::OtherLog { found: log.to_owned(), wanted: log_id.to_owned() })
    }

    /// Says it: a warning, unless there was nothing to lose.
    pub(crate) fn say(&self, path: &Path) {
        let path = path.display();
        match self {
            Anew::None => tracing::info!(%path, "projections are folded from the log: {self}"),
            _ => tracing::warn!(%path, "projections are folded anew from the log: {self}"),
        }
    }
}

/// A pool that is behind its log when it begins to follow.
#[derive(Debug)]
pub(crate) struct CatchUp {
    /// The first step that is missing.
    from: u64,
    /// The end of the log when it began.
    to: u64,
    begun: Instant,
}

impl CatchUp {
    /// What is worth a word: all of the log, or much of it.
    pub fn of(written: u64, at: u64, head: u64) -> Option<CatchUp> {
        let missing = head.saturating_sub(at);
        let worth = missing > 0 && (written == 0 || missing >= WORTH_SAYING);
        worth.then(|| CatchUp { from: at + 1, to: head, begun: Instant::now() })
    }

    /// Is it there now? With how many steps.
    pub fn is_over(&self, at: u64) -> Option<u64> {
        (at >= self.to).then(|| (at + 1).saturating_sub(self.from))
    }

    /// Says that it begins.
    pub fn say_begin(&self, pool: &str) {
        tracing::info!(pool, from = self.from, to = self.to, "the projections catch up with the log");
    }

    /// Says that it is over.
    pub fn say_end(&self, pool: &str, steps: u64) {
        let seconds = self.begun.elapsed().as_secs_f64();
        tracing::info!(pool, steps, seconds, "the projections have caught up with the log");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catching_up_is_said_where_all_or_much_is_missing_and_is_over_at_the_end_that_was_seen() {
        for (written, at, head, worth) in [
            (0, 0, 0, false),
            (0, 0, 7, true),
            // From a snapshot on: what is before it is not kept.
            (0, 500, 507, true),
            (500, 500, 507, false),
            (500, 500, 100_499, false),
            (500, 500, 100_500, true),
            (9, 9, 9, false),
        ] {
            let found = CatchUp::of(written, at, head);
            assert_eq!(found.is_some(), worth, "{written} {at} {head}");
            let Some(found) = found else { continue };
            assert_eq!(found.is_over(head - 1), None);
            assert_eq!(found.is_over(head), Some(head - at));
            assert_eq!(found.is_over(head + 2), Some(head + 2 - at), "it went on meanwhile");
        }
    }
}
