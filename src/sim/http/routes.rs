//! The routes of one simulated server.

use super::api::{Body, Writer};
use super::engine::{Engine, Running, Scrape};
use super::metrics;
use crate::sim::truth::Refusal;
use axum::body::Body as HttpBody;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use tokio_stream::StreamExt;
use weir_kernel::Micros;

/// The largest body that is read.
const BODY_LIMIT: usize = 8 << 20;

#[derive(Clone)]
struct App {
    engine: Arc<Engine>,
    model: Arc<str>,
}

/// The routes over one engine.
pub fn router(engine: Arc<Engine>, model: &str) -> Router {
    Router::new()
        .route("/v1/completions", post(|state, headers, body| complete(state, headers, body, false)))
        .route("/v1/chat/completions", post(|state, headers, body| complete(state, headers, body, true)))
        .route("/v1/models", get(models))
        .route("/metrics", get(scraped))
        .route("/health", get(health))
        .route("/sim", put(control).get(report))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(App { engine, model: Arc::from(model) })
}

fn error(status: StatusCode, message: String) -> Response {
    let kind = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
    let body = json!({ "error": { "message": message, "type": kind, "code": status.as_u16() } });
    (status, Json(body)).into_response()
}

async fn complete(State(app): State<App>, headers: HeaderMap, body: Bytes, chat: bool) -> Response {
    let ask = match Body::parse(&body).and_then(|body| body.check(chat).map_err(|e| e.to_string())) {
        Ok(ask) => ask,
        Err(message) => return error(StatusCode::BAD_REQUEST, message),
    };
    let label = headers.get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    let mut running = match app.engine.submit(ask.prompt, ask.output, label) {
        Ok(running) => running,
        Err(refusal @ Refusal::Cold { .. }) => {
            return error(StatusCode::SERVICE_UNAVAILABLE, refusal.to_string());
        }
        Err(refusal @ Refusal::TooLong { .. }) => {
            return error(StatusCode::BAD_REQUEST, format!("prompt and max_tokens: {refusal}"));
        }
    };
    let id = format!("{}-{}", if chat { "chatcmpl" } else { "cmpl" }, running.id());
    let writer = Writer { chat, id, model: app.model.to_string(), ask };
    if ask.stream {
        return events(running, writer);
    }
    // A caller that goes away drops this future, and with it the request.
    while running.token().await.is_some() {}
    Json(writer.whole()).into_response()
}

/// Headers at once, as real servers do, then one event per token.
fn events(running: Running, writer: Writer) -> Response {
    let last = writer.last();
    let chunks = running.map(move |token| writer.chunk(token));
    let stream = chunks.chain(tokio_stream::once(last)).map(Ok::<_, Infallible>);
    ([(header::CONTENT_TYPE, "text/event-stream")], HttpBody::from_stream(stream)).into_response()
}

async fn models(State(app): State<App>) -> Json<Value> {
    let model = json!({ "id": &*app.model, "object": "model", "owned_by": "weir-simpool" });
    Json(json!({ "object": "list", "data": [model] }))
}

async fn health(State(app): State<App>) -> StatusCode {
    if app.engine.ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn scraped(State(app): State<App>) -> Response {
    if !app.engine.ready() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let how = app.engine.scrape();
    let text = match how {
        Scrape::Ok | Scrape::Nan => metrics::exposition(&app.engine.view(), &app.model, how == Scrape::Nan),
        Scrape::Garbage => "}{ this is no exposition \u{fffd}\n".to_owned(),
        Scrape::Fail => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Scrape::Hang => std::future::pending().await,
    };
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

/// Faults by hand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Control {
    scrape: Option<Scrape>,
    stall_ms: Option<u64>,
}

/// Requests that were given up, and when what they held was free.
async fn report(State(app): State<App>) -> Json<Value> {
    Json(json!({ "freed": app.engine.freed() }))
}

async fn control(State(app): State<App>, body: Bytes) -> Response {
    let control: Control = match serde_json::from_slice(&body) {
        Ok(control) => control,
        Err(e) => {
            let allowed = "allowed: scrape (ok, fail, hang, garbage, nan), stallMs (whole milliseconds)";
            return error(StatusCode::BAD_REQUEST, format!("body: {e}; {allowed}"));
        }
    };
    if let Some(scrape) = control.scrape {
        app.engine.set_scrape(scrape);
    }
    if let Some(ms) = control.stall_ms {
        app.engine.stall(Micros::from_millis(ms));
    }
    StatusCode::NO_CONTENT.into_response()
}
