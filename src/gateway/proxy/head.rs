//! Headers on their way through: what belongs to one connection stays with it, what is for us is taken off, the rest
//! goes on as it came (RFC 9110, 7.6).

use crate::gateway::answer::{ADMISSION, LLM_D_DROPPED};
use crate::gateway::envoy::is_control;
use crate::gateway::traces::Onward;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};

/// Headers of one connection, named by `connection` or not. `trailer` is not among them: it tells what may follow, and
/// hyper sends no other trailers on.
const OF_ONE_CONNECTION: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers of a response that are meant for the proxy next to whom they came from.
const OF_ONE_PROXY: [HeaderName; 2] =
    [PROXY_AUTHENTICATE, HeaderName::from_static("proxy-authentication-info")];

/// Headers that begin like this are ours.
const OURS: &str = "x-weir-";

/// How the body of a request goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Its length is written anew.
    pub length: bool,
    /// Trailers may follow it.
    pub trailers: bool,
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The headers of a request as the endpoint gets them, with the id of its admission and its trace if it has them.
pub fn request(
    from: &HeaderMap,
    version: Version,
    carried: Carried,
    admission: Option<&str>,
    onward: Option<&Onward>,
) -> HeaderMap {
    let named = named(from);
    let is_root = onward.is_some_and(|onward| onward.is_root);
    let mut to = HeaderMap::with_capacity(from.len() + 4);
    for (name, value) in from {
        let ours = matches!(*name, HOST | EXPECT | PROXY_AUTHORIZATION)
            || (*name == CONTENT_LENGTH && carried.length)
            || (*name == TRAILER && !carried.trailers)
            || (*name == COOKIE && version == Version::HTTP_2)
            || (*name == TRACEPARENT && onward.is_some())
            || (*name == TRACESTATE && is_root);
        if !ours && !is_of_one_connection(name, &named) && !is_control(name.as_str()) {
            to.append(name, value.clone());
        }
    }
    if version == Version::HTTP_2 {
        // There a cookie may come in crumbs (RFC 9113, 8.2.3).
        let crumbs: Vec<&[u8]> = from.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
        if let (false, Ok(cookie)) = (crumbs.is_empty(), HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))) {
            to.insert(COOKIE, cookie);
        }
    }
    if accepts_trailers(from) {
        to.insert(TE, HeaderValue::from_static("trailers"));
        to.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    let protocol = if version == Version::HTTP_2 { "2 weir" } else { "1.1 weir" };
    to.append(VIA, HeaderValue::from_static(protocol));
    if let Some(Ok(id)) = admission.map(HeaderValue::from_str) {
        to.insert(HeaderName::from_static(ADMISSION), id);
    }
    if let Some(Ok(parent)) = onward.map(|onward| HeaderValue::try_from(&onward.traceparent)) {
        to.insert(TRACEPARENT, parent);
    }
    to
}

/// The headers of a response as the caller gets them.
pub fn response(headers: &mut HeaderMap, admission: Option<&str>) {
    for name in named(headers) {
        headers.remove(name);
    }
    // Then it is not the length of the body (RFC 9112, 6.3).
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip(headers);
    if let Some(Ok(id)) = admission.map(HeaderValue::from_str) {
        headers.insert(HeaderName::from_static(ADMISSION), id);
    }
}

/// The trailers of a response as the caller gets them.
pub fn trailers(trailers: &mut HeaderMap) {
    trailers.remove(CONTENT_LENGTH);
    strip(trailers);
}

/// Takes off what an endpoint does not say to the caller: what is of its connection, and what only we say.
fn strip(headers: &mut HeaderMap) {
    for name in OF_ONE_CONNECTION.iter().chain(&OF_ONE_PROXY) {
        headers.remove(name);
    }
    let is_ours = |name: &HeaderName| name.as_str().starts_with(OURS) || *name == LLM_D_DROPPED;
    let ours: Vec<HeaderName> = headers.keys().filter(|name| is_ours(name)).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

fn is_of_one_connection(name: &HeaderName, named: &[HeaderName]) -> bool {
    OF_ONE_CONNECTION.contains(name) || named.contains(name)
}

/// The headers that `connection` names.
fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    let mut named = Vec::new();
    for value in headers.get_all(CONNECTION) {
        let options = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        named.extend(options.filter_map(|option| HeaderName::from_bytes(option).ok()));
    }
    named
}

fn accepts_trailers(headers: &HeaderMap) -> bool {
    let all = headers.get_all(TE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    all.map(<[u8]>::trim_ascii).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    fn list(headers: &HeaderMap) -> Vec<(&str, &str)> {
        headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect()
    }

    const WHOLE: Carried = Carried { length: true, trailers: false };

    #[test]
    fn what_is_of_one_connection_and_what_is_for_us_stays_behind() {
        let from = map(&[
            ("host", "weir"),
            ("connection", "keep-alive, X-Mine ,,close"),
            ("connection", "other"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("content-length", "7"),
            ("trailer", "x-sum"),
            ("x-mine", "1"),
            ("other", "2"),
            ("x-weir-pool", "default"),
            ("x-llm-d-inference-objective", "chat"),
            ("x-llm-d-inference-anything", "at all"),
            ("x-request-id", "r"),
            ("traceparent", "00-a-b-01"),
            ("authorization", "Bearer k"),
            ("content-type", "application/json"),
            ("accept", "a"),
            ("accept", "b"),
            ("via", "1.0 edge"),
        ]);
        let to = request(&from, Version::HTTP_11, WHOLE, Some("default-7"), None);
        assert_eq!(
            list(&to),
            [
                ("x-request-id", "r"),
                ("traceparent", "00-a-b-01"),
                ("authorization", "Bearer k"),
                ("content-type", "application/json"),
                ("accept", "a"),
                ("accept", "b"),
                ("via", "1.0 edge"),
                ("via", "1.1 weir"),
                ("x-weir-admission", "default-7"),
            ]
        );
    }

    #[test]
    fn a_body_that_is_streamed_keeps_its_length_and_its_trailers() {
        let from = map(&[("content-length", "7"), ("trailer", "x-sum"), ("te", "gzip, Trailers")]);
        let to = request(&from, Version::HTTP_11, Carried { length: false, trailers: true }, None, None);
        let want = [
            ("content-length", "7"),
            ("trailer", "x-sum"),
            ("te", "trailers"),
            ("connection", "te"),
            ("via", "1.1 weir"),
        ];
        assert_eq!(list(&to), want);
    }

    #[test]
    fn cookies_of_http_2_are_put_together() {
        let from = map(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")]);
        let to = request(&from, Version::HTTP_2, WHOLE, None, None);
        assert_eq!(list(&to), [("x", "y"), ("cookie", "a=1; b=2"), ("via", "2 weir")]);
    }

    #[test]
    fn a_response_loses_the_headers_of_its_connection_and_those_that_are_ours() {
        let mut headers = map(&[
            ("connection", "x-hop, keep-alive"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("proxy-authenticate", "Basic"),
            ("proxy-authentication-info", "a=b"),
            ("proxy-connection", "close"),
            ("proxy-status", "edge"),
            ("x-weir-admission", "other-1"),
            ("x-weir-admission", "other-2"),
            ("x-weir-dropped-reason", "evicted"),
            ("x-llm-d-request-dropped-reason", "evicted"),
            ("trailer", "x-sum"),
            ("content-length", "5"),
            ("retry-after", "3"),
            ("x-request-id", "r"),
        ]);
        response(&mut headers, Some("default-7"));
        let want = [
            ("trailer", "x-sum"),
            ("proxy-status", "edge"),
            ("retry-after", "3"),
            ("x-request-id", "r"),
            ("x-weir-admission", "default-7"),
        ];
        let mut seen = list(&headers);
        seen.sort_unstable();
        let mut want = want.to_vec();
        want.sort_unstable();
        assert_eq!(seen, want);
    }
}
