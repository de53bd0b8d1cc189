//! How a caller wants to be answered: held, as a stream (`Accept`), or by a ticket (`Prefer`).

use super::media;
use http::header::{ACCEPT, HeaderName};
use http::{HeaderMap, HeaderValue};
use std::time::Duration;

/// RFC 7240.
pub const PREFER: HeaderName = HeaderName::from_static("prefer");
/// What of it was heeded.
pub const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// The preference for a ticket.
pub const RESPOND_ASYNC: &str = "respond-async";

/// How long `wait=` may hold a call that prefers a ticket; longer wishes are cut to it.
const WAIT_MAX: u64 = 30;

/// The form of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `application/x-ndjson`: one object per line.
    Ndjson,
    /// `text/event-stream`: server-sent events.
    Sse,
}

/// What a caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// One answer, when it is decided.
    Held,
    /// Everything as it happens; the stream is the lease.
    Stream(Form),
    /// An answer now or after so long, and the rest when it is asked for.
    Ticket(Duration),
}

impl Wish {
    /// What the headers say. A stream that is wanted by name goes before a ticket, since a ticket's answer is none.
    pub fn of(headers: &HeaderMap) -> Wish {
        // The usual wish is no reason to weigh one against the other.
        let usual = |value: &HeaderValue| matches!(value.as_bytes(), b"application/json" | b"*/*");
        if headers.get_all(ACCEPT).iter().any(|value| !usual(value))
            && let Some(form) = stream(headers)
        {
            return Wish::Stream(form);
        }
        if headers.contains_key(PREFER)
            && let Some(wait) = ticket(headers)
        {
            return Wish::Ticket(wait);
        }
        Wish::Held
    }
}

/// A stream, if one is named and nothing else that we have is liked better. Of what is liked equally the first counts.
fn stream(headers: &HeaderMap) -> Option<Form> {
    match media::best(headers, &["application/json", "application/x-ndjson", "text/event-stream"], false) {
        1 => Some(Form::Ndjson),
        2 => Some(Form::Sse),
        _ => None,
    }
}

/// How long to hold a caller that prefers a ticket.
fn ticket(headers: &HeaderMap) -> Option<Duration> {
    let (mut wanted, mut wait) = (false, 0);
    for value in headers.get_all(PREFER) {
        for preference in value.to_str().unwrap_or_default().split(',') {
            let token = preference.split(';').next().unwrap_or_default();
            let (name, value) = token.split_once('=').unwrap_or((token, ""));
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"'));
            match name.as_str() {
                RESPOND_ASYNC => wanted = true,
                "wait" => wait = value.parse::<u64>().unwrap_or(0).min(WAIT_MAX),
                _ => {}
            }
        }
    }
    wanted.then_some(Duration::from_secs(wait))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn of(name: HeaderName, values: &[&'static str]) -> Wish {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_static(value));
        }
        Wish::of(&headers)
    }

    #[test]
    fn a_stream_is_wanted_by_its_name() {
        let (ndjson, sse) = (Wish::Stream(Form::Ndjson), Wish::Stream(Form::Sse));
        for (accept, want) in [
            (&["application/x-ndjson"][..], ndjson),
            (&["text/event-stream"], sse),
            (&["Text/Event-Stream; charset=utf-8"], sse),
            (&["*/*"], Wish::Held),
            (&["application/json"], Wish::Held),
            (&["text/html"], Wish::Held),
            (&["text/*"], Wish::Held),
            (&[""], Wish::Held),
            (&["application/json, text/event-stream"], Wish::Held),
            (&["text/event-stream, application/json"], sse),
            (&["application/json;q=0.5, text/event-stream;q=0.6"], sse),
            (&["application/json;q=0.5", "application/x-ndjson"], ndjson),
            (&["text/event-stream;q=0"], Wish::Held),
            (&["text/event-stream;q=0.000, */*;q=0.001"], Wish::Held),
            (&["text/event-stream;q=7"], Wish::Held),
            (&["*/*;q=0, text/event-stream;q=0.1"], sse),
            (&["application/json;q=0, */*, text/event-stream;q=0.1"], sse),
            (&["*/*, text/event-stream"], Wish::Held),
            (&["text/event-stream;q=0.2, application/x-ndjson;q=0.25"], ndjson),
        ] {
            assert_eq!(of(ACCEPT, accept), want, "{accept:?}");
        }
    }

    #[test]
    fn a_ticket_is_a_preference() {
        for (prefer, want) in [
            (&["respond-async"][..], Some(0)),
            (&["Respond-Async"], Some(0)),
            (&["respond-async, wait=10"], Some(10)),
            (&["wait=\"3\"", "handling=lenient, respond-async; x=y"], Some(3)),
            (&["respond-async, wait=99999999"], Some(30)),
            (&["respond-async, wait=-1"], Some(0)),
            (&["wait=10"], None),
            (&["return=minimal"], None),
            (&[""], None),
        ] {
            let want = want.map_or(Wish::Held, |secs| Wish::Ticket(Duration::from_secs(secs)));
            assert_eq!(of(PREFER, prefer), want, "{prefer:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(PREFER, HeaderValue::from_static(RESPOND_ASYNC));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        assert_eq!(Wish::of(&headers), Wish::Stream(Form::Sse));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        assert_eq!(Wish::of(&headers), Wish::Ticket(Duration::ZERO));
    }
}
