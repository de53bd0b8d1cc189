//! Steps as people and programs read them: a line of text, a JSON object, a name for each kind.

mod event;
mod input;
mod kinds;
mod line;
mod time;

pub use event::{event_kind, event_text};
pub use input::{input_kind, input_text};
pub use kinds::{event_kinds, input_kinds};
pub use time::{parse_time, show_span, show_time};

use serde_json::Value;
use weir_kernel::{AdminAction, Event, Input, RequestId, Step};

/// One JSON object: `seq`, `at` (microseconds), `time` (the same for people), `input`, `events`.
///
/// It is the step's own form with `time` added, so that it reads back as a step.
///
/// # Errors
/// Never with the kernel's types: each of them has a JSON form.
pub fn step_json(step: &Step) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(step)?;
    if let Value::Object(fields) = &mut value {
        fields.insert("time".to_owned(), Value::String(show_time(step.at)));
    }
    Ok(value)
}

/// Does a step have to do with a request?
pub fn concerns(step: &Step, request: RequestId) -> bool {
    let by_input = match &step.input {
        // Those that are counted together go by the number of their step.
        Input::Arrived(_) | Input::ArrivedMany(_) => step.seq == request.0,
        Input::Admin(order) => {
            matches!(order.action, AdminAction::Purge { request: named } if named == request)
        }
        Input::Cancelled(cancelled) => cancelled.request == request,
        Input::Ended(ended) => ended.request == request,
        Input::FirstByte { request: named }
        | Input::Renewed { request: named }
        | Input::Revoke { request: named, .. }
        | Input::Undeliverable { request: named }
        | Input::Watched { request: named, .. } => *named == request,
        Input::Started(_)
        | Input::Observed(_)
        | Input::TimePassed
        | Input::PolicyChanged(_)
        | Input::ObjectivesChanged(_)
        | Input::Stopping { .. }
        | Input::Stopped
        | Input::LogResumed { .. } => false,
    };
    by_input || step.events.iter().any(|event| event_request(event) == Some(request))
}

/// The request that an event names, beside the one that the input brings.
pub fn event_request(event: &Event) -> Option<RequestId> {
    match event {
        Event::Repeated { of, .. } => Some(*of),
        Event::Dispatched(e) => Some(e.request),
        Event::Evicted(e) => Some(e.request),
        Event::LeaseEnded(e) => Some(e.request),
        Event::ServiceCharged { request, .. }
        | Event::RenewalNoted { request }
        | Event::FirstByteNoted { request } => Some(*request),
        Event::RestatedQueued(e) => Some(e.request),
        Event::RestatedLease(e) => Some(e.request),
        Event::RestatedKey(e) => Some(e.request),
        Event::RestatedPurge { request } => Some(*request),
        Event::RevocationIssued(e) => Some(e.request),
        Event::RevocationEnded(e) => Some(e.request),
        Event::Reclaimed(e) => Some(e.request),
        Event::ConfirmedLate { request, .. } | Event::WatchNoted { request, .. } => Some(*request),
        Event::RestatedRevocation(e) => Some(e.request),
        Event::OrderTurned(e) => Some(e.oldest),
        Event::BoundReached(e) => Some(e.request),
        Event::StartNoted { .. }
        | Event::PolicyAdopted
        | Event::ObjectivesAdopted
        | Event::BandOpened { .. }
        | Event::BandChanged { .. }
        | Event::BandClosed { .. }
        | Event::FlowOpened { .. }
        | Event::FlowClosed { .. }
        | Event::Enqueued(_)
        | Event::Rejected(_)
        | Event::Viewed
        | Event::GaugeMoved { .. }
        | Event::RegimeChanged { .. }
        | Event::Held { .. }
        | Event::HoldLifted
        | Event::TurnTaken { .. }
        | Event::ServiceRescaled { .. }
        | Event::ProgramForgotten { .. }
        | Event::ClassRebudgeted { .. }
        | Event::CeilingTicked { .. }
        | Event::DrainBegun { .. }
        | Event::StopNoted
        | Event::RefusalsNoted { .. }
        | Event::Ignored { .. }
        | Event::KeyForgotten { .. }
        | Event::RecoveryEnded
        | Event::OrphansSettled { .. }
        | Event::Paused
        | Event::Resumed
        | Event::PurgeBegun { .. }
        | Event::RejectedMany(_)
        | Event::RestatedPause(_)
        | Event::RestatedCore(_)
        | Event::RestatedPolicy { .. }
        | Event::RestatedObjective { .. }
        | Event::RestatedBand(_)
        | Event::RestatedFlow(_)
        | Event::RestatedProgram(_)
        | Event::RestatedEndpoint(_)
        | Event::RestatedRevocations(_)
        | Event::ReclamationDecided(_)
        | Event::ReclamationShut { .. }
        | Event::RestatedReclamation(_)
        | Event::DemandSized(_)
        | Event::BandBounded { .. }
        | Event::FoundHopeless(_)
        | Event::RestatedLine(_) => None,
    }
}

/// A kind as it is asked for: case, dashes and underscores do not count.
pub fn same_kind(kind: &str, asked: &str) -> bool {
    let plain = |text: &str| -> String {
        text.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
    };
    plain(kind) == plain(asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::tests::samples::requests;

    #[test]
    fn a_step_reads_back_from_its_json_form() {
        for frame in requests(3, 10, 10, 5) {
            for step in frame.steps().unwrap() {
                let text = step_json(&step).unwrap().to_string();
                assert!(text.contains("\"time\":\"2025-11-30T00:00:0"), "{text}");
                assert_eq!(serde_json::from_str::<Step>(&text).unwrap(), step);
            }
        }
    }

    #[test]
    fn a_request_is_found_where_it_arrives_and_where_it_ends() {
        let steps: Vec<Step> =
            requests(3, 10, 10, 5).iter().flat_map(|frame| frame.steps().unwrap()).collect();
        let with: Vec<u64> =
            steps.iter().filter(|step| concerns(step, RequestId(1))).map(|step| step.seq).collect();
        assert_eq!(with.first(), Some(&1));
        assert_eq!(with.len(), 2, "arrival and end: {with:?}");
    }

    #[test]
    fn kinds_are_asked_for_in_any_spelling() {
        for asked in ["LeaseEnded", "lease-ended", "lease_ended", "leaseended"] {
            assert!(same_kind("LeaseEnded", asked));
        }
        assert!(!same_kind("LeaseEnded", "ended"));
    }
}
