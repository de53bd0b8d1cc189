//! Reading times from the wire: `grpc-timeout` and RFC 3339 instants.
//!
//! Not here: what follows from them (`ask.rs`), and Go durations, which the configuration reads too (`weir-config`).

use weir_kernel::Micros;

/// gRPC's timeout: one to eight digits and one of `H M S m u n`.
pub fn grpc_timeout(text: &str) -> Option<Micros> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    let micros = match unit {
        "H" => number * 3_600_000_000,
        "M" => number * 60_000_000,
        "S" => number * 1_000_000,
        "m" => number * 1_000,
        "u" => number,
        "n" => number / 1_000,
        _ => return None,
    };
    Some(Micros(micros))
}

/// An RFC 3339 instant (`2026-11-30T01:38:28.5Z`, `…+01:00`), not before 1970, as microseconds since the epoch.
pub fn rfc3339(text: &str) -> Option<Micros> {
    let bytes = text.as_bytes();
    if !text.is_ascii() || bytes.len() < 20 || bytes.len() > 40 {
        return None;
    }
    let field = |from: usize, to: usize| -> Option<i64> {
        let part = &text[from..to];
        part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if separators.iter().any(|(at, ch)| bytes[*at] != *ch) || !matches!(bytes[10], b'T' | b't' | b' ') {
        return None;
    }
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let (hour, minute, second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = &text[19..];
    let mut micros = 0i64;
    if let Some(after) = rest.strip_prefix('.') {
        let end = after.find(|c: char| !c.is_ascii_digit())?;
        if end == 0 {
            return None;
        }
        let digits = &after[..end.min(6)];
        micros = digits.parse::<i64>().ok()? * 10i64.pow(6 - digits.len() as u32);
        rest = &after[end..];
    }
    let offset = offset_seconds(rest)?;
    let days = days_from_civil(year, month, day);
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset;
    u64::try_from(seconds * 1_000_000 + micros).ok().map(Micros)
}

/// `Z`, `+hh:mm` or `-hh:mm` in seconds east of Greenwich.
fn offset_seconds(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let bytes = text.as_bytes();
    if bytes.len() != 6 || bytes[3] != b':' {
        return None;
    }
    let sign = match bytes[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let two = |at: usize| -> Option<i64> {
        let part = &bytes[at..at + 2];
        part.iter()
            .all(u8::is_ascii_digit)
            .then(|| i64::from(part[0] - b'0') * 10 + i64::from(part[1] - b'0'))
    };
    let (hours, minutes) = (two(1)?, two(4)?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a date of the proleptic Gregorian calendar: whole 400-year cycles, years from March on.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let cycle = year.div_euclid(400);
    let of_cycle = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    cycle * 146_097 + of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeouts() {
        for (text, want) in [
            ("5S", Some(5_000_000)),
            ("100m", Some(100_000)),
            ("99999999H", Some(99_999_999 * 3_600_000_000)),
            ("1500n", Some(1)),
            ("5s", None),
            ("S", None),
            ("", None),
            ("999999999S", None),
            ("-1S", None),
            ("1é", None),
        ] {
            assert_eq!(grpc_timeout(text), want.map(Micros), "{text}");
        }
    }

    #[test]
    fn instants() {
        for (text, want) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-03-01T00:00:00Z", Some(951_868_800_000_000)),
            ("2026-11-30T01:38:28.5Z", Some(1_796_002_708_500_000)),
            ("2026-11-30T02:38:28.5+01:00", Some(1_796_002_708_500_000)),
            ("1969-12-31T23:59:59Z", None),
            ("2026-02-29T00:00:00Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-11-30T01:38:28", None),
            ("2026-11-30T01:38:28.Z", None),
            ("tomorrow", None),
        ] {
            assert_eq!(rfc3339(text), want.map(Micros), "{text}");
        }
    }
}
