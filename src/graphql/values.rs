//! Kernel types as values of the schema, and back: times, spans, gauges, words of enums.

use serde_json::{Value, json};
use std::fmt::Debug;
use weir_kernel::{Hold, LeaseEnd, Micros, Outcome, Ratio, Reason, Regime};
use weir_log::describe::{show_span, show_time};

/// A moment.
pub fn time(at: Micros) -> Value {
    Value::String(show_time(at))
}

/// A span in milliseconds.
pub fn ms(span: Micros) -> f64 {
    span.0 as f64 / 1_000.0
}

/// A gauge.
pub fn ratio(ratio: Ratio) -> f64 {
    ratio.0 as f64 / 1_000_000.0
}

/// `EvictedTTL` becomes `EVICTED_TTL`.
pub fn screaming(word: &str) -> String {
    let mut out = String::with_capacity(word.len() + 4);
    let mut before = ' ';
    for letter in word.chars() {
        if letter.is_ascii_uppercase() && before.is_ascii_lowercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
        before = letter;
    }
    out
}

fn word(value: &impl Debug) -> String {
    screaming(&format!("{value:?}"))
}

/// The word of an outcome.
pub fn outcome(outcome: Outcome) -> String {
    word(&outcome)
}

/// The word of a reason; one that is not in the schema is `OTHER`.
pub fn reason(reason: Reason) -> String {
    known_reason(word(&reason))
}

/// The word itself if the schema has it, else `OTHER`.
pub fn known_reason(word: String) -> String {
    if REASONS.contains(&word.as_str()) { word } else { "OTHER".to_owned() }
}

const REASONS: [&str; 14] = [
    "SATURATED",
    "TTL_EXPIRED",
    "BAND_LIMIT",
    "EVICTED",
    "NO_ENDPOINTS",
    "NO_FRESH_METRICS",
    "NOT_READY",
    "CONTEXT_CANCELLED",
    "SHUTTING_DOWN",
    "RESTARTED",
    "LOG_UNAVAILABLE",
    "INTERNAL",
    "IDEMPOTENCY_MISMATCH",
    "PURGED",
];

/// The word of a regime.
pub fn regime(regime: Regime) -> String {
    word(&regime)
}

/// The word of the end of a lease.
pub fn lease_end(end: LeaseEnd) -> String {
    word(&end)
}

/// Which of these has this word.
pub fn named<T: Copy + Debug>(all: &[T], wanted: &str) -> Option<T> {
    all.iter().copied().find(|value| word(value) == wanted)
}

/// What a regime means, in plain words.
pub const fn regime_text(regime: Regime) -> &'static str {
    match regime {
        Regime::Unknown => "the pool had not been seen yet",
        Regime::NoEndpoints => "the pool had no endpoints",
        Regime::NoFreshMetrics => "the pool had endpoints, but no fresh metrics of any of them",
        Regime::HasEndpoints => "the pool had endpoints and could be seen",
    }
}

/// A hold in plain words.
pub fn hold_text(hold: Hold) -> String {
    match hold {
        Hold::Regime(regime) => format!("nothing was dispatched because {}", regime_text(regime)),
        Hold::Band { priority, saturation, ceiling, stale, endpoints } => {
            let blind = if stale == 0 {
                String::new()
            } else {
                format!(" ({stale} of {endpoints} endpoints had stale metrics and counted as full)")
            };
            format!(
                "band {priority} was at its ceiling: saturation {saturation} against {ceiling}{blind}, so it and all \
                 bands below it waited"
            )
        }
        Hold::Recovery => "nothing was dispatched until recovery after a restart was over".to_owned(),
        Hold::Paused => "an operator had paused the pool".to_owned(),
    }
}

/// A hold.
pub fn hold(hold: Hold) -> Value {
    let text = hold_text(hold);
    match hold {
        Hold::Regime(of) => json!({ "kind": "regime", "text": text, "regime": regime(of) }),
        Hold::Band { priority, saturation, ceiling, stale, endpoints } => json!({
            "kind": "band", "text": text, "priority": priority, "saturation": ratio(saturation),
            "ceiling": ratio(ceiling), "staleEndpoints": stale, "endpoints": endpoints,
        }),
        Hold::Recovery => json!({ "kind": "recovery", "text": text }),
        Hold::Paused => json!({ "kind": "paused", "text": text }),
    }
}

/// A span in plain words.
pub fn span(span: Micros) -> String {
    show_span(span)
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_schema() {
        assert_eq!(outcome(Outcome::EvictedTTL), "EVICTED_TTL");
        assert_eq!(outcome(Outcome::EvictedNoEndpoints), "EVICTED_NO_ENDPOINTS");
        assert_eq!(regime(Regime::NoFreshMetrics), "NO_FRESH_METRICS");
        for known in Reason::ALL {
            assert_ne!(reason(known), "OTHER", "{known:?} is not in the schema");
        }
        assert_eq!(named(&Reason::ALL, "TTL_EXPIRED"), Some(Reason::TtlExpired));
        assert_eq!(named(&Outcome::ALL, "EVERYTHING"), None);
    }
}
