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
use axum::routing::{MethodRouter, delete, get, post, put};
use http::{Method, Request};
use std::sync::Arc;

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

/// Does this ask hold its connection until it is decided? Beyond the limit only such asks are refused.
pub fn is_held<B>(gateway: &Gateway, request: &Request<B>) -> bool {
    gateway.proxy.as_ref().is_some_and(|proxy| proxy.holds(request))
        || request.method() == Method::POST && matches!(request.uri().path(), "/v1/admissions" | "/ext-proc")
}

/// This route for its methods; any other is answered as a problem.
pub fn only(route: MethodRouter<Arc<Gateway>>, allowed: &'static str) -> MethodRouter<Arc<Gateway>> {
    route.fallback(move || async move { answer::fault(&Fault::NoMethod { allowed }, None) })
}
