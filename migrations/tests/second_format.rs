//! Goal: show that a second format is easy, with a format 0 that exists in this test alone.
//!
//! Format 0 knew three inputs and two events, counted time in milliseconds, and had no face and no observed step. Its
//! types are frozen here as they would be in a module `format_0.rs`; reading it takes one conversion per type.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde::{Deserialize, Serialize};
use weir_kernel::{
    Arrival, Dispatched, Event, Face, Input, Micros, Outcome, Ratio, RequestId, Started, Step,
};
use weir_migrations::{FORMATS, Format, MigrationError, decode_with, from_bytes, to_bytes};

#[derive(Serialize, Deserialize)]
struct StepV0 {
    seq: u64,
    at_ms: u64,
    input: InputV0,
    events: Vec<EventV0>,
}

#[derive(Serialize, Deserialize)]
enum InputV0 {
    Started { behaviour: u32 },
    Arrived { caller_id: String, bytes: u32 },
    Tick,
}

#[derive(Serialize, Deserialize)]
enum EventV0 {
    Dispatched { request: u64, waited_ms: u64, saturation_percent: u16 },
    Dropped { request: u64, code: u8 },
}

impl TryFrom<StepV0> for Step {
    type Error = String;

    fn try_from(old: StepV0) -> Result<Step, String> {
        let at = Micros::from_millis(old.at_ms);
        let input = match old.input {
            InputV0::Started { behaviour } => Input::Started(Started {
                kernel_behaviour: behaviour,
                version: "before 0.1.0".to_owned(),
                wall: at,
            }),
            InputV0::Arrived { caller_id, bytes } => Input::Arrived(Arrival {
                caller_id,
                bytes: u64::from(bytes),
                received_at: at,
                face: Face::Held,
                ..Arrival::default()
            }),
            InputV0::Tick => Input::TimePassed,
        };
        let events = old.events.into_iter().map(Event::try_from).collect::<Result<_, String>>()?;
        Ok(Step { seq: old.seq, at, input, events })
    }
}

impl TryFrom<EventV0> for Event {
    type Error = String;

    fn try_from(old: EventV0) -> Result<Event, String> {
        match old {
            EventV0::Dispatched { request, waited_ms, saturation_percent } => {
                let gauge = Ratio(i64::from(saturation_percent) * 10_000);
                Ok(Event::Dispatched(Dispatched {
                    request: RequestId(request),
                    endpoint: None,
                    waited: Micros::from_millis(waited_ms),
                    raw: gauge,
                    effective: gauge,
                    ceiling: Ratio::ONE,
                    observed: 0,
                    output_estimate: 0,
                }))
            }
            EventV0::Dropped { request, code } => {
                let outcome = match code {
                    1 => Outcome::EvictedTTL,
                    2 => Outcome::EvictedNoEndpoints,
                    other => return Err(format!("request {request} was dropped with code {other}")),
                };
                Ok(evicted(request, outcome))
            }
        }
    }
}

fn evicted(request: u64, outcome: Outcome) -> Event {
    Event::Evicted(weir_kernel::Evicted {
        request: RequestId(request),
        outcome,
        reason: weir_kernel::Reason::TtlExpired,
        regime: weir_kernel::Regime::HasEndpoints,
        waited: Micros::ZERO,
        budget: None,
        cause: None,
        deadline: None,
        held_by: None,
    })
}

fn decode_0(payload: &[u8]) -> Result<Vec<Step>, String> {
    from_bytes::<Vec<StepV0>>(payload)?.into_iter().map(Step::try_from).collect()
}

/// The row that a release would add. This version reads format 0 and no longer writes it.
const FORMAT_0: Format = Format {
    number: 0,
    since: "never",
    decode: decode_0,
    decode_events: |_| Err("format 0 had no snapshots".to_owned()),
    encode: None,
    encode_events: None,
};

/// A batch of format 0 as it was stored: three steps.
const SAMPLE: [u8; 41] = [
    3, // steps
    1, 253, 0, 108, 80, 196, 160, 1, 0, 0, 0, 1, 0, // 1: started, behaviour 1
    2, 253, 5, 108, 80, 196, 160, 1, 0, 0, 1, 2, b'r', b'1', 100, 1, 0, 2, 7,
    85, // 2: r1 arrives, dispatched
    3, 30, 2, 1, 1, 9, 1, // 3: a tick; request 9 is dropped
];

#[test]
fn c110_a_log_of_the_format_before_reads_as_todays_steps() {
    let table = [&[FORMAT_0], FORMATS].concat();
    let steps = decode_with(&table, 0, &SAMPLE).unwrap();
    assert_eq!(steps.len(), 3);
    assert_eq!(steps[0].at, Micros::from_millis(1_790_000_000_000));
    let Input::Arrived(arrival) = &steps[1].input else { panic!("{:?}", steps[1].input) };
    assert_eq!((&*arrival.caller_id, arrival.bytes, arrival.face), ("r1", 100, Face::Held));
    let Event::Dispatched(dispatched) = &steps[1].events[0] else { panic!("{:?}", steps[1].events) };
    assert_eq!((dispatched.effective, dispatched.waited), (Ratio(850_000), Micros(7_000)));
    assert_eq!(steps[2].events, [evicted(9, Outcome::EvictedTTL)]);
}

#[test]
fn both_formats_stand_side_by_side_and_a_fault_names_its_own() {
    let table = [&[FORMAT_0], FORMATS].concat();
    let mut current = Vec::new();
    let steps = decode_with(&table, 0, &SAMPLE).unwrap();
    weir_migrations::encode(1, &steps, &mut current).unwrap();
    assert_eq!(decode_with(&table, 1, &current).unwrap(), steps, "written anew, it is format 1");
    assert!(decode_with(&table, 0, &current).is_err(), "one format is not the other");

    let mut bad = Vec::new();
    let dropped = vec![EventV0::Dropped { request: 9, code: 77 }];
    to_bytes(&vec![StepV0 { seq: 1, at_ms: 1, input: InputV0::Tick, events: dropped }], &mut bad).unwrap();
    assert_eq!(
        decode_with(&table, 0, &bad).unwrap_err(),
        MigrationError::Malformed { format: 0, fault: "request 9 was dropped with code 77".to_owned() }
    );
    assert_eq!(
        decode_with(&table, 2, &bad).unwrap_err(),
        MigrationError::Newer { format: 2, oldest: 0, newest: 1 }
    );
    assert_eq!(
        weir_migrations::decode(0, &SAMPLE).unwrap_err(),
        MigrationError::Unknown { format: 0, oldest: 1, newest: 1 },
        "outside this test there is no format 0"
    );
}
