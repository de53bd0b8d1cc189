//! `/v1/admissions`: the held admission, and what its holder may do with it afterwards.
//!
//! A caller that goes away while held is a cancellation: its connection ends, the wait is dropped, and the engine is
//! told. One that goes away between the decision and the answer cannot be told from one that took its answer and
//! left: its lease ends by `leaseTimeout`, like any that is neither completed nor renewed.

use super::answer;
use super::ask::Ask;
use super::ask_body;
use super::ask_headers::Found;
use super::auth::Actor;
use super::body::{self, Bounds};
use super::completion;
use super::json::{Object, shown};
use super::metrics::GatewayCounters;
use super::problem::{Fault, Invalid};
use super::segment::Segment;
use super::state::{Gateway, PoolFace};
use crate::engine::{Admitted, Decision, ExternalId, Fate, Refused};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::request::Parts;
use http::{Request, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use weir_config::parse_duration;
use weir_kernel::{Arrival, Cause, Ended, Face, Micros, Reason, RequestId};

/// The longest that a look at an admission may wait.
const WAIT_MAX: Micros = Micros::from_secs(60);

/// A face's answer before it is HTTP.
pub enum Decided {
    /// It may go on.
    Admitted(Admitted),
    /// It may not.
    Refused(Refused),
}

/// `POST /v1/admissions`
pub async fn admit(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    match held(&gateway, &parts, body).await {
        Ok(response) => response,
        Err(fault) => {
            count(&gateway, &fault);
            answer::fault(&fault, caller_id(&parts))
        }
    }
}

async fn held(gateway: &Gateway, parts: &Parts, body: Body) -> Result<Response, Fault> {
    let body = body::read(parts, body, bounds(gateway)).await?;
    let mut ask = ask_body::read(&body)?;
    let found = Found::pick(header_pairs(parts))?;
    found.fill(&mut ask)?;
    if ask.bytes.is_none() && !body.is_empty() {
        ask.bytes = Some(body.len() as u64);
    }
    let pool = gateway.pool(ask.pool.as_deref())?;
    let name = pool.handle.name();
    let actor = parts.extensions.get::<Actor>();
    let terms = gateway.terms(pool, Face::Held, actor)?;
    let key = found.key(actor)?.map(|key| key.hashed(name, &body));
    let arrival = ask.into_arrival(terms, key);
    let caller_id = arrival.caller_id.clone();
    Ok(match decide(pool, arrival).await? {
        Decided::Admitted(admitted) => answer::admission(name, &caller_id, &admitted),
        Decided::Refused(refused) => answer::refusal(name, &caller_id, &refused),
    })
}

/// Hands an arrival in and waits for its decision. Dropped before that, the request is cancelled.
///
/// # Errors
/// Nothing could be decided.
pub async fn decide(pool: &PoolFace, arrival: Arrival) -> Result<Decided, Fault> {
    let pending = pool.handle.admit(arrival).map_err(answer::unavailable)?;
    match pending.await {
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
    let fate = pool.handle.cancel(request, Cause::ClientDisconnect).await;
    answer::fate(&id, "cancelled", fate)
}

/// `POST /v1/admissions/{id}/complete`
pub async fn complete(
    State(gateway): State<Arc<Gateway>>,
    Segment(id): Segment,
    request: Request<Body>,
) -> Response {
    let (parts, body) = request.into_parts();
    let done = async {
        let body = body::read(&parts, body, bounds(&gateway)).await?;
        let (termination, usage) = completion::read(&body)?;
        let (pool, request) = find(&gateway, &id)?;
        let fate = pool.handle.end(Ended { request, termination, usage }).await;
        answer::fate(&id, "completed", fate)
    };
    done.await.unwrap_or_else(|fault: Fault| {
        count(&gateway, &fault);
        answer::fault(&fault, caller_id(&parts))
    })
}

/// `POST /v1/admissions/{id}/renew`
pub async fn renew(State(gateway): State<Arc<Gateway>>, Segment(id): Segment) -> Result<Response, Fault> {
    let (pool, request) = find(&gateway, &id)?;
    match pool.handle.renew(request).await {
        // A lease that has ended cannot be kept, and its holder must hear so.
        Fate::AlreadyEnded => Err(Fault::NoAdmission(shown(id.as_bytes()))),
        fate => answer::fate(&id, "renewed", fate),
    }
}

/// `GET /v1/admissions/{id}`, with `?wait=10s` held until its lease ends or the time is over.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    Segment(id): Segment,
    request: Request<Body>,
) -> Result<Response, Fault> {
    let (pool, number) = find(&gateway, &id)?;
    if let Some(span) = wait(request.uri().query())? {
        let ended = pool.handle.watch_lease(number);
        let ended = tokio::time::timeout(Duration::from_micros(span.0), ended).await;
        if let Ok(Ok(notice)) = ended {
            let body = Object::new()
                .text("id", &id)
                .text("state", "ended")
                .text("end", notice.end.word())
                .plain("sequence", notice.seq)
                .plain("ranMs", notice.ran.as_millis())
                .finish();
            return Ok(answer::json(StatusCode::OK, body));
        }
    }
    let seen = pool.handle.query(move |state| look(state, number)).await.map_err(answer::unavailable)?;
    let (state, priority, since, until) = seen.ok_or_else(|| Fault::NoAdmission(shown(id.as_bytes())))?;
    let now = pool.handle.clock().now();
    let body = Object::new()
        .text("id", &id)
        .text("pool", pool.handle.name())
        .text("state", state)
        .plain("priority", priority)
        .plain("forMs", now.since(since).as_millis())
        .plain_opt("leftMs", until.map(|until| until.since(now).as_millis()))
        .finish();
    Ok(answer::json(StatusCode::OK, body))
}

/// State, priority, since when, and until when if nothing changes.
fn look(
    state: &weir_kernel::State,
    request: RequestId,
) -> Option<(&'static str, i32, Micros, Option<Micros>)> {
    if let Some(queued) = state.queued_request(request) {
        return Some(("queued", queued.priority, queued.enqueued_at, queued.due));
    }
    let lease = state.lease(request)?;
    Some(("running", lease.priority, lease.dispatched_at, lease.lapses_at))
}

fn wait(query: Option<&str>) -> Result<Option<Micros>, Invalid> {
    let mut wait = None;
    for (name, value) in super::query::pairs(query)? {
        if name != "wait" {
            return Err(Invalid::new("query", name.as_bytes(), "wait"));
        }
        wait = match parse_duration(&value) {
            Ok(span) if span <= WAIT_MAX => Some(span),
            _ => return Err(Invalid::new("wait", value.as_bytes(), "a Go duration from 0s to 60s")),
        };
    }
    Ok(wait)
}

fn find<'g>(gateway: &'g Gateway, id: &str) -> Result<(&'g PoolFace, RequestId), Fault> {
    let parsed: ExternalId =
        id.parse().map_err(|_| Invalid::new("id", id, "<pool>-<number>, as an admission names it"))?;
    let pool = gateway.pool(Some(&parsed.pool)).map_err(|_| Fault::NoAdmission(shown(id.as_bytes())))?;
    Ok((pool, parsed.request))
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
