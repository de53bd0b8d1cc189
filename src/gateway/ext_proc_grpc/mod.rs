//! `envoy.service.ext_proc.v3.ExternalProcessor`: one gRPC stream per request, from its headers to its end.
//!
//! A request is held at its headers, or at its body where Envoy is set to show that first; it goes on with its control
//! headers removed, or ends with an immediate response. The stream stays open as long as Envoy has something to show:
//! with `response_trailer_mode: SEND` or a response body mode that is to the end of the response, which ends the lease.
//!
//! Which modes are set shows in the first message (bodies) or must be learned (`sight`). Not here: the listener
//! (`../grpc`), what is the same over HTTP (`../envoy`).

mod answers;
pub mod message;
mod modes;
mod out;
mod peer;
mod read;
mod request;
mod running;
mod session;
mod sight;

use super::room::Room;
use super::state::Gateway;
use message::ProcessingRequest;
use modes::Complaints;
pub use out::Answers;
use peer::Peer;
pub use read::stream as read_stream;
pub use session::Call;
use sight::{Ending, Sights};
use std::sync::Arc;
use tokio_stream::Stream;
use tonic::Status;

/// What all streams have in common.
#[derive(Debug)]
pub struct Processor {
    gateway: Arc<Gateway>,
    sights: Sights,
    complaints: Complaints,
    room: Arc<Room>,
}

impl Processor {
    /// Over a gateway.
    pub fn new(gateway: Arc<Gateway>) -> Self {
        let room = Arc::new(Room::new(gateway.options.envoy.held_bytes_max));
        Processor { gateway, sights: Sights::default(), complaints: Complaints::default(), room }
    }

    /// Serves one stream; its answers come out of what is returned.
    pub fn process<S>(self: &Arc<Self>, call: Call, inbound: S) -> Answers
    where
        S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin + Send + 'static,
    {
        let processor = Arc::clone(self);
        Answers::of(|out| async move { session::serve(&processor, call, Peer::new(inbound, out)).await })
    }

    fn learn(&self, pool: &str, ending: Ending) {
        if !self.sights.learn(pool, ending) {
            return;
        }
        if self.sights.blind(pool) {
            tracing::warn!(
                pool,
                "ext_proc: Envoy ends its streams before the responses end, so that no end is seen: set \
                 response_header_mode and response_trailer_mode to SEND (or allow_mode_override to true). Until then the \
                 leases of these requests end as Untracked, and the concurrency detector counts none of them"
            );
        } else {
            tracing::info!(pool, "ext_proc: the ends of requests are seen (again)");
        }
    }
}

#[cfg(test)]
mod tests;
