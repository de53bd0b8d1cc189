//! Paths and methods. Whatever is not here is answered 404 or 405 as `application/problem+json`.
//!
//! A query on a path that takes none is ignored; a trailing slash or a longer path is another path, hence 404.

use super::admin;
use super::admissions;
use super::answer;
use super::ext_proc;
use super::graphql;
use super::health;
use super::inquiry;
use super::logs;
use super::pools;
use super::problem::Fault;
use super::proxy;
use super::state::Gateway;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post, put};
use http::{Method, Request};
use hyper::body::{Body as _, Incoming};
use std::sync::Arc;
use tower::Service;

/// Every path.
pub fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/v1/admissions", only(post(admissions::admit), "POST"))
        .route(
            "/v1/admissions/{id}",
            only(delete(admissions::cancel).get(inquiry::show), "GET, HEAD, DELETE"),
        )
        .route("/v1/admissions/{id}/complete", only(post(admissions::complete), "POST"))
        .route("/v1/admissions/{id}/renew", only(post(admissions::renew), "POST"))
        .route("/v1/pools", only(get(pools::list), "GET, HEAD"))
        .route("/v1/pools/{pool}", only(get(pools::show), "GET, HEAD"))
        .route("/v1/pools/{pool}/log", only(get(logs::read), "GET, HEAD"))
        .route("/v1/pools/{pool}/endpoints", only(put(pools::push).get(pools::endpoints), "GET, HEAD, PUT"))
        .route("/graphql", only(post(graphql::ask).get(graphql::look), "GET, HEAD, POST"))
        .route("/ext-proc", only(post(ext_proc::process), "POST"))
        .route("/healthz", only(get(health::live), "GET, HEAD"))
        .route("/readyz", only(get(health::ready), "GET, HEAD"))
        .route("/metrics", only(get(health::exposition), "GET, HEAD"))
        .merge(admin::routes())
        .fallback(proxy::serve)
        .with_state(gateway)
}

/// Answers a request whose caller may ask it.
///
/// The two calls that a held admission is made of are found without the router. Its matching, its extensions and a
/// box for each of its layers took 6 % of all processor time in a profile of `weir bench gateway`, callers included.
pub async fn route(gateway: &Arc<Gateway>, app: &Router, request: Request<Incoming>) -> Response {
    match often(&request) {
        Some(Often::Admit) => admissions::admitted(gateway, request.map(whole)).await,
        Some(Often::Complete) => {
            let (parts, body) = request.into_parts();
            let id = completed_id(parts.uri.path()).unwrap_or_default();
            admissions::completed(gateway, id, &parts, whole(body)).await
        }
        None => match app.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
    }
}

/// A call that every admission makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Often {
    Admit,
    Complete,
}

fn often<B>(request: &Request<B>) -> Option<Often> {
    if request.method() != Method::POST {
        return None;
    }
    match request.uri().path() {
        "/v1/admissions" => Some(Often::Admit),
        path => completed_id(path).map(|_| Often::Complete),
    }
}

/// The id in the path of a completion. One that is percent-encoded is the router's.
fn completed_id(path: &str) -> Option<&str> {
    let id = path.strip_prefix("/v1/admissions/")?.strip_suffix("/complete")?;
    (!id.is_empty() && !id.contains(['/', '%'])).then_some(id)
}

fn whole(body: Incoming) -> Body {
    if body.is_end_stream() { Body::empty() } else { Body::new(body) }
}

/// Does this ask hold its connection until it is decided? Beyond the limit only such asks are refused.
pub fn is_held<B>(gateway: &Gateway, request: &Request<B>) -> bool {
    gateway.proxy.as_ref().is_some_and(|proxy| proxy.holds(request))
        || request.method() == Method::POST && matches!(request.uri().path(), "/v1/admissions" | "/ext-proc")
}

/// This route for its methods; any other is answered as a problem.
pub fn only(route: MethodRouter<Arc<Gateway>>, allowed: &'static str) -> MethodRouter<Arc<Gateway>> {
    route.fallback(move || async move { answer::fault(&Fault::NoMethod { allowed }, None) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_admission_calls_is_found_without_the_router() {
        for (method, path, want) in [
            ("POST", "/v1/admissions", Some(Often::Admit)),
            ("POST", "/v1/admissions?pool=b", Some(Often::Admit)),
            ("POST", "/v1/admissions/", None),
            ("GET", "/v1/admissions", None),
            ("POST", "/v1/admissions/default-7/complete", Some(Often::Complete)),
            ("POST", "/v1/admissions/default-7/complete?x", Some(Often::Complete)),
            ("POST", "/v1/admissions/default-7/complete/", None),
            ("POST", "/v1/admissions/default-7/renew", None),
            ("POST", "/v1/admissions/a/b/complete", None),
            ("POST", "/v1/admissions/a%2d7/complete", None),
            ("POST", "/v1/admissions//complete", None),
            ("POST", "/v1/admissions/complete", None),
            ("PUT", "/v1/admissions/default-7/complete", None),
        ] {
            let request = Request::builder().method(method).uri(path).body(()).unwrap();
            assert_eq!(often(&request), want, "{method} {path}");
        }
        assert_eq!(completed_id("/v1/admissions/default-7/complete"), Some("default-7"));
    }
}
