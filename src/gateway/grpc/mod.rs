//! The gRPC listener: HTTP/2, with TLS where that is set up.
//!
//! hyper serves the connections, tonic frames the messages. Not here: what the services do (`../ext_proc_grpc`,
//! `../ext_authz`).

mod gather;
mod health;
pub mod message;
mod route;

use super::accept::{self, closed};
use super::auth::Peer;
use super::envoy::Pace;
use super::metrics::GatewayCounters;
use super::state::Gateway;
use super::tls::{Accepted, Protocols};
use gather::Gathering;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use route::Services;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// An idle connection is asked this often whether its other side still lives, and given as long to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// What one connection may send ahead of its being read: for one stream, and for all of them.
const WINDOWS: (u32, u32) = (1 << 20, 16 << 20);

/// Serves until `closing` turns true and every connection has ended, or `close_timeout` has passed since.
pub async fn serve(gateway: Arc<Gateway>, listener: TcpListener, closing: watch::Receiver<bool>) {
    let slots = Arc::new(Semaphore::new(gateway.options.connections_max));
    let services = Services::new(Arc::clone(&gateway));
    let cut = accept::all(listener, closing.clone(), gateway.options.close_timeout, |stream| {
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            // Envoy opens one per worker: so many are not Envoy's.
            GatewayCounters::add(&gateway.metrics.gateway.connections_refused);
            return None;
        };
        let (gateway, services, closing) = (Arc::clone(&gateway), services.clone(), closing.clone());
        Some(async move {
            gateway.metrics.gateway.connections.fetch_add(1, Ordering::Relaxed);
            encrypted_or_not(&gateway, services, stream, closing).await;
            gateway.metrics.gateway.connections.fetch_sub(1, Ordering::Relaxed);
            drop(slot);
        })
    });
    let cut = cut.await;
    if cut > 0 {
        // Envoy keeps a stream open as long as its request runs; those that outlive us are Envoy's to end.
        tracing::info!(connections = cut, "gRPC connections closed with streams open");
    }
}

async fn encrypted_or_not(
    gateway: &Gateway,
    services: Services,
    stream: TcpStream,
    closing: watch::Receiver<bool>,
) {
    // Messages are small and awaited.
    let _ = stream.set_nodelay(true);
    let Some(tls) = gateway.tls.get() else {
        return connection(gateway, services, stream, None, closing).await;
    };
    if let Some(Accepted { stream, peer, .. }) = tls.accept(stream, Protocols::Grpc).await {
        Box::pin(connection(gateway, services, stream, peer, closing)).await;
    }
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    gateway: &Gateway,
    services: Services,
    stream: S,
    peer: Option<Arc<Peer>>,
    mut closing: watch::Receiver<bool>,
) {
    let options = &gateway.options;
    let streams = options.envoy.streams_max;
    let many = usize::try_from(streams).unwrap_or(usize::MAX).saturating_mul(2);
    let pace = Pace::new();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (services, pace, peer) = (services.clone(), pace.clone(), peer.clone());
        // Boxed: hyper and the runtime move it several times.
        Box::pin(async move { Ok::<_, Infallible>(services.call(request, pace, peer.as_deref()).await) })
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
        .serve_connection(TokioIo::new(Gathering::new(stream)), service);
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
