//! The processing modes that an operator may have set, as far as a stream shows them, and what to say about those that
//! cannot work.

use super::message::{BodyMode, ProcessingMode, SEND};
use super::peer::First;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How bodies come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Modes {
    /// Of requests.
    pub request: BodyMode,
    /// Of responses.
    pub response: BodyMode,
}

/// Why a stream is not served, and what to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unserved {
    /// There is nothing to decide by.
    #[error("ext_proc: request_header_mode is SKIP, so nothing is known of a request; set it to SEND")]
    NoHeaders,
    /// A mode that does not carry HTTP bodies, or that this version does not know.
    #[error(
        "ext_proc: {0} is GRPC or a mode that this version does not know; set it to NONE, STREAMED, BUFFERED or \
         FULL_DUPLEX_STREAMED"
    )]
    Body(&'static str),
}

impl Modes {
    /// Headers only.
    pub const NO_BODIES: Modes = Modes { request: BodyMode::None, response: BodyMode::None };

    /// Those of a stream, by its first message.
    ///
    /// # Errors
    /// A mode that cannot be served.
    pub fn of(first: &First) -> Result<Self, Unserved> {
        let known = |mode, name| match BodyMode::try_from(mode) {
            Ok(BodyMode::Grpc) | Err(_) => Err(Unserved::Body(name)),
            Ok(mode) => Ok(mode),
        };
        let request = known(first.modes.0, "request_body_mode")?;
        Ok(Modes { request, response: known(first.modes.1, "response_body_mode")? })
    }

    /// Does Weir pick the endpoint? Only there can a listener be built that follows it, as llm-d's are.
    pub fn picks_endpoint(self) -> bool {
        self.request == BodyMode::FullDuplex
    }

    /// Does a request that runs die with us, even where Envoy fails open?
    pub fn dies_with_us(self) -> bool {
        self.request == BodyMode::FullDuplex || self.response == BodyMode::FullDuplex
    }

    /// Other modes for a stream that shows no bodies, so that its end is seen. Heeded where the filter has
    /// `allow_mode_override`, and changes nothing where it is so already.
    pub fn wish(self) -> Option<ProcessingMode> {
        let plain = self.request == BodyMode::None && self.response == BodyMode::None;
        plain.then(|| ProcessingMode {
            response_header_mode: SEND,
            response_trailer_mode: SEND,
            ..ProcessingMode::default()
        })
    }
}

/// How often the same complaint is made.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// What has been complained of, and when.
#[derive(Debug, Default)]
pub struct Complaints(Mutex<HashMap<&'static str, Instant>>);

impl Complaints {
    /// Is it time to say this (again)?
    pub fn due(&self, what: &'static str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match said.get(what) {
            Some(at) if now.duration_since(*at) < COMPLAIN_EVERY => false,
            _ => {
                said.insert(what, now);
                true
            }
        }
    }

    /// Says what to set about a stream that is not served.
    pub fn unserved(&self, why: Unserved) {
        let what = match why {
            Unserved::NoHeaders => "no headers",
            Unserved::Body(name) => name,
        };
        if self.due(what) {
            tracing::error!("{why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{HttpHeaders, Part};
    use super::*;

    fn first(modes: (i32, i32)) -> First {
        First { part: Part::RequestHeaders(HttpHeaders::default()), observability: false, modes }
    }

    #[test]
    fn modes_are_served_or_refused_by_name() {
        for request in 0..5 {
            for response in 0..5 {
                let modes = Modes::of(&first((request, response))).unwrap();
                assert_eq!(modes.picks_endpoint(), request == 4);
                assert_eq!(modes.dies_with_us(), request == 4 || response == 4);
                assert_eq!(modes.wish().is_some(), (request, response) == (0, 0));
            }
        }
        assert_eq!(Modes::of(&first((5, 0))), Err(Unserved::Body("request_body_mode")));
        assert_eq!(Modes::of(&first((0, 17))), Err(Unserved::Body("response_body_mode")));
        assert!(Unserved::NoHeaders.to_string().contains("set it to SEND"));
    }

    #[test]
    fn a_complaint_is_made_once_in_a_while() {
        let complaints = Complaints::default();
        assert!(complaints.due("a"));
        assert!(!complaints.due("a"));
        assert!(complaints.due("b"));
    }
}
