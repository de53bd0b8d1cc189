//! How many leases a reclamation decision takes back: exact integers, never through a rounded credit (seed-system.md
//! 8.3; contract.md row 23).
//!
//! Not here: who they are, and whether a decision may be made at all (`reclaim.rs`).

use crate::Ratio;

/// What the decision rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The gauge.
    pub saturation: Ratio,
    /// The blocked band's ceiling.
    pub ceiling: Ratio,
    /// By how much the gauge is expected to fall because of earlier revocations.
    pub pending: Ratio,
    /// Leases that the gauge shows, revoked ones whose stream has not ended included.
    pub in_flight: u64,
}

/// What it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// By how much the gauge should fall, without regard to what is pending.
    pub target: Ratio,
    /// What the end of one lease is expected to take off it, rounded up.
    pub credit: Ratio,
    /// Leases to take back, before any cap; at least 1.
    pub wanted: u64,
}

/// `ceil(net x in_flight / saturation)`, at least 1, with `net = saturation - ceiling - pending`.
///
/// Nothing where no lease or no load is shown, where the gauge will be below the ceiling, and at the ceiling exactly
/// where something is pending. (At the ceiling a band is blocked, so standing there needs one.)
pub fn needed(question: &Question) -> Option<Needed> {
    let Question { saturation, ceiling, pending, in_flight } = *question;
    if in_flight == 0 || saturation <= Ratio::ZERO {
        return None;
    }
    let target = i128::from(saturation.0) - i128::from(ceiling.0);
    let net = target - i128::from(pending.0);
    if net < 0 || (net == 0 && pending > Ratio::ZERO) {
        return None;
    }
    let whole = i128::from(saturation.0);
    let wanted = ceil(net.saturating_mul(i128::from(in_flight)), whole).max(1);
    Some(Needed {
        target: Ratio(i64::try_from(target).unwrap_or(i64::MAX)),
        credit: Ratio(i64::try_from(ceil(whole, i128::from(in_flight))).unwrap_or(i64::MAX)),
        wanted: u64::try_from(wanted).unwrap_or(u64::MAX),
    })
}

fn ceil(number: i128, by: i128) -> i128 {
    number / by + i128::from(number % by > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c063_how_many_by_hand() {
        // Saturation, ceiling, pending, in flight; wanted.
        for (saturation, ceiling, pending, in_flight, wanted) in [
            (1_200_000, 1_000_000, 0, 6, Some(1)),
            (2_000_000, 1_000_000, 0, 4, Some(2)),
            (900_000, 1_000_000, 0, 6, None),
            (1_000_000, 1_000_000, 0, 10, Some(1)),
            (1_500_000, 1_000_000, 0, 0, None),
            (1_000_000, 1_000_000, 100_000, 10, None),
            (2_000_000, 1_000_000, 500_000, 4, Some(1)),
            (2_000_000, 1_000_000, 1_100_000, 4, None),
            // Floating point gives 4 and 4 (contract.md row 23).
            (1_000_000, 700_000, 0, 10, Some(3)),
            (1_000_000, 500_000, 0, 6, Some(3)),
            (0, 0, 0, 10, None),
            (1_000_000, 0, 0, 10, Some(10)),
            (i64::MAX, 0, 0, u64::MAX, Some(u64::MAX)),
        ] {
            let (saturation, ceiling, pending) = (Ratio(saturation), Ratio(ceiling), Ratio(pending));
            let question = Question { saturation, ceiling, pending, in_flight };
            assert_eq!(needed(&question).map(|needed| needed.wanted), wanted, "{question:?}");
        }
    }

    #[test]
    fn a_credit_is_rounded_up_and_numbers_of_others_do_not_overflow() {
        let question = |saturation| Question {
            saturation: Ratio(saturation),
            ceiling: Ratio(i64::MIN),
            pending: Ratio(i64::MIN),
            in_flight: 3,
        };
        assert_eq!(needed(&question(1_000_000)).map(|needed| needed.credit), Some(Ratio(333_334)));
        assert_eq!(needed(&question(i64::MAX)).map(|needed| needed.target), Some(Ratio(i64::MAX)));
    }
}
