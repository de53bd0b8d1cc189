//! `weir-replay verify --step N`: the state before and after one step, and what was decided in it.

use super::look::{between, lines};
use crate::start::start;
use serde_json::json;
use std::io;
use weir_kernel::{State, Step, fold};
use weir_log::describe::{event_kind, event_text, input_kind, input_text, show_time, step_json};
use weir_log::reader::{Bound, Logs};
use weir_log::{SegmentError, say};

/// The state before a step, and the step; none where the log has no such step.
fn at(logs: &Logs, pool: &str, seq: u64) -> Result<Option<(State, Step)>, SegmentError> {
    let begun = start(logs, pool, Bound::Seq(seq))?;
    let mut state = begun.state;
    let reader = logs.reader(pool, Bound::Seq(begun.head.seq + 1), Bound::Seq(seq)).after(begun.head);
    for step in reader.steps() {
        let step = step?;
        if step.seq == seq {
            return Ok(Some((state, step)));
        }
        fold(&mut state, &step);
    }
    Ok(None)
}

/// Prints the step; false where there is none.
///
/// # Errors
/// A log that cannot be read, in words.
pub fn print(logs: &Logs, pool: &str, seq: u64, as_json: bool) -> io::Result<Result<bool, SegmentError>> {
    let (mut state, step) = match at(logs, pool, seq) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Ok(false)),
        Err(error) => return Ok(Err(error)),
    };
    let before = lines(&state);
    fold(&mut state, &step);
    let after = lines(&state);
    if as_json {
        let object =
            |all: &[(String, String)]| all.iter().cloned().collect::<std::collections::BTreeMap<_, _>>();
        let step = step_json(&step).unwrap_or_default();
        say!(
            "{}",
            json!({ "pool": pool, "step": step, "before": object(&before), "after": object(&after) })
        )?;
        return Ok(Ok(true));
    }
    say!("pool {pool}, sequence {seq} at {}", show_time(step.at))?;
    say!("  input: {} {}", input_kind(&step.input), input_text(&step.input))?;
    for event in &step.events {
        say!("  {}: {}", event_kind(event), event_text(event))?;
    }
    say!("  state before -> after (where it differs)")?;
    for (name, was, is) in between(&before, &after) {
        if was == is {
            say!("    {name}: {is}")?;
        } else {
            say!("  * {name}: {was} -> {is}")?;
        }
    }
    Ok(Ok(true))
}
