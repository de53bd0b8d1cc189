//! Envoy's end of one stream: parts as they come, answers as they go.

use super::message::{Part, ProcessingRequest, ProcessingResponse};
use super::out::{Gone, Out};
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

/// How a stream was over. Told apart as a hint to what Envoy shows us at all, never to judge a single request: a normal
/// end can look like a reset and a disconnect like a clean end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Envoy has nothing more to say.
    Clean,
    /// Envoy reset it, as it does once every part that is configured has been answered.
    Reset,
    /// The connection broke, or what came was no message.
    Broken,
}

/// What came.
#[derive(Debug)]
pub enum Next {
    /// A part.
    Part(Part),
    /// Nothing more.
    Over(Over),
}

/// The first message of a stream.
#[derive(Debug)]
pub struct First {
    /// Its part.
    pub part: Part,
    /// Envoy waits for no answer.
    pub observability: bool,
    /// How bodies come, request and response; zeros where Envoy does not say.
    pub modes: (i32, i32),
}

/// Envoy.
#[derive(Debug)]
pub struct Peer<S> {
    inbound: S,
    out: Out,
    over: Option<Over>,
}

impl<S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin> Peer<S> {
    /// Over a stream's two directions.
    pub fn new(inbound: S, out: Out) -> Self {
        Peer { inbound, out, over: None }
    }

    /// The first message; `None` if the stream ended without one.
    pub async fn first(&mut self) -> Option<First> {
        loop {
            let message = self.message().await?;
            let Some(part) = message.request else { continue };
            let config = message.protocol_config.unwrap_or_default();
            return Some(First {
                part,
                observability: message.observability_mode,
                modes: (config.request_body_mode, config.response_body_mode),
            });
        }
    }

    /// The next part. May be dropped and asked again; nothing is lost.
    pub async fn next(&mut self) -> Next {
        loop {
            match self.message().await {
                Some(ProcessingRequest { request: Some(part), .. }) => return Next::Part(part),
                // A message about the stream itself.
                Some(_) => {}
                None => return Next::Over(self.over.unwrap_or(Over::Clean)),
            }
        }
    }

    async fn message(&mut self) -> Option<ProcessingRequest> {
        if self.over.is_some() {
            return None;
        }
        match self.inbound.next().await {
            Some(Ok(message)) => return Some(message),
            Some(Err(status)) if is_reset(&status) => self.over = Some(Over::Reset),
            Some(Err(status)) => {
                tracing::debug!(%status, "an ext_proc stream broke");
                self.over = Some(Over::Broken);
            }
            None => self.over = Some(Over::Clean),
        }
        None
    }

    /// Answers.
    ///
    /// # Errors
    /// Envoy has given the stream up.
    pub async fn tell(&mut self, answer: ProcessingResponse) -> Result<(), Gone> {
        self.out.tell(answer).await
    }
}

/// Did the other side reset the stream?
fn is_reset(status: &Status) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(status);
    while let Some(error) = source {
        if let Some(h2) = error.downcast_ref::<h2::Error>() {
            return h2.is_reset() && h2.is_remote();
        }
        source = error.source();
    }
    false
}
