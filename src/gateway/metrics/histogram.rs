//! A histogram with fixed bounds, cheap to keep by the thousand.

/// Upper bounds in seconds of queue waits: up to ten minutes, since waits in an empty pool can be that long.
pub const WAIT: [f64; 20] = [
    0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0, 600.0,
];

/// The place of an observation among the buckets.
pub fn bucket(micros: u64) -> usize {
    WAIT.partition_point(|bound| (bound * 1e6) < micros as f64)
}

/// The upper bound of a bucket.
pub fn bound(bucket: usize) -> f64 {
    WAIT.get(bucket).copied().unwrap_or(f64::INFINITY)
}

/// Counts per bound, one more for what is beyond, and the sum.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: [u64; WAIT.len() + 1],
    sum_micros: u64,
}

impl Histogram {
    /// One more observation.
    pub fn observe(&mut self, micros: u64) {
        self.counts[bucket(micros)] += 1;
        self.sum_micros = self.sum_micros.saturating_add(micros);
    }

    /// So many observations of which only the sum is known: each counts as their mean.
    pub fn observe_many(&mut self, sum_micros: u64, count: u64) {
        let mean = sum_micros.checked_div(count).unwrap_or(0);
        self.counts[bucket(mean)] += count;
        self.sum_micros = self.sum_micros.saturating_add(sum_micros);
    }

    /// All observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum in seconds.
    pub fn sum(&self) -> f64 {
        self.sum_micros as f64 / 1e6
    }

    /// Bounds with the count of each bucket alone, the last without bound.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        WAIT.iter().copied().chain([f64::INFINITY]).zip(self.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_nothing_is_lost() {
        let mut histogram = Histogram::default();
        for micros in [0, 100, 101, 600_000_000, 600_000_001, u64::MAX] {
            histogram.observe(micros);
        }
        let buckets = histogram.buckets();
        assert_eq!(buckets[0], (0.0001, 2));
        assert_eq!(buckets[1], (0.0005, 1));
        assert_eq!(buckets[19], (600.0, 1));
        assert_eq!(buckets[20].1, 2);
        assert_eq!(histogram.count(), 6);
    }
}
