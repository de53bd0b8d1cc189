//! One stream up to its decision: read, ask, wait, answer.
//!
//! Whatever ends the stream while the request is queued ends the request: dropping the wait is the cancellation.

use super::Processor;
use super::answers::{At, Destination, admitted, denied, pass};
use super::message::{BodyMode, Part, ProcessingRequest};
use super::modes::{Modes, Unserved};
use super::peer::{First, Next, Peer};
use super::request::{Gathered, Request};
use super::running::{self, Recall, Running};
use crate::engine::{Admitted, Decision, Pending, Revocation, Revoked};
use crate::gateway::admissions;
use crate::gateway::answer;
use crate::gateway::auth::Actor;
use crate::gateway::body::Bounds;
use crate::gateway::envoy::{About, Denial, MOMENT, PATIENCE, Pace, Question};
use crate::gateway::lease::Lease;
use crate::gateway::problem::Fault;
use crate::gateway::room::Share;
use crate::gateway::state::PoolFace;
use crate::gateway::traces::{Caller, Onward};
use tokio_stream::Stream;
use tonic::Status;
use weir_kernel::{Cause, Face, Trace};

/// What is known of a stream beside its messages.
#[derive(Debug)]
pub struct Call {
    /// The pool that Envoy's settings name.
    pub pool: Option<String>,
    /// The trace context of Envoy's call.
    pub trace: Option<Trace>,
    /// The pace of its connection.
    pub pace: Pace,
    /// Who calls, where callers are known.
    pub actor: Option<Actor>,
}

/// A stream that is waited on.
struct Session<'f, S> {
    processor: &'f Processor,
    call: Call,
    peer: Peer<S>,
    modes: Modes,
    request: Request,
    /// Its caller speaks gRPC.
    grpc: bool,
}

/// How a request's wait ended.
enum Decided {
    /// With an answer.
    Decision(Decision),
    /// With the request.
    Over,
}

/// Serves one stream to its end.
pub async fn serve<S>(processor: &Processor, call: Call, mut peer: Peer<S>)
where
    S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin,
{
    let Some(first) = peer.first().await else { return };
    let modes = Modes::of(&first);
    let First { part, observability, .. } = first;
    let (headers, modes) = match (part, modes) {
        (Part::RequestHeaders(headers), Ok(modes)) => (headers, modes),
        (Part::RequestHeaders(_), Err(why)) => return unserved(processor, &call, &mut peer, why).await,
        (Part::ResponseHeaders(headers), _) => {
            // The request has gone by already: all that can be done is to say so.
            processor.complaints.unserved(Unserved::NoHeaders);
            let modes = modes.unwrap_or(Modes::NO_BODIES);
            let _ = peer.tell(pass(Part::ResponseHeaders(headers), modes)).await;
            return running::pass_on(&mut peer, modes).await;
        }
        (..) => return unserved(processor, &call, &mut peer, Unserved::NoHeaders).await,
    };
    let request = Request::new(headers, Share::of(&processor.room));
    let grpc = request.is_grpc();
    let mut session = Session { processor, call, peer, modes, request, grpc };
    if observability {
        return session.observe().await;
    }
    if let Err((fault, caller_id)) = session.decide().await {
        admissions::count(&processor.gateway, &fault);
        session.deny(&Denial::fault(&fault, caller_id.as_deref())).await;
    }
}

async fn unserved<S>(processor: &Processor, call: &Call, peer: &mut Peer<S>, why: Unserved)
where
    S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin,
{
    processor.complaints.unserved(why);
    let denial = Denial::fault(&Fault::Internal(why.to_string()), None);
    let under_way = call.pace.turn().await;
    if peer.tell(denied(&denial, false)).await.is_ok() {
        let _ = tokio::time::timeout(PATIENCE, peer.next()).await;
    }
    drop(under_way);
}

type Failed = (Fault, Option<String>);

/// A request that waits for its decision.
struct Asked<'f> {
    pool: &'f PoolFace,
    face: Face,
    from: Caller,
    pending: Pending,
}

impl<'f, S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin> Session<'f, S> {
    /// From the headers to the end of the request. What is returned is still to be told to Envoy.
    async fn decide(&mut self) -> Result<(), Failed> {
        let bounds = admissions::bounds(&self.processor.gateway);
        let question = Question::read(self.request.pairs()).map_err(|invalid| (invalid.into(), None))?;
        let caller_id = question.caller_id().to_owned();
        let failed = |fault: Fault| (fault, Some(caller_id.clone()));
        let at = match self.request.gather(&mut self.peer, self.modes, bounds).await {
            Gathered::Decide(at) => at,
            Gathered::Over => return Ok(()),
            Gathered::Fault(fault) => return Err(failed(fault)),
        };
        let Asked { pool, face, from, pending } = self.ask(question).map_err(failed)?;
        if at == At::Body {
            // Its size is known now, and Envoy keeps it.
            self.request.take_held();
        }
        let decision = match self.wait(pool, pending, bounds).await.map_err(failed)? {
            Decided::Decision(decision) => decision,
            Decided::Over => return Ok(()),
        };
        match decision {
            Decision::Admitted(admission) => {
                let onward = self.processor.gateway.onward(pool, admission.id, from);
                let caller = (caller_id.as_str(), onward.as_ref());
                self.release(at, pool, face, &admission, caller).await;
            }
            Decision::Refused(refused) => {
                self.deny(&Denial::refused(pool.handle.name(), &caller_id, &refused)).await;
            }
            Decision::Unavailable(why) => return Err(failed(answer::unavailable(why))),
        }
        Ok(())
    }

    fn ask(&self, mut question: Question) -> Result<Asked<'f>, Fault> {
        let processor = self.processor;
        let pool = question.pool(&processor.gateway, self.call.pool.as_deref())?;
        if let Some(bytes) = self.request.bytes() {
            question.set_bytes(bytes);
        }
        question.suggest_model(|| self.request.model());
        let face = self.face(pool);
        let about = About {
            patience: None,
            trace: self.call.trace,
            face,
            choose_endpoint: self.modes.picks_endpoint(),
            actor: self.call.actor.clone(),
        };
        let arrival = question.arrive(&processor.gateway, pool, about)?;
        let from = Caller::of(&arrival);
        let pending = pool.handle.admit(arrival).map_err(answer::unavailable)?;
        Ok(Asked { pool, face, from, pending })
    }

    /// What can be known of this request's end.
    fn face(&self, pool: &PoolFace) -> Face {
        if self.modes.response == BodyMode::None && self.processor.sights.blind(pool.handle.name()) {
            Face::Untracked
        } else if self.processor.gateway.options.envoy.failure_mode_allow && !self.modes.dies_with_us() {
            Face::ExtProcOpen
        } else {
            Face::ExtProcClosed
        }
    }

    /// Holds the request until it is decided, and notices whatever ends it before.
    async fn wait(
        &mut self,
        pool: &PoolFace,
        mut pending: Pending,
        bounds: Bounds,
    ) -> Result<Decided, Fault> {
        loop {
            let next = tokio::select! {
                biased;
                next = self.peer.next() => next,
                decision = &mut pending => return Ok(Decided::Decision(decision)),
            };
            match next {
                // The client has left, or a timer of Envoy's has fired: nothing tells these apart.
                Next::Over(_) => return Ok(Decided::Over),
                Next::Part(Part::RequestBody(mut chunk)) => {
                    if self.modes.request != BodyMode::FullDuplex {
                        chunk.body.clear();
                    }
                    self.request.hold(chunk, bounds)?;
                }
                Next::Part(Part::RequestTrailers(trailers)) => self.request.trailers = Some(trailers),
                Next::Part(part) => {
                    // An answer of Envoy's own while nothing has gone upstream: here a timer did fire.
                    if let Some(id) = pending.id() {
                        pool.handle.cancel(id, Cause::ClientDeadline).await;
                    }
                    drop(pending);
                    if self.peer.tell(pass(part, self.modes)).await.is_ok() {
                        running::pass_on(&mut self.peer, self.modes).await;
                    }
                    return Ok(Decided::Over);
                }
            }
        }
    }

    /// Lets the request go on, and stays with it to its end. From here on its lease ends with this stream, whatever
    /// becomes of that.
    async fn release(
        &mut self,
        at: At,
        pool: &PoolFace,
        face: Face,
        admission: &Admitted,
        (caller_id, onward): (&str, Option<&Onward>),
    ) {
        let lease = face.sees_end().then(|| Lease::new(pool.handle.clone(), admission.id));
        let mut running = Running::new(self.modes, lease);
        let name = pool.handle.name();
        let id = format!("{name}-{}", admission.id);
        let destination = self.destination(pool, admission);
        let answer = admitted(at, self.modes, &self.request.names(), &id, &destination, onward);
        let under_way = self.call.pace.turn().await;
        if self.peer.tell(answer).await.is_err() {
            return;
        }
        for chunk in self.request.take_held() {
            if self.peer.tell(pass(Part::RequestBody(chunk), self.modes)).await.is_err() {
                return;
            }
        }
        if let Some(trailers) = self.request.trailers.take() {
            let _ = self.peer.tell(pass(Part::RequestTrailers(trailers), self.modes)).await;
        }
        let sights = &self.processor.sights;
        // Unless responses are shown, the release itself may end the stream.
        let ends = self.modes.response == BodyMode::None && !sights.responds(name);
        let moment = if ends { PATIENCE } else { MOMENT };
        let grpc = self.grpc;
        let recall = Recall {
            revoked: face.sees_end().then(|| pool.handle.revocation(admission.id)),
            answer: |revocation: &Revocation| {
                denied(&Denial::revoked(name, caller_id, admission.id, revocation), grpc)
            },
            likely: admission.priority < 0 && !admission.shadow,
        };
        let over = running.follow(&mut self.peer, under_way, moment, || sights.response(name), recall).await;
        if let Some(ending) = running.over(over) {
            self.processor.learn(name, ending);
        }
    }

    /// Where the request goes, as Envoy's original-destination cluster wants to know it. In observe mode nothing is
    /// chosen, and nothing changed.
    fn destination(&self, pool: &PoolFace, admission: &Admitted) -> Destination {
        if !self.modes.picks_endpoint() || admission.shadow {
            return Destination::Untouched;
        }
        let Some(endpoint) = admission.endpoint.as_deref() else { return Destination::Nowhere };
        if let Some(address) = pool.address(endpoint) {
            return Destination::To(address);
        }
        if self.processor.complaints.due("address") {
            tracing::warn!(
                pool = pool.handle.name(),
                endpoint,
                "ext_proc: this endpoint was chosen, but has no address of the form ip:port: name it so, or give its url \
                 an ip"
            );
        }
        Destination::Nowhere
    }

    /// Ends the request with a refusal.
    async fn deny(&mut self, denial: &Denial) {
        self.request.take_held();
        let under_way = self.call.pace.turn().await;
        if self.peer.tell(denied(denial, self.grpc)).await.is_ok() {
            let _ = tokio::time::timeout(PATIENCE, self.peer.next()).await;
        }
        drop(under_way);
    }

    /// Envoy does not wait: the request runs whatever is decided, and is told of as far as it is seen. Where it ends
    /// while it is still queued here, it leaves the queue.
    async fn observe(&mut self) {
        if self.processor.complaints.due("observability") {
            tracing::info!(
                "ext_proc: observability_mode is on, so requests are not held and refusals not heeded"
            );
        }
        let asked = match Question::read(self.request.pairs()).map_err(Fault::from) {
            Ok(question) => self.ask(question),
            Err(fault) => Err(fault),
        };
        let Asked { pool, face, mut pending, .. } = match asked {
            Ok(asked) => asked,
            Err(fault) => return admissions::count(&self.processor.gateway, &fault),
        };
        let mut running = Running::new(self.modes, None);
        let mut decided = false;
        let mut revoked: Option<Revoked> = None;
        let over = loop {
            tokio::select! {
                biased;
                next = self.peer.next() => match next {
                    Next::Part(part) => running.see(&part),
                    Next::Over(over) => break over,
                },
                decision = &mut pending, if !decided => {
                    decided = true;
                    if let (Decision::Admitted(admission), true) = (decision, face.sees_end()) {
                        running.hold(Lease::new(pool.handle.clone(), admission.id));
                        revoked = Some(pool.handle.revocation(admission.id));
                    }
                }
                revocation = running::listen(&mut revoked), if revoked.is_some() => {
                    revoked = None;
                    if let (Some(_), Some(id)) = (revocation, pending.id()) {
                        // Envoy heeds no answer.
                        pool.handle.undeliverable(id);
                    }
                }
            }
        };
        running.over(over);
    }
}
