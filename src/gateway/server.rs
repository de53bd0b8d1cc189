//! The listener: connections of HTTP/1.1 (of HTTP/2: `h2c.rs`) within bounds, with TLS where that is set up, each served
//! until it ends or the service does.
//!
//! A caller that closes its connection ends its request: hyper drops the handler, and with it the wait (`socket.rs`).
//! Beyond the limit of connections nothing more is held, but the service can still be asked and steered.

use super::accept::{self, closed, seldom};
use super::answer;
use super::auth::Peer;
use super::call::Call;
use super::h2c;
use super::malformed::{Handlers, Worded};
use super::metrics::GatewayCounters;
use super::problem::Fault;
use super::router::{is_held, route, router};
use super::socket::{Bounds, Busy, Watch, watched};
use super::state::Gateway;
use super::tls::{Accepted, Protocols};
use axum::Router;
use axum::response::Response;
use http::HeaderValue;
use http::header::CONNECTION;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Connections beyond the limit, for one request each that is not held; any more are closed unanswered.
const BEYOND_MAX: usize = 256;

/// hyper's own limit of headers, up to which it needs no memory of its own for them.
const HEADERS_INLINE: usize = 100;

/// Serves until `closing` turns true and every connection has ended, or `close_timeout` has passed since.
pub async fn serve(gateway: Arc<Gateway>, listener: TcpListener, closing: watch::Receiver<bool>) {
    let app = router(Arc::clone(&gateway));
    let slots = Arc::new(Semaphore::new(gateway.options.connections_max));
    let streams = Arc::new(Semaphore::new(gateway.options.connections_max));
    let beyond = Arc::new(Semaphore::new(BEYOND_MAX));
    let cut = accept::all(listener, closing.clone(), gateway.options.close_timeout, |stream| {
        let (slot, within) = match Arc::clone(&slots).try_acquire_owned() {
            Ok(slot) => (slot, true),
            Err(_) => match Arc::clone(&beyond).try_acquire_owned() {
                Ok(slot) => (slot, false),
                Err(_) => {
                    GatewayCounters::add(&gateway.metrics.gateway.connections_refused);
                    return None;
                }
            },
        };
        let (gateway, app, closing) = (Arc::clone(&gateway), app.clone(), closing.clone());
        let streams = Arc::clone(&streams);
        Some(async move {
            let open = &gateway.metrics.gateway.connections;
            open.fetch_add(u64::from(within), Ordering::Relaxed);
            let caller = Caller { gateway: &gateway, app, within, peer: None, slots: streams };
            encrypted_or_not(caller, stream, closing).await;
            open.fetch_sub(u64::from(within), Ordering::Relaxed);
            drop(slot);
        })
    });
    let cut = cut.await;
    if cut > 0 {
        tracing::warn!(connections = cut, "closed with answers that did not leave in time");
    }
}

async fn encrypted_or_not(caller: Caller<'_>, stream: TcpStream, mut closing: watch::Receiver<bool>) {
    // Answers are small and awaited.
    let _ = stream.set_nodelay(true);
    let gateway = caller.gateway;
    let Some(tls) = gateway.tls.get() else {
        let http2 = tokio::select! {
            begins = h2c::begins(&stream, &gateway.options) => begins,
            () = closed(&mut closing) => None,
        };
        let Some(http2) = http2 else { return };
        let (socket, watch) = watched(stream);
        if http2 {
            return Box::pin(h2c::connection(caller, socket, watch, closing)).await;
        }
        return connection(caller, socket, watch, closing).await;
    };
    let (socket, watch) = watched(stream);
    if let Some(Accepted { stream, peer, .. }) = tls.accept(socket, Protocols::Http).await {
        Box::pin(connection(Caller { peer, ..caller }, stream, watch, closing)).await;
    }
}

/// Whose requests come on a connection, and where they go.
pub struct Caller<'g> {
    /// The gateway.
    pub gateway: &'g Arc<Gateway>,
    /// Its paths.
    pub app: Router,
    /// Beyond the limit a connection has one request, which may not be one that is held.
    pub within: bool,
    /// Who the other side is, where its certificate says so.
    pub peer: Option<Arc<Peer>>,
    /// Places of requests that come on streams of HTTP/2.
    pub slots: Arc<Semaphore>,
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    caller: Caller<'_>,
    stream: S,
    watch: Watch,
    mut closing: watch::Receiver<bool>,
) {
    let Caller { gateway, app, within, peer, .. } = caller;
    let options = &gateway.options;
    let (seen, handlers) = (watch.clone(), Handlers::default());
    let stream = Worded::new(stream, handlers.clone(), options);
    // A request borrows what its connection has: counts that all connections share would be passed from processor to
    // processor with each request.
    let (app, handlers, peer) = (&app, &handlers, peer.as_deref());
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let call = match within || !is_held(gateway, &request) {
            true => called(gateway, app, request, peer),
            false => Call::answered(gateway, full(gateway)),
        };
        Serving { call, busy: Some(seen.busy()), handlers, within }
    });
    let mut builder = http1::Builder::new();
    builder
        // Most answers are small: one buffer is sent for less than two.
        .writev(false)
        // The socket's watch sees to it.
        .header_read_timeout(None)
        .max_header_size(options.head_bytes_max)
        .max_buf_size(options.head_bytes_max.max(8_192));
    if options.headers_max != HEADERS_INLINE {
        builder.max_headers(options.headers_max);
    }
    // A WebSocket takes its connection over.
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let bounds = Bounds { stall: options.write_stall_max, head: Some(options.head_time_max) };
    let seen = closing.clone();
    let closed = pin!(closed(&mut closing));
    // A connection that fails has nobody left to tell.
    tokio::select! {
        biased;
        () = watch.attend(connection.as_mut(), bounds) => {}
        () = seldom(closed, || seen.has_changed().unwrap_or(true)) => {
            connection.as_mut().graceful_shutdown();
            watch.attend(connection, bounds).await;
        }
    }
}

/// A request of a connection of HTTP/1.1. A struct, since an `async` block would hold the call twice.
struct Serving<'g> {
    call: Call<'g, Incoming>,
    busy: Option<Busy>,
    handlers: &'g Handlers,
    within: bool,
}

impl Future for Serving<'_> {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(Pin::new(&mut self.call).poll(context));
        if !self.within {
            // The next connection may be within the limit.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.handlers.seen(&response);
        Poll::Ready(Ok(match self.busy.take() {
            Some(busy) => busy.until(response),
            None => response,
        }))
    }
}

/// The way of a request to its answer, if its caller may ask.
pub fn called<'g>(
    gateway: &'g Arc<Gateway>,
    app: &Router,
    mut request: hyper::Request<Incoming>,
    peer: Option<&Peer>,
) -> Call<'g, Incoming> {
    if let Err(fault) = gateway.guard.http(&mut request, peer) {
        gateway.turned_away(&fault);
        return Call::answered(gateway, answer::fault(&fault, None));
    }
    route(gateway, app, request)
}

/// The answer to a request for which there is no place.
pub fn full(gateway: &Gateway) -> Response {
    GatewayCounters::add(&gateway.metrics.gateway.connections_refused);
    let full = Fault::GatewayFull { what: "connections", limit: gateway.options.connections_max };
    answer::fault(&full, None)
}
