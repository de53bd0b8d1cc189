//! The smallest change under which a request would have fared otherwise, where the log determines it exactly.
//!
//! A refusal by a limit: that limit alone, if no other stood against it. A budget that ended: if some request that
//! waited in the same band at that moment, behind this one in the same strict order, was admitted later, this one would
//! have been admitted in its place; every decision until then is the same, since a queue that holds one request more at
//! its head makes none differently. Where anything else can have mattered, nothing is claimed.

use crate::fault::Fault;
use crate::request::budget_name;
use crate::values::span;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use weir_kernel::{
    BudgetKind, Event, Fairness, LimitKind, Micros, Ordering, Outcome, Regime, RequestId, State, Step, fold,
};
use weir_log::reader::Bound;
use weir_projection::{Moment, PoolProjection, Row, Work};

/// Steps that are looked at after the end of a budget.
const LOOK_AHEAD: u64 = 100_000;

/// What would have had to differ; none where that is not certain.
///
/// # Errors
/// The log cannot be read; the time is over.
pub fn of(pool: &PoolProjection, row: &Row, work: &Work) -> Result<Option<Value>, Fault> {
    let Some(end) = &row.end else { return Ok(None) };
    match end.outcome {
        Outcome::RejectedCapacity | Outcome::RejectedNoEndpoints => limit(pool, row, work),
        Outcome::EvictedTTL | Outcome::EvictedNoEndpoints => budget(pool, row, work),
        _ => Ok(None),
    }
}

/// The state right before the request was refused: what the same step did before it counts.
fn before(pool: &PoolProjection, id: u64, work: &Work) -> Result<Option<State>, Fault> {
    let Some(previous) = id.checked_sub(1) else { return Ok(None) };
    let mut state = pool.state_at(Moment::Seq(previous), work)?.state;
    let mut found = None;
    pool.steps(Bound::Seq(id), Bound::Seq(id), work, |step| {
        found = Some(step);
        Ok(false)
    })?;
    let Some(mut step) = found else { return Ok(None) };
    let Some(place) = step.events.iter().position(|event| matches!(event, Event::Rejected(_))) else {
        return Ok(None);
    };
    step.events.truncate(place);
    fold(&mut state, &step);
    Ok(Some(state))
}

fn limit(pool: &PoolProjection, row: &Row, work: &Work) -> Result<Option<Value>, Fault> {
    let Some(limit) = row.end.as_ref().and_then(|end| end.limit) else { return Ok(None) };
    let Some(state) = before(pool, row.id, work)? else { return Ok(None) };
    let Some(band) = state.bands().find(|band| band.priority == row.priority) else { return Ok(None) };
    let policy = state.policy();
    let all = [
        (LimitKind::GlobalBytes, state.queued_bytes(), row.bytes, policy.max_bytes),
        (LimitKind::GlobalRequests, state.queued(), 1, policy.max_requests),
        (LimitKind::BandBytes, band.bytes, row.bytes, band.settings.max_bytes),
        (LimitKind::BandRequests, band.requests, 1, band.settings.max_requests),
    ];
    let against = |(_, held, more, limit): &(LimitKind, u64, u64, u64)| *limit > 0 && held + more > *limit;
    let standing: Vec<_> = all.iter().filter(|one| against(one)).collect();
    let [(which, held, more, allowed)] = standing[..] else { return Ok(None) };
    if *which != limit.which {
        return Ok(None);
    }
    let needed = held + more;
    let unit = if *more == 1 && matches!(which, LimitKind::GlobalRequests | LimitKind::BandRequests) {
        "requests"
    } else {
        "bytes"
    };
    Ok(Some(json!({
        "setting": which.word(),
        "was": format!("{allowed} {unit}"),
        "needed": format!("{needed} {unit}"),
        "neededNumber": needed,
        "then": "queued",
        "text": format!(
            "With {} of {needed} instead of {allowed} it would have been queued: {held} were held, and no other limit stood \
             against it.",
            which.word()
        ),
    })))
}

/// What is found of the time after its end.
struct After {
    since: Micros,
    /// Time in which an empty or blind pool was charged, after its end.
    waiting: Micros,
    left_empty_at: Option<Micros>,
    admitted_at: Option<Micros>,
    spoiled: bool,
}

fn budget(pool: &PoolProjection, row: &Row, work: &Work) -> Result<Option<Value>, Fault> {
    let (Some(end), Some(queue)) = (&row.end, &row.queue) else { return Ok(None) };
    let Some(spent) = end.budget.filter(|spent| spent.which != BudgetKind::Whole) else { return Ok(None) };
    let state = pool.state_at(Moment::Seq(end.spot.seq), work)?.state;
    let strict = state.bands().any(|band| {
        band.priority == row.priority
            && band.settings.ordering == Ordering::Fcfs
            && band.settings.fairness == Fairness::GlobalStrict
    });
    let behind = |id: RequestId| {
        id.0 > row.id && state.queued_request(id).is_some_and(|queued| queued.priority == row.priority)
    };
    let waits: BTreeSet<RequestId> = state.queued_requests().filter(|id| behind(*id)).collect();
    if !strict || waits.is_empty() {
        return Ok(None);
    }
    let after = look_ahead(pool, &state, &waits, end.spot.seq, work)?;
    let Some(admitted_at) = after.admitted_at.filter(|_| !after.spoiled) else { return Ok(None) };
    if row.deadline.is_some_and(|deadline| deadline <= admitted_at) {
        return Ok(None);
    }
    // A request is never admitted at the end of its budget or after it.
    let needed = match spent.which {
        BudgetKind::Saturation if after.waiting.is_zero() && after.left_empty_at.is_none() => {
            admitted_at.since(spent.charged_from) + Micros(1)
        }
        BudgetKind::NoEndpoint => {
            let Some(left) = after.left_empty_at else { return Ok(None) };
            let busy = admitted_at.since(left);
            if !queue.saturation_budget.is_zero() && busy >= queue.saturation_budget {
                return Ok(None);
            }
            spent.budget + after.waiting + Micros(1)
        }
        BudgetKind::Saturation | BudgetKind::Whole => return Ok(None),
    };
    let millis = needed.0.div_ceil(1_000);
    Ok(Some(json!({
        "setting": format!("{} budget of this request", budget_name(spent.which)),
        "was": span(spent.budget),
        "needed": format!("{millis} ms"),
        "neededNumber": millis,
        "then": "admitted",
        "text": format!(
            "Had it alone had {millis} ms instead of {}, it would have been admitted {} later: then band {} took a request that \
             waited behind it.",
            span(spent.budget),
            span(admitted_at.since(end.spot.at)),
            row.priority
        ),
    })))
}

fn look_ahead(
    pool: &PoolProjection,
    state: &State,
    waits: &BTreeSet<RequestId>,
    seq: u64,
    work: &Work,
) -> Result<After, Fault> {
    let mut after = After {
        since: state.now(),
        waiting: Micros::ZERO,
        left_empty_at: None,
        admitted_at: None,
        spoiled: false,
    };
    let to = Bound::Seq(seq.saturating_add(LOOK_AHEAD));
    pool.steps(Bound::Seq(seq + 1), to, work, |step| {
        take(&mut after, &step, waits);
        Ok(after.admitted_at.is_none() && !after.spoiled)
    })?;
    Ok(after)
}

/// What a step after its end says.
fn take(after: &mut After, step: &Step, waits: &BTreeSet<RequestId>) {
    for event in &step.events {
        match event {
            Event::Dispatched(dispatched) if waits.contains(&dispatched.request) => {
                after.admitted_at = Some(step.at);
                return;
            }
            Event::RegimeChanged { from, .. } => {
                if matches!(from, Regime::NoEndpoints | Regime::NoFreshMetrics) {
                    after.waiting = after.waiting + step.at.since(after.since);
                }
                if *from == Regime::NoEndpoints {
                    after.left_empty_at = Some(step.at);
                }
                after.since = step.at;
            }
            // Anything that could have treated one request more otherwise.
            Event::StartNoted { .. }
            | Event::PolicyAdopted
            | Event::ObjectivesAdopted
            | Event::BandChanged { .. }
            | Event::BandClosed { .. }
            | Event::PurgeBegun { .. }
            | Event::DrainBegun { .. }
            | Event::ClassRebudgeted { .. } => after.spoiled = true,
            _ => {}
        }
    }
}
