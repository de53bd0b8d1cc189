//! Intermediate fixed point: what is computed between two gauges, before it is rounded to a [`Ratio`].

use crate::Ratio;
use core::ops::{Add, Sub};

/// A number in steps of 1e-12. All arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fine(pub i128);

impl Fine {
    /// How many steps make one.
    pub const SCALE: i128 = 1_000_000_000_000;
    /// 0
    pub const ZERO: Fine = Fine(0);
    /// 1
    pub const ONE: Fine = Fine(Self::SCALE);

    /// A whole number.
    pub const fn from_int(n: u64) -> Fine {
        Fine((n as i128).saturating_mul(Self::SCALE))
    }

    /// `num / den`, rounded down; a denominator of zero gives 0.
    pub const fn from_fraction(num: u64, den: u64) -> Fine {
        // A division of this width is the slowest there is, and most often nothing is to be divided.
        if den == 0 || num == 0 {
            Fine(0)
        } else {
            Fine((num as i128).saturating_mul(Self::SCALE) / den as i128)
        }
    }

    /// The same number in finer steps.
    pub const fn from_ratio(ratio: Ratio) -> Fine {
        Fine(ratio.0 as i128 * 1_000_000)
    }

    /// Rounded to the nearest millionth, ties away from zero; saturating.
    pub const fn to_ratio(self) -> Ratio {
        let half = if self.0 < 0 { -500_000 } else { 500_000 };
        let rounded = self.0.saturating_add(half) / 1_000_000;
        if rounded > i64::MAX as i128 {
            Ratio(i64::MAX)
        } else if rounded < i64::MIN as i128 {
            Ratio(i64::MIN)
        } else {
            Ratio(rounded as i64)
        }
    }
}

impl Add for Fine {
    type Output = Fine;
    fn add(self, rhs: Fine) -> Fine {
        Fine(self.0.saturating_add(rhs.0))
    }
}

impl Sub for Fine {
    type Output = Fine;
    fn sub(self, rhs: Fine) -> Fine {
        Fine(self.0.saturating_sub(rhs.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_the_nearest_millionth_and_saturates() {
        for (steps, want) in [
            (0, 0),
            (499_999, 0),
            (500_000, 1),
            (-500_000, -1),
            (-499_999, 0),
            (Fine::SCALE, 1_000_000),
            (i128::MAX, i64::MAX),
            (i128::MIN, i64::MIN),
        ] {
            assert_eq!(Fine(steps).to_ratio(), Ratio(want), "{steps}");
        }
        assert_eq!(Fine(i128::MAX) + Fine::ONE, Fine(i128::MAX));
        assert_eq!(Fine(i128::MIN) - Fine::ONE, Fine(i128::MIN));
        assert_eq!(Fine::from_fraction(1, 3), Fine(333_333_333_333));
        assert_eq!(Fine::from_fraction(1, 0), Fine::ZERO);
        assert_eq!(Fine::from_ratio(Ratio(850_000)), Fine(850_000_000_000));
        assert_eq!(Fine::from_int(u64::MAX).to_ratio(), Ratio(i64::MAX));
    }
}
