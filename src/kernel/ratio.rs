//! Fixed-point gauges: events that hold them compare, hash and print exactly.

use core::fmt;
use serde::{Deserialize, Serialize};

/// A dimensionless gauge in millionths: `Ratio(1_000_000)` is 1.0. Not clamped above: 1.7 is legal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ratio(pub i64);

impl Ratio {
    /// 0.0
    pub const ZERO: Ratio = Ratio(0);
    /// 1.0: the set point of a saturation gauge, the ceiling of an unrestricted band.
    pub const ONE: Ratio = Ratio(1_000_000);

    /// `num / den`, rounded to the nearest millionth, ties away from zero; saturating. `den` of zero gives 0.
    pub const fn from_fraction(num: i128, den: i128) -> Ratio {
        if den == 0 {
            return Ratio(0);
        }
        let scaled = num.saturating_mul(1_000_000);
        let half = if (scaled < 0) == (den < 0) { den.abs() / 2 } else { -(den.abs() / 2) };
        let half = if scaled < 0 { -half.abs() } else { half.abs() };
        let rounded = scaled.saturating_add(half) / den;
        if rounded > i64::MAX as i128 {
            Ratio(i64::MAX)
        } else if rounded < i64::MIN as i128 {
            Ratio(i64::MIN)
        } else {
            Ratio(rounded as i64)
        }
    }

    /// Millionths.
    pub const fn micros(self) -> i64 {
        self.0
    }
}

/// Decimal with at most six places and no trailing zeros: `1.2`, `0.85`, `1`.
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let abs = self.0.unsigned_abs();
        let (whole, mut frac) = (abs / 1_000_000, abs % 1_000_000);
        if frac == 0 {
            return write!(f, "{sign}{whole}");
        }
        let mut width = 6;
        while frac.is_multiple_of(10) {
            frac /= 10;
            width -= 1;
        }
        write!(f, "{sign}{whole}.{frac:0width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn fractions_round_to_the_nearest_millionth() {
        for (num, den, want) in [
            (1, 3, 333_333),
            (2, 3, 666_667),
            (-1, 3, -333_333),
            (1, -3, -333_333),
            (17, 10, 1_700_000),
            (5, 0, 0),
        ] {
            assert_eq!(Ratio::from_fraction(num, den), Ratio(want), "{num}/{den}");
        }
        assert_eq!(Ratio::from_fraction(i128::MAX, 1), Ratio(i64::MAX));
    }

    #[test]
    fn prints_as_a_short_decimal() {
        for (millionths, want) in
            [(1_700_000, "1.7"), (850_000, "0.85"), (-500_000, "-0.5"), (0, "0"), (1, "0.000001")]
        {
            assert_eq!(Ratio(millionths).to_string(), want);
        }
    }
}
