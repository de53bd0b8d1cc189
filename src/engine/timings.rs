//! How long the kernel takes for a step, and how late a deadline is noticed. Kept by the pool's thread without a lock; the
//! figures of a batch are added up where others can read them when the batch is handed over.

use std::time::Duration;

/// Upper bounds of the buckets, in nanoseconds; one more bucket lies above the last.
pub const STEP_BOUNDS_NS: [u64; 12] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    1_000_000,
    5_000_000,
    25_000_000,
    100_000_000,
];

/// Durations by size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// How many, by bucket.
    pub counts: [u64; STEP_BOUNDS_NS.len() + 1],
    /// Their sum, in nanoseconds.
    pub sum_ns: u64,
}

impl Spread {
    pub(super) fn add(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[STEP_BOUNDS_NS.partition_point(|bound| *bound < ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    fn merge(&mut self, other: &Spread) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
}

/// The figures of one pool since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Steps of the kernel.
    pub steps: Spread,
    /// From a deadline to the step that acts on it.
    pub lateness: Spread,
}

impl Timings {
    /// Adds these to others, and begins anew.
    pub(super) fn hand_over(&mut self, to: &mut Timings) {
        to.steps.merge(&self.steps);
        to.lateness.merge(&self.lateness);
        *self = Timings::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_batches_add_up() {
        let (mut own, mut all) = (Timings::default(), Timings::default());
        for ns in [0, 1_000, 1_001, 100_000_000, 100_000_001] {
            own.steps.add(Duration::from_nanos(ns));
        }
        own.hand_over(&mut all);
        assert_eq!(own, Timings::default());
        own.lateness.add(Duration::from_millis(2));
        own.hand_over(&mut all);
        assert_eq!((all.steps.counts[0], all.steps.counts[1]), (2, 1));
        assert_eq!((all.steps.counts[11], all.steps.counts[12]), (1, 1));
        assert_eq!(all.lateness.counts.iter().sum::<u64>(), 1);
        assert_eq!(all.lateness.sum_ns, 2_000_000);
    }
}
