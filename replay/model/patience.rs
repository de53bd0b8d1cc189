//! How long callers wait before they give up: the product-limit estimate (Kaplan and Meier, JASA 53, 1958).
//!
//! A request that was admitted or shed tells only that its caller's patience was longer. Waits are kept in classes of a
//! sixteenth of their power of two.

use super::Draw;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_kernel::Micros;

/// Waits by class: callers that gave up, and those that did not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patience {
    waits: BTreeMap<u32, (u64, u64)>,
}

fn class(wait: Micros) -> u32 {
    let us = wait.0.max(16);
    let power = us.ilog2();
    power * 16 + ((us >> (power - 4)) & 15) as u32
}

/// The end of a class.
fn end(class: u32) -> Micros {
    let (power, part) = (class / 16, u64::from(class % 16));
    Micros((17 + part) << (power - 4))
}

impl Patience {
    /// A wait ended, by its caller or otherwise.
    pub fn note(&mut self, wait: Micros, gave_up: bool) {
        let at = self.waits.entry(class(wait)).or_default();
        if gave_up {
            at.0 += 1;
        } else {
            at.1 += 1;
        }
    }

    /// How many gave up.
    pub fn gave_up(&self) -> u64 {
        self.waits.values().map(|(gave_up, _)| gave_up).sum()
    }

    /// When a caller that has waited this long gives up; none = not within what the log can tell.
    pub fn draw(&self, waited: Micros, draw: &mut Draw) -> Option<Micros> {
        let from = class(waited);
        let mut at_risk: u64 = self.waits.range(from..).map(|(_, (a, b))| a + b).sum();
        let mut left = draw.unit();
        for (class, (gave_up, others)) in self.waits.range(from..) {
            if *gave_up > 0 {
                let leaves = *gave_up as f64 / at_risk as f64;
                if left < leaves {
                    return Some(end(*class).max(waited));
                }
                left = (left - leaves) / (1.0 - leaves);
            }
            at_risk -= gave_up + others;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn censored_waits_count_as_at_risk_and_no_longer() {
        let mut patience = Patience::default();
        for _ in 0..50 {
            patience.note(Micros::from_secs(1), false);
        }
        for _ in 0..25 {
            patience.note(Micros::from_secs(5), true);
        }
        for _ in 0..25 {
            patience.note(Micros::from_secs(20), false);
        }
        assert_eq!(patience.gave_up(), 25);
        // Of those that got as far as 5 s, half gave up.
        let draws: Vec<_> = (0..2_000).map(|n| patience.draw(Micros::ZERO, &mut Draw::new(1, n))).collect();
        let gave_up = draws.iter().flatten().count();
        assert!((900..1_100).contains(&gave_up), "{gave_up}");
        assert!(draws.iter().flatten().all(|at| (5_000_000..5_500_000).contains(&at.0)));
        assert_eq!(patience.draw(Micros::from_secs(30), &mut Draw::new(1, 1)), None);
    }

    #[test]
    fn classes_hold_their_waits() {
        for us in [1, 16, 17, 1_000, 65_535, 65_536, 60_000_000] {
            let class = class(Micros(us));
            assert!(end(class) > Micros(us), "{us}");
            assert!(end(class).0 <= us.max(16) + us.max(16) / 8, "{us}");
        }
    }
}
