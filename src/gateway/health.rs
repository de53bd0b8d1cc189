//! `/healthz`, `/readyz` and `/metrics`.

use super::answer;
use super::json::Object;
use super::media;
use super::metrics::Form;
use super::state::Gateway;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use std::sync::Arc;
use weir_kernel::Regime;

/// `GET /healthz`: the process answers. True until it is gone, also while it drains.
pub async fn live() -> Response {
    answer::json(StatusCode::OK, Object::new().text("status", "ok").finish())
}

/// `GET /readyz`: every pool has been seen and can decide, and no stop has begun.
pub async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    let mut reasons: Vec<(String, &'static str)> = Vec::new();
    if gateway.is_stopping() {
        reasons.push((String::new(), "stopping"));
    }
    for pool in gateway.pools() {
        let status = pool.handle.status();
        let reason = if status.failed {
            "failed"
        } else if status.recovering {
            "recovering"
        } else if !status.log_writable {
            "log-unavailable"
        } else if status.stopping {
            "stopping"
        } else if status.regime == Regime::Unknown {
            "not-seen"
        } else {
            continue;
        };
        reasons.push((pool.handle.name().to_owned(), reason));
    }
    let ok = reasons.is_empty();
    let reload = gateway.upkeep.last_reload();
    let body = Object::new()
        .text("status", if ok { "ready" } else { "not-ready" })
        .list("reasons", &reasons, |object, (pool, reason)| {
            object
                .text_opt("pool", Some(pool.as_str()).filter(|pool| !pool.is_empty()))
                .text("reason", reason)
        })
        // The settings before it hold on, so that this alone is no reason.
        .text_opt("lastReloadError", reload.and_then(|reload| reload.error).as_deref())
        .finish();
    answer::json(if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, body)
}

/// `GET /metrics`, in the form that the caller accepts.
pub async fn exposition(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    let gauges = gateway.gauges().await;
    if let Some(exporter) = gateway.traces.get() {
        gateway.metrics.note_traces(exporter.counters().counts());
    }
    let form = match media::best(&headers, &["text/plain", "application/openmetrics-text"], true) {
        1 => Form::OpenMetrics,
        _ => Form::Prometheus,
    };
    let compat = gateway.options.metrics_compat_llm_d;
    let text = gateway.metrics.show(gauges, gateway.history.metrics(), compat, form);
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    response
}
