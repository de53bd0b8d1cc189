//! Goal: a stream whose other side takes nothing still ends. Method: a real connection of HTTP/2 without any window.

use super::*;
use crate::gateway::grpc::message::framed;
use crate::gateway::serve_grpc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

fn message(part: Part) -> ProcessingRequest {
    ProcessingRequest { request: Some(part), ..ProcessingRequest::default() }
}

/// Envoy takes none of our answers (it leaves no room for them), and ends the stream in good order.
#[tokio::test]
async fn a_stream_whose_answers_have_no_room_gives_its_lease_back() {
    let mut world = World::start(Options::default()).await;
    world.saturated(0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (_closing, closed) = watch::channel(false);
    tokio::spawn(serve_grpc(Arc::clone(&world.processor.gateway), listener, closed));
    let stream = TcpStream::connect(addr).await.unwrap();
    let (sender, connection) =
        h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(stream).await.unwrap();
    tokio::spawn(connection);
    let path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
    let request = http::Request::post(format!("http://{addr}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let mut sender = sender.ready().await.unwrap();
    let (response, mut out) = sender.send_request(request, false).unwrap();
    out.send_data(framed(&message(Part::RequestHeaders(list(&[("x-request-id", "r")], true)))), false)
        .unwrap();
    let dispatched = |step: &Step| step.events.iter().any(|event| matches!(event, Event::Dispatched(_)));
    world.step(|step| dispatched(step).then_some(())).await;
    out.send_data(framed(&message(Part::ResponseHeaders(list(&[(":status", "200")], false)))), false)
        .unwrap();
    out.send_data(Bytes::new(), true).unwrap();
    assert_eq!(world.ended().await, Termination::Natural);
    // Nothing was taken of what was said meanwhile.
    let mut body = response.await.unwrap().into_body();
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(body.poll_data(cx).is_pending())).await);
}
