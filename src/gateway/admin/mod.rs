//! `/admin`: what operators do by hand. Every order is an event in the log, with who gave it and why.
//!
//! Not here: who may come this far (the listener's concern), and what an order does (the kernel's).

mod config;
mod order;
mod upkeep;

pub use upkeep::Upkeep;

use super::admissions::{bounds, count};
use super::answer;
use super::body;
use super::json::{Object, shown};
use super::problem::{Fault, Invalid};
use super::router::only;
use super::segment::Segment;
use super::state::{Gateway, PoolFace};
use crate::engine::{ExternalId, Obeyed, Revoking};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use http::{Request, StatusCode};
use order::{Members, Order};
use std::sync::Arc;
use weir_kernel::{Admin, AdminAction, DEFAULT_FLOW, Micros};

/// Every path under `/admin`.
pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/admin/pools/{pool}/pause", only(post(pause), "POST"))
        .route("/admin/pools/{pool}/resume", only(post(resume), "POST"))
        .route("/admin/pools/{pool}/purge", only(post(purge), "POST"))
        .route("/admin/pools/{pool}/revoke", only(post(revoke), "POST"))
        .route("/admin/drain", only(post(drain), "POST"))
        .route("/admin/config", only(get(config::show), "GET, HEAD"))
}

/// Reads who and why, and the members that this order takes.
async fn read(gateway: &Gateway, request: Request<Body>, members: Members) -> Result<Order, Fault> {
    let (parts, body) = request.into_parts();
    let read = async {
        let body = body::read(&parts, body, bounds(gateway)).await?;
        Ok(order::read(&parts, &body, members)?)
    };
    read.await.inspect_err(|fault| count(gateway, fault))
}

async fn pause(
    State(gateway): State<Arc<Gateway>>,
    Segment(name): Segment,
    request: Request<Body>,
) -> Result<Response, Fault> {
    switch(&gateway, &name, request, AdminAction::Pause, "paused").await
}

async fn resume(
    State(gateway): State<Arc<Gateway>>,
    Segment(name): Segment,
    request: Request<Body>,
) -> Result<Response, Fault> {
    switch(&gateway, &name, request, AdminAction::Resume, "running").await
}

/// Pauses or resumes; said twice is as good as said once.
async fn switch(
    gateway: &Gateway,
    name: &str,
    request: Request<Body>,
    action: AdminAction,
    state: &str,
) -> Result<Response, Fault> {
    let pool = gateway.pool(Some(name))?;
    let Order { by, why, .. } = read(gateway, request, Members::None).await?;
    let (seq, changed) = match pool.handle.order(Admin { action, by: by.clone(), why: why.clone() }).await {
        Obeyed::Done { seq, .. } => (seq, true),
        Obeyed::Same { seq } => (seq, false),
        other => return Err(refused(other, "")),
    };
    tracing::info!(pool = name, by, why, changed, "by hand: {state}");
    let body = Object::new()
        .text("pool", name)
        .text("state", state)
        .plain("changed", changed)
        .plain("sequence", seq)
        .text("by", &by)
        .text("why", &why)
        .finish();
    Ok(answer::json(StatusCode::OK, body))
}

async fn purge(
    State(gateway): State<Arc<Gateway>>,
    Segment(name): Segment,
    request: Request<Body>,
) -> Result<Response, Fault> {
    let pool = gateway.pool(Some(&name))?;
    let Order { by, why, id, flow } = read(&gateway, request, Members::Purge).await?;
    let action = match (&id, flow) {
        (Some(id), _) => AdminAction::Purge { request: of_pool(pool, id)?.request },
        (None, Some((fairness_id, priority))) => {
            let fairness_id = if fairness_id.is_empty() { DEFAULT_FLOW.to_owned() } else { fairness_id };
            AdminAction::PurgeFlow { fairness_id, priority }
        }
        (None, None) => return Err(Invalid::new("id", "", order::WHAT_TO_PURGE).into()),
    };
    let (seq, removed) = match pool.handle.order(Admin { action, by: by.clone(), why: why.clone() }).await {
        Obeyed::Done { seq, removed } => (seq, removed),
        Obeyed::Same { seq } => (seq, 0),
        other => return Err(refused(other, id.as_deref().unwrap_or_default())),
    };
    tracing::info!(pool = name, by, why, removed, "by hand: purged");
    let body = Object::new()
        .text("pool", &name)
        .plain("purged", removed)
        .plain("sequence", seq)
        .text("by", &by)
        .text("why", &why)
        .finish();
    Ok(answer::json(StatusCode::OK, body))
}

/// Takes back what runs. Whoever holds the lease is told as soon as the order is durable; that it has ended comes later.
async fn revoke(
    State(gateway): State<Arc<Gateway>>,
    Segment(name): Segment,
    request: Request<Body>,
) -> Result<Response, Fault> {
    let pool = gateway.pool(Some(&name))?;
    let Order { by, why, id, .. } = read(&gateway, request, Members::Revoke).await?;
    let id = id.unwrap_or_default();
    let number = of_pool(pool, &id)?.request;
    let (seq, revocation, state) = match pool.handle.revoke(number, &by, &why).await {
        Revoking::Issued { seq, number } => (Some(seq), Some(number), "revoking"),
        Revoking::Undeliverable { seq, number } => (Some(seq), Some(number), "undeliverable"),
        Revoking::AlreadyRevoked => (None, None, "revoking"),
        Revoking::NotRunning => {
            let id = shown(id.as_bytes());
            return Err(Fault::Conflict(format!("{id} is still queued: it is purged, not revoked")));
        }
        Revoking::Unknown => return Err(Fault::NoAdmission(shown(id.as_bytes()))),
        Revoking::Unavailable(why) => return Err(answer::unavailable(why)),
    };
    tracing::info!(pool = name, by, why, id, state, "by hand: revoke");
    let body = Object::new()
        .text("pool", &name)
        .text("id", &id)
        .text("state", state)
        .plain("changed", revocation.is_some())
        .plain_opt("revocation", revocation)
        .plain_opt("sequence", seq)
        .text("by", &by)
        .text("why", &why)
        .finish();
    Ok(answer::json(StatusCode::OK, body))
}

/// The id of an admission of this pool.
fn of_pool(pool: &PoolFace, id: &str) -> Result<ExternalId, Fault> {
    let parsed: Option<ExternalId> = id.parse().ok();
    parsed.filter(|id| id.pool == pool.handle.name()).ok_or_else(|| {
        let allowed = format!("{}-<number>, as an admission of this pool names it", pool.handle.name());
        Invalid::new("id", id, allowed).into()
    })
}

fn refused(obeyed: Obeyed, id: &str) -> Fault {
    match obeyed {
        Obeyed::Unavailable(why) => answer::unavailable(why),
        Obeyed::Running => {
            let id = shown(id.as_bytes());
            Fault::Conflict(format!(
                "{id} runs already: it is in no queue, and only a revocation takes it back"
            ))
        }
        Obeyed::Unknown | Obeyed::Done { .. } | Obeyed::Same { .. } => {
            Fault::NoAdmission(shown(id.as_bytes()))
        }
    }
}

/// What a pool has left when its drain begins.
struct Left {
    pool: String,
    queued: u64,
    in_flight: u64,
    seq: u64,
}

/// `POST /admin/drain`: the same as SIGTERM, by name and with a reason. Asked again, it says what is left by then.
async fn drain(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Result<Response, Fault> {
    let Order { by, why, .. } = read(&gateway, request, Members::None).await?;
    let timeout = gateway.options.drain_timeout;
    let span = Micros(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX));
    let first = !gateway.is_stopping();
    gateway.begin_stop();
    let mut left = Vec::new();
    for pool in gateway.pools() {
        let until = pool.handle.clock().now() + span;
        let order = Admin { action: AdminAction::Drain { until }, by: by.clone(), why: why.clone() };
        // A pool that has nothing left ends at once, and takes neither orders nor looks from then on.
        let looked = pool.handle.query(|state| (state.queued(), state.in_flight())).await;
        let seq = match pool.handle.order(order).await {
            Obeyed::Done { seq, .. } | Obeyed::Same { seq } => seq,
            _ => pool.handle.status().durable,
        };
        let (queued, in_flight) = looked.unwrap_or_default();
        left.push(Left { pool: pool.handle.name().to_owned(), queued, in_flight, seq });
    }
    if first {
        tracing::info!(by, why, "by hand: drain");
    }
    gateway.upkeep.order_drain();
    let body = Object::new()
        .text("state", "draining")
        .plain("changed", first)
        .plain("drainTimeoutMs", timeout.as_millis())
        .text("by", &by)
        .text("why", &why)
        .list("left", &left, |object, left| {
            object
                .text("pool", &left.pool)
                .plain("queued", left.queued)
                .plain("leases", left.in_flight)
                .plain("sequence", left.seq)
        })
        .finish();
    Ok(answer::json(StatusCode::ACCEPTED, body))
}
