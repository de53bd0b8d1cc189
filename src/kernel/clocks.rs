//! The three clocks that queue-wait budgets are read from (contract.md row 3).
//!
//! Each is a reading at the last change of regime plus, while it runs, the time since. So a change of regime moves
//! three numbers, however many requests are queued.

use crate::{Micros, Regime};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clocks {
    pub(crate) regime: Regime,
    /// When the regime was entered.
    pub(crate) since: Micros,
    /// Time spent in `HasEndpoints`, up to `since`.
    pub(crate) saturation: Micros,
    /// Time spent in `NoEndpoints` and `NoFreshMetrics`, up to `since`.
    pub(crate) no_endpoint: Micros,
    /// Time spent in any known regime, up to `since`.
    pub(crate) whole: Micros,
    /// The saturation clock when `NoEndpoints` (or `Unknown`) was last left: no saturation budget is charged from earlier.
    pub(crate) fresh_from: Micros,
    /// That instant.
    pub(crate) fresh_at: Micros,
}

/// The three clocks at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) saturation: Micros,
    pub(crate) no_endpoint: Micros,
    pub(crate) whole: Micros,
}

/// Both budgets of a class; zero = none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budgets {
    pub(crate) saturation: Micros,
    pub(crate) no_endpoint: Micros,
}

impl Clocks {
    pub(crate) fn read(&self, now: Micros) -> Marks {
        let ran = now.since(self.since);
        let when = |runs: bool| if runs { ran } else { Micros::ZERO };
        Marks {
            saturation: self.saturation + when(self.regime == Regime::HasEndpoints),
            no_endpoint: self.no_endpoint + when(waits(self.regime)),
            whole: self.whole + when(self.regime != Regime::Unknown),
        }
    }

    /// Enters `to` at `now`, all time since the last change being charged to the regime before.
    pub(crate) fn enter(&mut self, to: Regime, now: Micros) {
        self.freeze(now);
        let from = self.regime;
        self.regime = to;
        self.since = now;
        if from != to && matches!(from, Regime::NoEndpoints | Regime::Unknown) {
            self.fresh_from = self.saturation;
            self.fresh_at = now;
        }
    }

    /// After a restart at `now`, the last step of the run before having been at `last`: the time between counts
    /// against no budget, and the pool is unknown again.
    pub(crate) fn restart(&mut self, last: Micros, now: Micros) {
        self.freeze(last);
        self.regime = Regime::Unknown;
        self.since = now;
    }

    fn freeze(&mut self, now: Micros) {
        let marks = self.read(now);
        self.saturation = marks.saturation;
        self.no_endpoint = marks.no_endpoint;
        self.whole = marks.whole;
    }

    /// When a request queued at `marks` is due if the regime stays as it is; `None` = never.
    pub(crate) fn due(&self, marks: Marks, budgets: Budgets) -> Option<Micros> {
        let own = match self.regime {
            Regime::Unknown => return None,
            Regime::HasEndpoints => (!budgets.saturation.is_zero()).then(|| {
                let target = marks.saturation.max(self.fresh_from) + budgets.saturation;
                self.since + target.since(self.saturation)
            }),
            Regime::NoEndpoints | Regime::NoFreshMetrics => (!budgets.no_endpoint.is_zero()).then(|| {
                let target = marks.no_endpoint + budgets.no_endpoint;
                self.since + target.since(self.no_endpoint)
            }),
        };
        let whole = (!budgets.saturation.is_zero() && !budgets.no_endpoint.is_zero()).then(|| {
            let target = marks.whole + budgets.saturation + budgets.no_endpoint;
            self.since + target.since(self.whole)
        });
        match (own, whole) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// Does the shared no-endpoint meter run in this regime?
pub(crate) const fn waits(regime: Regime) -> bool {
    matches!(regime, Regime::NoEndpoints | Regime::NoFreshMetrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Micros = Micros::from_secs;

    fn budgets(saturation: u64, no_endpoint: u64) -> Budgets {
        Budgets { saturation: S(saturation), no_endpoint: S(no_endpoint) }
    }

    #[test]
    fn leaving_an_empty_pool_starts_the_saturation_budget_afresh() {
        let mut clocks = Clocks::default();
        clocks.enter(Regime::NoEndpoints, S(0));
        let marks = clocks.read(S(0));
        assert_eq!(clocks.due(marks, budgets(15, 300)), Some(S(300)));
        clocks.enter(Regime::HasEndpoints, S(90));
        assert_eq!(clocks.due(marks, budgets(15, 300)), Some(S(105)));
    }

    #[test]
    fn a_blind_spell_pauses_the_saturation_budget() {
        let mut clocks = Clocks::default();
        clocks.enter(Regime::HasEndpoints, S(0));
        let marks = clocks.read(S(0));
        clocks.enter(Regime::NoFreshMetrics, S(4));
        clocks.enter(Regime::HasEndpoints, S(9));
        assert_eq!(clocks.due(marks, budgets(10, 60)), Some(S(15)));
    }

    #[test]
    fn c005_the_whole_wait_never_exceeds_the_sum() {
        let mut clocks = Clocks::default();
        let mut at = 0;
        clocks.enter(Regime::NoEndpoints, S(0));
        let marks = clocks.read(S(0));
        let mut ended = None;
        while ended.is_none() {
            for regime in [Regime::NoEndpoints, Regime::HasEndpoints] {
                clocks.enter(regime, S(at));
                at += 7;
                ended = ended.or(clocks.due(marks, budgets(10, 30)).filter(|due| *due <= S(at)));
            }
        }
        assert_eq!(ended, Some(S(40)));
    }

    #[test]
    fn downtime_counts_against_nothing() {
        let mut clocks = Clocks::default();
        clocks.enter(Regime::NoEndpoints, S(0));
        let marks = clocks.read(S(0));
        clocks.restart(S(10), S(1_000));
        assert_eq!(clocks.due(marks, budgets(10, 30)), None);
        clocks.enter(Regime::NoEndpoints, S(1_001));
        assert_eq!(clocks.due(marks, budgets(0, 30)), Some(S(1_021)));
    }

    #[test]
    fn c011_huge_budgets_do_not_wrap() {
        let mut clocks = Clocks::default();
        clocks.enter(Regime::HasEndpoints, S(1));
        let huge = Budgets { saturation: Micros::MAX, no_endpoint: Micros::MAX };
        assert_eq!(clocks.due(clocks.read(S(2)), huge), Some(Micros::MAX));
    }
}
