//! HTTP/2 without TLS on the gateway's own address, for callers that begin with it (RFC 9113, 3.3: prior knowledge).
//!
//! Each stream is what a connection of HTTP/1.1 is: it may hold one request, and counts against the same limit.

use super::accept::closed;
use super::options::Options;
use super::router::is_held;
use super::server::{Caller, called, full};
use super::socket::{Bounds, Socket, Watch};
use axum::body::Body;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};

/// What such a connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How often the beginning is looked at again where only a part of it has come.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Streams of one connection at once.
const STREAMS_MAX: u32 = 256;

/// What one stream holds of an answer that its caller does not take, in bytes.
const SEND_BUFFER: usize = 64 << 10;

/// An idle connection is asked this often whether its other side still lives, and given as long to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Does this connection begin with HTTP/2? Nothing, if it ends, or says nothing for too long.
pub async fn begins(stream: &TcpStream, options: &Options) -> Option<bool> {
    let look = async {
        let mut first = [0; PREFACE.len()];
        loop {
            let seen = stream.peek(&mut first).await.ok().filter(|seen| *seen > 0)?;
            if first[..seen] != PREFACE[..seen] {
                return Some(false);
            }
            if seen == PREFACE.len() {
                return Some(true);
            }
            // A part of it can be no method of HTTP/1.1 beyond its first letter.
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(options.head_time_max, look).await.ok()?
}

/// Serves it to its end.
pub async fn connection(
    caller: Caller<'_>,
    socket: Socket,
    watch: Watch,
    mut closing: watch::Receiver<bool>,
) {
    let Caller { gateway, app, within, peer, slots } = caller;
    let options = &gateway.options;
    let seen = watch.clone();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (gateway, app, busy) = (Arc::clone(gateway), app.clone(), seen.busy());
        let (peer, slots) = (peer.clone(), Arc::clone(&slots));
        async move {
            let slot = match is_held(&gateway, &request) {
                true if !within => return Ok(full(&gateway)),
                true => match slots.try_acquire_owned() {
                    Ok(slot) => Some(slot),
                    Err(_) => return Ok(full(&gateway)),
                },
                false => None,
            };
            let response = called(&gateway, &app, request, peer.as_deref()).await;
            Ok::<_, Infallible>(busy.until(keep(slot, response)))
        }
    });
    let serving = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(options.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .serve_connection(TokioIo::new(socket), service);
    let mut serving = pin!(serving);
    // hyper asks an idle connection whether it still lives.
    let bounds = Bounds { stall: options.write_stall_max, head: None };
    tokio::select! {
        () = watch.attend(serving.as_mut(), bounds) => {}
        () = closed(&mut closing) => {
            serving.as_mut().graceful_shutdown();
            watch.attend(serving, bounds).await;
        }
    }
}

/// The slot of a stream is kept until its answer has been produced.
fn keep(slot: Option<OwnedSemaphorePermit>, response: Response) -> Response {
    let Some(slot) = slot else { return response };
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _slot = &slot;
            frame
        }))
    })
}
