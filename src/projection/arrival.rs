//! The row of a request as its first step tells it.
//!
//! Not here: what becomes of it (`fold.rs`).

use crate::error::Spot;
use crate::meter::Meter;
use crate::row::{End, Row};
use weir_kernel::{Arrival, DEFAULT_FLOW, Hold, Input, Micros, Outcome, Regime, RequestId, Step};

fn flow_name(arrival: &Arrival) -> String {
    let name = if arrival.fairness_id.is_empty() { DEFAULT_FLOW } else { &arrival.fairness_id };
    name.to_owned()
}

/// The row of the request that arrives in this step.
pub fn arrived(step: &Step, hold: Option<Hold>, regime: Regime) -> Option<Row> {
    let Input::Arrived(arrival) = &step.input else { return None };
    Some(Row {
        id: RequestId(step.seq).0,
        arrived_at: step.at,
        received_at: arrival.received_at,
        caller_id: arrival.caller_id.clone(),
        objective: arrival.objective.clone(),
        flow: flow_name(arrival),
        priority: arrival.priority.unwrap_or(0),
        model: arrival.model.clone(),
        bytes: arrival.bytes,
        prompt_tokens: arrival.prompt_tokens,
        ttl: arrival.ttl,
        slo_ttft: arrival.slo_ttft,
        deadline: arrival.deadline,
        face: arrival.face,
        trace: arrival.trace,
        regime,
        hold,
        ..Row::default()
    })
}

/// What waited before it.
pub fn before(row: &mut Row, meter: &Meter) {
    row.ahead_higher = meter.above(row.priority);
    row.ahead_band = meter.waiting(row.priority);
}

/// An admission at once, of which nothing else is said.
pub fn admitted(spot: Spot) -> End {
    End {
        spot,
        outcome: Outcome::Dispatched,
        reason: None,
        regime: Regime::Unknown,
        waited: Micros::ZERO,
        budget: None,
        cause: None,
        held_by: None,
        limit: None,
        certain: false,
        retry_after: None,
        raw: None,
        effective: None,
        ceiling: None,
        observed: None,
        endpoint: None,
    }
}
