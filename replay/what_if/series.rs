//! How a run went over time, in a bounded number of stretches: for pictures.

use weir_kernel::{Micros, Outcome, State};

/// Stretches at most; where more would be needed, two become one.
const MAX: usize = 320;

/// One stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bucket {
    /// Admitted until its end, since the log began.
    pub admitted: u64,
    /// Shed until its end, since the log began.
    pub shed: u64,
    /// The longest queue in it.
    pub queued: u64,
    /// The highest gauge in it.
    pub saturation: f64,
    /// The lowest and the highest ceiling of a band.
    pub ceilings: (f64, f64),
    /// The runs were apart in it.
    pub parted: bool,
    /// Something was noted in it.
    pub seen: bool,
}

/// Stretches of equal length from a beginning on.
#[derive(Clone, Debug)]
pub struct Series {
    /// When it begins.
    pub start: Option<Micros>,
    /// The length of a stretch.
    pub width: Micros,
    /// The stretches.
    pub buckets: Vec<Bucket>,
}

impl Default for Series {
    fn default() -> Self {
        Series { start: None, width: Micros::from_millis(250), buckets: Vec::new() }
    }
}

impl Series {
    /// Notes a state.
    pub fn note(&mut self, at: Micros, state: &State, parted: bool) {
        let start = *self.start.get_or_insert(at);
        while (at.since(start).0 / self.width.0) as usize >= MAX {
            self.halve();
        }
        let index = (at.since(start).0 / self.width.0) as usize;
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, Bucket::default());
        }
        let Some(bucket) = self.buckets.get_mut(index) else { return };
        if !bucket.seen {
            let ratio = |ceiling: weir_kernel::Ratio| ceiling.micros() as f64 / 1e6;
            let ceilings = state.bands().map(|band| ratio(band.ceiling));
            let found =
                ceilings.fold((f64::MAX, 0.0), |(low, high): (f64, f64), c| (low.min(c), high.max(c)));
            // Before there is a band, nothing is held back.
            bucket.ceilings = if found.0 > found.1 { (1.0, 1.0) } else { found };
        }
        let outcomes = &state.counters().outcomes;
        bucket.seen = true;
        bucket.admitted = outcomes[Outcome::Dispatched.index()];
        bucket.shed = outcomes.iter().sum::<u64>() - bucket.admitted;
        bucket.queued = bucket.queued.max(state.queued());
        bucket.saturation = bucket.saturation.max(state.saturation().1.micros() as f64 / 1e6);
        bucket.parted |= parted;
    }

    fn halve(&mut self) {
        self.width = self.width + self.width;
        let merged = self.buckets.chunks(2).map(|pair| {
            let (a, b) = (pair[0], pair.get(1).copied().unwrap_or_default());
            let last = if b.seen { b } else { a };
            Bucket {
                admitted: last.admitted,
                shed: last.shed,
                queued: a.queued.max(b.queued),
                saturation: a.saturation.max(b.saturation),
                ceilings: if a.seen { a.ceilings } else { b.ceilings },
                parted: a.parted || b.parted,
                seen: a.seen || b.seen,
            }
        });
        self.buckets = merged.collect();
    }

    /// One value for each stretch in which something was noted: seconds from the beginning, and the value.
    pub fn points(&self, value: impl Fn(&Bucket) -> f64) -> Vec<(f64, f64)> {
        let at = |n: usize| n as f64 * self.width.0 as f64 / 1e6;
        self.buckets.iter().enumerate().filter(|(_, b)| b.seen).map(|(n, b)| (at(n), value(b))).collect()
    }

    /// A count per second from one that only grows.
    pub fn rate(&self, value: impl Fn(&Bucket) -> u64) -> Vec<(f64, f64)> {
        let mut before: Option<(f64, f64)> = None;
        let mut all = Vec::new();
        for (at, now) in self.points(|bucket| value(bucket) as f64) {
            if let Some((then, was)) = before {
                all.push((at, (now - was) / (at - then).max(1e-9)));
            }
            before = Some((at, now));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_grow_with_time_and_stay_few() {
        let (mut series, state) = (Series::default(), State::new());
        for second in 0..7_200 {
            series.note(Micros::from_secs(1_000 + second), &state, second == 3_000);
        }
        assert!(series.buckets.len() <= MAX && series.buckets.len() > MAX / 3, "{}", series.buckets.len());
        assert_eq!(series.buckets.iter().filter(|bucket| bucket.parted).count(), 1);
        let last = series.points(|_| 1.0).last().copied().unwrap();
        assert!((7_100.0..7_201.0).contains(&last.0), "{last:?}");
        assert!(series.rate(|bucket| bucket.admitted).iter().all(|(_, rate)| *rate == 0.0));
    }
}
