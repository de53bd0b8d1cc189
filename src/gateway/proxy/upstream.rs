//! The way to the endpoints: where they are, which one is taken where the kernel took none, and kept HTTP/1.1
//! connections to them.

use super::payload::Payload;
use crate::gateway::metrics::{GatewayCounters, Metrics};
use crate::gateway::options::ProxyOptions;
use crate::gateway::state::PoolFace;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How much of a response is read ahead of the caller, and how large its head may be, in bytes.
const READ_AHEAD: usize = 64 << 10;

/// The most headers of a response.
const HEADERS_MAX: usize = 256;

/// A connection on which nothing passes is asked this often whether its other side still lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The endpoints as the proxy reaches them.
#[derive(Debug)]
pub struct Upstreams {
    client: Client<HttpConnector, Payload>,
    /// Requests that are with an endpoint, by its address.
    running: Mutex<HashMap<Authority, u64>>,
    metrics: Arc<Metrics>,
}

/// Why there is no response.
#[derive(Debug)]
pub enum NoResponse {
    /// No connection came about: nothing was sent.
    Unreachable(String),
    /// The connection ended before a response came, or was made something else.
    Broken(String),
}

/// What is sent, but for its body.
#[derive(Clone, Debug)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// Path and query, as they came.
    pub path: PathAndQuery,
    /// The headers.
    pub headers: HeaderMap,
}

/// A request's place at an endpoint, which it keeps until its end.
#[derive(Debug)]
pub struct Place {
    upstreams: Arc<Upstreams>,
    authority: Authority,
}

impl Upstreams {
    /// To all endpoints.
    pub fn new(options: &ProxyOptions, metrics: Arc<Metrics>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(options.connect_time_max));
        connector.set_keepalive(Some(KEEP_ALIVE));
        connector.set_keepalive_interval(Some(KEEP_ALIVE));
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(options.idle_time_max)
            .http1_max_buf_size(READ_AHEAD)
            .http1_max_headers(HEADERS_MAX)
            .build(connector);
        Upstreams { client, running: Mutex::new(HashMap::new()), metrics }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Authority, u64>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place at this endpoint.
    pub fn place(self: &Arc<Self>, authority: Authority) -> Place {
        *self.running().entry(authority.clone()).or_default() += 1;
        self.metrics.gateway.proxied.fetch_add(1, Ordering::Relaxed);
        Place { upstreams: Arc::clone(self), authority }
    }

    /// A place at the endpoint that seems to have the least to do: fresh ones first, then by the requests that are there.
    /// Where the kernel chose none, or its choice cannot be reached (`but`).
    pub fn least_loaded(self: &Arc<Self>, pool: &PoolFace, but: Option<&Authority>) -> Option<Place> {
        let view = pool.observer.view();
        let reachable = view.endpoints.iter().filter_map(|endpoint| {
            let authority = authority(pool, &endpoint.name)?;
            (Some(&authority) != but).then_some((endpoint, authority))
        });
        let running = self.running();
        let least = reachable.min_by_key(|(endpoint, authority)| {
            let ours = running.get(authority).copied().unwrap_or(0);
            let shown = endpoint.load.map_or(0, |load| u64::from(load.waiting) + u64::from(load.running));
            (!endpoint.fresh, ours.max(shown), ours)
        });
        drop(running);
        least.map(|(_, authority)| self.place(authority))
    }

    /// Sends a request, and waits for the head of its response. Dropped before that, the connection is closed.
    ///
    /// # Errors
    /// There is no response.
    pub async fn send(
        &self,
        head: Head,
        payload: Payload,
        place: &Place,
    ) -> Result<Response<Incoming>, NoResponse> {
        let counters = &self.metrics.gateway;
        let Head { method, path, headers } = head;
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(Scheme::HTTP);
        uri.authority = Some(place.authority.clone());
        uri.path_and_query = Some(path);
        let uri = Uri::from_parts(uri).map_err(|error| NoResponse::Unreachable(error.to_string()))?;
        let mut request = Request::new(payload);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = headers;
        let response = self.client.request(request).await.map_err(|error| {
            let text = whole(&error);
            if error.is_connect() {
                GatewayCounters::add(&counters.proxy_unreachable);
                NoResponse::Unreachable(text)
            } else {
                GatewayCounters::add(&counters.proxy_broken);
                NoResponse::Broken(text)
            }
        })?;
        // What follows is no answer, and nobody asked for it.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            GatewayCounters::add(&counters.proxy_broken);
            return Err(NoResponse::Broken("the endpoint switched protocols".to_owned()));
        }
        Ok(response)
    }
}

impl Place {
    /// Where it is.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.upstreams.metrics.gateway.proxied.fetch_sub(1, Ordering::Relaxed);
        let mut running = self.upstreams.running();
        if let Some(count) = running.get_mut(&self.authority) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.authority);
            }
        }
    }
}

/// Where an endpoint serves: as the settings say; where it was pushed, as it is named, else where its metrics are.
pub fn authority(pool: &PoolFace, endpoint: &str) -> Option<Authority> {
    let named = || endpoint.parse::<Authority>().ok().filter(|authority| authority.port_u16().is_some());
    let scraped = || pool.observer.metrics_url(endpoint)?.parse::<Uri>().ok()?.into_parts().authority;
    if pool.is_configured() { scraped().or_else(named) } else { named().or_else(scraped) }
}

/// An error with all of its causes.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
