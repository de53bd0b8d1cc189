//! A step or an event as a row, and the columns that rows have where every row must have the same.

use super::parquet::{Column, Kind};
use super::{Form, What};
use serde_json::{Value, json};
use weir_kernel::{Event, Step};
use weir_log::describe::{
    event_kind, event_request, event_text, input_kind, input_text, show_time, step_json,
};

const STEPS: &[Column] = &[
    ("pool", Kind::Text),
    ("seq", Kind::Number),
    ("at_us", Kind::Time),
    ("time", Kind::Text),
    ("input", Kind::Text),
    ("input_text", Kind::Text),
    ("events", Kind::Text),
];
const EVENTS: &[Column] = &[
    ("pool", Kind::Text),
    ("seq", Kind::Number),
    ("event", Kind::Number),
    ("at_us", Kind::Time),
    ("time", Kind::Text),
    ("kind", Kind::Text),
    ("request", Kind::Number),
    ("text", Kind::Text),
];
const REQUESTS: &[Column] = &[
    ("pool", Kind::Text),
    ("request", Kind::Number),
    ("request_id", Kind::Text),
    ("arrived_us", Kind::Time),
    ("priority", Kind::Number),
    ("flow", Kind::Text),
    ("objective", Kind::Text),
    ("bytes", Kind::Number),
    ("prompt_tokens", Kind::Number),
    ("outcome", Kind::Text),
    ("reason", Kind::Text),
    ("waited_us", Kind::Number),
    ("decided_us", Kind::Time),
    ("endpoint_slot", Kind::Number),
    ("first_byte_us", Kind::Time),
    ("lease_end", Kind::Text),
    ("ended_us", Kind::Time),
    ("completion_tokens", Kind::Number),
    ("revoked", Kind::Flag),
];

/// The columns of a table.
pub const fn columns(what: What) -> &'static [Column] {
    match what {
        What::Steps => STEPS,
        What::Events => EVENTS,
        What::Requests => REQUESTS,
        What::Arrivals => &[],
    }
}

/// A step: whole where a row may be anything, else flat.
pub fn step(pool: &str, step: &Step, form: Form) -> Value {
    if form == Form::Jsonl
        && let Ok(Value::Object(mut fields)) = step_json(step)
    {
        fields.insert("pool".to_owned(), json!(pool));
        return Value::Object(fields);
    }
    let texts: Vec<String> = step.events.iter().map(event_text).collect();
    json!({
        "pool": pool,
        "seq": step.seq,
        "at_us": step.at.0,
        "time": show_time(step.at),
        "input": input_kind(&step.input),
        "input_text": input_text(&step.input),
        "events": texts.join("; "),
    })
}

/// The nth event of a step.
pub fn event(pool: &str, step: &Step, n: usize, event: &Event) -> Value {
    json!({
        "pool": pool,
        "seq": step.seq,
        "event": n,
        "at_us": step.at.0,
        "time": show_time(step.at),
        "kind": event_kind(event),
        "request": event_request(event).map(|request| request.0),
        "text": event_text(event),
    })
}
