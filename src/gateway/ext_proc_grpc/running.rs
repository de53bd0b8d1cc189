//! One stream from its admission to its end: every part is let go on, its lease ends when the response does, and what the
//! response says it used is read as it passes.
//!
//! A lease that is taken back becomes an immediate response, whatever has gone by: before the response's headers the
//! caller gets a plain 429, after them its stream is cut (and the model server's with it). Streaming servers send their
//! headers while the request still waits in their own queue, so where Envoy shows what follows without being answered
//! (full duplex), those of a request that can be taken back go on with the first piece of the body. The lease ends when
//! Envoy has ended the stream.

use super::answers::pass;
use super::message::{Body, BodyMode, HttpHeaders, Part, ProcessingRequest, ProcessingResponse};
use super::modes::Modes;
use super::peer::{Next, Over, Peer};
use super::sight::{Ending, Shown};
use crate::engine::{Revocation, Revoked};
use crate::gateway::envoy::UnderWay;
use crate::gateway::lease::Lease;
use crate::gateway::usage::UsageReader;
use std::time::{Duration, Instant};
use tokio_stream::Stream;
use tonic::Status;
use weir_kernel::Termination;

/// How a request can be taken back: when, and what Envoy is told then.
pub struct Recall<A> {
    /// Resolves when it is; none where nobody would see its end.
    pub revoked: Option<Revoked>,
    /// The answer that ends it.
    pub answer: A,
    /// Somebody may want it back: it is sheddable.
    pub likely: bool,
}

/// Waits for the revocation, where there is one to wait for.
pub async fn listen(revoked: &mut Option<Revoked>) -> Option<Revocation> {
    match revoked {
        Some(revoked) => revoked.await,
        None => None,
    }
}

/// An admitted request.
#[derive(Debug)]
pub struct Running {
    modes: Modes,
    lease: Option<Lease>,
    shown: Shown,
    status: Option<u16>,
    usage: Option<UsageReader>,
    body_begun: bool,
    /// The response is an event stream.
    events: bool,
    /// Envoy has been told to end it.
    recalled: bool,
    /// When the last part that was shown came; at first, when the request was let go on.
    since: Instant,
}

impl Running {
    /// Just admitted; without a lease where its end cannot be seen.
    pub fn new(modes: Modes, lease: Option<Lease>) -> Self {
        Running {
            modes,
            lease,
            shown: Shown::Nothing,
            status: None,
            usage: None,
            body_begun: false,
            events: false,
            recalled: false,
            since: Instant::now(),
        }
    }

    /// Admitted while its parts are already passing.
    pub fn hold(&mut self, lease: Lease) {
        self.lease = Some(lease);
    }

    /// Lets every part go on until there are no more. The release is under way until Envoy reacts, for a `moment` at most;
    /// that there is a `response` is told when it begins. Where the lease is taken back, the recall's answer ends it.
    pub async fn follow<S>(
        &mut self,
        peer: &mut Peer<S>,
        under_way: UnderWay,
        moment: Duration,
        response: impl Fn(),
        recall: Recall<impl Fn(&Revocation) -> ProcessingResponse>,
    ) -> Over
    where
        S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin,
    {
        let Recall { mut revoked, answer, likely } = recall;
        let holds = likely && revoked.is_some() && self.modes.response == BodyMode::FullDuplex;
        let mut head = None;
        self.since = Instant::now();
        let mut moment = std::pin::pin!(tokio::time::sleep(moment));
        let mut under_way = Some(under_way);
        loop {
            let next = tokio::select! {
                biased;
                next = peer.next() => next,
                () = &mut moment, if under_way.is_some() => {
                    under_way = None;
                    continue;
                }
                revocation = listen(&mut revoked), if revoked.is_some() => {
                    revoked = None;
                    let Some(revocation) = revocation else { continue };
                    self.recalled = true;
                    if peer.tell(answer(&revocation)).await.is_err() {
                        return Over::Broken;
                    }
                    return self.see_out(peer).await;
                }
            };
            under_way = None;
            let part = match next {
                Next::Over(over) => return over,
                Next::Part(part) => part,
            };
            if matches!(part, Part::ResponseHeaders(_)) {
                response();
            }
            self.see(&part);
            if let Some(head) = head.take()
                && peer.tell(pass(head, self.modes)).await.is_err()
            {
                return Over::Broken;
            }
            if holds && matches!(&part, Part::ResponseHeaders(headers) if !headers.end_of_stream) {
                head = Some(part);
                continue;
            }
            if peer.tell(pass(part, self.modes)).await.is_err() {
                return Over::Broken;
            }
        }
    }

    /// Envoy has its last answer: what it still shows is seen and not answered, until the stream is over.
    async fn see_out<S>(&mut self, peer: &mut Peer<S>) -> Over
    where
        S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin,
    {
        loop {
            match peer.next().await {
                Next::Over(over) => return over,
                Next::Part(part) => self.see(&part),
            }
        }
    }

    /// Takes in what a part shows.
    pub fn see(&mut self, part: &Part) {
        match part {
            Part::ResponseHeaders(headers) => self.see_headers(headers),
            Part::ResponseBody(chunk) => self.see_body(chunk),
            Part::ResponseTrailers(_) => self.complete(),
            Part::RequestHeaders(_) | Part::RequestBody(_) | Part::RequestTrailers(_) => {}
        }
    }

    fn see_headers(&mut self, headers: &HttpHeaders) {
        self.shown = Shown::Headers;
        self.since = Instant::now();
        let (mut content_type, mut encoded): (&[u8], bool) = (b"", false);
        for header in headers.headers.iter().flat_map(|map| &map.headers) {
            match header.key.as_str() {
                ":status" => {
                    self.status = std::str::from_utf8(header.bytes()).ok().and_then(|text| text.parse().ok());
                }
                "content-type" => content_type = header.bytes(),
                "content-encoding" => encoded = header.bytes() != b"identity",
                _ => {}
            }
        }
        self.events = content_type.starts_with(b"text/event-stream");
        if self.modes.response != BodyMode::None && !encoded {
            self.usage = Some(UsageReader::new(content_type));
        }
        if headers.end_of_stream {
            self.complete();
        }
    }

    fn see_body(&mut self, chunk: &Body) {
        if let Some(usage) = &mut self.usage {
            usage.feed(&chunk.body);
        }
        if !self.body_begun && !chunk.body.is_empty() {
            self.body_begun = true;
            let passes = matches!(self.modes.response, BodyMode::Streamed | BodyMode::FullDuplex);
            if let (Some(lease), true) = (&self.lease, passes) {
                lease.first_byte();
            }
        }
        if chunk.end_of_stream {
            self.complete();
        }
    }

    /// The response has been seen to its end.
    fn complete(&mut self) {
        self.shown = Shown::All;
        let termination = if self.failed() { Termination::Error } else { Termination::Natural };
        self.end(termination);
    }

    /// The model server, or Envoy on the way to it, has failed.
    fn failed(&self) -> bool {
        self.status.is_some_and(|status| status >= 500)
    }

    fn end(&mut self, termination: Termination) {
        let usage = self.usage.as_ref().and_then(UsageReader::found);
        if let Some(lease) = self.lease.take() {
            lease.end(termination, usage);
        }
    }

    /// The stream is over, and with it the request. What it shows of the modes that are set, if anything.
    pub fn over(mut self, over: Over) -> Option<Ending> {
        let cut = match self.shown {
            Shown::Nothing => true,
            // Where a body is shown as it passes, its end would have been seen; else this is all there is to see.
            Shown::Headers => matches!(self.modes.response, BodyMode::Streamed | BodyMode::FullDuplex),
            Shown::All => false,
        };
        if self.recalled {
            self.end(Termination::Evicted);
            return None;
        }
        let termination = match (self.failed(), cut) {
            (true, _) => Termination::Error,
            (false, true) => Termination::ClientDisconnect,
            (false, false) => Termination::Natural,
        };
        self.end(termination);
        // Streams with an error are often of Envoy's own making, which end in ways of their own.
        let Running { shown, events, .. } = self;
        let ending = Ending { shown, over, lasted: self.since.elapsed(), events };
        (self.modes.response == BodyMode::None && !self.failed()).then_some(ending)
    }
}

/// Lets every part of a request go on that nothing is decided about (any more).
pub async fn pass_on<S>(peer: &mut Peer<S>, modes: Modes)
where
    S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin,
{
    while let Next::Part(part) = peer.next().await {
        if peer.tell(pass(part, modes)).await.is_err() {
            return;
        }
    }
}
