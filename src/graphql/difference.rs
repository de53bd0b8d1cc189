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
use weir_kernel::{BudgetKind, Limit, LimitKind, Micros, Regime, SpentBudget};
use weir_projection::{End, PoolProjection, Queue, Row, Spot, Work};

/// Changes of the regime that are looked at after the end of a budget.
const REGIMES_MAX: usize = 10_000;

/// What would have had to differ; none where that is not certain.
///
/// # Errors
/// The projections cannot be read; the time is over.
pub fn of(pool: &PoolProjection, row: &Row, work: &Work) -> Result<Option<Value>, Fault> {
    let Some(end) = row.end.as_ref().filter(|end| end.certain) else { return Ok(None) };
    match (&end.limit, end.budget, &row.queue) {
        (Some(limit), ..) => Ok(Some(room(limit, row))),
        (None, Some(spent), Some(queue)) => time(pool, row, (end, spent, queue), work),
        _ => Ok(None),
    }
}

fn room(limit: &Limit, row: &Row) -> Value {
    let (more, unit) = match limit.which {
        LimitKind::GlobalBytes | LimitKind::BandBytes => (row.bytes, "bytes"),
        LimitKind::GlobalRequests | LimitKind::BandRequests => (1, "requests"),
    };
    let needed = limit.held.saturating_add(more);
    let which = limit.which.word();
    json!({
        "setting": which,
        "was": format!("{} {unit}", limit.limit),
        "needed": format!("{needed} {unit}"),
        "neededNumber": needed,
        "then": "queued",
        "text": format!(
            "With {which} of {needed} instead of {} it would have been queued: {} were held, and no other limit stood \
             against it.",
            limit.limit, limit.held
        ),
    })
}

/// What is found of the time between its end and the admission of one behind it.
struct After {
    /// Time in which an empty or blind pool was charged.
    waiting: Micros,
    left_empty_at: Option<Micros>,
}

fn time(
    pool: &PoolProjection,
    row: &Row,
    (end, spent, queue): (&End, SpentBudget, &Queue),
    work: &Work,
) -> Result<Option<Value>, Fault> {
    let Some((admitted, other)) = pool.next_admitted(end.spot.seq, row.priority, row.id, work)? else {
        return Ok(None);
    };
    // One that came later shows only that nobody waited behind this one any more.
    if other > end.spot.seq || row.deadline.is_some_and(|deadline| deadline <= admitted.at) {
        return Ok(None);
    }
    let Some(after) = after(pool, end, admitted, work)? else { return Ok(None) };
    // A request is never admitted at the end of its budget or after it.
    let needed = match spent.which {
        BudgetKind::Saturation if after.waiting.is_zero() && after.left_empty_at.is_none() => {
            admitted.at.since(spent.charged_from) + Micros(1)
        }
        BudgetKind::NoEndpoint => {
            let Some(left) = after.left_empty_at else { return Ok(None) };
            let busy = admitted.at.since(left);
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
            span(admitted.at.since(end.spot.at)),
            row.priority
        ),
    })))
}

/// None: too many changes to be sure.
fn after(pool: &PoolProjection, end: &End, admitted: Spot, work: &Work) -> Result<Option<After>, Fault> {
    let mut after = After { waiting: Micros::ZERO, left_empty_at: None };
    let mut since = end.spot.at;
    let regimes = pool.regimes(end.spot.at, admitted.at + Micros(1), REGIMES_MAX, work)?;
    if regimes.len() >= REGIMES_MAX {
        return Ok(None);
    }
    for began in
        regimes.iter().filter(|began| began.spot.seq > end.spot.seq && began.spot.seq <= admitted.seq)
    {
        if matches!(began.from, Regime::NoEndpoints | Regime::NoFreshMetrics) {
            after.waiting = after.waiting + began.spot.at.since(since);
        }
        if began.from == Regime::NoEndpoints {
            after.left_empty_at = Some(began.spot.at);
        }
        since = began.spot.at;
    }
    Ok(Some(after))
}
