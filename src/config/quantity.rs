//! Counts and sizes as Kubernetes writes quantities: `1Gi`, `500M`, `1k`, `1e3`.
//!
//! Source of the grammar: the Kubernetes API's `resource.Quantity`. Only whole, non-negative amounts are of use here.

/// Why a text is not a whole amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with one of the known suffixes.
    #[error(
        "not a quantity such as 1000, 500M or 1Gi (suffixes: n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent)"
    )]
    Syntax,
    /// Below zero.
    #[error("below zero")]
    Negative,
    /// Not whole.
    #[error("not a whole number")]
    Fraction,
    /// Above 2^64-1.
    #[error("above 18446744073709551615")]
    TooLarge,
}

/// Parses a quantity into a plain number.
///
/// # Errors
/// Text that is no quantity, below zero, not whole, or above `u64::MAX`.
pub fn parse_quantity(text: &str) -> Result<u64, QuantityError> {
    let (negative, body) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let number_len = body.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, suffix) = body.split_at(number_len);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(QuantityError::Syntax);
    }
    let scale = scale(suffix)?;
    let digits: String = [whole, fraction.trim_end_matches('0')].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    if negative {
        return Err(QuantityError::Negative);
    }
    let places = i32::try_from(fraction.trim_end_matches('0').len()).map_err(|_| QuantityError::Fraction)?;
    // 39 digits do not fit u128, and no scale that is left brings them back below u64::MAX as a whole number.
    let value: u128 = digits.parse().map_err(|_| QuantityError::TooLarge)?;
    let exact = match scale {
        Scale::Ten(power) => times_ten(value, power.saturating_sub(places))?,
        Scale::Two(power) => {
            let product = value.checked_mul(1_u128 << power).ok_or(QuantityError::TooLarge)?;
            times_ten(product, places.saturating_neg())?
        }
    };
    u64::try_from(exact).map_err(|_| QuantityError::TooLarge)
}

enum Scale {
    Ten(i32),
    Two(u32),
}

fn scale(suffix: &str) -> Result<Scale, QuantityError> {
    Ok(match suffix {
        "" => Scale::Ten(0),
        "n" => Scale::Ten(-9),
        "u" => Scale::Ten(-6),
        "m" => Scale::Ten(-3),
        "k" => Scale::Ten(3),
        "M" => Scale::Ten(6),
        "G" => Scale::Ten(9),
        "T" => Scale::Ten(12),
        "P" => Scale::Ten(15),
        "E" => Scale::Ten(18),
        "Ki" => Scale::Two(10),
        "Mi" => Scale::Two(20),
        "Gi" => Scale::Two(30),
        "Ti" => Scale::Two(40),
        "Pi" => Scale::Two(50),
        "Ei" => Scale::Two(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Syntax)?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || digits.len() > 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(QuantityError::Syntax);
            }
            Scale::Ten(exponent.parse().map_err(|_| QuantityError::Syntax)?)
        }
    })
}

/// `value` x 10^`power`, exactly.
fn times_ten(value: u128, power: i32) -> Result<u128, QuantityError> {
    let factor = 10_u128.checked_pow(power.unsigned_abs());
    if power >= 0 {
        return factor.and_then(|f| value.checked_mul(f)).ok_or(QuantityError::TooLarge);
    }
    match factor {
        Some(factor) if value.is_multiple_of(factor) => Ok(value / factor),
        _ => Err(QuantityError::Fraction),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c094_size_and_count_units() {
        for (text, want) in [
            ("1Gi", Ok(1_073_741_824)),
            ("1G", Ok(1_000_000_000)),
            ("500M", Ok(500_000_000)),
            ("1k", Ok(1_000)),
            ("1GB", Err(QuantityError::Syntax)),
            ("1g", Err(QuantityError::Syntax)),
            ("1K", Err(QuantityError::Syntax)),
            ("-1", Err(QuantityError::Negative)),
            ("0.5", Err(QuantityError::Fraction)),
            ("1.5", Err(QuantityError::Fraction)),
            ("1.5k", Ok(1_500)),
            ("0.5Ki", Ok(512)),
            ("1e3", Ok(1_000)),
            ("1E3", Ok(1_000)),
            ("1E", Ok(1_000_000_000_000_000_000)),
            ("2000m", Ok(2)),
            ("100m", Err(QuantityError::Fraction)),
            ("1e-3", Err(QuantityError::Fraction)),
            ("16Ei", Err(QuantityError::TooLarge)),
            ("15Ei", Ok(17_293_822_569_102_704_640)),
            ("100000000000000000000", Err(QuantityError::TooLarge)),
            ("1e9999", Err(QuantityError::TooLarge)),
            ("1e99999", Err(QuantityError::Syntax)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", Err(QuantityError::TooLarge)),
            ("-0", Ok(0)),
            ("1.0", Ok(1)),
            ("", Err(QuantityError::Syntax)),
            (".", Err(QuantityError::Syntax)),
            ("1.2.3", Err(QuantityError::Syntax)),
            ("1 k", Err(QuantityError::Syntax)),
            ("0x10", Err(QuantityError::Syntax)),
        ] {
            assert_eq!(parse_quantity(text), want, "{text}");
        }
    }
}
