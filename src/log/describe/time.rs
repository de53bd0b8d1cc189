//! Times and spans as text: `2026-11-30T01:02:03.000004Z`, `1.5s`. UTC only, no time zones.

use weir_kernel::Micros;

const DAY: u64 = 86_400;

/// An instant as RFC 3339 in UTC with six decimals.
pub fn show_time(at: Micros) -> String {
    let (seconds, micros) = (at.0 / 1_000_000, at.0 % 1_000_000);
    let (year, month, day) = civil(seconds / DAY);
    let of_day = seconds % DAY;
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// A span in its handiest unit: `0s`, `250us`, `1.5ms`, `12.25s`.
pub fn show_span(span: Micros) -> String {
    let short = |value: u64, unit: u64, name: &str| {
        let mut text = format!("{}.{:06}", value / unit, value % unit * (1_000_000 / unit));
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
        text + name
    };
    match span.0 {
        0 => "0s".to_owned(),
        1..1_000 => format!("{}us", span.0),
        1_000..1_000_000 => short(span.0, 1_000, "ms"),
        u64::MAX => "never".to_owned(),
        _ => short(span.0, 1_000_000, "s"),
    }
}

/// Reads `2026-11-30`, `2026-11-30T01:02`, `2026-11-30T01:02:03.5Z` (UTC, with or without the `Z`), or `@` and
/// seconds since the Unix epoch with up to six decimals.
///
/// # Errors
/// In words, what is allowed.
pub fn parse_time(text: &str) -> Result<Micros, String> {
    let wrong = || {
        format!(
            "{text:?} is no time: use 2026-11-30T01:02:03.5Z (UTC), 2026-11-30, or @ and seconds since 1970"
        )
    };
    if let Some(seconds) = text.strip_prefix('@') {
        return decimal(seconds).map(Micros).ok_or_else(wrong);
    }
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let days = parse_date(date).ok_or_else(wrong)?;
    let micros = parse_clock(clock).ok_or_else(wrong)?;
    Ok(Micros(days * DAY * 1_000_000 + micros))
}

fn parse_date(text: &str) -> Option<u64> {
    let mut parts = text.split('-');
    let (year, month, day) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    if parts.next().is_some() || !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    // The 31st of a month that has none would be another day.
    (day >= 1 && civil(days) == (year, month, day)).then_some(days)
}

fn parse_clock(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    let (hour, minute) = (number(parts.next()?)?, number(parts.next()?)?);
    let seconds = parts.next().map_or(Some(0), decimal)?;
    let fits = parts.next().is_none() && hour < 24 && minute < 60 && seconds < 60_000_000;
    fits.then(|| (hour * 3_600 + minute * 60) * 1_000_000 + seconds)
}

fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Seconds with decimals, as microseconds.
fn decimal(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    if rest.len() > 6 {
        return None;
    }
    let micros = if rest.is_empty() { 0 } else { number(rest)? * 10u64.pow(6 - rest.len() as u32) };
    number(whole)?.checked_mul(1_000_000)?.checked_add(micros)
}

/// Days since 1970-01-01 to (year, month, day): the usual conversion by 400-year eras that start in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * shifted + 2) / 5 + day.saturating_sub(1);
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_and_read_back() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_764_460_800_123_456, "2025-11-30T00:00:00.123456Z"),
            (4_102_444_799_999_999, "2099-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(show_time(Micros(micros)), text);
            assert_eq!(parse_time(text), Ok(Micros(micros)));
        }
        for (text, micros) in [
            ("2025-11-30", 1_764_460_800_000_000),
            ("2025-11-30 00:01", 1_764_460_860_000_000),
            ("2025-11-30T00:00:01.5", 1_764_460_801_500_000),
            ("@1764460800.25", 1_764_460_800_250_000),
        ] {
            assert_eq!(parse_time(text), Ok(Micros(micros)), "{text}");
        }
        for text in
            ["", "today", "2025-02-30", "2025-13-01", "2025-11-30T25:00", "@-1", "@1.1234567", "2025-1"]
        {
            assert!(parse_time(text).unwrap_err().contains("use 2026-11-30T"), "{text}");
        }
    }

    #[test]
    fn spans_are_shown_in_their_handiest_unit() {
        for (micros, text) in [
            (0, "0s"),
            (250, "250us"),
            (1_500, "1.5ms"),
            (12_250_000, "12.25s"),
            (60_000_000, "60s"),
            (u64::MAX, "never"),
        ] {
            assert_eq!(show_span(Micros(micros)), text);
        }
    }
}
