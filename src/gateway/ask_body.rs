//! Reading an [`Ask`] from the JSON body of `POST /v1/admissions`: one pass, strict, nothing kept that is not known.

use super::ask::{self, Ask, BYTES_MAX, DEADLINE_MS_MAX, Deadline, SLO_MS_MAX};
use super::json::nearest;
use super::problem::Invalid;
use super::scalar::Scalar;
use super::wire_time::rfc3339;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use std::fmt;
use weir_config::parse_duration;
use weir_kernel::Micros;

/// The keys that are known.
pub const KEYS: [&str; 13] = [
    "pool",
    "requestId",
    "objective",
    "fairnessId",
    "priority",
    "model",
    "bytes",
    "promptTokens",
    "ttl",
    "sloTtftMs",
    "deadline",
    "deadlineMs",
    "chooseEndpoint",
];

/// Reads the body. An empty one says nothing.
///
/// # Errors
/// The first key or value that is not allowed, or where the text stops being JSON.
pub fn read(body: &[u8]) -> Result<Ask, Invalid> {
    let mut ask = Ask::default();
    if body.is_empty() {
        return Ok(ask);
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let mut found = None;
    let seed = Members { ask: &mut ask, found: &mut found };
    let result = seed.deserialize(&mut reader).and_then(|()| reader.end());
    match (found, result) {
        (Some(invalid), _) => Err(invalid),
        (None, Err(error)) => {
            Err(Invalid::new("body", body, format!("a JSON object with known members ({error})")))
        }
        (None, Ok(())) => Ok(ask),
    }
}

/// Visits the members; a refusal is left in `found`, since serde's own error holds only text.
struct Members<'m> {
    ask: &'m mut Ask,
    found: &'m mut Option<Invalid>,
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = 0u32;
        while let Some(key) = map.next_key::<Scalar<'de>>()? {
            let key = key.text();
            let value: Scalar<'de> = map.next_value()?;
            let done = match KEYS.iter().position(|known| *known == key) {
                Some(index) if seen & (1 << index) != 0 => {
                    Err(Invalid::new(KEYS[index], value.text().as_bytes(), "the member once"))
                }
                Some(index) => {
                    seen |= 1 << index;
                    member(self.ask, KEYS[index], &value)
                }
                None => Err(unknown(&key)),
            };
            if let Err(invalid) = done {
                *self.found = Some(invalid);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

fn unknown(key: &str) -> Invalid {
    let known = &KEYS;
    let allowed = match nearest(key, known) {
        Some(near) => format!("a known member; did you mean {near}? (known: {})", known.join(", ")),
        None => format!("a known member: {}", known.join(", ")),
    };
    Invalid::new("body", key, allowed)
}

/// Takes one member; `null` counts as not said.
fn member(ask: &mut Ask, key: &'static str, value: &Scalar<'_>) -> Result<(), Invalid> {
    if matches!(value, Scalar::Null) {
        return Ok(());
    }
    match key {
        "pool" => ask.pool = Some(label(key, value)?),
        "requestId" => ask.caller_id = Some(label(key, value)?),
        "objective" => ask.objective = Some(label(key, value)?),
        "fairnessId" => ask.fairness_id = Some(label(key, value)?),
        "model" => ask.model = Some(label(key, value)?),
        "priority" => {
            let number = value.integer().and_then(|number| i32::try_from(number).ok());
            let refused = || Invalid::new(key, value.text().as_bytes(), ask::PRIORITY_ALLOWED);
            ask.priority = Some(number.ok_or_else(refused)?);
        }
        "bytes" => {
            ask.bytes =
                Some(whole(key, value, BYTES_MAX, "a whole number of bytes, up to 9007199254740991")?);
        }
        "promptTokens" => {
            let max = u64::from(u32::MAX);
            let tokens = whole(key, value, max, "a whole number of tokens, up to 4294967295")?;
            ask.prompt_tokens = Some(u32::try_from(tokens).unwrap_or(u32::MAX));
        }
        "ttl" => ask.ttl = ttl(key, value)?,
        "sloTtftMs" => {
            let ms = whole(key, value, SLO_MS_MAX, "whole milliseconds, up to 9223372036854")?;
            ask.slo_ttft = Some(Micros::from_millis(ms));
        }
        "deadline" => {
            let at = value.str().and_then(rfc3339);
            let refused = || {
                Invalid::new(key, value.text().as_bytes(), "an RFC 3339 instant, as 2026-11-30T12:00:00.5Z")
            };
            sooner(ask, Deadline::Wall(at.ok_or_else(refused)?));
        }
        "deadlineMs" => {
            let allowed = "whole milliseconds from now, up to a hundred years";
            let ms = whole(key, value, DEADLINE_MS_MAX, allowed)?;
            sooner(ask, Deadline::In(Micros::from_millis(ms)));
        }
        _ => match value {
            Scalar::Bool(choose) => ask.choose_endpoint = Some(*choose),
            other => return Err(Invalid::new(key, other.text().as_bytes(), "true or false")),
        },
    }
    Ok(())
}

/// Where both forms are given, the one that is relative to now counts: it needs no second clock.
fn sooner(ask: &mut Ask, deadline: Deadline) {
    match (ask.deadline, deadline) {
        (Some(Deadline::In(_)), Deadline::Wall(_)) => {}
        _ => ask.deadline = Some(deadline),
    }
}

fn label(key: &'static str, value: &Scalar<'_>) -> Result<String, Invalid> {
    match value.str() {
        Some(text) => ask::label(key, text.as_bytes()),
        None => Err(Invalid::new(key, value.text().as_bytes(), "a string")),
    }
}

fn whole(key: &'static str, value: &Scalar<'_>, max: u64, allowed: &'static str) -> Result<u64, Invalid> {
    let number = value.integer().and_then(|number| u64::try_from(number).ok());
    number.filter(|number| *number <= max).ok_or_else(|| Invalid::new(key, value.text().as_bytes(), allowed))
}

fn ttl(key: &'static str, value: &Scalar<'_>) -> Result<Option<Micros>, Invalid> {
    match value.str().map(parse_duration) {
        Some(Ok(span)) => Ok((!span.is_zero()).then_some(span)),
        Some(Err(_)) | None => Err(Invalid::new(
            key,
            value.text().as_bytes(),
            "a Go duration that is not negative, as 1.5s or 250ms",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_read() {
        let body = br#"{"pool":"p","requestId":"r","objective":"o","fairnessId":"f","priority":-5,"model":"m",
            "bytes":5000000000,"promptTokens":17,"ttl":"1.5s","sloTtftMs":250,"deadlineMs":900,"chooseEndpoint":true}"#;
        let want = Ask {
            pool: Some("p".into()),
            caller_id: Some("r".into()),
            objective: Some("o".into()),
            fairness_id: Some("f".into()),
            priority: Some(-5),
            model: Some("m".into()),
            bytes: Some(5_000_000_000),
            prompt_tokens: Some(17),
            ttl: Some(Micros(1_500_000)),
            slo_ttft: Some(Micros(250_000)),
            deadline: Some(Deadline::In(Micros(900_000))),
            choose_endpoint: Some(true),
            ..Ask::default()
        };
        assert_eq!(read(body), Ok(want));
        assert_eq!(read(b""), Ok(Ask::default()));
        assert_eq!(read(b" { } "), Ok(Ask::default()));
        assert_eq!(read(br#"{"priority":null,"ttl":null}"#), Ok(Ask::default()));
        assert_eq!(read(br#"{"ttl":"0s"}"#), Ok(Ask::default()));
        let escaped = read(br#"{"f\u0061irnessId":"a\u00e9\"b"}"#).unwrap();
        assert_eq!(escaped.fairness_id.as_deref(), Some("aé\"b"));
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        for (body, field, value, allowed) in [
            (r#"{"priority":1e1}"#, "priority", "10", "an integer"),
            (r#"{"priority":1.5}"#, "priority", "1.5", "an integer"),
            (r#"{"priority":"10"}"#, "priority", "10", "an integer"),
            (r#"{"priority":2147483648}"#, "priority", "2147483648", "2147483647"),
            (r#"{"priority":18446744073709551616}"#, "priority", "18446744073709552000", "an integer"),
            (r#"{"priority":[1]}"#, "priority", "[…]", "an integer"),
            (r#"{"bytes":-1}"#, "bytes", "-1", "whole"),
            (r#"{"bytes":9007199254740992}"#, "bytes", "9007199254740992", "9007199254740991"),
            (r#"{"promptTokens":4294967296}"#, "promptTokens", "4294967296", "4294967295"),
            (r#"{"ttl":5}"#, "ttl", "5", "Go duration"),
            (r#"{"ttl":"-5s"}"#, "ttl", "-5s", "not negative"),
            (r#"{"deadline":"soon"}"#, "deadline", "soon", "RFC 3339"),
            (r#"{"deadlineMs":-1}"#, "deadlineMs", "-1", "milliseconds"),
            (r#"{"sloTtftMs":9223372036855}"#, "sloTtftMs", "9223372036855", "9223372036854"),
            (r#"{"chooseEndpoint":"yes"}"#, "chooseEndpoint", "yes", "true or false"),
            (r#"{"requestId":"a\nb"}"#, "requestId", "a\\nb", "control characters"),
            (r#"{"model":7}"#, "model", "7", "a string"),
            (r#"{"pool":"a","pool":"b"}"#, "pool", "b", "once"),
            (r#"{"priorty":1}"#, "body", "priorty", "did you mean priority?"),
            (r#"{"stream":true}"#, "body", "stream", "a known member"),
            (r#"{"priority":NaN}"#, "body", r#"{"priority":NaN}"#, "JSON object"),
            (r#"{"bytes":1e999}"#, "body", r#"{"bytes":1e999}"#, "JSON object"),
            ("[]", "body", "[]", "JSON object"),
            ("{", "body", "{", "JSON object"),
            ("{} x", "body", "{} x", "JSON object"),
        ] {
            let invalid = read(body.as_bytes()).unwrap_err();
            assert_eq!(invalid.field, field, "{body}: {invalid}");
            assert_eq!(invalid.value, value, "{body}: {invalid}");
            assert!(invalid.allowed.contains(allowed), "{body}: {invalid}");
        }
        let long = format!("{{\"fairnessId\":\"{}\"}}", "x".repeat(257));
        assert_eq!(read(long.as_bytes()).unwrap_err().field, "fairnessId");
        assert!(read(&[b'['; 100_000]).is_err(), "nesting has an end");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = read(&body);
        }

        #[test]
        fn no_json_makes_it_panic(key in "[a-zA-Z]{1,14}", value in "[-0-9a-z\"\\\\.eE\\[\\]{}:,]{0,20}") {
            let _ = read(format!("{{\"{key}\":{value}}}").as_bytes());
        }
    }
}
