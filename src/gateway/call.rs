//! A call on its way to its answer: the two that a held admission is made of keep little while they wait.
//!
//! Asking and completing wait for at least one commit of the log, and hundreds wait at once: what each keeps has left
//! the processor's caches by the time it is answered, and what it gives back is used by the next one while it is still
//! there. So they let go of head and body as soon as these are read. Whatever comes up seldom is boxed.

use super::admissions::{self, Asked, Decided};
use super::answer;
use super::body::{self, Begun};
use super::completion;
use super::outcome::Record;
use super::problem::Fault;
use super::segment::Segment;
use super::state::{Gateway, PoolFace};
use super::wish::Wish;
use super::{stream, ticket};
use crate::engine::{Answer, Fate, Pending};
use axum::extract::State as Is;
use axum::response::Response;
use bytes::Bytes;
use http::Request;
use http::request::Parts;
use hyper::body::Body;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use weir_kernel::{Ended, RequestId};

/// One call. Dropped before its answer, an admission that waits is cancelled.
#[must_use = "futures do nothing unless polled"]
pub struct Call<'g, B> {
    gateway: &'g Arc<Gateway>,
    state: State<'g, B>,
}

/// `POST /v1/admissions`
pub async fn admit(Is(gateway): Is<Arc<Gateway>>, request: Request<axum::body::Body>) -> Response {
    Call::admit(&gateway, request).await
}

/// `POST /v1/admissions/{id}/complete`
pub async fn complete(
    Is(gateway): Is<Arc<Gateway>>,
    Segment(id): Segment,
    request: Request<axum::body::Body>,
) -> Response {
    Call::complete(&gateway, id, request).await
}

enum State<'g, B> {
    /// Nothing of its body has been looked at.
    Called(Parts, B, What),
    Waits(Waits<'g>),
    Ends(Ends<'g>),
    /// What comes up seldom, and every other call.
    Else(Pin<Box<dyn Future<Output = Response> + Send + 'g>>),
    Answered(Response),
    Over,
}

/// Which of the two.
enum What {
    Admit,
    /// With the id as it was written.
    Complete(String),
}

/// An arrival whose decision is awaited.
struct Waits<'g> {
    pool: &'g PoolFace,
    pending: Pending,
    caller_id: String,
}

/// An end that is not durable yet.
struct Ends<'g> {
    pool: &'g PoolFace,
    request: RequestId,
    id: String,
    fate: Answer<Fate>,
    caller_id: Option<Box<str>>,
}

impl<'g, B> Call<'g, B> {
    /// One whose answer is known.
    pub fn answered(gateway: &'g Arc<Gateway>, response: Response) -> Self {
        Call { gateway, state: State::Answered(response) }
    }

    /// Any other.
    pub fn other(gateway: &'g Arc<Gateway>, answering: impl Future<Output = Response> + Send + 'g) -> Self {
        Call { gateway, state: State::Else(Box::pin(answering)) }
    }
}

impl<'g, B> Call<'g, B>
where
    B: Body<Data = Bytes, Error: Display + Send> + Send + Unpin + 'g,
{
    /// `POST /v1/admissions`
    pub fn admit(gateway: &'g Arc<Gateway>, request: Request<B>) -> Self {
        Call::of(gateway, request, What::Admit)
    }

    /// `POST /v1/admissions/{id}/complete`
    pub fn complete(gateway: &'g Arc<Gateway>, id: String, request: Request<B>) -> Self {
        Call::of(gateway, request, What::Complete(id))
    }

    fn of(gateway: &'g Arc<Gateway>, request: Request<B>, what: What) -> Self {
        let (parts, body) = request.into_parts();
        Call { gateway, state: State::Called(parts, body, what) }
    }

    /// What follows once the body is there.
    fn heard(gateway: &'g Arc<Gateway>, parts: &Parts, body: &Bytes, what: What) -> State<'g, B> {
        let heard = match what {
            What::Admit => ask(gateway, parts, body),
            What::Complete(id) => end(gateway, id, parts, body),
        };
        heard.unwrap_or_else(|fault| State::Answered(refuse(gateway, &fault, admissions::caller_id(parts))))
    }

    /// The rest of a body, of which this came at once.
    fn read_on(gateway: &'g Arc<Gateway>, begun: Bytes, parts: Parts, body: B, what: What) -> State<'g, B> {
        State::Else(Box::pin(async move {
            match body::rest(&parts, begun, body, admissions::bounds(gateway)).await {
                Ok(body) => Call { gateway, state: Self::heard(gateway, &parts, &body, what) }.await,
                Err(fault) => refuse(gateway, &fault, admissions::caller_id(&parts)),
            }
        }))
    }
}

/// Hands an arrival in.
fn ask<'g, B>(gateway: &'g Arc<Gateway>, parts: &Parts, body: &Bytes) -> Result<State<'g, B>, Fault> {
    let Asked { pool, arrival, wish } = admissions::asked(gateway, parts, body)?;
    let caller_id = arrival.caller_id.clone();
    let other: Pin<Box<dyn Future<Output = Result<Response, Fault>> + Send + 'g>> = match wish {
        Wish::Held => {
            let pending = pool.handle.admit(arrival).map_err(answer::unavailable)?;
            return Ok(State::Waits(Waits { pool, pending, caller_id }));
        }
        Wish::Stream(form) => Box::pin(stream::open(gateway, pool, arrival, form)),
        Wish::Ticket(wait) => Box::pin(ticket::issue(pool, arrival, wait)),
    };
    Ok(State::Else(Box::pin(async move {
        other.await.unwrap_or_else(|fault| refuse(gateway, &fault, known(&caller_id)))
    })))
}

/// Hands an end in.
fn end<'g, B>(
    gateway: &'g Arc<Gateway>,
    id: String,
    parts: &Parts,
    body: &Bytes,
) -> Result<State<'g, B>, Fault> {
    let (termination, usage) = completion::read(body)?;
    let (pool, request) = admissions::find(gateway, &id)?;
    let fate = pool.handle.end(Ended { request, termination, usage });
    let caller_id = admissions::caller_id(parts).map(Box::from);
    Ok(State::Ends(Ends { pool, request, id, fate, caller_id }))
}

/// What never became an input, or was not decided.
fn refuse(gateway: &Gateway, fault: &Fault, caller_id: Option<&str>) -> Response {
    admissions::count(gateway, fault);
    answer::fault(fault, caller_id)
}

fn known(caller_id: &str) -> Option<&str> {
    (!caller_id.is_empty()).then_some(caller_id)
}

impl Waits<'_> {
    fn poll(&mut self, gateway: &Gateway, context: &mut Context<'_>) -> Poll<Response> {
        let decision = ready!(Pin::new(&mut self.pending).poll(context));
        let name = self.pool.handle.name();
        Poll::Ready(match admissions::decided(decision) {
            Ok(Decided::Admitted(admitted)) => answer::admission(name, &self.caller_id, &admitted),
            Ok(Decided::Refused(refused)) => answer::refusal(name, &self.caller_id, &refused),
            Err(fault) => refuse(gateway, &fault, known(&self.caller_id)),
        })
    }
}

impl<'g> Ends<'g> {
    /// The answer, or what to do for it where the lease had ended before the log's memory begins.
    fn poll<B>(&mut self, gateway: &'g Arc<Gateway>, context: &mut Context<'_>) -> Poll<State<'g, B>> {
        let fate = ready!(Pin::new(&mut self.fate).poll(context));
        let (pool, request) = (self.pool, self.request);
        let id = std::mem::take(&mut self.id);
        let caller_id = self.caller_id.take();
        let answered = |response: Result<Response, Fault>| {
            response.unwrap_or_else(|fault| refuse(gateway, &fault, caller_id.as_deref()))
        };
        if fate != Fate::Unknown {
            return Poll::Ready(State::Answered(answered(answer::fate(&id, "completed", fate))));
        }
        // Said twice is as good as said once; of a lease that ended otherwise the holder must hear.
        Poll::Ready(State::Else(Box::pin(async move {
            let over = admissions::over(gateway, pool, &id, request, Record::is_completed);
            over.await.unwrap_or_else(|fault| refuse(gateway, &fault, caller_id.as_deref()))
        })))
    }
}

impl<'g, B> Future for Call<'g, B>
where
    B: Body<Data = Bytes, Error: Display + Send> + Send + Unpin + 'g,
{
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let call = &mut *self;
        loop {
            call.state = match &mut call.state {
                State::Waits(waits) => return waits.poll(call.gateway, context),
                State::Ends(ends) => ready!(ends.poll(call.gateway, context)),
                State::Else(other) => return other.as_mut().poll(context),
                State::Called(..) | State::Answered(_) | State::Over => {
                    match std::mem::replace(&mut call.state, State::Over) {
                        State::Called(parts, mut body, what) => {
                            match body::begin(context, &mut body, admissions::bounds(call.gateway)) {
                                Begun::Whole(body) => Self::heard(call.gateway, &parts, &body, what),
                                Begun::Part(begun) => Self::read_on(call.gateway, begun, parts, body, what),
                                Begun::Broken(fault) => {
                                    let caller_id = admissions::caller_id(&parts);
                                    State::Answered(refuse(call.gateway, &fault, caller_id))
                                }
                            }
                        }
                        State::Answered(response) => return Poll::Ready(response),
                        // Asked again after its answer.
                        _ => return Poll::Pending,
                    }
                }
            };
        }
    }
}
