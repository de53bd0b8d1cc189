//! How far a prediction is from what then happened.

use crate::what_if::Tally;

/// The figures that are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Share of requests that were not admitted.
    pub shed_rate: f64,
    /// Queue waits of the admitted: the median, in ms.
    pub p50: f64,
    /// The 95th percentile, in ms.
    pub p95: f64,
}

impl Figures {
    /// Of a row of counts.
    pub fn of(tally: &Tally) -> Figures {
        let ms = |q| tally.waits.quantile(q).map_or(0.0, |wait| wait.0 as f64 / 1e3);
        Figures { shed_rate: tally.shed_rate(), p50: ms(0.5), p95: ms(0.95) }
    }

    /// The three, in turn.
    pub const fn all(&self) -> [f64; 3] {
        [self.shed_rate, self.p50, self.p95]
    }
}

/// Within these bounds a prediction holds: two percentage points; 10 %, 50 ms or the noise floor.
pub fn holds(predicted: &Figures, actual: &Figures, noise: &Figures) -> [bool; 3] {
    let wait = |p: f64, a: f64, n: f64| (p - a).abs() <= (0.1 * a).max(50.0).max((n - a).abs());
    [
        (predicted.shed_rate - actual.shed_rate).abs() <= 0.02,
        wait(predicted.p50, actual.p50, noise.p50),
        wait(predicted.p95, actual.p95, noise.p95),
    ]
}

/// A 90 % interval of each figure from draws, around the prediction.
pub fn intervals(predicted: &Figures, draws: &[Figures]) -> [(f64, f64); 3] {
    let mut all = [(0.0, 0.0); 3];
    for (n, interval) in all.iter_mut().enumerate() {
        let mut values: Vec<f64> = draws.iter().map(|figures| figures.all()[n]).collect();
        values.push(predicted.all()[n]);
        values.sort_by(f64::total_cmp);
        let at = |q: f64| values[((values.len() - 1) as f64 * q).round() as usize];
        *interval = (at(0.05), at(0.95));
    }
    all
}

/// The interval score (Gneiting and Raftery, JASA 102, 2007): width, and 2/α times the miss; smaller is better.
pub fn interval_score((low, high): (f64, f64), actual: f64) -> f64 {
    let alpha = 0.1;
    (high - low) + 2.0 / alpha * ((low - actual).max(0.0) + (actual - high).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_documentation() {
        let f = |shed_rate, p50, p95| Figures { shed_rate, p50, p95 };
        let actual = f(0.10, 1_000.0, 100.0);
        assert_eq!(holds(&f(0.119, 1_099.0, 149.0), &actual, &actual), [true; 3]);
        assert_eq!(holds(&f(0.121, 1_101.0, 151.0), &actual, &actual), [false; 3]);
        assert_eq!(holds(&f(0.10, 1_300.0, 100.0), &actual, &f(0.1, 1_300.0, 100.0)), [true; 3]);
        assert_eq!(interval_score((1.0, 3.0), 2.0), 2.0);
        assert_eq!(interval_score((1.0, 3.0), 4.0), 22.0);
        let draws = [f(0.1, 1.0, 1.0), f(0.3, 2.0, 5.0)];
        assert_eq!(intervals(&f(0.2, 1.5, 2.0), &draws)[0], (0.1, 0.3));
    }
}
