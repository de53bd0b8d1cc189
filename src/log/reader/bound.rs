//! An end of a range, by sequence or by time.

use crate::describe::parse_time;
use std::str::FromStr;
use weir_kernel::Micros;

/// An end of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    /// As far as there is something.
    #[default]
    Open,
    /// This sequence, included.
    Seq(u64),
    /// This time, included.
    Time(Micros),
}

impl Bound {
    /// As a lower bound: is this step before it?
    pub fn excludes_before(self, seq: u64, at: Micros) -> bool {
        match self {
            Bound::Open => false,
            Bound::Seq(first) => seq < first,
            Bound::Time(first) => at < first,
        }
    }

    /// As an upper bound: is this step after it?
    pub fn excludes_after(self, seq: u64, at: Micros) -> bool {
        match self {
            Bound::Open => false,
            Bound::Seq(last) => seq > last,
            Bound::Time(last) => at > last,
        }
    }
}

/// Digits alone are a sequence, everything else is a time (see [`parse_time`]).
impl FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text
                .parse()
                .map(Bound::Seq)
                .map_err(|_| format!("{text} is no sequence: allowed is 0 to {}", u64::MAX));
        }
        parse_time(text).map(Bound::Time).map_err(|error| format!("{error}, or a sequence"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_a_sequence_and_the_rest_a_time() {
        assert_eq!("42".parse(), Ok(Bound::Seq(42)));
        assert_eq!("2025-11-30".parse(), Ok(Bound::Time(Micros(1_764_460_800_000_000))));
        assert_eq!("@1764460800".parse(), Ok(Bound::Time(Micros(1_764_460_800_000_000))));
        for wrong in ["", "-3", "99999999999999999999999", "noon"] {
            assert!(wrong.parse::<Bound>().is_err(), "{wrong}");
        }
    }
}
