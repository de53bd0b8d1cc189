//! What a caller did wrong, or what we cannot do: one error type, rendered as `application/problem+json`.
//!
//! Not here: refusals that the kernel decided, and the statuses themselves (`answer.rs`).

use super::answer;
use super::json::{Object, shown};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use std::borrow::Cow;

/// A field, header, path or query whose value is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value:?} is not allowed: {allowed}")]
pub struct Invalid {
    /// Where it stood, as the caller calls it.
    pub field: Cow<'static, str>,
    /// What was found, cut and escaped.
    pub value: String,
    /// What would have been allowed.
    pub allowed: Cow<'static, str>,
}

impl Invalid {
    /// Names field, value and what is allowed.
    pub fn new(
        field: impl Into<Cow<'static, str>>,
        value: impl AsRef<[u8]>,
        allowed: impl Into<Cow<'static, str>>,
    ) -> Self {
        Invalid { field: field.into(), value: shown(value.as_ref()), allowed: allowed.into() }
    }
}

/// Everything but a decision that a face may answer with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A value that is not allowed.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A body over the limit.
    #[error("the body is over the limit of {limit} bytes")]
    BodyTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The body could not be read to its end.
    #[error("the body ended early: {0}")]
    BodyBroken(String),
    /// The body did not come within the time allowed.
    #[error("the body did not come within {0} ms")]
    BodySlow(u64),
    /// The head of the request is no HTTP, or beyond its bounds.
    #[error("{what}")]
    Head {
        /// The status that HTTP has for it.
        status: StatusCode,
        /// What is wrong.
        what: String,
    },
    /// The caller is not known.
    #[error("{why}")]
    Unauthenticated {
        /// It showed a token, which is none of ours.
        invalid: bool,
        /// What is missing or wrong.
        why: &'static str,
    },
    /// The caller is known, but may not do this.
    #[error("this caller lacks the scope {scope}")]
    Forbidden {
        /// What it would have needed.
        scope: &'static str,
    },
    /// The caller is known, but has nothing to do with this pool.
    #[error("this caller is bound to other pools")]
    PoolForbidden {
        /// The pool, cut and escaped.
        pool: String,
        /// The pools it is bound to.
        allowed: String,
    },
    /// No such path.
    #[error("no such path")]
    NoPath(String),
    /// The path exists, the method does not.
    #[error("this path takes {allowed}")]
    NoMethod {
        /// The methods it takes, as the header `allow` says them.
        allowed: &'static str,
    },
    /// No pool of that name.
    #[error("no pool of that name")]
    NoPool {
        /// The name, cut and escaped.
        name: String,
        /// The pools there are.
        known: String,
    },
    /// No admission of that id is queued or running (it never was, or it has ended).
    #[error("no admission of that id is queued or running")]
    NoAdmission(String),
    /// What was asked for is no longer, or not yet, to be had.
    #[error("{0}")]
    Gone(String),
    /// The pool is fed in another way.
    #[error("{0}")]
    Conflict(String),
    /// What the holder of a lease says comes too late.
    #[error("the lease has ended before, as {end}")]
    Over {
        /// The admission's id, cut and escaped.
        id: String,
        /// How the lease ended, or how the request left the queue.
        end: &'static str,
        /// The step that ended it.
        seq: u64,
    },
    /// The same key came with another body.
    #[error("this Idempotency-Key was used with another body")]
    KeyMismatch,
    /// One of the gateway's own limits is reached.
    #[error("the gateway holds as many {what} as it may ({limit})")]
    GatewayFull {
        /// Of what.
        what: &'static str,
        /// How many.
        limit: usize,
    },
    /// The log cannot be written, so nothing may be decided.
    #[error("the decision log cannot be written")]
    LogUnavailable,
    /// The service is stopping.
    #[error("the service is stopping")]
    ShuttingDown,
    /// Our own fault.
    #[error("{0}")]
    Internal(String),
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        answer::fault(&self, None)
    }
}

/// The body of a fault.
pub fn body(fault: &Fault, status: u16, title: &str, reason: &str, request_id: Option<&str>) -> Vec<u8> {
    members(Object::new(), fault, status, title, reason, request_id).finish()
}

/// Its members: type, title, status, detail and the extension members.
pub fn members(
    object: Object,
    fault: &Fault,
    status: u16,
    title: &str,
    reason: &str,
    request_id: Option<&str>,
) -> Object {
    let object = object
        .text("type", "about:blank")
        .text("title", title)
        .plain("status", status)
        .text("detail", &fault.to_string())
        .text("reason", reason)
        .text_opt("requestId", request_id.filter(|id| !id.is_empty()));
    match fault {
        Fault::Invalid(invalid) => object
            .text("field", &invalid.field)
            .text("value", &invalid.value)
            .text("allowed", &invalid.allowed),
        Fault::BodyTooLarge { limit } => object.text("field", "body").plain("limit", limit),
        Fault::BodyBroken(_) | Fault::BodySlow(_) => object.text("field", "body"),
        Fault::Forbidden { scope } => object.text("field", "authorization").text("scope", scope),
        Fault::PoolForbidden { pool, allowed } => {
            object.text("field", "pool").text("value", pool).text("allowed", allowed)
        }
        Fault::Unauthenticated { .. } => object.text("field", "authorization"),
        Fault::NoPath(path) => object.text("field", "path").text("value", path),
        Fault::NoMethod { allowed } => object.text("field", "method").text("allowed", allowed),
        Fault::NoPool { name, known } => {
            object.text("field", "pool").text("value", name).text("allowed", known)
        }
        Fault::NoAdmission(id) => object.text("field", "id").text("value", id),
        Fault::GatewayFull { limit, .. } => object.plain("limit", limit),
        Fault::KeyMismatch => object.text("field", "Idempotency-Key"),
        Fault::Head { .. }
        | Fault::Gone(_)
        | Fault::Conflict(_)
        | Fault::LogUnavailable
        | Fault::ShuttingDown
        | Fault::Internal(_) => object,
        Fault::Over { id, end, seq } => {
            object.text("field", "id").text("value", id).text("end", end).plain("sequence", seq)
        }
    }
}
