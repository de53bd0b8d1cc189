//! The request's side of a stream, before anything is decided: its headers, and its body where Envoy shows it.

use super::answers::{At, pass};
use super::message::{Body, BodyMode, HttpHeaders, Part, ProcessingRequest, Trailers};
use super::modes::Modes;
use super::peer::{Next, Peer};
use crate::gateway::body::Bounds;
use crate::gateway::problem::Fault;
use crate::gateway::room::Share;
use serde::Deserialize;
use std::borrow::Cow;
use tokio_stream::Stream;
use tonic::Status;

/// What of a request has come, and has not been answered.
#[derive(Debug)]
pub struct Request {
    headers: HttpHeaders,
    /// Chunks of its body that must be sent on once it is admitted, in full duplex.
    held: Vec<Body>,
    share: Share,
    /// Its trailers, if they have come and are unanswered.
    pub trailers: Option<Trailers>,
    bytes: u64,
    whole: bool,
}

/// What became of waiting for a body.
#[derive(Debug)]
pub enum Gathered {
    /// The decision answers this part.
    Decide(At),
    /// The request ended, or Envoy answered it by itself.
    Over,
    /// It cannot be taken.
    Fault(Fault),
}

impl Request {
    /// Of these headers.
    pub fn new(headers: HttpHeaders, share: Share) -> Self {
        Request { headers, held: Vec::new(), share, trailers: None, bytes: 0, whole: false }
    }

    /// The chunks that are held, which from here on are the caller's.
    pub fn take_held(&mut self) -> Vec<Body> {
        self.share.give_back();
        std::mem::take(&mut self.held)
    }

    /// Its headers, names as they came.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let list = self.headers.headers.iter().flat_map(|map| &map.headers);
        list.map(|header| (header.key.as_str(), header.bytes()))
    }

    /// The names of its headers.
    pub fn names(&self) -> Vec<&str> {
        self.pairs().map(|(name, _)| name).collect()
    }

    /// Does its caller speak gRPC?
    pub fn is_grpc(&self) -> bool {
        self.pairs().any(|(name, value)| name == "content-type" && value.starts_with(b"application/grpc"))
    }

    /// The size of its body, if all of it has come.
    pub fn bytes(&self) -> Option<u64> {
        self.whole.then_some(self.bytes)
    }

    /// The model that its body names, if that has come and is JSON.
    pub fn model(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Named<'b> {
            #[serde(borrow)]
            model: Option<Cow<'b, str>>,
        }
        if !self.whole {
            return None;
        }
        let joined;
        let body: &[u8] = match self.held.as_slice() {
            [] => return None,
            [one] => &one.body,
            many => {
                joined = many.iter().flat_map(|chunk| &chunk.body).copied().collect::<Vec<u8>>();
                &joined
            }
        };
        let model = serde_json::from_slice::<Named<'_>>(body).ok()?.model?;
        crate::gateway::ask::label("model", model.as_bytes()).ok()
    }

    /// Waits for the body, where Envoy is set to show it before the request goes on: its size and its model count then.
    pub async fn gather<S>(&mut self, peer: &mut Peer<S>, modes: Modes, bounds: Bounds) -> Gathered
    where
        S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin,
    {
        let at = match modes.request {
            _ if self.headers.end_of_stream => return Gathered::Decide(At::Headers),
            BodyMode::Buffered | BodyMode::BufferedPartial => At::Body,
            BodyMode::FullDuplex => At::Headers,
            BodyMode::None | BodyMode::Streamed | BodyMode::Grpc => return Gathered::Decide(At::Headers),
        };
        if at == At::Body {
            // Envoy sends the body only once the headers are answered; they still go nowhere before it is.
            let headers = Part::RequestHeaders(HttpHeaders::default());
            if peer.tell(pass(headers, modes)).await.is_err() {
                return Gathered::Over;
            }
        }
        let slow = u64::try_from(bounds.time_max.as_millis()).unwrap_or(u64::MAX);
        match tokio::time::timeout(bounds.time_max, self.body(peer, modes, at, bounds)).await {
            Ok(gathered) => gathered,
            Err(_) => Gathered::Fault(Fault::BodySlow(slow)),
        }
    }

    async fn body<S>(&mut self, peer: &mut Peer<S>, modes: Modes, at: At, bounds: Bounds) -> Gathered
    where
        S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin,
    {
        loop {
            match peer.next().await {
                Next::Over(_) => return Gathered::Over,
                Next::Part(Part::RequestBody(chunk)) => {
                    // One message is all of a buffered body, or all that is shown of it.
                    let last = chunk.end_of_stream || at == At::Body;
                    if let Err(fault) = self.hold(chunk, bounds) {
                        return Gathered::Fault(fault);
                    }
                    if last {
                        self.whole = true;
                        return Gathered::Decide(at);
                    }
                }
                Next::Part(Part::RequestTrailers(trailers)) => {
                    self.whole = true;
                    if at == At::Body {
                        // Trailers and no body, after headers that have been answered.
                        return Gathered::Decide(At::Trailers);
                    }
                    self.trailers = Some(trailers);
                    return Gathered::Decide(at);
                }
                // Envoy's own answer, such as 413 over its buffer.
                Next::Part(part) => {
                    let _ = peer.tell(pass(part, modes)).await;
                    return Gathered::Over;
                }
            }
        }
    }

    /// Keeps a chunk until the request may go on.
    ///
    /// # Errors
    /// More than a body may be, or than all bodies together may be.
    pub fn hold(&mut self, chunk: Body, bounds: Bounds) -> Result<(), Fault> {
        let bytes = chunk.body.len() as u64;
        self.bytes += bytes;
        if self.bytes > bounds.bytes_max {
            return Err(Fault::BodyTooLarge { limit: bounds.bytes_max });
        }
        self.share.take(bytes)?;
        self.held.push(chunk);
        Ok(())
    }
}
