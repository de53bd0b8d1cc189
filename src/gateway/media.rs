//! What `Accept` says of the media types that we have (RFC 9110, section 12.5.1). What is not wanted at all (`q=0`) is not given
//! where there is anything else; parameters other than `q` are not looked at.
//!
//! Not here: refusing whoever accepts nothing that we have, which the standard leaves open: it gets the usual form.

use http::HeaderMap;
use http::header::ACCEPT;

/// How one media type is liked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Liking {
    /// In thousandths; 0: it is not wanted.
    weight: u16,
    /// How closely the range names it: 0 as anything, 1 by its type, 2 by its name.
    closeness: u8,
    /// Which range says so, from the front.
    at: usize,
}

/// Which of these is liked best? Of what is liked equally the one that is said first, and of what is said by the same range the
/// first of ours. Those after the first of ours count only where `by_range` or where they are named. Nothing is accepted: the first.
pub fn best(headers: &HeaderMap, ours: &[&str], by_range: bool) -> usize {
    let mut best: Option<(Liking, usize)> = None;
    for (index, media) in ours.iter().enumerate() {
        let Some(liking) = liking(headers, media).filter(|liking| liking.weight > 0) else { continue };
        if index > 0 && !by_range && liking.closeness < 2 {
            continue;
        }
        let better = best.is_none_or(|(known, _)| {
            liking.weight > known.weight || (liking.weight == known.weight && liking.at < known.at)
        });
        if better {
            best = Some((liking, index));
        }
    }
    best.map_or(0, |(_, index)| index)
}

/// Is it named, and wanted?
pub fn names(headers: &HeaderMap, media: &str) -> bool {
    liking(headers, media).is_some_and(|liking| liking.closeness == 2 && liking.weight > 0)
}

/// By the range that names it most closely; of several such the one that likes it most.
fn liking(headers: &HeaderMap, media: &str) -> Option<Liking> {
    let kind = media.split('/').next().unwrap_or_default();
    let mut found: Option<Liking> = None;
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for (at, range) in values.flat_map(|value| value.split(',')).enumerate() {
        let mut parts = range.split(';').map(str::trim);
        let closeness = match parts.next().unwrap_or_default() {
            name if name.eq_ignore_ascii_case(media) => 2,
            "*/*" => 0,
            name => match name.strip_suffix("/*") {
                Some(of) if of.eq_ignore_ascii_case(kind) => 1,
                _ => continue,
            },
        };
        let weight = parts.filter_map(weight).next().unwrap_or(1_000);
        if found.is_none_or(|known| (closeness, weight) > (known.closeness, known.weight)) {
            found = Some(Liking { weight, closeness, at });
        }
    }
    found
}

/// A weight in thousandths; one that cannot be read counts as none.
fn weight(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    let (whole, part) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
    let digits = part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "1" if digits && part.bytes().all(|byte| byte == b'0') => Some(1_000),
        "0" if digits => format!("{part:0<3}").parse().ok(),
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn accept(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT, HeaderValue::from_str(line).unwrap());
        }
        headers
    }

    /// What a scraper of metrics gets: the index of the form.
    #[test]
    fn what_is_liked_best_is_given_and_what_is_not_wanted_is_not() {
        let ours = ["text/plain", "application/openmetrics-text"];
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (lines, want) in [
            (&[][..], 0),
            (&["*/*"], 0),
            (&["text/html"], 0),
            (&["application/openmetrics-text"], 1),
            (&["Application/OpenMetrics-Text; version=1.0.0"], 1),
            (&[prometheus], 1),
            (&["application/openmetrics-text;q=0"], 0),
            (&["application/openmetrics-text; Q=0.000 , text/plain;q=0.1"], 0),
            (&["application/openmetrics-text;q=0, */*"], 0),
            (&["application/openmetrics-text;q=0.2, text/plain;q=0.3"], 0),
            (&["application/openmetrics-text;q=0.2, */*"], 0),
            (&["text/plain;q=0, */*;q=0.1"], 1),
            (&["text/*;q=0, */*"], 1),
            (&["*/*;q=0", "application/openmetrics-text;q=0.1"], 1),
            (&["*/*;q=0"], 0),
            (&["text/plain, application/openmetrics-text"], 0),
            (&["application/openmetrics-text, text/plain"], 1),
            (&["application/openmetrics-text;q=1.5, text/plain;q=0.1"], 0),
            (&["application/openmetrics-texture"], 0),
        ] {
            assert_eq!(best(&accept(lines), &ours, true), want, "{lines:?}");
        }
    }

    #[test]
    fn what_is_named_with_a_weight_of_nothing_is_not_wanted() {
        for (line, want) in [
            ("text/html,application/xhtml+xml,*/*;q=0.8", true),
            ("TEXT/HTML;q=0.001", true),
            ("text/html;q=0", false),
            ("text/html;q=0.0, */*", false),
            ("text/htmlx", false),
            ("text/*", false),
            ("*/*", false),
        ] {
            assert_eq!(names(&accept(&[line]), "text/html"), want, "{line}");
        }
    }
}
