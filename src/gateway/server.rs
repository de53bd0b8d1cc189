//! The listener: HTTP/1.1 connections within bounds, each served until it ends or the service does.
//!
//! hyper itself answers heads that are too large (431) or not HTTP (400), without a body. A caller that closes its
//! connection ends its request: hyper drops the handler, and with it the wait (`socket.rs`). Beyond the limit of
//! connections nothing more is held, but the service can still be asked and steered.

use super::answer;
use super::metrics::GatewayCounters;
use super::problem::Fault;
use super::router::{is_held, router};
use super::socket::watched;
use super::state::Gateway;
use axum::Router;
use axum::response::Response;
use http::HeaderValue;
use http::header::CONNECTION;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tower::Service;

/// Connections beyond the limit, for one request each that is not held; any more are closed unanswered.
const BEYOND_MAX: usize = 256;

/// hyper's own limit of headers, up to which it needs no memory of its own for them.
const HEADERS_INLINE: usize = 100;

/// How long the accept loop rests when the system has no descriptor left.
const ACCEPT_REST: Duration = Duration::from_millis(20);

/// Serves until `closing` turns true and every connection has ended, or `close_timeout` has passed since.
pub async fn serve(gateway: Arc<Gateway>, listener: TcpListener, mut closing: watch::Receiver<bool>) {
    let app = router(Arc::clone(&gateway));
    let slots = Arc::new(Semaphore::new(gateway.options.connections_max));
    let beyond = Arc::new(Semaphore::new(BEYOND_MAX));
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_REST).await;
                    continue;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            () = closed(&mut closing) => break,
        };
        let (gateway, app, closing) = (Arc::clone(&gateway), app.clone(), closing.clone());
        match (Arc::clone(&slots).try_acquire_owned(), Arc::clone(&beyond).try_acquire_owned()) {
            (Ok(slot), _) => {
                connections.spawn(async move {
                    gateway.metrics.gateway.connections.fetch_add(1, Ordering::Relaxed);
                    connection(&gateway, stream, app, true, closing).await;
                    gateway.metrics.gateway.connections.fetch_sub(1, Ordering::Relaxed);
                    drop(slot);
                });
            }
            (Err(_), Ok(slot)) => {
                connections.spawn(async move {
                    connection(&gateway, stream, app, false, closing).await;
                    drop(slot);
                });
            }
            (Err(_), Err(_)) => GatewayCounters::add(&gateway.metrics.gateway.connections_refused),
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(gateway.options.close_timeout, all).await.is_err() {
        tracing::warn!(connections = connections.len(), "closed with answers that did not leave in time");
        connections.shutdown().await;
    }
}

/// Waits for the end of the service (whose sender may be gone by then).
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// One connection; beyond the limit it has one request, which may not be one that is held.
async fn connection(
    gateway: &Arc<Gateway>,
    stream: TcpStream,
    app: Router,
    within: bool,
    mut closing: watch::Receiver<bool>,
) {
    // Answers are small and awaited.
    let _ = stream.set_nodelay(true);
    let options = &gateway.options;
    let (socket, watch) = watched(stream);
    let seen = watch.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (gateway, mut app, busy) = (Arc::clone(gateway), app.clone(), seen.busy());
        async move {
            let response = if within {
                called(&mut app, request).await
            } else {
                let mut response = match is_held(&request) {
                    true => full(&gateway),
                    false => called(&mut app, request).await,
                };
                // The next connection may be within the limit.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                response
            };
            Ok::<_, Infallible>(busy.until(response))
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_time_max)
        .max_buf_size(options.head_bytes_max.max(8_192));
    if options.headers_max != HEADERS_INLINE {
        builder.max_headers(options.headers_max);
    }
    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service));
    let patience = options.write_stall_max;
    // A connection that fails has nobody left to tell.
    tokio::select! {
        () = watch.attend(connection.as_mut(), patience) => {}
        () = closed(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            watch.attend(connection, patience).await;
        }
    }
}

async fn called(app: &mut Router, request: hyper::Request<Incoming>) -> Response {
    match app.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn full(gateway: &Gateway) -> Response {
    GatewayCounters::add(&gateway.metrics.gateway.connections_refused);
    let full = Fault::GatewayFull { what: "connections", limit: gateway.options.connections_max };
    answer::fault(&full, None)
}
