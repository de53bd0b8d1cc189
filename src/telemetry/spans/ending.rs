//! What is said of an end: a 429 is told from a 503, and both from a fault of ours.

use crate::names;
use crate::span::{Attribute, Status, Value, attribute};
use weir_kernel::{Availability, Cause, LeaseEnd, LeaseEndCause, Limit, Reason, Termination};

/// Says how and why a request was refused.
///
/// A refusal for load (429) is no error of the service, nor is a caller that gave up; where nothing can serve (503), or we
/// are at fault (500), it is.
pub fn refusal(attributes: &mut Vec<Attribute>, reason: Reason, cause: Option<Cause>) -> Status {
    attributes.push(attribute(names::REASON, reason.word()));
    attributes.push(attribute(names::ERROR_TYPE, reason.word()));
    attributes.push(Attribute(names::STATUS_CODE, Value::Int(i64::from(reason.status()))));
    attributes.push(Attribute(names::AVAILABILITY, Value::Word(availability(reason))));
    if let Some(cause) = cause {
        attributes.push(Attribute(names::CAUSE, Value::Word(cause.word())));
    }
    match (reason.availability(), reason) {
        (Availability::Contended | Availability::Granted, _) => Status::Unset,
        (_, Reason::ContextCancelled | Reason::IdempotencyMismatch) => Status::Unset,
        (Availability::Unavailable | Availability::Fault, _) => Status::Error(reason.word().to_owned()),
    }
}

const fn availability(reason: Reason) -> &'static str {
    match reason.availability() {
        Availability::Granted => "granted",
        Availability::Contended => "contended",
        Availability::Unavailable => "unavailable",
        Availability::Fault => "fault",
    }
}

/// Says which limit refused it.
pub fn limit(attributes: &mut Vec<Attribute>, limit: Option<Limit>) {
    if let Some(limit) = limit {
        attributes.push(Attribute(names::LIMIT, Value::Word(limit.which.word())));
        attributes.push(attribute(names::LIMIT_HELD, limit.held));
        attributes.push(attribute(names::LIMIT_MAX, limit.limit));
    }
}

/// Says how a lease ended.
pub fn lease(
    attributes: &mut Vec<Attribute>,
    end: LeaseEnd,
    cause: Option<LeaseEndCause>,
    termination: Option<Termination>,
) -> Status {
    attributes.push(Attribute(names::LEASE_END, Value::Word(end.word())));
    if let Some(cause) = cause {
        attributes.push(Attribute(names::CAUSE, Value::Word(lease_cause(cause))));
    }
    let termination = termination.map(|termination| (termination, terminated(termination)));
    if let Some((_, word)) = termination {
        attributes.push(Attribute(names::TERMINATION, Value::Word(word)));
    }
    let error = match (end, termination) {
        (LeaseEnd::Revoked, _) => Reason::Evicted.word(),
        (LeaseEnd::Lost, _) => "lost",
        (_, Some((Termination::Error, _))) => "upstream",
        _ => return Status::Unset,
    };
    attributes.push(Attribute(names::ERROR_TYPE, Value::Word(error)));
    Status::Error(error.to_owned())
}

const fn lease_cause(cause: LeaseEndCause) -> &'static str {
    match cause {
        LeaseEndCause::Restart => "restart",
        LeaseEndCause::Timeout => "timeout",
        LeaseEndCause::NotAtEngine => "not-at-engine",
        LeaseEndCause::Cancelled(cause) => cause.word(),
    }
}

const fn terminated(termination: Termination) -> &'static str {
    match termination {
        Termination::Natural => "natural",
        Termination::ClientDisconnect => "client-disconnect",
        Termination::Evicted => "evicted",
        Termination::Error => "error",
    }
}
