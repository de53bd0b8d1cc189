//! The reverse proxy: OpenAI-compatible calls are admitted like any other, then sent to the endpoint that was chosen.
//!
//! It is served on the gateway's own address, on the paths that `paths.rs` knows; whatever else is asked there is none of
//! its business. Not here: deciding, and choosing where the kernel does.

mod forward;
pub mod head;
pub mod members;
pub mod paths;
mod payload;
mod refusal;
mod running;
mod upstream;

use super::answer;
use super::json::shown;
use super::metrics::Metrics;
use super::options::ProxyOptions;
use super::problem::Fault;
use super::room::Room;
use super::state::Gateway;
use super::traces::Onward;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use paths::{Paths, Way};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use upstream::Upstreams;

/// How often it is said that endpoints fail.
const SAID_EVERY: Duration = Duration::from_secs(5);

/// What all proxied requests share.
#[derive(Debug)]
pub struct Proxy {
    options: ProxyOptions,
    paths: Paths,
    upstreams: Arc<Upstreams>,
    room: Arc<Room>,
    said: Mutex<Option<Instant>>,
}

impl Proxy {
    /// A proxy with these settings.
    pub fn new(options: &ProxyOptions, metrics: &Arc<Metrics>) -> Self {
        Proxy {
            paths: Paths::new(&options.admit_paths, &options.pass_paths),
            upstreams: Arc::new(Upstreams::new(options, Arc::clone(metrics))),
            room: Arc::new(Room::new(options.held_bytes_max)),
            options: options.clone(),
            said: Mutex::new(None),
        }
    }

    /// Does a request of this method and path hold its connection until it is decided?
    pub fn holds<B>(&self, request: &Request<B>) -> bool {
        matches!(self.paths.way(request.method(), request.uri().path()), Way::Admit | Way::Pass)
    }

    /// Is it one of the calls that a proxy is there for? These are found without the router.
    pub fn is_usual<B>(&self, request: &Request<B>) -> bool {
        self.paths.is_usual(request.method(), request.uri().path())
    }

    /// Says that an endpoint failed, unless something like it was said just now.
    fn complain(&self, pool: &str, endpoint: &str, why: &str, onward: Option<&Onward>) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|at| at.elapsed() >= SAID_EVERY) {
            *said = Some(Instant::now());
            let (trace_id, span_id) = onward.map(Onward::ids).unwrap_or_default();
            tracing::warn!(pool, endpoint, why, trace_id, span_id, "proxy: no answer from an endpoint");
        }
    }
}

/// A usual call: it is admitted, and goes on to the pool.
pub async fn call(gateway: &Gateway, proxy: &Proxy, request: Request<Incoming>) -> Response {
    forward::admit(gateway, proxy, request.map(Body::new)).await
}

/// Whatever no other path takes: a call to the pool, or nothing.
pub async fn serve(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response {
    let no_path = |path: &str| Fault::NoPath(shown(path.as_bytes()));
    let path = request.uri().path();
    let Some(proxy) = &gateway.proxy else { return answer::fault(&no_path(path), None) };
    match proxy.paths.way(request.method(), path) {
        Way::Admit => forward::admit(&gateway, proxy, request).await,
        Way::Pass => forward::pass(&gateway, proxy, request).await,
        Way::NoMethod(allowed) => refusal::fault(&Fault::NoMethod { allowed }, None),
        Way::NoPath => answer::fault(&no_path(path), None),
    }
}
