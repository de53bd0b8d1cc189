//! `/v1/pools`: how each pool is, and pushing its endpoints.

use super::admissions::{bounds, count};
use super::answer;
use super::body;
use super::json::Object;
use super::problem::{Fault, Invalid};
use super::push;
use super::segment::Segment;
use super::state::{Gateway, PoolFace};
use crate::observer::{EndpointStatus, Push, View};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use std::sync::Arc;
use weir_kernel::{Hold, Micros, Outcome, Pushed, Ratio, Regime, Role};

/// `GET /v1/pools`
pub async fn list(State(gateway): State<Arc<Gateway>>) -> Response {
    let pools = gateway.pools().map(|pool| (pool.handle.name(), pool.handle.status()));
    let body = Object::new()
        .list("pools", pools, |object, (name, status)| {
            object
                .text("pool", name)
                .text("regime", status.regime.word())
                .plain("ready", status.ready() && !gateway.is_stopping())
                .plain("sequence", status.durable)
        })
        .finish();
    answer::json(StatusCode::OK, body)
}

/// What is read from the state in one look.
struct Seen {
    seq: u64,
    regime: Regime,
    regime_for: Micros,
    saturation: (Ratio, Ratio),
    queued: (u64, u64),
    limits: (u64, u64),
    in_flight: u64,
    endpoints: (u16, u16),
    hold: Option<Hold>,
    /// Since when, by whom and why it is paused.
    paused: Option<(Micros, String, String)>,
    purging: u64,
    bands: Vec<weir_kernel::BandView>,
    budgets: (Micros, Micros),
    outcomes: Vec<(Outcome, u64)>,
    draining: bool,
    observe: bool,
    flow_control: bool,
}

fn see(state: &weir_kernel::State) -> Seen {
    let policy = state.policy();
    let counted = |outcome: Outcome| state.counters().outcomes[outcome.index()];
    Seen {
        seq: state.seq(),
        regime: state.regime(),
        regime_for: state.now().since(state.regime_since()),
        saturation: state.saturation(),
        queued: (state.queued(), state.queued_bytes()),
        limits: (policy.max_requests, policy.max_bytes),
        in_flight: state.in_flight(),
        endpoints: (state.endpoint_count(), state.stale_endpoints()),
        hold: state.hold(),
        paused: state.paused().map(|p| (state.now().since(p.since), p.by.to_owned(), p.why.to_owned())),
        purging: state.purging(),
        bands: state.bands().collect(),
        budgets: (policy.saturation_budget, policy.no_endpoint_budget),
        outcomes: Outcome::ALL.iter().map(|outcome| (*outcome, counted(*outcome))).collect(),
        draining: state.is_draining(),
        observe: policy.observe,
        flow_control: policy.flow_control,
    }
}

/// `GET /v1/pools/{pool}`
pub async fn show(State(gateway): State<Arc<Gateway>>, Segment(name): Segment) -> Result<Response, Fault> {
    let pool = gateway.pool(Some(&name))?;
    let seen = pool.handle.peek(see).await.map_err(answer::unavailable)?;
    let status = pool.handle.status();
    let paused = |object: Object| match &seen.paused {
        Some((span, by, why)) => object.object("paused", |object| {
            object.plain("forMs", span.as_millis()).text("by", by).text("why", why)
        }),
        None => object,
    };
    let body = paused(
        Object::new()
            .text("pool", &name)
            .plain("ready", status.ready() && !gateway.is_stopping())
            .text("regime", seen.regime.word())
            .plain("regimeForMs", seen.regime_for.as_millis())
            .object("saturation", |object| {
                object.plain("raw", seen.saturation.0).plain("effective", seen.saturation.1)
            })
            .object("endpoints", |object| {
                object.plain("count", seen.endpoints.0).plain("stale", seen.endpoints.1)
            })
            .object("queue", |object| {
                object
                    .plain("requests", seen.queued.0)
                    .plain("bytes", seen.queued.1)
                    // 0 = unlimited, as in the settings.
                    .plain("maxRequests", seen.limits.0)
                    .plain("maxBytes", seen.limits.1)
                    .plain_opt("purging", Some(seen.purging).filter(|left| *left > 0))
                    .text_opt("heldBy", seen.hold.map(held_by).as_deref())
            }),
    )
    .object("budgets", |object| {
        object
            .plain("defaultRequestTtlMs", seen.budgets.0.as_millis())
            .plain("noEndpointRequestTtlMs", seen.budgets.1.as_millis())
    })
    .plain("leases", seen.in_flight)
    .list("bands", &seen.bands, band)
    .object("outcomes", |object| {
        seen.outcomes.iter().fold(object, |object, (outcome, count)| object.plain(outcome.word(), count))
    })
    .object("log", |object| {
        object
            .plain("sequence", seen.seq)
            .plain("durable", status.durable)
            .plain("writable", status.log_writable)
    })
    .plain("draining", seen.draining)
    .text("mode", if seen.observe { "observe" } else { "enforce" })
    .plain("flowControl", seen.flow_control)
    .finish();
    Ok(answer::json(StatusCode::OK, body))
}

fn band(object: Object, band: &weir_kernel::BandView) -> Object {
    object
        .plain("priority", band.priority)
        .text("origin", origin(band.origin))
        .plain("ceiling", band.ceiling)
        .plain("requests", band.requests)
        .plain("bytes", band.bytes)
        .plain("flows", band.flows)
        .plain("maxRequests", band.settings.max_requests)
        .plain("maxBytes", band.settings.max_bytes)
}

const fn origin(origin: weir_kernel::BandOrigin) -> &'static str {
    match origin {
        weir_kernel::BandOrigin::Configured => "configured",
        weir_kernel::BandOrigin::Desired => "desired",
        weir_kernel::BandOrigin::Provisioned => "provisioned",
    }
}

/// What holds queued work back, in one sentence.
pub fn held_by(hold: Hold) -> String {
    match hold {
        Hold::Regime(regime) => format!("regime {regime}"),
        Hold::Recovery => "recovery after a restart".to_owned(),
        Hold::Paused => "paused by an operator".to_owned(),
        Hold::Band { stale, endpoints, .. } if stale == endpoints && endpoints > 0 => {
            format!("metrics stale {stale}/{endpoints}")
        }
        Hold::Band { priority, saturation, ceiling, stale, endpoints } => {
            let stale =
                if stale > 0 { format!(", metrics stale {stale}/{endpoints}") } else { String::new() };
            format!("band {priority} closed, {saturation} >= {ceiling}{stale}")
        }
    }
}

/// `PUT /v1/pools/{pool}/endpoints`
pub async fn push(
    State(gateway): State<Arc<Gateway>>,
    Segment(name): Segment,
    request: Request<Body>,
) -> Result<Response, Fault> {
    let done = async {
        let (parts, body) = request.into_parts();
        let pool = gateway.pool(Some(&name))?;
        let body = body::read(&parts, body, bounds(&gateway)).await?;
        take(pool, push::read(&body)?)?;
        Ok(answer::json(StatusCode::OK, render(&name, pool)))
    };
    done.await.inspect_err(|fault: &Fault| count(&gateway, fault))
}

fn take(pool: &PoolFace, push: Push) -> Result<(), Fault> {
    if pool.is_configured() && push.endpoints.is_some() {
        let text = "the endpoints of this pool are set in the configuration, or discovered; only a saturation may be pushed";
        return Err(Fault::Conflict(text.to_owned()));
    }
    let found = push.endpoints.as_ref().map_or(0, Vec::len);
    pool.observer
        .push(push)
        .map_err(|error| Fault::Invalid(Invalid::new("endpoints", found.to_string(), error.to_string())))
}

/// `GET /v1/pools/{pool}/endpoints`
pub async fn endpoints(
    State(gateway): State<Arc<Gateway>>,
    Segment(name): Segment,
) -> Result<Response, Fault> {
    let pool = gateway.pool(Some(&name))?;
    Ok(answer::json(StatusCode::OK, render(&name, pool)))
}

fn render(name: &str, pool: &PoolFace) -> Vec<u8> {
    let View { known, endpoints, pushed } = pool.observer.view();
    let object =
        Object::new().text("pool", name).plain("known", known).list("endpoints", &endpoints, endpoint);
    let object = match pool.discovered.standing() {
        None => object,
        Some(search) => object.object("discovery", |object| {
            object
                .text("kind", search.kind)
                .plain("found", search.found)
                .plain("failures", search.failures)
                .list("faults", &search.faults, |object, (place, error)| {
                    object.text("place", place).text("error", error)
                })
        }),
    };
    match pushed {
        None | Some(Pushed::Keep | Pushed::Clear) => object,
        Some(Pushed::Pool(figure)) => object.plain("saturation", figure),
        Some(Pushed::Stages { prefill, decode }) => {
            object.object("saturation", |object| object.plain("prefill", prefill).plain("decode", decode))
        }
    }
    .finish()
}

fn endpoint(object: Object, endpoint: &EndpointStatus) -> Object {
    let load = endpoint.load.as_ref();
    object
        .text("name", &endpoint.name)
        .text("role", role(endpoint.role))
        .plain("fresh", endpoint.fresh)
        .plain_opt("waiting", load.map(|load| load.waiting))
        .plain_opt("running", load.map(|load| load.running))
        .plain_opt("kv", load.map(|load| Ratio(i64::from(load.kv) * 100)))
        .plain_opt("ageMs", endpoint.age.map(|age| age.as_millis()))
        .text_opt("metricsUrl", endpoint.metrics_url.as_deref())
        .plain("scrapes", endpoint.scraped)
        .plain("failedScrapes", endpoint.faults.iter().sum::<u64>())
        .text_opt("lastFault", endpoint.last_fault.as_deref())
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::Decode => "decode",
        Role::Prefill => "prefill",
        Role::Both => "prefill-decode",
        Role::Other => "other",
    }
}
