//! Paths and methods. Whatever is not here is answered 404 or 405 as `application/problem+json`.
//!
//! A query on a path that takes none is ignored; a trailing slash or a longer path is another path, hence 404.

use super::admin;
use super::admissions;
use super::answer;
use super::call::{self, Call};
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
use axum::routing::{MethodRouter, delete, get, post, put};
use http::{Method, Request};
use hyper::body::Incoming;
use std::sync::Arc;
use tower::Service;

/// Every path.
pub fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/v1/admissions", only(post(call::admit), "POST"))
        .route(
            "/v1/admissions/{id}",
            only(delete(admissions::cancel).get(inquiry::show), "GET, HEAD, DELETE"),
        )
        .route("/v1/admissions/{id}/complete", only(post(call::complete), "POST"))
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

/// The way of a request whose caller may ask it.
///
/// The two calls that a held admission is made of are found without the router. Its matching, its extensions and a
/// box for each of its layers took 6 % of all processor time in a profile of `weir bench gateway`, callers included. So
/// are the calls that a proxy is there for.
pub fn route<'g>(gateway: &'g Arc<Gateway>, app: &Router, request: Request<Incoming>) -> Call<'g, Incoming> {
    match often(&request) {
        Some(Often::Admit) => Call::admit(gateway, request),
        Some(Often::Complete(id)) => Call::complete(gateway, id, request),
        None => match gateway.proxy.as_ref().filter(|proxy| proxy.is_usual(&request)) {
            Some(proxy) => Call::other(gateway, proxy::call(gateway, proxy, request)),
            None => {
                let answering = app.clone().call(request);
                Call::other(gateway, async move { answering.await.unwrap_or_else(|never| match never {}) })
            }
        },
    }
}

/// A call that every admission makes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Often {
    Admit,
    /// Of this id.
    Complete(String),
}

fn often<B>(request: &Request<B>) -> Option<Often> {
    if request.method() != Method::POST {
        return None;
    }
    match request.uri().path() {
        "/v1/admissions" => Some(Often::Admit),
        path => completed_id(path).map(|id| Often::Complete(id.to_owned())),
    }
}

/// The id in the path of a completion. One that is percent-encoded is the router's.
fn completed_id(path: &str) -> Option<&str> {
    let id = path.strip_prefix("/v1/admissions/")?.strip_suffix("/complete")?;
    (!id.is_empty() && !id.contains(['/', '%'])).then_some(id)
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
        let complete = |id: &str| Some(Often::Complete(id.to_owned()));
        for (method, path, want) in [
            ("POST", "/v1/admissions", Some(Often::Admit)),
            ("POST", "/v1/admissions?pool=b", Some(Often::Admit)),
            ("POST", "/v1/admissions/", None),
            ("GET", "/v1/admissions", None),
            ("POST", "/v1/admissions/default-7/complete", complete("default-7")),
            ("POST", "/v1/admissions/default-7/complete?x", complete("default-7")),
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
    }
}
