//! How many leases a decision takes back, from the event's own figures and by trial; and whom it counted as demand.

use super::{Broken, Oracle, Waiting};
use weir_kernel::*;

/// The least number of leases that takes the deficit off, by trial.
pub fn by_deficit(e: &ReclamationDecided) -> bool {
    let (s, n) = (i128::from(e.saturation.0), i128::from(e.in_flight));
    let net = s - i128::from(e.ceiling.0) - i128::from(e.pending.0);
    let enough = |count: i128| count * s >= net * n;
    let wanted = i128::from(e.wanted);
    net >= 0 && enough(wanted) && (wanted == 1 || !enough(wanted - 1))
}

/// The least number of ends after which the last of the demand finds the gauge below the ceiling, by trial, in 1e-12.
pub fn by_demand(e: &ReclamationDecided, sized: &DemandSized, policy: &Policy) -> bool {
    let fine = |ratio: Ratio| i128::from(ratio.0) * 1_000_000;
    let share = i128::from(sized.mean.max(sized.slot.unwrap_or(0)));
    let last = fine(e.saturation) + i128::from(sized.demand - 1) * i128::from(sized.charge) + 500_000;
    let after = |ends: i128| last - (ends + i128::from(sized.natural)) * share - fine(e.pending);
    let wanted = i128::from(e.wanted);
    let least = after(wanted) < fine(e.ceiling) && after(wanted - 1) >= fine(e.ceiling);
    let (n, mean) = (i128::from(e.in_flight), i128::from(sized.mean));
    let mean_is = mean * n >= fine(e.saturation) && (mean - 1) * n < fine(e.saturation);
    let span = sized.since.0.max(1);
    let expected = u128::from(sized.ended) * u128::from(sized.round_trip.0) / u128::from(span);
    let credit = (share + 999_999) / 1_000_000;
    least
        && mean_is
        && sized.wanted == e.wanted
        && sized.number == e.number
        && sized.demand <= e.depth
        && sized.round_trip == sized.took + policy.eviction.confirmation_grace
        && (u128::from(sized.natural) == expected || (sized.since == Micros::ZERO && sized.natural == 0))
        && i128::from(e.credit.0) == credit
        && i128::from(e.pending.0) >= i128::from(sized.hidden) * share / 1_000_000
}

impl Oracle {
    /// The demand that a decision counted is who can still wait when the room is there.
    pub(super) fn counted(&mut self, state: &State) -> Result<(), Broken> {
        let Some((band, count, until)) = self.orders.counted.take() else { return Ok(()) };
        let waits = |(id, w): &(&RequestId, &Waiting)| {
            let due = state.queued_request(**id).and_then(|queued| queued.due);
            let bounds = [due, w.deadline];
            w.priority == band && w.absent.is_none() && bounds.iter().flatten().all(|end| *end > until)
        };
        let found = self.waiting.iter().filter(waits).count() as u64;
        let same = found == count;
        if same { Ok(()) } else { Err(format!("{count} counted that can wait until {until:?}, {found} can")) }
    }
}
