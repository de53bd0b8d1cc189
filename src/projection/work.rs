//! The work on one question: its bounds (a point in time, and whether anybody still waits for the answer), and what it
//! has unpacked so far.

use crate::error::Stopped;
use crate::recent::Recent;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Asked before every piece of work that takes more than a moment.
#[derive(Clone, Debug)]
pub struct Work {
    until: Option<Instant>,
    cancelled: Arc<AtomicBool>,
    pub(crate) recent: Arc<Recent>,
}

impl Work {
    /// Without a bound of time.
    pub fn unbounded() -> Work {
        Work { until: None, cancelled: Arc::default(), recent: Arc::default() }
    }

    /// At most so long from now.
    pub fn within(span: Duration) -> Work {
        Work { until: Instant::now().checked_add(span), ..Work::unbounded() }
    }

    /// Ends it wherever it is.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// May it go on? Others may have their turn first, so not to be asked with a lock held that others wait for.
    ///
    /// # Errors
    /// [`Stopped`]: why not.
    pub fn check(&self) -> Result<(), Stopped> {
        weir_background::pass_on();
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Stopped::Cancelled);
        }
        match self.until {
            Some(until) if Instant::now() >= until => Err(Stopped::Timeout),
            _ => Ok(()),
        }
    }
}
