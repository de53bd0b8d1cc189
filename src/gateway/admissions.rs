//! `/v1/admissions`: what is asked for, and what the holder of an admission may do with it afterwards.
//!
//! Not here: the ways to be answered (`call.rs`, `stream/`, `ticket.rs`), being asked (`inquiry.rs`).
//!
//! A caller that goes away while held is a cancellation: its connection ends, the wait is dropped, and the engine is
//! told. One that goes away between the decision and the answer cannot be told from one that took its answer and
//! left: its lease ends by `leaseTimeout`, like any that is neither completed nor renewed.

use super::answer;
use super::ask::Ask;
use super::ask_body;
use super::ask_headers::Found;
use super::auth::Actor;
use super::body::Bounds;
use super::json::shown;
use super::metrics::GatewayCounters;
use super::outcome::{self, From};
use super::problem::{Fault, Invalid};
use super::segment::Segment;
use super::state::{Gateway, PoolFace};
use super::wish::Wish;
use crate::engine::{Admitted, Decision, ExternalId, Fate, Refused};
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use std::sync::Arc;
use weir_kernel::{Arrival, Cause, Face, Reason, RequestId};

/// A face's answer before it is HTTP.
pub enum Decided {
    /// It may go on.
    Admitted(Admitted),
    /// It may not.
    Refused(Refused),
}

/// What an admission asks for, read and checked.
pub struct Asked<'g> {
    /// Of which pool.
    pub pool: &'g PoolFace,
    /// What is handed in.
    pub arrival: Arrival,
    /// How it is to be answered.
    pub wish: Wish,
}

/// Reads a call's head and body.
///
/// # Errors
/// Names what is not allowed, or not there.
pub fn asked<'g>(gateway: &'g Gateway, parts: &Parts, body: &[u8]) -> Result<Asked<'g>, Fault> {
    let wish = Wish::of(&parts.headers);
    let mut ask = ask_body::read(body)?;
    let found = Found::pick(header_pairs(parts))?;
    found.fill(&mut ask)?;
    if ask.bytes.is_none() && !body.is_empty() {
        ask.bytes = Some(body.len() as u64);
    }
    let pool = gateway.pool(ask.pool.as_deref())?;
    let face = match wish {
        Wish::Held => Face::Held,
        Wish::Stream(_) => Face::Stream,
        Wish::Ticket(_) => Face::Ticket,
    };
    let actor = parts.extensions.get::<Actor>();
    let terms = gateway.terms(pool, face, actor)?;
    let key = found.key(actor)?.map(|key| key.hashed(pool.handle.name(), body));
    Ok(Asked { pool, arrival: ask.into_arrival(terms, key), wish })
}

/// Hands an arrival in and waits for its decision. Dropped before that, the request is cancelled.
///
/// # Errors
/// Nothing could be decided.
pub async fn decide(pool: &PoolFace, arrival: Arrival) -> Result<Decided, Fault> {
    decided(pool.handle.admit(arrival).map_err(answer::unavailable)?.await)
}

/// A decision as a face may answer it.
///
/// # Errors
/// Nothing could be decided, or the key came with another body.
pub fn decided(decision: Decision) -> Result<Decided, Fault> {
    match decision {
        Decision::Admitted(admitted) => Ok(Decided::Admitted(admitted)),
        Decision::Refused(refused) if refused.reason == Reason::IdempotencyMismatch => {
            Err(Fault::KeyMismatch)
        }
        Decision::Refused(refused) => Ok(Decided::Refused(refused)),
        Decision::Unavailable(why) => Err(answer::unavailable(why)),
    }
}

/// `DELETE /v1/admissions/{id}`: the caller gives it up, queued or running.
pub async fn cancel(State(gateway): State<Arc<Gateway>>, Segment(id): Segment) -> Result<Response, Fault> {
    let (pool, request) = find(&gateway, &id)?;
    match pool.handle.cancel(request, Cause::ClientDisconnect).await {
        // It is gone, which is what was wanted.
        Fate::Unknown => over(&gateway, pool, &id, request, |_| true).await,
        fate => answer::fate(&id, "cancelled", fate),
    }
}

/// What is said of a lease that has ended already: how it did, where that is as good as what was asked for, else that
/// it is too late.
pub async fn over(
    gateway: &Gateway,
    pool: &PoolFace,
    id: &str,
    request: RequestId,
    as_good: impl FnOnce(&outcome::Record) -> bool,
) -> Result<Response, Fault> {
    let unknown = || Fault::NoAdmission(shown(id.as_bytes()));
    let found = outcome::find(gateway, pool.handle.name(), request, From::Arrival, true).await?;
    let record = found.ok_or_else(unknown)?;
    if as_good(&record) {
        return Ok(super::inquiry::over(pool.handle.name(), id, &record));
    }
    if pool.handle.peek(|state| state.policy().observe).await.unwrap_or(false) {
        // Its caller was let go on, whatever became of the shadow.
        return Ok(super::inquiry::gone(id));
    }
    let (end, seq) = record.ending().ok_or_else(unknown)?;
    Err(Fault::Over { id: shown(id.as_bytes()), end, seq })
}

/// `POST /v1/admissions/{id}/renew`
pub async fn renew(State(gateway): State<Arc<Gateway>>, Segment(id): Segment) -> Result<Response, Fault> {
    let (pool, request) = find(&gateway, &id)?;
    match pool.handle.renew(request).await {
        // A lease that has ended cannot be kept, and its holder must hear so.
        Fate::Unknown | Fate::AlreadyEnded => over(&gateway, pool, &id, request, |_| false).await,
        fate => answer::fate(&id, "renewed", fate),
    }
}

/// The request that an id names.
///
/// # Errors
/// No id, or of no pool.
pub fn find<'g>(gateway: &'g Gateway, id: &str) -> Result<(&'g PoolFace, RequestId), Fault> {
    let (name, request) = ExternalId::parts(id)
        .map_err(|_| Invalid::new("id", id, "<pool>-<number>, as an admission names it"))?;
    let pool = gateway.pool(Some(name)).map_err(|_| Fault::NoAdmission(shown(id.as_bytes())))?;
    Ok((pool, request))
}

/// The bounds of every body.
pub fn bounds(gateway: &Gateway) -> Bounds {
    Bounds { bytes_max: gateway.options.body_bytes_max, time_max: gateway.options.body_time_max }
}

/// Headers as the ask reader takes them.
pub fn header_pairs(parts: &Parts) -> impl Iterator<Item = (&str, &[u8])> {
    parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}

/// The caller's own id from the header, if it is fit to be repeated.
pub fn caller_id(parts: &Parts) -> Option<&str> {
    let id = parts.headers.get("x-request-id")?.to_str().ok()?;
    (id.len() <= super::ask::ID_BYTES_MAX).then_some(id)
}

/// Counts what never became an input.
pub fn count(gateway: &Gateway, fault: &Fault) {
    gateway.turned_away(fault);
    let counters = &gateway.metrics.gateway;
    let (status, _, _) = answer::fault_status(fault);
    if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
        GatewayCounters::add(&counters.invalid);
    } else if matches!(fault, Fault::LogUnavailable) {
        GatewayCounters::add(&counters.log_unavailable);
    }
}

/// An ask of headers alone, as ext_proc hands them over.
///
/// # Errors
/// Names the header whose value is not allowed.
pub fn ask_of<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<Ask, Invalid> {
    let found = Found::pick(headers)?;
    let mut ask = Ask::default();
    found.fill(&mut ask)?;
    ask.bytes = found.content_length();
    Ok(ask)
}
