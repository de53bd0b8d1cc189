//! Ceilings of the bands: what each usage-limit policy allows at a given saturation (seed-system.md 10.2).
//!
//! Exact integers throughout. Not here: whether a band has queued work, and when the alternation ticks.

use crate::{HoldbackDomain, Ratio, UsageLimit};

/// What a band may do in this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ceiling {
    /// It may dispatch while saturation is below this.
    Open(Ratio),
    /// Soft-reflective: open on each tick that `period` divides, shut on the others. `period` is at least 1.
    Gated {
        /// In ticks.
        period: u64,
    },
}

impl Ceiling {
    /// The ceiling as a number at this tick of the alternation.
    pub const fn at_tick(self, tick: u64) -> Ratio {
        match self {
            Ceiling::Open(ceiling) => ceiling,
            Ceiling::Gated { period: 0 } => Ratio::ONE,
            Ceiling::Gated { period } => {
                if tick.is_multiple_of(period) {
                    Ratio::ONE
                } else {
                    Ratio::ZERO
                }
            }
        }
    }
}

/// The ceiling of the band of this priority.
///
/// `ranked` are the priorities of the configured and desired bands, highest first. A band that is not among them
/// (provisioned by traffic) has the ceiling of the next one of them below it, else of the lowest: so a client that
/// names priorities cannot move the ceilings of others. Fixed ceilings go by priority alone.
pub fn ceiling(limit: &UsageLimit, saturation: Ratio, priority: i32, ranked: &[i32]) -> Ceiling {
    if let UsageLimit::Fixed { ceilings, default } = limit {
        return Ceiling::Open(ceilings.get(&priority).copied().unwrap_or(*default));
    }
    let rank = ranked.partition_point(|other| *other > priority);
    ceiling_at(limit, saturation, rank.min(ranked.len().saturating_sub(1)), ranked)
}

/// The ceiling of the band at `rank` (0 = highest) among `ranked`, highest first. A rank beyond the end reads as
/// the lowest; with no bands at all the policy's most open ceiling is given.
pub fn ceiling_at(limit: &UsageLimit, saturation: Ratio, rank: usize, ranked: &[i32]) -> Ceiling {
    let rank = rank.min(ranked.len().saturating_sub(1));
    match limit {
        UsageLimit::Static { threshold } => Ceiling::Open(*threshold),
        UsageLimit::Fixed { ceilings, default } => {
            let named = ranked.get(rank).and_then(|priority| ceilings.get(priority));
            Ceiling::Open(named.copied().unwrap_or(*default))
        }
        UsageLimit::Holdback { min, max, domain } => {
            Ceiling::Open(holdback(*min, *max, *domain, rank, ranked))
        }
        UsageLimit::SoftReflective => soft_reflective(saturation, rank, ranked.len()),
    }
}

/// Does this saturation lie where soft-reflective ceilings alternate (`1 - s <= s < 1`), so that the tick moves on?
pub fn alternates(limit: &UsageLimit, saturation: Ratio) -> bool {
    matches!(limit, UsageLimit::SoftReflective)
        && saturation < Ratio::ONE
        && i128::from(saturation.0) * 2 >= i128::from(Ratio::ONE.0)
}

/// By rank `max - i (max - min) / (N - 1)`; by value `min + (p - p_min) / (p_max - p_min) (max - min)`.
/// A lone band, and bands that are all of one priority, get `max`.
fn holdback(min: Ratio, max: Ratio, domain: HoldbackDomain, rank: usize, ranked: &[i32]) -> Ratio {
    let (Some(highest), Some(lowest), Some(own)) = (ranked.first(), ranked.last(), ranked.get(rank)) else {
        return max;
    };
    let (above_lowest, span) = match domain {
        HoldbackDomain::Rank => {
            let last = ranked.len() - 1;
            ((last - rank) as i128, last as i128)
        }
        HoldbackDomain::Value => {
            (i128::from(*own) - i128::from(*lowest), i128::from(*highest) - i128::from(*lowest))
        }
    };
    if span <= 0 {
        return max;
    }
    let range = i128::from(max.0) - i128::from(min.0);
    let millionths = i128::from(min.0) + round_half_up(above_lowest * range, span);
    Ratio(i64::try_from(millionths).unwrap_or(max.0))
}

/// Band 0 is never gated. Below it `r = 1 - i s / (N - 1)`: open while `s < r`, shut from `s >= 1` on, and in
/// between open on every `round(s / (1 - s))`-th tick.
fn soft_reflective(saturation: Ratio, rank: usize, bands: usize) -> Ceiling {
    let one = i128::from(Ratio::ONE.0);
    let s = i128::from(saturation.0);
    if rank == 0 || bands < 2 {
        return Ceiling::Open(Ratio::ONE);
    }
    let (i, steps) = (rank as i128, (bands - 1) as i128);
    if s * steps < one * steps - i * s {
        Ceiling::Open(Ratio::ONE)
    } else if s >= one {
        Ceiling::Open(Ratio::ZERO)
    } else {
        let period = round_half_up(s, one - s).max(1);
        Ceiling::Gated { period: u64::try_from(period).unwrap_or(1) }
    }
}

/// `num / den` to the nearest whole number, ties up; for `num >= 0` and `den > 0`.
fn round_half_up(num: i128, den: i128) -> i128 {
    (2 * num + den).div_euclid(2 * den)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    fn open(limit: &UsageLimit, saturation: i64, ranked: &[i32]) -> Vec<i64> {
        (0..ranked.len())
            .map(|rank| ceiling_at(limit, Ratio(saturation), rank, ranked).at_tick(1).0)
            .collect()
    }

    fn hold(min: i64, max: i64, domain: HoldbackDomain) -> UsageLimit {
        UsageLimit::Holdback { min: Ratio(min), max: Ratio(max), domain }
    }

    #[test]
    fn holdback_interpolates_by_rank_or_by_value() {
        use HoldbackDomain::{Rank, Value};
        for (min, max, domain, ranked, want) in [
            (400_000, 900_000, Rank, &[100, 0, -10][..], &[900_000, 650_000, 400_000][..]),
            (400_000, 900_000, Value, &[100, 0, -10], &[900_000, 445_455, 400_000]),
            (500_000, 1_000_000, Rank, &[10], &[1_000_000]),
            (500_000, 1_000_000, Value, &[10], &[1_000_000]),
            (500_000, 1_000_000, Rank, &[1_000, 2, 1], &[1_000_000, 750_000, 500_000]),
            (200_000, 900_000, Rank, &[50, 40, 30, 20, 10], &[900_000, 725_000, 550_000, 375_000, 200_000]),
            (500_000, 1_000_000, Value, &[100, 2, 1], &[1_000_000, 505_051, 500_000]),
            (500_000, 1_000_000, Value, &[10, 10, 10], &[1_000_000, 1_000_000, 1_000_000]),
            (500_000, 1_000_000, Value, &[10, -5, -20], &[1_000_000, 750_000, 500_000]),
            (0, 1_000_000, Value, &[i32::MAX, 0, i32::MIN], &[1_000_000, 500_000, 0]),
        ] {
            assert_eq!(open(&hold(min, max, domain), 500_000, ranked), want, "{domain:?} {ranked:?}");
        }
    }

    #[test]
    fn c052_one_band_and_c051_no_band_never_divide_by_zero() {
        for limit in [
            hold(500_000, 1_000_000, HoldbackDomain::Rank),
            hold(500_000, 1_000_000, HoldbackDomain::Value),
            UsageLimit::SoftReflective,
            UsageLimit::Static { threshold: Ratio::ONE },
        ] {
            for ranked in [&[][..], &[7]] {
                for s in [i64::MIN, 0, 500_000, 990_000, 1_000_000, i64::MAX] {
                    assert_eq!(ceiling(&limit, Ratio(s), 7, ranked), Ceiling::Open(Ratio::ONE), "{limit:?}");
                }
            }
        }
    }

    #[test]
    fn c054_a_ceiling_of_zero_is_a_ceiling() {
        let limit = hold(0, 1_000_000, HoldbackDomain::Rank);
        assert_eq!(ceiling(&limit, Ratio::ZERO, -1, &[1, -1]), Ceiling::Open(Ratio::ZERO));
        assert_eq!(
            ceiling(&UsageLimit::SoftReflective, Ratio::ONE, -1, &[1, -1]),
            Ceiling::Open(Ratio::ZERO)
        );
    }

    #[test]
    fn soft_reflective_periods_are_exact() {
        for (s, bands, rank, want) in [
            (550_000, 2, 1, Ceiling::Gated { period: 1 }),
            (500_000, 2, 1, Ceiling::Gated { period: 1 }),
            (499_999, 2, 1, Ceiling::Open(Ratio::ONE)),
            (600_000, 2, 1, Ceiling::Gated { period: 2 }),
            (700_000, 3, 2, Ceiling::Gated { period: 2 }),
            (700_000, 3, 1, Ceiling::Gated { period: 2 }),
            (700_000, 3, 0, Ceiling::Open(Ratio::ONE)),
            (750_000, 2, 1, Ceiling::Gated { period: 3 }),
            (900_000, 2, 1, Ceiling::Gated { period: 9 }),
            (999_999, 2, 1, Ceiling::Gated { period: 999_999 }),
            (1_000_000, 2, 1, Ceiling::Open(Ratio::ZERO)),
            (1_700_000, 2, 1, Ceiling::Open(Ratio::ZERO)),
            (600_000, 3, 1, Ceiling::Open(Ratio::ONE)),
            (-1, 2, 1, Ceiling::Open(Ratio::ONE)),
        ] {
            let ranked: Vec<i32> = (0..bands).rev().collect();
            assert_eq!(ceiling_at(&UsageLimit::SoftReflective, Ratio(s), rank, &ranked), want, "{s} {rank}");
        }
        let gate = Ceiling::Gated { period: 3 };
        assert_eq!([1, 2, 3, 4].map(|tick| gate.at_tick(tick).0), [0, 0, 1_000_000, 0]);
        for (s, want) in [(499_999, false), (500_000, true), (999_999, true), (1_000_000, false)] {
            assert_eq!(alternates(&UsageLimit::SoftReflective, Ratio(s)), want, "{s}");
        }
        assert!(!alternates(&UsageLimit::Static { threshold: Ratio::ONE }, Ratio(700_000)));
    }

    #[test]
    fn a_provisioned_band_takes_the_ceiling_of_the_next_ranked_one_below() {
        let limit = hold(400_000, 900_000, HoldbackDomain::Rank);
        for (priority, want) in [
            (500, 900_000),
            (100, 900_000),
            (99, 650_000),
            (0, 650_000),
            (-1, 400_000),
            (-10, 400_000),
            (-999, 400_000),
        ] {
            let got = ceiling(&limit, Ratio(700_000), priority, &[100, 0, -10]);
            assert_eq!(got, Ceiling::Open(Ratio(want)), "{priority}");
        }
    }

    #[test]
    fn fixed_ceilings_go_by_priority() {
        let limit =
            UsageLimit::Fixed { ceilings: BTreeMap::from([(-10, Ratio(500_000))]), default: Ratio::ONE };
        assert_eq!(ceiling(&limit, Ratio::ZERO, -10, &[0]), Ceiling::Open(Ratio(500_000)));
        assert_eq!(ceiling(&limit, Ratio::ZERO, -11, &[0, -10]), Ceiling::Open(Ratio::ONE));
        assert_eq!(open(&limit, 0, &[0, -10]), [1_000_000, 500_000]);
    }

    #[test]
    fn ceilings_never_rise_towards_lower_bands() {
        let ranked = [40, 7, 6, 0, -3, -90];
        for limit in [
            hold(100_000, 930_000, HoldbackDomain::Rank),
            hold(100_000, 930_000, HoldbackDomain::Value),
            UsageLimit::SoftReflective,
        ] {
            for s in (0..1_200_000).step_by(7_919) {
                for tick in 1..7 {
                    let all: Vec<i64> = (-100..60)
                        .rev()
                        .map(|p| ceiling(&limit, Ratio(s), p, &ranked).at_tick(tick).0)
                        .collect();
                    assert!(all.windows(2).all(|pair| pair[0] >= pair[1]), "{limit:?} at {s}: {all:?}");
                }
            }
        }
    }
}
