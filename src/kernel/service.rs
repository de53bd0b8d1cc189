//! Least attained service: what a flow has used, decaying, and how flows compare (seed-system.md 10.1).
//!
//! Service is stored *scaled*: multiplied by `2^((now - epoch) / half_life)` when it is charged. So the stored values
//! of all flows decay together without being touched, and compare as they stand. Now and then the epoch moves on and
//! every value is shifted down once. Unit: micro-tokens. Not here: when that happens, and whose turn it is.

use crate::{Fine, Micros, ProgramAware, Ratio, Usage};

/// Half-lives after which the epoch should move on. A charge at this point still leaves 2^40 of room.
const RESCALE_AFTER: u64 = 32;

/// Beyond this many half-lives a value that was not rescaled saturates.
const MOST_HALF_LIVES: u64 = 100;

/// `2^(2^-i)` for i = 1..=32 in steps of 2^-62, by repeated square roots.
const ROOTS: [u64; 32] = roots();

const fn roots() -> [u64; 32] {
    let mut all = [0_u64; 32];
    let mut root: u128 = 2 << 62;
    let mut i = 0;
    while i < all.len() {
        root = (root << 62).isqrt();
        all[i] = root as u64;
        i += 1;
    }
    all
}

/// Whole half-lives since the epoch, and the rest in steps of 2^-32 of a half-life.
fn half_lives(now: Micros, epoch: Micros, half_life: Micros) -> (u64, u32) {
    let elapsed = now.since(epoch).0;
    let (Some(whole), Some(rest)) = (elapsed.checked_div(half_life.0), elapsed.checked_rem(half_life.0))
    else {
        return (0, 0);
    };
    let part = (u128::from(rest) << 32) / u128::from(half_life.0);
    (whole, u32::try_from(part).unwrap_or(u32::MAX))
}

/// `2^part` for a part of one, in steps of 2^-62: from 2^62 up to just below 2^63.
fn power(part: u32) -> u64 {
    let mut product: u128 = 1 << 62;
    for (i, root) in ROOTS.iter().enumerate() {
        if part & (1 << (31 - i)) != 0 {
            product = (product * u128::from(*root)) >> 62;
        }
    }
    product as u64
}

/// `value * factor >> shift` without losing the upper half; saturating. `shift` is at least 62.
fn scale(value: u128, factor: u64, shift: u32) -> u128 {
    let factor = u128::from(factor);
    let low = (value & u128::from(u64::MAX)) * factor;
    // In steps of 2^64.
    let high = (value >> 64) * factor + (low >> 64);
    match shift.checked_sub(64) {
        Some(more) => high.checked_shr(more).unwrap_or(0),
        None => {
            let up = 64 - shift;
            let rest = (low & u128::from(u64::MAX)) >> shift;
            if high.leading_zeros() < up { u128::MAX } else { (high << up) | rest }
        }
    }
}

/// What a completed request costs: prompt + 2 x completion, in tokens.
pub const fn cost(usage: Usage) -> u64 {
    usage.prompt as u64 + 2 * usage.completion as u64
}

/// The scaled service after a completion at `now`.
pub fn charge(service_scaled: u128, usage: Usage, now: Micros, epoch: Micros, half_life: Micros) -> u128 {
    let (whole, part) = half_lives(now, epoch, half_life);
    let micro_tokens = u128::from(cost(usage)) * 1_000_000;
    let partly = scale(micro_tokens, power(part), 62);
    let up = whole.min(MOST_HALF_LIVES) as u32;
    let scaled = if partly.leading_zeros() < up { u128::MAX } else { partly << up };
    service_scaled.saturating_add(scaled)
}

/// The decayed service at `now`, in micro-tokens, rounded down.
pub fn read(service_scaled: u128, now: Micros, epoch: Micros, half_life: Micros) -> u128 {
    let (whole, part) = half_lives(now, epoch, half_life);
    // Divided by 2^(whole + part) is multiplied by 2^(1 - part) and shifted by whole + 1.
    let factor = if part == 0 { 1 << 63 } else { power(part.wrapping_neg()) };
    scale(service_scaled, factor, 63 + whole.min(192) as u32)
}

/// A new epoch for the pool's services, and by how much every scaled value shifts down (see [`rescale`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rescale {
    /// The new epoch: whole half-lives after the old one.
    pub epoch: Micros,
    /// How many.
    pub shift: u32,
}

/// Must the epoch move on, so that scaled values keep their room?
pub fn rescale_due(now: Micros, epoch: Micros, half_life: Micros) -> Option<Rescale> {
    let (whole, _) = half_lives(now, epoch, half_life);
    if whole < RESCALE_AFTER {
        return None;
    }
    Some(Rescale {
        epoch: epoch + Micros(half_life.0.saturating_mul(whole)),
        shift: u32::try_from(whole).unwrap_or(u32::MAX),
    })
}

/// How far apart two epochs are in half-lives, which is the shift between values scaled to each.
pub fn shift_between(old: Micros, new: Micros, half_life: Micros) -> u32 {
    let (whole, _) = half_lives(new, old, half_life);
    u32::try_from(whole).unwrap_or(u32::MAX)
}

/// A scaled value under the new epoch.
pub fn rescale(service_scaled: u128, shift: u32) -> u128 {
    service_scaled.checked_shr(shift).unwrap_or(0)
}

/// `(value - min) / (max - min)`, and 0.5 where all are equal.
pub fn normalize(value: u128, min: u128, max: u128) -> Fine {
    let range = max.saturating_sub(min);
    if range == 0 {
        return Fine(Fine::SCALE / 2);
    }
    // 2^84 x 10^12 still fits.
    let down = (128 - range.leading_zeros()).saturating_sub(84);
    let (above, distance) = (value >= min, value.abs_diff(min) >> down);
    let share = i128::try_from(distance)
        .unwrap_or(i128::MAX)
        .saturating_mul(Fine::SCALE)
        .checked_div((range >> down) as i128)
        .unwrap_or(0);
    Fine(if above { share } else { -share })
}

/// The score of a flow among those with work, in steps of 1e-18; the highest goes first.
///
/// `w_service (1 - norm(service)) + w_wait norm(head wait)`; waits in microseconds. Services may be scaled or read:
/// the range cancels the scale.
pub fn score(
    params: &ProgramAware,
    service: u128,
    service_min: u128,
    service_max: u128,
    wait: u64,
    wait_min: u64,
    wait_max: u64,
) -> i128 {
    let least = Fine::ONE - normalize(service, service_min, service_max);
    let wait = normalize(u128::from(wait), u128::from(wait_min), u128::from(wait_max));
    let weighed = |weight: Ratio, part: Fine| i128::from(weight.0).saturating_mul(part.0);
    weighed(params.weight_service, least).saturating_add(weighed(params.weight_head_wait, wait))
}

/// Jain's index over the flows' mean waits: `(sum x)^2 / (n sum x^2)`, 1 where there is nothing to compare.
pub fn jain(mean_waits: &[u64]) -> Ratio {
    jain_fine(mean_waits).to_ratio()
}

/// [`jain`] before rounding.
pub fn jain_fine(mean_waits: &[u64]) -> Fine {
    let total: u128 = mean_waits.iter().map(|wait| u128::from(*wait)).sum();
    // Waits are brought down together until the square of their sum times 10^12 fits.
    let down = (128 - total.leading_zeros()).saturating_sub(43);
    let (mut sum, mut squares) = (0_u128, 0_u128);
    for wait in mean_waits {
        let wait = u128::from(*wait) >> down;
        sum += wait;
        squares += wait * wait;
    }
    if mean_waits.len() < 2 || squares == 0 {
        return Fine::ONE;
    }
    let index = (sum * sum * Fine::SCALE.unsigned_abs()) / squares.saturating_mul(mean_waits.len() as u128);
    Fine(i128::try_from(index).unwrap_or(Fine::SCALE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const H: Micros = Micros::from_secs(1);

    fn tokens(prompt: u32, completion: u32) -> Usage {
        Usage { prompt, completion }
    }

    #[test]
    fn the_roots_multiply_to_two() {
        for (part, times) in [(0, 0), (1 << 31, 1), (1 << 30, 2), (1 << 29, 3), (1, 32)] {
            // Squaring that often gives 2 again, whatever the last few bits.
            let squared = (0..times).fold(u128::from(power(part)), |root, _| (root * root) >> 62);
            let want = if times == 0 { 1 << 62 } else { 1_u128 << 63 };
            assert!(squared.abs_diff(want) < 1 << 36, "{part}: {squared}");
        }
        let just_below_two = u128::from(power(u32::MAX));
        assert!(just_below_two < 1 << 63 && just_below_two > (1 << 63) - (1 << 32));
        assert!((0..1_000).all(|i| power(i * 4_000_000) < power((i + 1) * 4_000_000)));
    }

    #[test]
    fn service_halves_each_half_life() {
        let at = Micros::from_millis;
        let charged = |t, prompt, completion| charge(0, tokens(prompt, completion), at(t), at(0), H);
        for (scaled, t, want) in [
            (charged(0, 1_000, 0), 0, 1_000_000_000),
            (charged(0, 10, 20), 0, 50_000_000),
            (charged(0, 1_000, 0), 10_000, 976_562),
            (charged(0, 100, 0), 500, 70_710_678),
            (charged(500, 100, 0), 500, 99_999_999),
            (charged(500, 100, 0), 1_500, 49_999_999),
            (charged(0, 100, 0), 500_000, 0),
        ] {
            let got = read(scaled, at(t), at(0), H);
            assert!(got.abs_diff(want) <= 1, "at {t}: {got}, want {want}");
        }
        // Pending decay counts before new cost: 100 halved, and 10.
        let twice = charge(charged(0, 100, 0), tokens(10, 0), at(1_000), at(0), H);
        assert_eq!(read(twice, at(1_000), at(0), H), 60_000_000);
    }

    #[test]
    fn a_zero_half_life_never_decays() {
        let scaled = charge(7, tokens(100, 0), Micros(0), Micros(0), Micros::ZERO);
        assert_eq!(read(scaled, Micros::from_secs(3_600), Micros(0), Micros::ZERO), 100_000_007);
        assert_eq!(rescale_due(Micros::MAX, Micros(0), Micros::ZERO), None);
    }

    #[test]
    fn the_epoch_moves_on_without_changing_what_is_read() {
        let now = Micros::from_millis(40_300);
        let scaled = charge(0, tokens(5_000, 77), now, Micros(0), H);
        let due = rescale_due(now, Micros(0), H).unwrap();
        assert_eq!(due, Rescale { epoch: Micros::from_secs(40), shift: 40 });
        assert_eq!(shift_between(Micros(0), due.epoch, H), 40);
        let moved = rescale(scaled, due.shift);
        assert!(read(moved, now, due.epoch, H).abs_diff(read(scaled, now, Micros(0), H)) <= 1);
        assert_eq!(rescale_due(Micros::from_secs(31), Micros(0), H), None);
        assert_eq!(rescale(u128::MAX, 500), 0);
    }

    #[test]
    fn huge_values_saturate() {
        let most = charge(u128::MAX, tokens(u32::MAX, u32::MAX), Micros::MAX, Micros(0), Micros(1));
        assert_eq!(most, u128::MAX);
        assert!(charge(0, tokens(u32::MAX, u32::MAX), Micros::MAX, Micros(0), Micros(1)) > 1 << 127);
        assert_eq!(read(u128::MAX, Micros(5), Micros(5), H), u128::MAX);
        assert_eq!(read(u128::MAX, Micros::MAX, Micros(0), Micros(1)), 0);
        assert_eq!(read(u128::MAX, Micros::from_secs(1), Micros(0), H), u128::MAX >> 1);
    }

    #[test]
    fn ranges_normalize_to_one() {
        for (value, min, max, want) in [
            (5, 10, 10, 500_000),
            (0, 0, 10, 0),
            (10, 0, 10, 1_000_000),
            (3, 0, 10, 300_000),
            (u128::MAX / 2, 0, u128::MAX, 500_000),
            (u128::MAX, 0, u128::MAX, 1_000_000),
            (1 << 90, 0, 1 << 92, 250_000),
            (0, 10, 20, -1_000_000),
            (30, 10, 20, 2_000_000),
        ] {
            assert_eq!(normalize(value, min, max).to_ratio(), Ratio(want), "{value} in {min}..{max}");
        }
    }

    #[test]
    fn the_least_served_and_the_longest_waiting_score_best() {
        let params = ProgramAware::default();
        for ((service, min, max), (wait, shortest, longest), want) in [
            ((0, 0, 100), (9, 0, 9), 1_000_000),
            ((100, 0, 100), (0, 0, 9), 0),
            ((50, 0, 100), (3, 3, 3), 500_000),
            ((100, 0, 100), (9, 0, 9), 200_000),
            ((7, 7, 7), (3, 3, 3), 500_000),
        ] {
            let got = score(&params, service, min, max, wait, shortest, longest);
            assert_eq!(got, want * Fine::SCALE, "{service} {wait}");
        }
    }

    #[test]
    fn jain_of_mean_waits() {
        for (waits, want) in [
            (&[][..], 1_000_000),
            (&[7], 1_000_000),
            (&[0, 0], 1_000_000),
            (&[100, 100, 100], 1_000_000),
            (&[10, 1_000], 509_999),
            (&[0, 0, 0, 9], 250_000),
            (&[u64::MAX, u64::MAX, 0], 666_667),
        ] {
            assert_eq!(jain(waits), Ratio(want), "{waits:?}");
        }
    }
}
