//! One step per kind of input, and one event per kind of event, each with values that show.
//!
//! The two matches without a wildcard are the point: a new kind does not compile until it has a sample here.

mod events;
mod inputs;

use weir_kernel::{Event, Input, Micros, Step};

/// A name per kind of input: the test asks that each is in the sample.
pub fn input_kind(input: &Input) -> usize {
    match input {
        Input::Started(_) => 0,
        Input::Arrived(_) => 1,
        Input::Cancelled(_) => 2,
        Input::Observed(_) => 3,
        Input::Ended(_) => 4,
        Input::FirstByte { .. } => 5,
        Input::Renewed { .. } => 6,
        Input::TimePassed => 7,
        Input::PolicyChanged(_) => 8,
        Input::ObjectivesChanged(_) => 9,
        Input::Stopping { .. } => 10,
        Input::Stopped => 11,
        Input::LogResumed { .. } => 12,
        Input::Admin(_) => 13,
        Input::ArrivedMany(_) => 14,
        Input::Revoke { .. } => 15,
        Input::Undeliverable { .. } => 16,
        Input::Watched { .. } => 17,
    }
}

pub const INPUT_KINDS: usize = 18;

/// The number of each kind of event on disk.
pub fn event_kind(event: &Event) -> usize {
    match event {
        Event::StartNoted { .. } => 0,
        Event::PolicyAdopted => 1,
        Event::ObjectivesAdopted => 2,
        Event::BandOpened { .. } => 3,
        Event::BandChanged { .. } => 4,
        Event::BandClosed { .. } => 5,
        Event::FlowOpened { .. } => 6,
        Event::FlowClosed { .. } => 7,
        Event::Enqueued(_) => 8,
        Event::Rejected(_) => 9,
        Event::Repeated { .. } => 10,
        Event::Dispatched(_) => 11,
        Event::Evicted(_) => 12,
        Event::LeaseEnded(_) => 13,
        Event::RenewalNoted { .. } => 14,
        Event::FirstByteNoted { .. } => 15,
        Event::Viewed => 16,
        Event::GaugeMoved { .. } => 17,
        Event::RegimeChanged { .. } => 18,
        Event::Held { .. } => 19,
        Event::HoldLifted => 20,
        Event::TurnTaken { .. } => 21,
        Event::ServiceCharged { .. } => 22,
        Event::ServiceRescaled { .. } => 23,
        Event::ProgramForgotten { .. } => 24,
        Event::ClassRebudgeted { .. } => 25,
        Event::CeilingTicked { .. } => 26,
        Event::DrainBegun { .. } => 27,
        Event::StopNoted => 28,
        Event::RefusalsNoted { .. } => 29,
        Event::Ignored { .. } => 30,
        Event::KeyForgotten { .. } => 31,
        Event::RecoveryEnded => 32,
        Event::OrphansSettled { .. } => 33,
        Event::RestatedCore(_) => 34,
        Event::RestatedPolicy { .. } => 35,
        Event::RestatedObjective { .. } => 36,
        Event::RestatedBand(_) => 37,
        Event::RestatedFlow(_) => 38,
        Event::RestatedEndpoint(_) => 39,
        Event::RestatedQueued(_) => 40,
        Event::RestatedLease(_) => 41,
        Event::RestatedKey(_) => 42,
        Event::RestatedProgram(_) => 43,
        Event::Paused => 44,
        Event::Resumed => 45,
        Event::PurgeBegun { .. } => 46,
        Event::RejectedMany(_) => 47,
        Event::RestatedPause(_) => 48,
        Event::RestatedPurge { .. } => 49,
        Event::RevocationIssued(_) => 50,
        Event::RevocationEnded(_) => 51,
        Event::ConfirmedLate { .. } => 52,
        Event::Reclaimed(_) => 53,
        Event::WatchNoted { .. } => 54,
        Event::RestatedRevocation(_) => 55,
        Event::RestatedRevocations(_) => 56,
        Event::ReclamationDecided(_) => 57,
        Event::ReclamationShut { .. } => 58,
        Event::RestatedReclamation(_) => 59,
        Event::DemandSized(_) => 60,
        Event::BandBounded { .. } => 61,
        Event::OrderTurned(_) => 62,
        Event::BoundReached(_) => 63,
        Event::FoundHopeless(_) => 64,
        Event::RestatedLine(_) => 65,
    }
}

pub const EVENT_KINDS: usize = 66;

/// Every kind of input, and after them every kind of event, a few to a step.
pub fn steps() -> Vec<Step> {
    let mut events = events::all().into_iter();
    let mut seq = 40;
    let mut step = |input| {
        seq += 1;
        let events = events.by_ref().take(4).collect();
        Step { seq, at: Micros(1_790_000_000_000_000 + seq * 137), input, events }
    };
    let mut steps: Vec<Step> = inputs::all().into_iter().map(&mut step).collect();
    loop {
        let more = step(Input::TimePassed);
        if more.events.is_empty() {
            return steps;
        }
        steps.push(more);
    }
}

/// What a snapshot is made of.
pub fn restated() -> Vec<Event> {
    let restated = |event: &Event| format!("{event:?}").starts_with("Restated");
    events::all().into_iter().filter(restated).collect()
}
