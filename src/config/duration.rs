//! Durations in Go's syntax: `300ms`, `1.5h`, `2m30s`, `0`.
//!
//! Source of the grammar: Go's `time.ParseDuration`; like there, nothing beyond 2^63-1 nanoseconds (about 292 years).

use weir_kernel::Micros;

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not of the form `1h30m`, with a unit after each number.
    #[error("not a duration such as 300ms, 1.5h or 2m30s")]
    Syntax,
    /// Below zero.
    #[error("below zero")]
    Negative,
    /// More than 2^63-1 nanoseconds.
    #[error("more than 2562047h47m16.854775807s")]
    TooLong,
}

const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration. A positive one shorter than a microsecond counts as one: zero means "none", never "nearly none".
///
/// # Errors
/// Text that is no duration, is below zero, or is too long to be one.
pub fn parse_duration(text: &str) -> Result<Micros, DurationError> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if digits == "0" {
        return Ok(Micros::ZERO);
    }
    if digits.is_empty() {
        return Err(DurationError::Syntax);
    }
    let mut rest = digits;
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (part, after) = one_part(rest)?;
        nanos = nanos.saturating_add(part);
        rest = after;
    }
    if negative && nanos > 0 {
        return Err(DurationError::Negative);
    }
    if nanos > i64::MAX as u128 {
        return Err(DurationError::TooLong);
    }
    let micros = if nanos == 0 { 0 } else { (nanos / 1_000).max(1) };
    Ok(Micros(u64::try_from(micros).unwrap_or(u64::MAX)))
}

/// One number with its unit, in nanoseconds (saturating), and what follows.
fn one_part(text: &str) -> Result<(u128, &str), DurationError> {
    let whole_len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, mut rest) = text.split_at(whole_len);
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        let len = after.bytes().take_while(u8::is_ascii_digit).count();
        (fraction, rest) = after.split_at(len);
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError::Syntax);
    }
    let unit_len = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, after) = rest.split_at(unit_len);
    let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    let scale = scale.ok_or(DurationError::Syntax)?;
    let mut nanos = decimal(whole).saturating_mul(scale);
    // Digits beyond the eighteenth are below a nanosecond in every unit that matters, and are dropped as Go does.
    let digits = &fraction[..fraction.len().min(18)];
    let exponent = u32::try_from(digits.len()).unwrap_or(0);
    nanos = nanos.saturating_add(decimal(digits).saturating_mul(scale) / 10_u128.pow(exponent));
    Ok((nanos, after))
}

/// The value of a run of digits, saturating; none is 0.
fn decimal(digits: &str) -> u128 {
    digits.bytes().fold(0_u128, |sum, digit| sum.saturating_mul(10).saturating_add(u128::from(digit - b'0')))
}

/// Writes a span as Go does: `1m0s`, `200ms`, `1.5s`, `0s`.
pub fn format_duration(span: Micros) -> String {
    let micros = span.0;
    if micros == 0 {
        return "0s".to_owned();
    }
    if micros < 1_000 {
        return format!("{micros}µs");
    }
    if micros < 1_000_000 {
        return format!("{}ms", with_fraction(micros, 1_000));
    }
    let (hours, minutes) = (micros / 3_600_000_000, micros / 60_000_000 % 60);
    let seconds = with_fraction(micros % 60_000_000, 1_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

fn with_fraction(value: u64, scale: u64) -> String {
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return whole.to_string();
    }
    let width = scale.ilog10() as usize;
    format!("{whole}.{}", format!("{rest:0width$}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_syntax_reads_as_go_reads_it() {
        for (text, micros) in [
            ("0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("60s", 60_000_000),
            ("1.5h", 5_400_000_000),
            ("2m30s", 150_000_000),
            ("300ms", 300_000),
            (".5s", 500_000),
            ("1.s", 1_000_000),
            ("+1us", 1),
            ("7µs", 7),
            ("1ns", 1),
            ("1h1m1s1ms1us", 3_661_001_001),
            ("2562047h47m16s", 9_223_372_036_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Micros(micros)), "{text}");
        }
    }

    #[test]
    fn c011_what_is_no_duration_says_why() {
        for (text, why) in [
            ("", DurationError::Syntax),
            ("5", DurationError::Syntax),
            ("s", DurationError::Syntax),
            (".s", DurationError::Syntax),
            ("1d", DurationError::Syntax),
            ("1 s", DurationError::Syntax),
            ("1s ", DurationError::Syntax),
            ("1e3s", DurationError::Syntax),
            ("∞", DurationError::Syntax),
            ("-1s", DurationError::Negative),
            ("9000000000h", DurationError::TooLong),
            ("2562048h", DurationError::TooLong),
            ("18446744073709551615s", DurationError::TooLong),
            ("999999999999999999999999999999999999999999999999h", DurationError::TooLong),
        ] {
            assert_eq!(parse_duration(text), Err(why), "{text}");
        }
    }

    #[test]
    fn it_writes_what_it_reads() {
        for (micros, text) in [
            (0, "0s"),
            (1, "1µs"),
            (1_500, "1.5ms"),
            (200_000, "200ms"),
            (1_500_000, "1.5s"),
            (60_000_000, "1m0s"),
            (5_400_000_000, "1h30m0s"),
        ] {
            assert_eq!(format_duration(Micros(micros)), text);
            assert_eq!(parse_duration(text), Ok(Micros(micros)));
        }
    }
}
