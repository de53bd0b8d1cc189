//! Tickets: `POST /v1/admissions` with `Prefer: respond-async`. Its caller is told that the request waits and where to
//! ask for it, and may go away: nothing is held, and a restart of the service keeps the place.
//!
//! What is decided at once (or within the `wait` that the caller allows) is answered like a held call. Not here: being
//! asked (`inquiry.rs`); the patience with a holder that does not ask, which is the kernel's.

use super::admissions::{Decided, decided};
use super::answer;
use super::json::Object;
use super::problem::Fault;
use super::standing;
use super::state::PoolFace;
use super::wish::{PREFERENCE_APPLIED, RESPOND_ASYNC};
use crate::engine::{Decision, Queued, Seen, Watched};
use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use std::time::Duration;
use weir_kernel::Arrival;

/// Hands an arrival in and answers what is known of it then.
///
/// # Errors
/// Nothing could be decided, or the key came with another body.
pub async fn issue(pool: &PoolFace, arrival: Arrival, wait: Duration) -> Result<Response, Fault> {
    let caller_id = arrival.caller_id.clone();
    let watched = pool.handle.admit_watched(arrival).map_err(answer::unavailable)?;
    let Watched { mut pending, queued, ended: _ } = watched;
    let mut queued = tokio::select! {
        biased;
        decision = &mut pending => return whole(pool, &caller_id, decision),
        Ok(queued) = queued => queued,
    };
    // Not so long that the ticket would be given up as forgotten.
    let wait = wait.min(Duration::from_micros(queued.ticket_timeout.0 / 2));
    if !wait.is_zero() {
        if let Ok(decision) = tokio::time::timeout(wait, &mut pending).await {
            return whole(pool, &caller_id, decision);
        }
        match pool.handle.about(queued.id, false).await.map_err(answer::unavailable)?.seen {
            Seen::Queued(now) => queued = now,
            Seen::Running(_) | Seen::Decided(_) | Seen::Gone => {
                return whole(pool, &caller_id, pending.await);
            }
        }
    }
    pending.leave();
    Ok(waits(pool.handle.name(), &caller_id, &queued))
}

fn whole(pool: &PoolFace, caller_id: &str, decision: Decision) -> Result<Response, Fault> {
    let name = pool.handle.name();
    Ok(match decided(decision)? {
        Decided::Admitted(admitted) => answer::admission(name, caller_id, &admitted),
        Decided::Refused(refused) => answer::refusal(name, caller_id, &refused),
    })
}

fn waits(pool: &str, caller_id: &str, queued: &Queued) -> Response {
    let body = standing::queued(Object::new().text("state", "queued"), pool, Some(caller_id), queued);
    let mut response = answer::json(StatusCode::ACCEPTED, body.finish());
    let headers = response.headers_mut();
    headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static(RESPOND_ASYNC));
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/admissions/{pool}-{}", queued.id)) {
        headers.insert(LOCATION, location);
    }
    response
}
