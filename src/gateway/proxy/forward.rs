//! One request, from its arrival to the head of its response.
//!
//! Until there is a response to pass on, the handler itself is the request: a caller that leaves drops it, and with it the
//! wait in the queue or the connection to the endpoint.

use super::Proxy;
use super::head;
use super::members::Members;
use super::payload::{self, Payload};
use super::refusal::{self, Gone};
use super::running::Running;
use super::upstream::{Head, NoResponse, Place, authority};
use crate::engine::{Admitted, Refused};
use crate::gateway::admissions::{self, Decided, caller_id, decide, header_pairs};
use crate::gateway::auth::Actor;
use crate::gateway::body::Bounds;
use crate::gateway::envoy::{About, Question};
use crate::gateway::lease::Lease;
use crate::gateway::problem::{Fault, Invalid};
use crate::gateway::state::{Gateway, PoolFace};
use crate::gateway::traces::{Caller, Onward};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Version};
use hyper::body::Incoming;
use std::future::Future;
use std::pin::Pin;
use weir_kernel::{Face, RequestId, Termination};

/// Bodies above this are looked through where they hold nobody up, in bytes.
const LARGE: usize = 256 << 10;

/// A path whose requests have no field `priority`.
const WITHOUT_PRIORITY: &str = "/v1/messages";

/// Why a request gets an answer of our own.
enum Failed {
    Fault(Fault),
    Refused(String, String, Refused),
    Gone(Gone, Option<(String, Admitted)>),
}

impl<F: Into<Fault>> From<F> for Failed {
    fn from(fault: F) -> Self {
        Failed::Fault(fault.into())
    }
}

impl Failed {
    fn answer(self, gateway: &Gateway, parts: &Parts) -> Response {
        match self {
            Failed::Fault(fault) => {
                admissions::count(gateway, &fault);
                refusal::fault(&fault, caller_id(parts))
            }
            Failed::Refused(pool, caller, refused) => refusal::refused(&pool, &caller, &refused),
            Failed::Gone(gone, admitted) => {
                let admitted = admitted.as_ref().map(|(pool, admitted)| (pool.as_str(), admitted));
                refusal::gone(&gone, caller_id(parts), admitted)
            }
        }
    }
}

/// A request that is admitted first.
pub async fn admit(gateway: &Gateway, proxy: &Proxy, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let done = admitted(gateway, proxy, &parts, body).await;
    done.unwrap_or_else(|failed| failed.answer(gateway, &parts))
}

/// A request that passes without.
pub async fn pass(gateway: &Gateway, proxy: &Proxy, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let call = async {
        let question = Question::read(header_pairs(&parts))?;
        let pool = question.pool(gateway, None)?;
        if let Some(actor) = parts.extensions.get::<Actor>() {
            actor.must_pool(pool.handle.name())?;
        }
        let place = proxy.upstreams.least_loaded(pool, None).ok_or(Failed::Gone(Gone::Nowhere, None))?;
        let call = Call { gateway, proxy, pool, parts: &parts };
        let payload = Payload::passing(body, bounds(gateway, proxy));
        let (response, place) = call.send(payload, place, None, None).await?;
        Ok(call.answer(response, place, None, None).await)
    };
    call.await.unwrap_or_else(|failed: Failed| failed.answer(gateway, &parts))
}

fn bounds(gateway: &Gateway, proxy: &Proxy) -> Bounds {
    Bounds { bytes_max: proxy.options.body_bytes_max, time_max: gateway.options.body_time_max }
}

/// Everything but the answers of our own.
async fn admitted(gateway: &Gateway, proxy: &Proxy, parts: &Parts, body: Body) -> Result<Response, Failed> {
    let mut question = Question::read(header_pairs(parts))?;
    let caller = question.caller_id().to_owned();
    let pool = question.pool(gateway, None)?;
    let call = Call { gateway, proxy, pool, parts };
    let bounds = bounds(gateway, proxy);
    let body = if payload::is_passed_on(parts) {
        check_length(&body, bounds)?;
        Given::Passing(body)
    } else {
        let held = payload::hold(parts, body, bounds, &proxy.room).await?;
        let (held, members) = look_through(held).await?;
        question.set_bytes(held.whole.bytes.len() as u64);
        question.suggest_model(|| members.as_ref()?.model(&held.whole.bytes));
        if call.sets_priority() && members.is_none() {
            let allowed = "a JSON object in UTF-8, without content-encoding";
            return Err(
                Invalid::new("body", &held.whole.bytes[..held.whole.bytes.len().min(64)], allowed).into()
            );
        }
        Given::Held(held, members)
    };
    let actor = parts.extensions.get::<Actor>().cloned();
    let about = About { face: Face::Proxy, choose_endpoint: true, actor, ..About::default() };
    let arrival = question.arrive(gateway, pool, about)?;
    let from = Caller::of(&arrival);
    let admitted = match decide(pool, arrival).await? {
        Decided::Admitted(admitted) => admitted,
        Decided::Refused(refused) => {
            return Err(Failed::Refused(pool.handle.name().to_owned(), caller, refused));
        }
    };
    let onward = gateway.onward(pool, admitted.id, from);
    call.run(body, bounds, admitted, onward).await
}

/// A body before its request is decided.
enum Given {
    Held(payload::Held, Option<Members>),
    Passing(Body),
}

/// A length that is said to be too large is refused before anything is queued.
fn check_length(body: &Body, bounds: Bounds) -> Result<(), Fault> {
    let said = hyper::body::Body::size_hint(body).lower();
    if said > bounds.bytes_max { Err(Fault::BodyTooLarge { limit: bounds.bytes_max }) } else { Ok(()) }
}

async fn look_through(held: payload::Held) -> Result<(payload::Held, Option<Members>), Fault> {
    if held.whole.bytes.len() <= LARGE {
        let members = Members::find(&held.whole.bytes);
        return Ok((held, members));
    }
    let looked = tokio::task::spawn_blocking(move || {
        let members = Members::find(&held.whole.bytes);
        (held, members)
    });
    looked.await.map_err(|error| Fault::Internal(error.to_string()))
}

/// Resolves when a request is taken back.
type Revoked = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What an admitted request keeps while it runs.
struct Kept<'c> {
    lease: Lease,
    admitted: &'c Admitted,
    revoked: Revoked,
}

/// A request on its way.
#[derive(Clone, Copy)]
struct Call<'c> {
    gateway: &'c Gateway,
    proxy: &'c Proxy,
    pool: &'c PoolFace,
    parts: &'c Parts,
}

impl Call<'_> {
    fn sets_priority(&self) -> bool {
        self.proxy.options.engine_priority_vllm && self.parts.uri.path() != WITHOUT_PRIORITY
    }

    /// From the admission to the response. From here on the lease ends whatever becomes of this.
    async fn run(
        self,
        body: Given,
        bounds: Bounds,
        admitted: Admitted,
        onward: Option<Onward>,
    ) -> Result<Response, Failed> {
        let lease = Lease::new(self.pool.handle.clone(), admitted.id);
        let name = self.pool.handle.name();
        let id = format!("{name}-{}", admitted.id);
        let payload = match body {
            Given::Passing(body) => Payload::passing(body, bounds),
            Given::Held(mut held, members) => {
                if let (true, Some(members)) = (self.sets_priority(), members) {
                    held.whole.bytes = with_priority(&held.whole.bytes, &members, admitted.priority);
                }
                Payload::held(held)
            }
        };
        let gone = |gone| Failed::Gone(gone, Some((name.to_owned(), admitted.clone())));
        let Some(place) = self.place(&admitted) else {
            lease.end(Termination::Error, None);
            return Err(gone(Gone::Nowhere));
        };
        let mut revoked = self.revoked(admitted.id);
        let sent = tokio::select! {
            biased;
            () = &mut revoked => Err(Failed::Gone(Gone::Evicted, None)),
            sent = self.send(payload, place, Some(&id), onward.as_ref()) => sent,
        };
        match sent {
            Ok((response, place)) => {
                let kept = Kept { lease, admitted: &admitted, revoked };
                Ok(self.answer(response, place, Some(kept), Some(&id)).await)
            }
            Err(Failed::Gone(Gone::Evicted, _)) => {
                lease.end(Termination::Evicted, None);
                Err(gone(Gone::Evicted))
            }
            Err(Failed::Gone(why, _)) => {
                lease.end(Termination::Error, None);
                Err(gone(why))
            }
            // The caller's own side failed.
            Err(failed) => Err(failed),
        }
    }

    /// Resolves when this request is taken back, and never if it is not.
    fn revoked(&self, request: RequestId) -> Revoked {
        let revoked = self.pool.handle.revocation(request);
        Box::pin(async move {
            if revoked.await.is_none() {
                std::future::pending().await
            }
        })
    }

    /// Where the kernel chose to send it; in observe mode it chooses nothing.
    fn place(&self, admitted: &Admitted) -> Option<Place> {
        let chosen = admitted.endpoint.as_deref().and_then(|endpoint| authority(self.pool, endpoint));
        let upstreams = &self.proxy.upstreams;
        chosen.map(|chosen| upstreams.place(chosen)).or_else(|| upstreams.least_loaded(self.pool, None))
    }

    /// Sends it there; once to another endpoint, if no connection came about and so nothing was sent.
    async fn send(
        &self,
        payload: Payload,
        place: Place,
        admission: Option<&str>,
        onward: Option<&Onward>,
    ) -> Result<(http::Response<Incoming>, Place), Failed> {
        let path = self.parts.uri.path_and_query().cloned();
        let head = Head {
            method: self.parts.method.clone(),
            path: path.unwrap_or_else(|| PathAndQuery::from_static("/")),
            headers: head::request(
                &self.parts.headers,
                self.parts.version,
                payload.carried(),
                admission,
                onward,
            ),
        };
        let upstreams = &self.proxy.upstreams;
        let mut place = place;
        let mut sent = upstreams.send(head.clone(), payload.clone(), &place).await;
        if let Err(NoResponse::Unreachable(why)) = &sent {
            self.proxy.complain(self.pool.handle.name(), place.authority().as_str(), why, onward);
            if let Some(other) = upstreams.least_loaded(self.pool, Some(place.authority())) {
                place = other;
                sent = upstreams.send(head, payload.clone(), &place).await;
            }
        }
        let why = match sent {
            Ok(response) => return Ok((response, place)),
            Err(why) => why,
        };
        if let Some(fault) = payload.fault() {
            return Err(fault.into());
        }
        let (gone, why) = match why {
            NoResponse::Unreachable(why) => (Gone::Unreachable, why),
            NoResponse::Broken(why) => (Gone::Broken, why),
        };
        self.proxy.complain(self.pool.handle.name(), place.authority().as_str(), &why, onward);
        Err(Failed::Gone(gone, None))
    }

    /// The response as the caller gets it.
    async fn answer(
        &self,
        response: http::Response<Incoming>,
        place: Place,
        kept: Option<Kept<'_>>,
        admission: Option<&str>,
    ) -> Response {
        let (mut head, from) = response.into_parts();
        let metrics = self.gateway.metrics.clone();
        let (lease, watched) = match kept {
            Some(Kept { lease, admitted, revoked }) => (Some(lease), Some((admitted, revoked))),
            None => (None, None),
        };
        let mut body = Running::new(from, head.status.as_u16(), &head.headers, lease, place, metrics);
        head::response(&mut head.headers, admission);
        head.version = Version::HTTP_11;
        let patience = self.gateway.options.write_stall_max;
        if !body.look().await {
            let admitted = watched.map(|(admitted, _)| (self.pool.handle.name(), admitted));
            return refusal::gone(&Gone::Broken, caller_id(self.parts), admitted);
        }
        match watched {
            Some((admitted, mut revoked)) => {
                // The pool may want it back. Until its first byte is there its caller may yet hear so in plain words.
                if admitted.priority < 0 && !admitted.shadow {
                    let name = self.pool.handle.name();
                    let gone = |why| refusal::gone(&why, caller_id(self.parts), Some((name, admitted)));
                    tokio::select! {
                        biased;
                        () = &mut revoked => {
                            body.evict();
                            return gone(Gone::Evicted);
                        }
                        begun = body.wait() => if !begun {
                            return gone(Gone::Broken);
                        }
                    }
                }
                body.stand_by(revoked, patience);
            }
            None if self.parts.version == Version::HTTP_2 => body.stand_by(std::future::pending(), patience),
            None => {}
        }
        Response::from_parts(head, Body::new(body))
    }
}

/// vLLM serves the lowest first.
fn with_priority(body: &Bytes, members: &Members, priority: i32) -> Bytes {
    members.with_priority(body, -i64::from(priority))
}
