//! The one place that maps decisions, reasons and errors to HTTP: statuses, headers and bodies, exhaustively.
//!
//! 200 admitted; 429 capacity exists but is contended; 503 nothing can serve (or we cannot decide); 4xx bad input;
//! 500 only our own fault. Every refusal names its reason in `x-weir-dropped-reason` and, in the nearest word that
//! llm-d has, in `x-llm-d-request-dropped-reason`.

use super::json::Object;
use super::problem::{self, Fault};
use crate::engine::{Admitted, Fate, Refused, Revocation, Unavailable};
use axum::body::Body;
use axum::response::Response;
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use weir_kernel::{Reason, RequestId};

/// Our word for a refusal.
pub const DROPPED: &str = "x-weir-dropped-reason";
/// llm-d's word for it.
pub const LLM_D_DROPPED: &str = "x-llm-d-request-dropped-reason";
/// The admission's id.
pub const ADMISSION: &str = "x-weir-admission";

/// The reason of everything that was wrong with the request itself.
pub const INVALID: &str = "rejected-invalid";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Status and reason words of a fault.
pub const fn fault_status(fault: &Fault) -> (StatusCode, &'static str, &'static str) {
    let status = match fault {
        Fault::Invalid(_) | Fault::BodyBroken(_) => StatusCode::BAD_REQUEST,
        Fault::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        Fault::BodySlow(_) => StatusCode::REQUEST_TIMEOUT,
        Fault::NoPath(_) | Fault::NoPool { .. } | Fault::NoAdmission(_) => StatusCode::NOT_FOUND,
        Fault::NoMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
        Fault::Head { status, .. } => *status,
        Fault::Unauthenticated { .. } => StatusCode::UNAUTHORIZED,
        Fault::Forbidden { .. } | Fault::PoolForbidden { .. } => StatusCode::FORBIDDEN,
        Fault::Gone(_) => StatusCode::GONE,
        Fault::Conflict(_) | Fault::Over { .. } => StatusCode::CONFLICT,
        Fault::KeyMismatch => return reason_status(Reason::IdempotencyMismatch),
        Fault::GatewayFull { .. } => return reason_status(Reason::Saturated),
        Fault::LogUnavailable => return reason_status(Reason::LogUnavailable),
        Fault::ShuttingDown => return reason_status(Reason::ShuttingDown),
        Fault::Internal(_) => return reason_status(Reason::Internal),
    };
    (status, INVALID, INVALID)
}

/// Status and reason words of a refusal.
pub const fn reason_status(reason: Reason) -> (StatusCode, &'static str, &'static str) {
    let status = match reason.status() {
        429 => StatusCode::TOO_MANY_REQUESTS,
        503 => StatusCode::SERVICE_UNAVAILABLE,
        422 => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, reason.word(), reason.llm_d_word())
}

/// What was not even taken in.
pub fn unavailable(why: Unavailable) -> Fault {
    match why {
        Unavailable::Log | Unavailable::InboxFull => Fault::LogUnavailable,
        Unavailable::Stopped => Fault::ShuttingDown,
        Unavailable::Poisoned => {
            Fault::Internal("a request like this one made the service fail: it is kept aside".to_owned())
        }
        Unavailable::Failed => Fault::Internal("the pool's thread has failed".to_owned()),
    }
}

/// A fault as `application/problem+json`.
pub fn fault(fault: &Fault, request_id: Option<&str>) -> Response {
    let (status, reason, llm_d) = fault_status(fault);
    let body = fault_members(Object::new(), fault, request_id).finish();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PROBLEM);
    headers.insert(HeaderName::from_static(DROPPED), HeaderValue::from_static(reason));
    headers.insert(HeaderName::from_static(LLM_D_DROPPED), HeaderValue::from_static(llm_d));
    if let Fault::NoMethod { allowed } = fault {
        headers.insert(ALLOW, HeaderValue::from_static(allowed));
    }
    // RFC 6750 section 3.
    let challenge = match fault {
        Fault::Unauthenticated { invalid: false, .. } => r#"Bearer realm="weir""#,
        Fault::Unauthenticated { invalid: true, .. } => r#"Bearer realm="weir", error="invalid_token""#,
        Fault::Forbidden { scope } => {
            let text = format!(r#"Bearer realm="weir", error="insufficient_scope", scope="{scope}""#);
            if let Ok(value) = HeaderValue::try_from(text) {
                headers.insert(WWW_AUTHENTICATE, value);
            }
            return response;
        }
        _ => return response,
    };
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

/// The body of a refusal that was decided.
pub fn refusal_body(pool: &str, caller_id: &str, refused: &Refused) -> Vec<u8> {
    refusal_members(Object::new(), pool, caller_id, refused).finish()
}

/// The members of that body.
pub fn refusal_members(object: Object, pool: &str, caller_id: &str, refused: &Refused) -> Object {
    let (status, reason, _) = reason_status(refused.reason);
    object
        .text("type", "about:blank")
        .text("title", status.canonical_reason().unwrap_or("Error"))
        .plain("status", status.as_u16())
        .text("detail", detail(refused.reason))
        .text("outcome", refused.outcome.word())
        .text("reason", reason)
        .text("regime", refused.regime.word())
        .plain("queuedMs", refused.waited.as_millis())
        .plain("sequence", refused.seq)
        .text("requestId", caller_id)
        .text("id", &format!("{pool}-{}", refused.id))
        .text("pool", pool)
        .plain("priority", refused.priority)
        .text_opt("cause", refused.cause.map(|cause| cause.word()))
        .text_opt("limit", refused.limit.map(|limit| limit.which.word()))
        .plain_opt("held", refused.limit.map(|limit| limit.held))
        .plain_opt("limitValue", refused.limit.map(|limit| limit.limit))
        .plain_opt("retryAfterSeconds", refused.retry_after)
}

/// The body for the caller of a request that was taken back while it ran.
pub fn revoked_body(pool: &str, caller_id: &str, request: RequestId, revocation: &Revocation) -> Vec<u8> {
    revoked_members(Object::new(), pool, Some(caller_id), request, revocation).finish()
}

/// The members of that body.
pub fn revoked_members(
    object: Object,
    pool: &str,
    caller_id: Option<&str>,
    request: RequestId,
    revocation: &Revocation,
) -> Object {
    let (status, reason, _) = reason_status(revocation.reason());
    object
        .text("type", "about:blank")
        .text("title", status.canonical_reason().unwrap_or("Error"))
        .plain("status", status.as_u16())
        .text("detail", detail(revocation.reason()))
        .text("reason", reason)
        .plain("sequence", revocation.seq)
        .text_opt("requestId", caller_id)
        .text("id", &format!("{pool}-{request}"))
        .text("pool", pool)
        .plain("revocation", revocation.number)
}

/// A refusal that was decided.
pub fn refusal(pool: &str, caller_id: &str, refused: &Refused) -> Response {
    let (status, ..) = reason_status(refused.reason);
    let mut response = Response::new(Body::from(refusal_body(pool, caller_id, refused)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PROBLEM);
    name_reason(headers, refused.reason);
    if let Some(seconds) = refused.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(u16::from(seconds)));
    }
    response
}

/// The members of a fault's body.
pub fn fault_members(object: Object, fault: &Fault, request_id: Option<&str>) -> Object {
    let (status, reason, _) = fault_status(fault);
    let title = status.canonical_reason().unwrap_or("Error");
    problem::members(object, fault, status.as_u16(), title, reason, request_id)
}

/// The headers that name why a request was refused.
pub fn name_reason(headers: &mut HeaderMap, reason: Reason) {
    let (_, reason, llm_d) = reason_status(reason);
    headers.insert(HeaderName::from_static(DROPPED), HeaderValue::from_static(reason));
    headers.insert(HeaderName::from_static(LLM_D_DROPPED), HeaderValue::from_static(llm_d));
}

/// An admission.
pub fn admission(pool: &str, caller_id: &str, admitted: &Admitted) -> Response {
    let body = admission_member(Object::new(), pool, caller_id, admitted).finish();
    json(StatusCode::OK, body)
}

/// The member that holds an admission: the same in every face's answer.
pub fn admission_member(object: Object, pool: &str, caller_id: &str, admitted: &Admitted) -> Object {
    let outcome = if admitted.shadow { "Observed" } else { weir_kernel::Outcome::Dispatched.word() };
    object.object("admission", |object| {
        object
            .name("id", format_args!("{pool}-{}", admitted.id))
            .text("requestId", caller_id)
            .text("pool", pool)
            .text("outcome", outcome)
            .plain("sequence", admitted.seq)
            .plain("queuedMs", admitted.waited.as_millis())
            .plain("priority", admitted.priority)
            .text("flow", &admitted.flow)
            .text_opt("endpoint", admitted.endpoint.as_deref())
    })
}

/// What became of a cancellation, a completion or a renewal of `id`.
///
/// # Errors
/// The request is not there (any more), or nothing could be recorded.
pub fn fate(id: &str, done: &str, fate: Fate) -> Result<Response, Fault> {
    match fate {
        Fate::Done { seq } => {
            let body = Object::new().text("id", id).text("state", done).plain("sequence", seq).finish();
            Ok(json(StatusCode::OK, body))
        }
        Fate::Unknown => Err(Fault::NoAdmission(super::json::shown(id.as_bytes()))),
        // Said twice is as good as said once.
        Fate::AlreadyEnded => {
            let body = Object::new().text("id", id).text("state", "ended").finish();
            Ok(json(StatusCode::OK, body))
        }
        Fate::Unavailable(why) => Err(unavailable(why)),
    }
}

/// A JSON answer.
pub fn json(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// One sentence per reason.
pub const fn detail(reason: Reason) -> &'static str {
    match reason {
        Reason::Saturated => "a queue limit is reached while the pool is contended",
        Reason::TtlExpired => "the queue-wait budget ended while the pool was contended",
        Reason::BandLimit => "no band can be provisioned for this priority",
        Reason::Evicted => "the request was revoked while it ran",
        Reason::NoEndpoints => "the pool has no endpoints",
        Reason::NoFreshMetrics => "the pool has endpoints, but none with fresh metrics",
        Reason::NotReady => "the pool has not been seen yet",
        Reason::ContextCancelled => "the caller gave up, or its deadline passed",
        Reason::ShuttingDown => "the service is stopping",
        Reason::Restarted => "the service restarted while the request was queued",
        Reason::LogUnavailable => "the decision log cannot be written",
        Reason::Internal => "the service failed",
        Reason::IdempotencyMismatch => "this Idempotency-Key was used with another body",
        Reason::Purged => "an operator removed the request from the queue",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of contract.md, *Names on the wire*.
    #[test]
    fn c012_c013_c020_every_reason_has_the_status_of_the_table() {
        for (reason, status, ours, llm_d) in [
            (Reason::Saturated, 429, "rejected-saturated", "rejected-saturated"),
            (Reason::TtlExpired, 429, "rejected-ttl-expired", "rejected-ttl-expired"),
            (Reason::BandLimit, 429, "rejected-band-limit", "rejected-saturated"),
            (Reason::Evicted, 429, "evicted", "evicted"),
            (Reason::NoEndpoints, 503, "rejected-no-endpoints", "rejected-no-endpoints"),
            (Reason::NoFreshMetrics, 503, "rejected-no-fresh-metrics", "rejected-no-endpoints"),
            (Reason::NotReady, 503, "rejected-not-ready", "rejected-no-endpoints"),
            (Reason::ContextCancelled, 503, "rejected-context-cancelled", "rejected-context-cancelled"),
            (Reason::ShuttingDown, 503, "rejected-shutting-down", "rejected-shutting-down"),
            (Reason::Restarted, 503, "rejected-restarted", "rejected-shutting-down"),
            (Reason::LogUnavailable, 503, "rejected-log-unavailable", "rejected-internal"),
            (Reason::Internal, 500, "rejected-internal", "rejected-internal"),
        ] {
            let (got, word, other) = reason_status(reason);
            assert_eq!((got.as_u16(), word, other), (status, ours, llm_d), "{reason:?}");
        }
        assert_eq!(reason_status(Reason::IdempotencyMismatch).0.as_u16(), 422);
        for reason in Reason::ALL {
            assert!(!detail(reason).is_empty());
        }
    }

    #[test]
    fn faults_of_the_caller_are_4xx_and_ours_are_not() {
        let text = || "x".to_owned();
        for (fault, want) in [
            (Fault::BodyTooLarge { limit: 1 }, 413),
            (Fault::BodyBroken(text()), 400),
            (Fault::BodySlow(1), 408),
            (Fault::NoPath(text()), 404),
            (Fault::NoMethod { allowed: "GET" }, 405),
            (Fault::Head { status: StatusCode::URI_TOO_LONG, what: text() }, 414),
            (Fault::Unauthenticated { invalid: false, why: "x" }, 401),
            (Fault::Forbidden { scope: "pool" }, 403),
            (Fault::PoolForbidden { pool: text(), allowed: text() }, 403),
            (Fault::NoPool { name: text(), known: text() }, 404),
            (Fault::NoAdmission(text()), 404),
            (Fault::Gone(text()), 410),
            (Fault::Conflict(text()), 409),
            (Fault::Over { id: text(), end: "Lost", seq: 9 }, 409),
            (Fault::KeyMismatch, 422),
            (Fault::GatewayFull { what: "connections", limit: 1 }, 429),
            (Fault::LogUnavailable, 503),
            (Fault::ShuttingDown, 503),
            (Fault::Internal(text()), 500),
        ] {
            let response = super::fault(&fault, Some("r"));
            assert_eq!(response.status().as_u16(), want, "{fault:?}");
            assert!(response.headers().contains_key(DROPPED), "{fault:?}");
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        }
    }

    #[test]
    fn who_is_refused_is_told_what_would_do() {
        for (fault, want) in [
            (Fault::Unauthenticated { invalid: false, why: "x" }, r#"Bearer realm="weir""#),
            (
                Fault::Unauthenticated { invalid: true, why: "x" },
                r#"Bearer realm="weir", error="invalid_token""#,
            ),
            (
                Fault::Forbidden { scope: "pool" },
                r#"Bearer realm="weir", error="insufficient_scope", scope="pool""#,
            ),
        ] {
            assert_eq!(super::fault(&fault, None).headers()[WWW_AUTHENTICATE], want);
        }
        let other = fault(&Fault::ShuttingDown, None);
        assert!(!other.headers().contains_key(WWW_AUTHENTICATE));
    }
}
