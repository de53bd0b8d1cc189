//! One logged step beside the same step derived again.

use super::look::lines;
use serde_json::Value;
use std::collections::BTreeSet;
use weir_kernel::{Event, State, Step};
use weir_log::describe::{event_text, input_kind, input_text, show_time};

/// The first place where they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The step.
    pub seq: u64,
    /// Its time, for people.
    pub time: String,
    /// Its input, for people.
    pub input: String,
    /// Position of the event within the step, from 0.
    pub event: usize,
    /// What the log says; none if it says nothing at that position.
    pub logged: Option<String>,
    /// What follows from the input; none if nothing does at that position.
    pub derived: Option<String>,
    /// Fields of the two events that differ: path, logged, derived.
    pub fields: Vec<(String, String, String)>,
    /// The state before the step: what the decision rests on.
    pub state: Vec<(String, String)>,
}

/// The first difference between a logged step and the step derived from the same input.
///
/// Values are compared; that the logged value is the stored bytes, and nothing else, is checked where it is decoded.
pub fn difference(logged: &Step, derived: &Step, before: &State) -> Difference {
    let most = logged.events.len().max(derived.events.len());
    let event = (0..most).find(|&at| logged.events.get(at) != derived.events.get(at));
    let input = format!("{} {}", input_kind(&logged.input), input_text(&logged.input));
    let at = |step: &Step, event: usize| step.events.get(event).map(event_text);
    let place = event.unwrap_or(0);
    let (mut left, mut right) = (at(logged, place), at(derived, place));
    if event.is_none() {
        // Only sequence or time differ.
        left = Some(format!("step {} at {}", logged.seq, show_time(logged.at)));
        right = Some(format!("step {} at {}", derived.seq, show_time(derived.at)));
    } else if left == right {
        // The text leaves something out that differs.
        left = logged.events.get(place).map(|event| format!("{event:?}"));
        right = derived.events.get(place).map(|event| format!("{event:?}"));
    }
    Difference {
        seq: logged.seq,
        time: show_time(logged.at),
        input: input.trim_end().to_owned(),
        event: place,
        logged: left,
        derived: right,
        fields: fields(logged.events.get(place), derived.events.get(place)),
        state: lines(before),
    }
}

/// The leaves of both that differ.
fn fields(logged: Option<&Event>, derived: Option<&Event>) -> Vec<(String, String, String)> {
    fn walk(path: &str, a: &Value, b: &Value, into: &mut Vec<(String, String, String)>) {
        match (a, b) {
            _ if a == b => {}
            (Value::Object(one), Value::Object(two)) => {
                let keys: BTreeSet<&String> = one.keys().chain(two.keys()).collect();
                for key in keys {
                    let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                    walk(&at, &of(one), &of(two), into);
                }
            }
            _ => into.push((path.to_owned(), a.to_string(), b.to_string())),
        }
    }
    let (Some(logged), Some(derived)) = (logged, derived) else { return Vec::new() };
    let value = |event: &Event| serde_json::to_value(event).unwrap_or_default();
    let mut all = Vec::new();
    walk("", &value(logged), &value(derived), &mut all);
    all
}
