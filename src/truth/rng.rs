//! A small seeded generator (SplitMix64), so that a run is repeated by its seed alone.
//!
//! Not for secrets, and not in the kernel: it draws arrivals, classes and faults of simulations.

/// SplitMix64 (Steele, Lea, Flood: *Fast splittable pseudorandom number generators*, 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The same seed gives the same numbers, on every machine.
    pub const fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`; 0 where the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed with this mean (not below 0).
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean.max(0.0) * (1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_paper() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!([rng.bits(), rng.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn draws_stay_in_range_and_keep_their_mean() {
        let mut rng = Rng::new(7);
        let mut sum = 0.0;
        for _ in 0..20_000 {
            assert!(rng.below(10) < 10);
            assert!((0.0..1.0).contains(&rng.unit()));
            sum += rng.exponential(3.0);
        }
        assert!((2.9..3.1).contains(&(sum / 20_000.0)), "{}", sum / 20_000.0);
        assert_eq!(rng.below(0), 0);
    }
}
