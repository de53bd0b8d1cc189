//! One value read as its kind says: units, ranges, and the words for what is not allowed.

use crate::node::{Node, Value};
use crate::quantity::QuantityError;
use crate::table::{Kind, Range};
use crate::{format_duration, parse_duration, parse_quantity};
use std::net::SocketAddr;
use weir_kernel::{Micros, Ratio};

/// The longest name, id or label, in bytes.
pub const TEXT_BYTES_MAX: usize = 256;

/// A value that has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A span of time.
    Span(Micros),
    /// A count, or a number of bytes.
    Amount(u64),
    /// A whole number with a sign.
    Whole(i64),
    /// A ratio.
    Fraction(Ratio),
    /// Yes or no.
    Bool(bool),
    /// Text, a word of a choice, a path or a URL.
    Text(String),
}

impl Scalar {
    /// As plain JSON: spans in microseconds, ratios as decimals.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Scalar::Span(span) => span.0.into(),
            Scalar::Amount(amount) => (*amount).into(),
            Scalar::Whole(whole) => (*whole).into(),
            Scalar::Fraction(ratio) => (ratio.micros() as f64 / 1e6).into(),
            Scalar::Bool(b) => (*b).into(),
            Scalar::Text(text) => text.clone().into(),
        }
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Span(span) => f.write_str(&format_duration(*span)),
            Scalar::Amount(amount) => write!(f, "{amount}"),
            Scalar::Whole(whole) => write!(f, "{whole}"),
            Scalar::Fraction(ratio) => write!(f, "{ratio}"),
            Scalar::Bool(b) => write!(f, "{b}"),
            Scalar::Text(text) => f.write_str(text),
        }
    }
}

/// Reads `node` as `kind`.
///
/// # Errors
/// What is allowed instead, in words.
pub fn read(kind: &Kind, node: &Node) -> Result<Scalar, String> {
    let refused = || kind.words();
    let plain = match &node.value {
        Value::Number(text) | Value::Text(text) => text.as_str(),
        Value::Bool(b) if matches!(kind, Kind::Bool) => return Ok(Scalar::Bool(*b)),
        _ => return Err(refused()),
    };
    match kind {
        Kind::Duration { min } => match parse_duration(plain) {
            Ok(span) if span >= *min => Ok(Scalar::Span(span)),
            Ok(_) => Err(refused()),
            Err(why) => Err(format!("{} ({why})", refused())),
        },
        Kind::Seconds { min } => {
            let ratio = decimal(plain).filter(|ratio| ratio.micros() >= 0).ok_or_else(refused)?;
            let span = Micros(ratio.micros().unsigned_abs());
            if span >= *min { Ok(Scalar::Span(span)) } else { Err(refused()) }
        }
        Kind::Bytes { min, max } | Kind::Count { min, max } => match parse_quantity(plain) {
            Ok(amount) if amount >= *min && amount <= *max => Ok(Scalar::Amount(amount)),
            Ok(_) => Err(refused()),
            Err(QuantityError::Syntax) => Err(refused()),
            Err(why) => Err(format!("{} ({why})", refused())),
        },
        Kind::Whole { min, max } => match whole(plain) {
            Some(whole) if whole >= *min && whole <= *max => Ok(Scalar::Whole(whole)),
            _ => Err(refused()),
        },
        Kind::Fraction(range) => fraction(plain, range).map(Scalar::Fraction).ok_or_else(refused),
        Kind::Bool => match plain {
            "true" => Ok(Scalar::Bool(true)),
            "false" => Ok(Scalar::Bool(false)),
            _ => Err(refused()),
        },
        Kind::Choice(words) if words.contains(&plain) => Ok(Scalar::Text(plain.to_owned())),
        Kind::Path if is_path(plain) => Ok(Scalar::Text(plain.to_owned())),
        Kind::Text if is_label(plain) => Ok(Scalar::Text(plain.to_owned())),
        Kind::Socket => match plain.replacen("localhost:", "127.0.0.1:", 1).parse::<SocketAddr>() {
            Ok(address) => Ok(Scalar::Text(address.to_string())),
            Err(_) => Err(refused()),
        },
        Kind::Url => url(plain).map(Scalar::Text).ok_or_else(refused),
        _ => Err(refused()),
    }
}

/// Text that may stand as a name or label: 1 to 256 bytes, no control characters.
pub fn is_label(text: &str) -> bool {
    !text.is_empty() && text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control)
}

/// A path: 1 to 4,096 bytes, no control characters.
fn is_path(text: &str) -> bool {
    !text.is_empty() && text.len() <= 4_096 && !text.chars().any(char::is_control)
}

/// A whole number in plain digits: `1.0` and `1e3` are not.
fn whole(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A ratio inside `range`.
pub fn fraction(text: &str, range: &Range) -> Option<Ratio> {
    decimal(text).filter(|ratio| range.holds(*ratio))
}

/// A finite decimal in millionths, rounded to the nearest; not beyond what a [`Ratio`] holds.
fn decimal(text: &str) -> Option<Ratio> {
    if !text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b)) {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    let millionths = (value * 1e6).round();
    // 2^63 is exact as a float; anything below it converts without loss of range.
    (millionths.is_finite() && millionths.abs() < 9_223_372_036_854_775_808.0)
        .then_some(Ratio(millionths as i64))
}

/// `http://host[:port]`, without a path of its own; a closing slash is taken off.
pub fn url(text: &str) -> Option<String> {
    let text = text.strip_suffix('/').unwrap_or(text);
    let authority = text.strip_prefix("http://")?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let host_ok = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.' || b == b'_')
        }
    };
    let port_ok = port.is_none_or(|port| whole(port).is_some_and(|port| (1..=65_535).contains(&port)));
    (host_ok && port_ok && text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
}

/// What is the same of two `http://` URLs that lead to one place, however host and port are written.
pub fn url_key(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = authority.to_ascii_lowercase();
    format!("{}{}", authority.strip_suffix(":80").unwrap_or(&authority), path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Origin;

    fn of(kind: &Kind, text: &str) -> Result<Scalar, String> {
        read(kind, &Node { value: Value::Text(text.to_owned()), origin: Origin::Given })
    }

    #[test]
    fn one_place_has_one_key() {
        for (one, other, same) in [
            ("http://a", "http://A:80/", true),
            ("http://a:8000/metrics", "http://A:8000/metrics", true),
            ("http://[fd00::80]", "http://[FD00::80]:80", true),
            ("http://a:8000/metrics", "http://a:8001/metrics", false),
            ("http://a/metrics?rank=0", "http://a/metrics?rank=1", false),
            ("http://a/Metrics", "http://a/metrics", false),
        ] {
            assert_eq!(url_key(one) == url_key(other), same, "{one} {other}");
        }
    }

    #[test]
    fn ratios_are_finite_and_in_range() {
        let kind = Kind::Fraction(Range::ABOVE_ZERO_TO_ONE);
        for (text, want) in
            [("1", Some(1_000_000)), ("0.8", Some(800_000)), ("1e-6", Some(1)), ("1.0", Some(1_000_000))]
        {
            assert_eq!(of(&kind, text).ok(), want.map(|m| Scalar::Fraction(Ratio(m))), "{text}");
        }
        for text in
            ["0", "-0.1", "1.1", "80", "nan", ".nan", "inf", "-inf", "infinity", "1e-7", "1e999", "", "x"]
        {
            assert_eq!(of(&kind, text), Err("a number in (0, 1]".to_owned()), "{text}");
        }
        assert!(of(&Kind::Fraction(Range::NOT_NEGATIVE), "1e300").is_err());
    }

    #[test]
    fn whole_numbers_are_written_whole() {
        let kind = Kind::Whole { min: -10, max: 10 };
        assert_eq!(of(&kind, "-3"), Ok(Scalar::Whole(-3)));
        for text in ["1.0", "1e0", "11", "-11", "0x1", "99999999999999999999", "-", ""] {
            assert!(of(&kind, text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_and_urls() {
        for (text, ok) in [
            ("http://10.0.0.7:8000", true),
            ("http://pool-0.svc/", true),
            ("http://[::1]:80", true),
            ("http://h:0", false),
            ("http://h:99999", false),
            ("http://h/path", false),
            ("https://h", false),
            ("http://", false),
            ("http://u@h", false),
            ("h:80", false),
        ] {
            assert_eq!(of(&Kind::Url, text).is_ok(), ok, "{text}");
        }
        assert_eq!(of(&Kind::Socket, "localhost:80"), Ok(Scalar::Text("127.0.0.1:80".to_owned())));
        assert!(of(&Kind::Socket, "0.0.0.0").is_err());
    }
}
