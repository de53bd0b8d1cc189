//! The gRPC listener: HTTP/2 without TLS, as Envoy's clusters speak it to a neighbour.
//!
//! hyper serves the connections, tonic frames the messages. Not here: what the services do (`../ext_proc_grpc`,
//! `../ext_authz`).

mod health;
pub mod message;
mod route;

use super::metrics::GatewayCounters;
use super::state::Gateway;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use route::Services;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::envoy::Pace;

/// How long the accept loop rests when the system has no descriptor left.
const ACCEPT_REST: Duration = Duration::from_millis(20);

/// An idle connection is asked this often whether its other side still lives, and given as long to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// What one connection may send ahead of its being read: for one stream, and for all of them.
const WINDOWS: (u32, u32) = (1 << 20, 16 << 20);

/// Serves until `closing` turns true and every connection has ended, or `close_timeout` has passed since.
pub async fn serve(gateway: Arc<Gateway>, listener: TcpListener, mut closing: watch::Receiver<bool>) {
    let slots = Arc::new(Semaphore::new(gateway.options.connections_max));
    let services = Services::new(Arc::clone(&gateway));
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a gRPC connection could not be accepted");
                    tokio::time::sleep(ACCEPT_REST).await;
                    continue;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            () = closed(&mut closing) => break,
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            // Envoy opens one per worker: so many are not Envoy's.
            GatewayCounters::add(&gateway.metrics.gateway.connections_refused);
            continue;
        };
        let (gateway, services, closing) = (Arc::clone(&gateway), services.clone(), closing.clone());
        connections.spawn(async move {
            gateway.metrics.gateway.connections.fetch_add(1, Ordering::Relaxed);
            connection(&gateway, services, stream, closing).await;
            gateway.metrics.gateway.connections.fetch_sub(1, Ordering::Relaxed);
            drop(slot);
        });
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(gateway.options.close_timeout, all).await.is_err() {
        // Envoy keeps a stream open as long as its request runs; those that outlive us are Envoy's to end.
        tracing::info!(connections = connections.len(), "gRPC connections closed with streams open");
        connections.shutdown().await;
    }
}

/// Waits for the end of the service (whose sender may be gone by then).
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

async fn connection(
    gateway: &Gateway,
    services: Services,
    stream: TcpStream,
    mut closing: watch::Receiver<bool>,
) {
    // Messages are small and awaited.
    let _ = stream.set_nodelay(true);
    let options = &gateway.options;
    let streams = options.envoy.streams_max;
    let many = usize::try_from(streams).unwrap_or(usize::MAX).saturating_mul(2);
    let pace = Pace::new();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (services, pace) = (services.clone(), pace.clone());
        async move { Ok::<_, Infallible>(services.call(request, pace).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams)
        // Clients that leave in thousands are no attack here: the one peer is our own proxy.
        .max_pending_accept_reset_streams(many)
        .max_local_error_reset_streams(many)
        .max_header_list_size(u32::try_from(options.head_bytes_max).unwrap_or(u32::MAX))
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a gRPC connection broke");
            }
        }
        () = closed(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
