//! Values of the command line that have a unit or a range, with errors that say what is allowed.

use std::time::Duration;

/// A duration in Go syntax: `300ms`, `1.5s`, `2m30s`.
///
/// # Errors
/// Anything else, and more than 2^53 nanoseconds (104 days).
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| {
        format!("{text:?} is no duration; allowed: numbers with a unit of h, m, s, ms, us, as in 1m30s")
    })
}

fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut nanos) = (text, 0.0_f64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let scale = match &rest[..unit] {
            "h" => 3.6e12,
            "m" => 6e10,
            "s" => 1e9,
            "ms" => 1e6,
            "us" | "µs" => 1e3,
            "ns" => 1.0,
            _ => return None,
        };
        nanos += number * scale;
        rest = &rest[unit..];
    }
    // Within 2^53 every nanosecond has its own float.
    (!text.is_empty() && nanos < 9.007e15).then(|| Duration::from_nanos(nanos.round() as u64))
}

/// A finite number above zero.
///
/// # Errors
/// Anything else.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(format!("{text:?} is not allowed; allowed: a number above 0")),
    }
}

/// A share from 0 to 1.
///
/// # Errors
/// Anything else.
pub fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err(format!("{text:?} is not allowed; allowed: a number from 0 to 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, ms) in
            [("300ms", 300.0), ("1.5s", 1_500.0), ("2m30s", 150_000.0), ("0s", 0.0), ("20us", 0.02)]
        {
            assert_eq!(duration(text).unwrap(), Duration::from_secs_f64(ms / 1e3), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1x", "1s2", "1..2s", "999999999h", "NaNs", "infs"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_keep_to_their_range() {
        assert_eq!((positive("0.5"), share("1")), (Ok(0.5), Ok(1.0)));
        for text in ["0", "-1", "NaN", "inf", "x"] {
            assert!(positive(text).is_err(), "{text}");
        }
        for text in ["-0.1", "1.1", "NaN", "x"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
