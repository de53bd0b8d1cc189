//! Answers of the proxy's own: the problem that every face gives, and in it the object `error` that OpenAI's clients read.
//!
//! Their libraries take code, type and message from `error` alone, for a body as for an event of a stream.

use crate::engine::{Admitted, Refused};
use crate::gateway::answer::{self, DROPPED, LLM_D_DROPPED};
use crate::gateway::json::Object;
use crate::gateway::problem::{self, Fault};
use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, StatusCode};
use weir_kernel::Reason;

/// Why a request that was let go on has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// No endpoint can be reached.
    #[error("the endpoint cannot be reached")]
    Unreachable,
    /// The endpoint ended the connection.
    #[error("the endpoint ended the connection before it answered")]
    Broken,
    /// The pool has no endpoint with an address.
    #[error("the pool has no endpoint with an address")]
    Nowhere,
    /// It was taken back.
    #[error("the request was revoked while it ran")]
    Evicted,
}

impl Gone {
    /// Status and reason words.
    const fn words(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Gone::Unreachable => (StatusCode::BAD_GATEWAY, "upstream-unreachable", "rejected-internal"),
            Gone::Broken => (StatusCode::BAD_GATEWAY, "upstream-broken", "rejected-internal"),
            Gone::Nowhere => answer::reason_status(Reason::NoEndpoints),
            Gone::Evicted => answer::reason_status(Reason::Evicted),
        }
    }
}

/// What was wrong with a request.
pub fn fault(fault: &Fault, caller_id: Option<&str>) -> Response {
    let (status, reason, _) = answer::fault_status(fault);
    let title = status.canonical_reason().unwrap_or("Error");
    let body = problem::body(fault, status.as_u16(), title, reason, caller_id);
    with_error(answer::fault(fault, caller_id), body, reason, &fault.to_string())
}

/// A refusal that was decided.
pub fn refused(pool: &str, caller_id: &str, refused: &Refused) -> Response {
    let (_, reason, _) = answer::reason_status(refused.reason);
    let body = answer::refusal_body(pool, caller_id, refused);
    with_error(answer::refusal(pool, caller_id, refused), body, reason, answer::detail(refused.reason))
}

/// A request that was admitted, and came to nothing.
pub fn gone(gone: &Gone, caller_id: Option<&str>, admitted: Option<(&str, &Admitted)>) -> Response {
    let (status, reason, llm_d) = gone.words();
    let mut body = Object::new()
        .text("type", "about:blank")
        .text("title", status.canonical_reason().unwrap_or("Error"))
        .plain("status", status.as_u16())
        .text("detail", &gone.to_string())
        .text("reason", reason)
        .text_opt("requestId", caller_id.filter(|id| !id.is_empty()));
    if let Some((pool, admitted)) = admitted {
        body = body
            .text("regime", admitted.regime.word())
            .plain("queuedMs", admitted.waited.as_millis())
            .plain("sequence", admitted.seq)
            .text("id", &format!("{pool}-{}", admitted.id))
            .text("pool", pool)
            .plain("priority", admitted.priority);
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(HeaderName::from_static(DROPPED), HeaderValue::from_static(reason));
    headers.insert(HeaderName::from_static(LLM_D_DROPPED), HeaderValue::from_static(llm_d));
    with_error(response, body.finish(), reason, &gone.to_string())
}

/// The last event of a stream whose request was taken back. What came before it may be the beginning of an event.
pub fn evicted_event(after: &'static str) -> Vec<u8> {
    let (status, reason, _) = Gone::Evicted.words();
    let mut event = after.as_bytes().to_vec();
    event.extend_from_slice(b"data: ");
    let object = Object::continuing(event);
    let error = |object| error(object, status, reason, &Gone::Evicted.to_string());
    let mut event = object.object("error", error).finish();
    event.extend_from_slice(b"\n\n");
    event
}

fn with_error(response: Response, body: Vec<u8>, reason: &str, message: &str) -> Response {
    let status = response.status();
    let body = Object::reopened(body).object("error", |object| error(object, status, reason, message));
    response.map(|_| Body::from(body.finish()))
}

fn error(object: Object, status: StatusCode, reason: &str, message: &str) -> Object {
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    };
    object.text("message", message).text("type", kind).text("code", reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    async fn read(response: Response) -> (u16, Value) {
        let status = response.status().as_u16();
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert!(response.headers().contains_key(DROPPED) && response.headers().contains_key(LLM_D_DROPPED));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn every_answer_is_a_problem_and_an_error_of_openai() {
        let (status, body) = read(fault(&Fault::BodyTooLarge { limit: 7 }, Some("r"))).await;
        assert_eq!((status, &body["reason"], &body["limit"]), (413, &json!("rejected-invalid"), &json!(7)));
        let error = json!({"message": "the body is over the limit of 7 bytes", "type": "invalid_request_error",
                           "code": "rejected-invalid"});
        assert_eq!(body["error"], error);

        for (what, status, reason, kind) in [
            (Gone::Unreachable, 502, "upstream-unreachable", "server_error"),
            (Gone::Broken, 502, "upstream-broken", "server_error"),
            (Gone::Nowhere, 503, "rejected-no-endpoints", "server_error"),
            (Gone::Evicted, 429, "evicted", "rate_limit_error"),
        ] {
            let (got, body) = read(gone(&what, None, None)).await;
            assert_eq!((got, &body["status"]), (status, &json!(status)));
            assert_eq!((&body["reason"], &body["error"]["code"]), (&json!(reason), &json!(reason)));
            assert_eq!((&body["error"]["type"], &body["error"]["message"]), (&json!(kind), &body["detail"]));
        }
    }

    #[test]
    fn the_last_event_is_an_event() {
        let text = String::from_utf8(evicted_event("\n\n")).unwrap();
        let event = text.strip_prefix("\n\ndata: ").and_then(|text| text.strip_suffix("\n\n")).unwrap();
        let event: Value = serde_json::from_str(event).unwrap();
        assert_eq!(event["error"]["code"], "evicted");
        assert_eq!(event["error"]["type"], "rate_limit_error");
    }
}
