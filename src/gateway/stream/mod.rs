//! The event stream of `POST /v1/admissions`: what happens to a request, as it happens. The stream is the lease: however
//! it ends, the lease does, and it never times out while it is open.
//!
//! What is refused before anything was sent has an ordinary status; later refusals are events. There is no task and no
//! buffer per stream: the connection asks for the next event when it has room for one, and a peer that takes nothing is
//! ended with its connection (`../socket.rs`). Not here: the bytes of an event (`event.rs`), what comes next
//! (`session.rs`).

mod event;
mod hold;
mod session;

pub use event::end_members;
pub use hold::Streams;

use super::answer;
use super::problem::Fault;
use super::state::{Gateway, PoolFace};
use super::wish::Form;
use crate::engine::{Decision, Watched};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use event::Speaker;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use session::Session;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio_stream::Stream;
use weir_kernel::{Arrival, Reason};

/// Hands an arrival in and begins its stream, or answers at once what is decided at once against it.
///
/// # Errors
/// Nothing could be decided, or the key came with another body.
pub async fn open(
    gateway: &Arc<Gateway>,
    pool: &PoolFace,
    arrival: Arrival,
    form: Form,
) -> Result<Response, Fault> {
    let name = pool.handle.name();
    let speaker = Speaker { form, pool: name.to_owned(), caller_id: arrival.caller_id.clone() };
    let shared = arrival.idempotency.is_some();
    let regimes = pool.handle.regimes();
    let Watched { mut pending, queued, ended } =
        pool.handle.admit_watched(arrival).map_err(answer::unavailable)?;
    let mut session = Session::new(Arc::clone(gateway), pool, speaker, shared, regimes);
    let first = tokio::select! {
        biased;
        decision = &mut pending => match decision {
            Decision::Admitted(admitted) => session.admitted(&admitted, ended),
            Decision::Refused(refused) if refused.reason == Reason::IdempotencyMismatch => {
                return Err(Fault::KeyMismatch);
            }
            Decision::Refused(refused) => {
                return Ok(answer::refusal(name, session.caller_id(), &refused));
            }
            Decision::Unavailable(why) => return Err(answer::unavailable(why)),
        },
        Ok(queued) = queued => session.queued(&queued, pending, ended),
    };
    let id = format!("{name}-{}", session.id());
    let mut response = Response::new(Body::from_stream(Events::new(first, session)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(HeaderName::from_static(answer::ADMISSION), id);
    }
    Ok(response)
}

type Next = Pin<Box<dyn Future<Output = Option<(Bytes, Session)>> + Send>>;

/// The first event, and then those of the session, each waited for only when it is asked for.
struct Events {
    first: Option<Bytes>,
    next: Option<Next>,
}

impl Events {
    fn new(first: Bytes, session: Session) -> Self {
        Events { first: Some(first), next: Some(Box::pin(session.next())) }
    }
}

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let next = ready!(next.as_mut().poll(context));
        let (event, next) = next.map(|(event, session)| (event, Box::pin(session.next()) as Next)).unzip();
        self.next = next;
        Poll::Ready(event.map(Ok))
    }
}
