//! How many leases a reclamation decision takes back: exact integers, never through a rounded credit (seed-system.md
//! 8.3; contract.md row 23). By the deficit alone, or by the demand that waits.
//!
//! Not here: who they are, and whether a decision may be made at all (`reclaim.rs`); where the figures of the demand
//! come from (`demand.rs`).

use crate::{Fine, Ratio};

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

/// What a decision for the whole demand rests on, beside [`Question`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demanded {
    /// Requests that make use of room when it is there.
    pub demand: u64,
    /// What one dispatch adds to the gauge.
    pub charge: Fine,
    /// What the end of one lease takes off it at the least: a slot of an engine's queue, while these make the gauge.
    pub slot: Option<Fine>,
    /// Leases that will have ended by themselves when the room is there.
    pub natural: u64,
}

/// What rounding the gauge to millionths may have taken from it.
const ROUNDING: i128 = 500_000;

/// `floor((saturation + (demand - 1) x charge - ceiling - pending - natural x c) / c) + 1`, with `c` the larger of
/// `saturation / in_flight` and the slot, rounded up: the least number of ends after which the last of the demand finds
/// the gauge below the ceiling. Never more than that; nothing where none is needed, or where nobody makes use of it.
pub fn needed_for(question: &Question, demanded: &Demanded) -> Option<Needed> {
    let Question { saturation, ceiling, pending, in_flight } = *question;
    if in_flight == 0 || saturation <= Ratio::ZERO || demanded.demand == 0 {
        return None;
    }
    let fine = |ratio: Ratio| Fine::from_ratio(ratio).0;
    let share = share(question, demanded.slot).0;
    let grows = i128::from(demanded.demand - 1).saturating_mul(demanded.charge.0.max(0));
    let relief = i128::from(demanded.natural).saturating_mul(share);
    let target = fine(saturation) - fine(ceiling);
    let net = target
        .saturating_add(grows)
        .saturating_sub(fine(pending))
        .saturating_sub(relief)
        .saturating_add(ROUNDING);
    let wanted = u64::try_from(net.div_euclid(share) + 1).ok().filter(|wanted| *wanted > 0)?;
    Some(Needed { target: Fine(target).to_ratio(), credit: up(share), wanted })
}

/// What the end of one lease is expected to take off the gauge, rounded up; above zero.
pub fn share(question: &Question, slot: Option<Fine>) -> Fine {
    mean(question).max(slot.unwrap_or(Fine::ZERO)).max(Fine(1))
}

/// The mean footprint of a lease, rounded up.
pub fn mean(question: &Question) -> Fine {
    let leases = i128::from(question.in_flight.max(1));
    Fine(ceil(Fine::from_ratio(question.saturation).0, leases))
}

/// In millionths, rounded up.
pub(crate) fn up(steps: i128) -> Ratio {
    Ratio(i64::try_from(ceil(steps, 1_000_000)).unwrap_or(i64::MAX))
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
    fn how_many_for_a_demand_by_hand() {
        let third = Fine::from_fraction(1, 3);
        let slot = Some(Fine(333_333_333_334));
        // Saturation, ceiling, pending, in flight; demand, charge, slot, natural ends; wanted.
        for (saturation, ceiling, pending, in_flight, demand, charge, slot, natural, wanted) in [
            // The pool of the vectors: 20 units of 0.05, ceiling 0.9; the analytic minima 3, 12 and 20 + 14.
            (1_000_000, 900_000, 0, 20, 1, Fine(50_000_000_000), None, 0, Some(3)),
            (1_000_000, 900_000, 0, 20, 10, Fine(50_000_000_000), None, 0, Some(12)),
            (1_000_000, 900_000, 0, 20, 32, Fine(50_000_000_000), None, 0, Some(34)),
            // At the ceiling one for the first, and one for each more.
            (900_000, 900_000, 0, 18, 1, Fine(50_000_000_000), None, 0, Some(1)),
            (900_000, 900_000, 0, 18, 4, Fine(50_000_000_000), None, 0, Some(4)),
            // Nobody, or below the ceiling by then.
            (1_000_000, 900_000, 0, 20, 0, Fine(50_000_000_000), None, 0, None),
            (1_000_000, 900_000, 150_000, 20, 1, Fine(50_000_000_000), None, 0, None),
            (1_000_000, 900_000, 100_000, 20, 1, Fine(50_000_000_000), None, 0, Some(1)),
            (1_000_000, 900_000, 0, 20, 10, Fine(50_000_000_000), None, 5, Some(7)),
            (1_000_000, 900_000, 0, 20, 1, Fine(50_000_000_000), None, 3, None),
            // 4 waiting of 3 allowed, 250 running: by the mean footprint 64, by slots of the queue 2.
            (1_333_333, 1_000_000, 0, 254, 1, third, slot, 0, Some(2)),
            (1_333_333, 1_000_000, 0, 254, 1, third, None, 0, Some(64)),
            (1_333_333, 1_000_000, 0, 254, 7, third, slot, 0, Some(8)),
            (0, 0, 0, 3, 1, Fine::ZERO, None, 0, None),
            (1, 0, 0, 0, 1, Fine::ZERO, None, 0, None),
            (i64::MAX, 0, 0, u64::MAX, u64::MAX, Fine(i128::MAX), None, 0, None),
        ] {
            let (saturation, ceiling, pending) = (Ratio(saturation), Ratio(ceiling), Ratio(pending));
            let question = Question { saturation, ceiling, pending, in_flight };
            let demanded = Demanded { demand, charge, slot, natural };
            let found = needed_for(&question, &demanded).map(|needed| needed.wanted);
            assert_eq!(found, wanted, "{question:?} {demanded:?}");
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
