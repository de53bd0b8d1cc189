//! The messages of one stream, read without a connection: what a session sees of them up to its decision.

use super::answers::{At, Destination, admitted};
use super::message::{Part, ProcessingRequest};
use super::modes::Modes;
use super::out::Out;
use super::peer::Peer;
use super::request::{Gathered, Request};
use crate::gateway::body::Bounds;
use crate::gateway::room::{Room, Share};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of body that are held.
const BODY_MAX: u64 = 1 << 16;

/// Reads messages, each behind two bytes of length, up to the first that is none: the headers of the request, and the
/// model that its body names. A runtime with time must be there.
pub async fn stream(mut data: &[u8]) -> Option<(Vec<(String, Vec<u8>)>, Option<String>)> {
    let messages = std::iter::from_fn(|| {
        let (length, rest) = data.split_first_chunk::<2>()?;
        let (message, after) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
        data = after;
        ProcessingRequest::decode(message).ok().map(Ok)
    });
    let messages = messages.collect::<Vec<_>>();
    let mut peer = Peer::new(tokio_stream::iter(messages), Out::nowhere());
    let first = peer.first().await?;
    let modes = Modes::of(&first);
    let Part::RequestHeaders(headers) = first.part else { return None };
    let modes = modes.ok()?;
    let mut request = Request::new(headers, Share::of(&Arc::new(Room::new(BODY_MAX))));
    let pairs = request.pairs().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    let bounds = Bounds { bytes_max: BODY_MAX, time_max: Duration::from_secs(60) };
    let at = match request.gather(&mut peer, modes, bounds).await {
        Gathered::Decide(at) => at,
        Gathered::Over | Gathered::Fault(_) => At::Headers,
    };
    let model = request.model();
    let answer = admitted(at, modes, &request.names(), "p-1", &Destination::Nowhere, None);
    // What is written can be measured, and so sent.
    debug_assert_eq!(answer.encode_to_vec().len(), answer.encoded_len());
    Some((pairs, model))
}
