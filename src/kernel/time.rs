//! Time as the kernel knows it: a number it is given, never a clock it reads.

use core::ops::{Add, Sub};
use serde::{Deserialize, Serialize};

/// An instant (microseconds since the Unix epoch) or a span (microseconds).
///
/// Arithmetic saturates at 0 and at `u64::MAX`: no budget, however large, can wrap into the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// Zero: the epoch, or an empty span. As a budget it means "no budget".
    pub const ZERO: Micros = Micros(0);
    /// The end of time, used for "never".
    pub const MAX: Micros = Micros(u64::MAX);

    /// A span of whole milliseconds (saturating).
    pub const fn from_millis(ms: u64) -> Self {
        Micros(ms.saturating_mul(1_000))
    }

    /// A span of whole seconds (saturating).
    pub const fn from_secs(s: u64) -> Self {
        Micros(s.saturating_mul(1_000_000))
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// Zero, which as a budget stands for "none".
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }
}

impl Add for Micros {
    type Output = Micros;
    fn add(self, rhs: Micros) -> Micros {
        Micros(self.0.saturating_add(rhs.0))
    }
}

impl Sub for Micros {
    type Output = Micros;
    fn sub(self, rhs: Micros) -> Micros {
        Micros(self.0.saturating_sub(rhs.0))
    }
}
