//! Where a queued request stands and which budget runs against it: for answers. Nothing here decides or changes anything.

use crate::queues::Ready;
use crate::{BudgetKind, Micros, RequestId, State, expiry};
use core::ops::Bound;

/// Places are counted up to this one, so that a look at a long line stays short.
const COUNTED_MAX: usize = 10_000;

/// A queued request among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its place, from 1: in the line of its band where fairness keeps one over all flows, else in that of its flow.
    /// `None` while it is not in line (its caller has still to come back after a restart), or beyond the 10,000th place.
    pub position: Option<u64>,
    /// Queued requests of its band, itself among them.
    pub depth: u64,
    /// The budget that ends it first if the regime stays as it is; `None` if none runs.
    pub budget: Option<RunningBudget>,
}

/// A queue-wait budget that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningBudget {
    /// Which one.
    pub which: BudgetKind,
    /// Its size.
    pub budget: Micros,
    /// When it ends the request.
    pub due: Micros,
}

impl State {
    /// How a request stands; `None` if it is not queued.
    pub fn standing(&self, id: RequestId) -> Option<Standing> {
        let queued = self.queued.get(&id)?;
        let band = self.bands.get(&queued.priority)?;
        let line = match &band.ready {
            Ready::Strict(line) => Some(line),
            Ready::Turns { .. } | Ready::Service { .. } => {
                self.flows.get(&queued.flow).map(|flow| &flow.line)
            }
        };
        let place = (queued.order, id);
        let position = line.filter(|line| line.contains(&place)).and_then(|line| {
            let newest_first = band.is_newest_first();
            if line.last() == Some(&place) {
                // The usual look is at one that has just been queued.
                return Some(if newest_first { 1 } else { line.len() as u64 });
            }
            let ahead = if newest_first {
                line.range((Bound::Excluded(place), Bound::Unbounded)).take(COUNTED_MAX).count()
            } else {
                line.range(..place).take(COUNTED_MAX).count()
            };
            (ahead < COUNTED_MAX).then_some(ahead as u64 + 1)
        });
        let due = self.classes.get(queued.class()).map(|class| self.clocks.due(queued.marks, class.budgets));
        let budget = due.flatten().and_then(|due| {
            let spent = expiry::spent(self, id)?;
            Some(RunningBudget { which: spent.which, budget: spent.budget, due })
        });
        Some(Standing { position, depth: band.requests, budget })
    }
}
