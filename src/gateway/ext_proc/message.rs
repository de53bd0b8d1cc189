//! Envoy's `ProcessingRequest` and `ProcessingResponse` as JSON, as far as this face uses them.
//!
//! Read leniently: Envoy may add members, and both spellings (`request_headers`, `requestHeaders`) are legal proto
//! JSON. Written strictly.

use crate::gateway::problem::Invalid;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;

/// Headers in one message, at most.
const HEADERS_MAX: usize = 512;

/// One phase of a request, as Envoy calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The one that this face decides at.
    RequestHeaders,
    /// Passed through.
    ResponseHeaders,
    /// Passed through.
    RequestBody,
    /// Passed through.
    ResponseBody,
    /// Passed through.
    RequestTrailers,
    /// Passed through.
    ResponseTrailers,
}

impl Phase {
    /// The member of the answer that fits: any other makes Envoy answer 500.
    pub const fn answer(self) -> &'static str {
        match self {
            Phase::RequestHeaders => "requestHeaders",
            Phase::ResponseHeaders => "responseHeaders",
            Phase::RequestBody => "requestBody",
            Phase::ResponseBody => "responseBody",
            Phase::RequestTrailers => "requestTrailers",
            Phase::ResponseTrailers => "responseTrailers",
        }
    }
}

/// What Envoy sent.
#[derive(Debug)]
pub struct Request {
    /// Where the request is.
    pub phase: Phase,
    /// Its headers, in their order, names in lower case; only in `RequestHeaders`.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Envoy does not wait for the answer.
    pub observability: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wire<'a> {
    #[serde(borrow, alias = "requestHeaders")]
    request_headers: Option<HttpHeaders<'a>>,
    #[serde(alias = "responseHeaders")]
    response_headers: Option<IgnoredAny>,
    #[serde(alias = "requestBody")]
    request_body: Option<IgnoredAny>,
    #[serde(alias = "responseBody")]
    response_body: Option<IgnoredAny>,
    #[serde(alias = "requestTrailers")]
    request_trailers: Option<IgnoredAny>,
    #[serde(alias = "responseTrailers")]
    response_trailers: Option<IgnoredAny>,
    #[serde(alias = "observabilityMode")]
    observability_mode: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HttpHeaders<'a> {
    #[serde(borrow)]
    headers: Option<HeaderMap<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HeaderMap<'a> {
    #[serde(borrow)]
    headers: Vec<HeaderValue<'a>>,
}

#[derive(Debug, Deserialize)]
struct HeaderValue<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Option<Cow<'a, str>>,
    #[serde(borrow, default, alias = "rawValue")]
    raw_value: Option<Cow<'a, str>>,
}

/// Reads a `ProcessingRequest`.
///
/// # Errors
/// Text of another shape, no phase or more than one, too many headers, or a value that is not base64.
pub fn read(body: &[u8]) -> Result<Request, Invalid> {
    let shape = |error: serde_json::Error| {
        Invalid::new("body", body, format!("a ProcessingRequest in JSON ({error})"))
    };
    let wire: Wire<'_> = serde_json::from_slice(body).map_err(shape)?;
    let present = [
        (wire.request_headers.is_some(), Phase::RequestHeaders),
        (wire.response_headers.is_some(), Phase::ResponseHeaders),
        (wire.request_body.is_some(), Phase::RequestBody),
        (wire.response_body.is_some(), Phase::ResponseBody),
        (wire.request_trailers.is_some(), Phase::RequestTrailers),
        (wire.response_trailers.is_some(), Phase::ResponseTrailers),
    ];
    let mut phases = present.iter().filter(|(present, _)| *present).map(|(_, phase)| *phase);
    let (Some(phase), None) = (phases.next(), phases.next()) else {
        return Err(Invalid::new("body", body, "a ProcessingRequest with exactly one phase"));
    };
    let list = wire.request_headers.and_then(|headers| headers.headers).unwrap_or_default().headers;
    if list.len() > HEADERS_MAX {
        let found = list.len().to_string();
        return Err(Invalid::new("request_headers", found, "at most 512 headers"));
    }
    let headers = list.into_iter().map(header).collect::<Result<_, _>>()?;
    Ok(Request { phase, headers, observability: wire.observability_mode })
}

fn header(wire: HeaderValue<'_>) -> Result<(String, Vec<u8>), Invalid> {
    let name = wire.key.to_ascii_lowercase();
    let value = match (wire.raw_value, wire.value) {
        (Some(raw), _) => {
            let decoded = STANDARD.decode(raw.as_bytes()).or_else(|_| URL_SAFE.decode(raw.as_bytes()));
            decoded.map_err(|_| Invalid::new(format!("raw_value of {name}"), raw.as_bytes(), "base64"))?
        }
        (None, Some(value)) => value.into_owned().into_bytes(),
        (None, None) => Vec::new(),
    };
    Ok((name, value))
}

/// Bytes as base64.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoys_own_message_is_read() {
        let body = br#"{"request_headers":{"headers":{"headers":[{"key":":path","raw_value":"L3Y="},
            {"key":"X-Mixed","value":"plain"},{"key":"empty"}]},"end_of_stream":true},
            "metadata_context":{},"protocol_config":{},"attributes":{"a":{"b":[1]}}}"#;
        let request = read(body).unwrap();
        assert_eq!(request.phase, Phase::RequestHeaders);
        assert!(!request.observability);
        let want = [(":path", "/v"), ("x-mixed", "plain"), ("empty", "")];
        let want: Vec<_> = want.iter().map(|(k, v)| (k.to_string(), v.as_bytes().to_vec())).collect();
        assert_eq!(request.headers, want);
        let camel = br#"{"requestHeaders":{"headers":{"headers":[{"key":"a","rawValue":"YQ=="}]}}}"#;
        assert_eq!(read(camel).unwrap().headers, [("a".to_owned(), b"a".to_vec())]);
    }

    #[test]
    fn each_phase_has_the_answer_that_fits() {
        for (member, want) in [
            ("request_headers", "requestHeaders"),
            ("response_headers", "responseHeaders"),
            ("request_body", "requestBody"),
            ("responseBody", "responseBody"),
            ("request_trailers", "requestTrailers"),
            ("responseTrailers", "responseTrailers"),
        ] {
            let body = format!("{{\"{member}\":{{}},\"observability_mode\":true}}");
            let request = read(body.as_bytes()).unwrap();
            assert_eq!(request.phase.answer(), want);
            assert!(request.observability);
        }
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for (body, field) in [
            (r#"{}"#, "body"),
            (r#"{"request_headers":{},"response_headers":{}}"#, "body"),
            (r#"{"request_headers":7}"#, "body"),
            (r#"[]"#, "body"),
            ("", "body"),
            (
                r#"{"request_headers":{"headers":{"headers":[{"key":"a","raw_value":"%"}]}}}"#,
                "raw_value of a",
            ),
        ] {
            assert_eq!(read(body.as_bytes()).unwrap_err().field, field, "{body}");
        }
        let many = vec![r#"{"key":"a"}"#; 513].join(",");
        let body = format!("{{\"request_headers\":{{\"headers\":{{\"headers\":[{many}]}}}}}}");
        assert_eq!(read(body.as_bytes()).unwrap_err().field, "request_headers");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let _ = read(&body);
        }
    }
}
