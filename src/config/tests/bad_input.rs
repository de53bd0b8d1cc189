//! Goal: no text makes the loader panic; it loads or is refused. Method: every single-place damage to a whole document.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use weir_config::{format_duration, from_text, parse_duration, parse_quantity};
use weir_kernel::Micros;

const DOCUMENT: &str = "kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {name: c, type: fixed-usage-limit-policy, parameters: {ceilings: {'10': 1, '-1': 5e-1}, default: 0.5}}
- {type: utilization-detector, parameters: &p {headroom: 0.1}}
flowControl:
  maxBytes: 1.5Gi
  defaultRequestTTL: 1h2m3.5s
  usageLimitPolicyPluginRef: c
  priorityBands: [{priority: -1, maxRequests: 1k}, {priority: 10}]
weir: {listen: '127.0.0.1:0', objectives: {chat: 10}}
pools: {default: {endpoints: [{name: e, url: 'http://[::1]:80'}], scrape: {interval: 60ms}}}
";

#[test]
fn damage_at_any_place_is_refused_or_loads() {
    from_text(DOCUMENT, []).unwrap();
    let (mut loaded, mut refused) = (0, 0);
    let places: Vec<usize> = DOCUMENT.char_indices().map(|(at, _)| at).collect();
    let damage = ["", "-", "{", "'", "\u{0}", "9999999999999999999999", "é", "*p", "\n", "~"];
    for (number, &at) in places.iter().enumerate() {
        // Each place takes one of the ten, so that each of the ten meets every kind of place.
        let put = damage[number % damage.len()];
        let text = format!("{}{put}{}", &DOCUMENT[..at], &DOCUMENT[at + 1..]);
        match from_text(&text, []) {
            Ok(effective) => {
                loaded += 1;
                let json = effective.pools["default"].policy.to_canonical_json();
                assert!(weir_kernel::Policy::from_canonical_json(&json).is_ok(), "{text}");
                effective.explain();
            }
            Err(mistakes) => {
                refused += 1;
                assert!(!mistakes.list.is_empty(), "{text}");
                assert!(
                    !mistakes.to_string().contains(['\u{0}', '\t']),
                    "what was found is escaped: {mistakes}"
                );
            }
        }
    }
    assert!(loaded > 20 && refused > 400, "{loaded} {refused}");
}

#[test]
fn values_from_a_small_alphabet_never_panic_and_read_back() {
    let alphabet = ["0", "9", ".", "-", "e", "m", "s", "h", "i", "E", "G", "µ"];
    let mut texts = vec![String::new()];
    for _ in 0..4 {
        texts = texts.iter().flat_map(|text| alphabet.iter().map(move |c| format!("{text}{c}"))).collect();
        for text in &texts {
            if let Ok(span) = parse_duration(text) {
                assert_eq!(parse_duration(&format_duration(span)), Ok(span), "{text}");
            }
            if let Ok(amount) = parse_quantity(text) {
                assert_eq!(parse_quantity(&amount.to_string()), Ok(amount), "{text}");
            }
        }
    }
    assert_eq!(
        parse_duration(&format_duration(Micros(i64::MAX as u64 / 1_000))),
        Ok(Micros(i64::MAX as u64 / 1_000))
    );
}
