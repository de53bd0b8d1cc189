//! `/graphql`: questions over HTTP. `POST` answers one question or a list; with `Accept: text/event-stream` it is a
//! subscription. `GET` is the explorer page for a browser, a question in its query, or a WebSocket (`socket.rs`).
//!
//! Work is done on threads of its own, few at once, and ends when its caller is gone. Not here: the schema and its
//! limits (`weir-graphql`), and who may ask (`auth`: the scope `read`).

mod frame;
mod socket;

use super::auth::Actor;
use super::body::{self, Bounds};
use super::media;
use super::problem::{Fault, Invalid};
use super::query;
use super::state::Gateway;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Request, StatusCode};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use tokio_stream::{Stream, StreamExt};
use weir_graphql::{QUESTIONS, Service, Terms, encode, refusal};
use weir_projection::Work;

/// The explorer: one page, nothing from elsewhere.
const PAGE: &str = include_str!("page.html");

/// What is asked with the questions of the playbook in place of this mark.
const PLAYBOOK_MARK: &str = "/*PLAYBOOK*/[]";

/// Ends the work when the answer is not waited for any more.
struct Waiting(Work);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The service, if it is on.
fn service(gateway: &Gateway) -> Result<&Service, Fault> {
    gateway.graphql.get().ok_or_else(|| Fault::NoPath("/graphql".to_owned()))
}

/// Is this a browser that wants the page? It holds no data, so nobody is asked who it is.
pub fn wants_page<B>(request: &Request<B>) -> bool {
    request.method() == http::Method::GET
        && request.uri().path() == "/graphql"
        && request.uri().query().is_none()
        && media::names(request.headers(), "text/html")
}

/// The pools that the caller may see; none: every pool.
fn pools<B>(request: &Request<B>) -> Option<BTreeSet<String>> {
    request.extensions().get::<Actor>().and_then(Actor::pools).cloned()
}

/// `POST /graphql`.
pub async fn ask(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Result<Response, Fault> {
    let service = service(&gateway)?.clone();
    let terms = service.terms(pools(&request));
    let (parts, body) = request.into_parts();
    // Read past the limit of a question by one byte, so that its refusal has the words of the others.
    let bytes_max = service.options().limits.bytes as u64 + 1;
    let bounds = Bounds { bytes_max, time_max: gateway.options.body_time_max };
    let body = match body::read(&parts, body, bounds).await {
        Err(Fault::BodyTooLarge { .. }) => Bytes::from(vec![b' '; service.options().limits.bytes + 1]),
        read => read?,
    };
    if media::names(&parts.headers, "text/event-stream") && is_subscription(&body, &service) {
        return subscription(&service, &body, terms.pools);
    }
    Ok(json(answered(service, body, terms).await?))
}

/// `GET /graphql`.
pub async fn look(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request<Body>,
) -> Result<Response, Fault> {
    let service = service(&gateway)?.clone();
    if wants_page(&request) {
        return Ok(page());
    }
    let allowed = pools(&request);
    if socket::is_asked(&request) {
        return socket::open(service, &mut request, allowed);
    }
    let mut asked = serde_json::Map::new();
    for (name, value) in query::pairs(request.uri().query())? {
        let value = match &*name {
            "query" | "operationName" => serde_json::Value::String(value.into_owned()),
            "variables" => serde_json::from_str(&value)
                .map_err(|_| Invalid::new("variables", value.as_bytes(), "a JSON object"))?,
            other => return Err(Invalid::new("query", other, "query, variables and operationName").into()),
        };
        asked.insert(name.into_owned(), value);
    }
    let body = Bytes::from(serde_json::Value::Object(asked).to_string());
    if media::names(request.headers(), "text/event-stream") && is_subscription(&body, &service) {
        return subscription(&service, &body, allowed);
    }
    let terms = service.terms(allowed);
    Ok(json(answered(service, body, terms).await?))
}

fn is_subscription(body: &[u8], service: &Service) -> bool {
    body.len() <= service.options().limits.bytes
        && serde_json::from_slice(body).is_ok_and(|asked| service.is_subscription(&asked))
}

async fn answered(service: Service, body: Bytes, terms: Terms) -> Result<Vec<u8>, Fault> {
    let _waiting = Waiting(terms.work.clone());
    let answer = service.answer_elsewhere(body, terms).await;
    answer.ok_or_else(|| Fault::Internal("a question made its thread fail".to_owned()))
}

fn json(body: Vec<u8>) -> Response {
    typed(Body::from(body), "application/json")
}

fn typed(body: Body, kind: &'static str) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn page() -> Response {
    let question = |question: &weir_graphql::Question| {
        let variables = question.variables();
        let variables: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        serde_json::json!({
            "name": question.name, "about": question.about(), "text": question.text, "variables": variables,
        })
    };
    let playbook: serde_json::Value = QUESTIONS.iter().map(question).collect();
    // Within a script: no end tag may come of it.
    let playbook = playbook.to_string().replace('<', "\\u003c");
    let mut response = typed(Body::from(PAGE.replace(PLAYBOOK_MARK, &playbook)), "text/html; charset=utf-8");
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    response.headers_mut().insert("content-security-policy", HeaderValue::from_static(policy));
    response
}

/// A subscription as server-sent events (the protocol graphql-sse, distinct connections): `next` with each result, then
/// `complete`.
fn subscription(service: &Service, body: &[u8], pools: Option<BTreeSet<String>>) -> Result<Response, Fault> {
    let asked: serde_json::Value =
        serde_json::from_slice(body).map_err(|error| Invalid::new("body", error.to_string(), "JSON"))?;
    let terms = Terms::new(pools, Work::unbounded());
    let waiting = Waiting(terms.work.clone());
    let results = match service.subscribe(asked, &terms) {
        Ok(results) => results,
        Err(fault) => return Ok(json(encode(&refusal(fault)))),
    };
    let events =
        results.map(|result| event(b"next", &result)).chain(tokio_stream::once(event(b"complete", b"")));
    Ok(typed(Body::from_stream(Held { events: Box::pin(events), _waiting: waiting }), "text/event-stream"))
}

fn event(name: &[u8], data: &[u8]) -> Result<Bytes, Infallible> {
    Ok([b"event: ", name, b"\ndata: ", data, b"\n\n"].concat().into())
}

/// A stream, and what ends with it.
struct Held<S> {
    events: std::pin::Pin<Box<S>>,
    _waiting: Waiting,
}

impl<S: Stream> Stream for Held<S> {
    type Item = S::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.events.as_mut().poll_next(context)
    }
}
