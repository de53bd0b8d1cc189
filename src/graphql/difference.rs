//! The smallest change under which a request would have fared otherwise, where the log determines it exactly.
//!
//! A refusal by a limit: that limit alone, if no other stood against it. A budget that ended: if some request that
//! waited in the same band at that moment, behind this one in the same strict order, was admitted later, this one would
//! have been admitted in its place; every decision until then is the same, since a queue that holds one request more at
//! its head makes none differently. Where anything else can have mattered, nothing is claimed but why.

use crate::fault::Fault;
use crate::request::budget_name;
use crate::values::span;
use serde_json::{Value, json};
use weir_kernel::{BudgetKind, Cause, Limit, LimitKind, Micros, Outcome, Reason, Regime, SpentBudget};
use weir_projection::{After, End, PoolProjection, Queue, Row, Spot, Work};

/// Changes of the regime that are looked at after the end of a budget.
const REGIMES_MAX: usize = 10_000;

/// What would have had to differ.
pub enum Difference {
    /// Of one that was admitted or still waits, nothing.
    NoMatter,
    /// This.
    Certain(Value),
    /// It cannot be told: why, in plain words.
    Unknown(String),
}

/// What would have had to differ, or why that cannot be told.
///
/// # Errors
/// The projections cannot be read; the time is over.
pub fn of(pool: &PoolProjection, row: &Row, work: &Work) -> Result<Difference, Fault> {
    let Some(end) = row.end.as_ref().filter(|end| end.outcome != Outcome::Dispatched) else {
        return Ok(Difference::NoMatter);
    };
    let found = match (&end.limit, end.budget) {
        (Some(limit), _) if end.certain => Ok(room(limit, row)),
        (Some(_), _) => {
            Err("another limit stood against it as well, so no single one would have been enough".to_owned())
        }
        (None, Some(spent)) if spent.which == BudgetKind::Whole => {
            Err("its whole wait was bounded by the sum of both budgets, so no single one of them ended it"
                .to_owned())
        }
        (None, Some(_)) if !end.certain => Err(format!(
            "band {} does not take strictly the oldest request first, so nobody can say who would have been taken in its place",
            row.priority
        )),
        (None, Some(spent)) => match &row.queue {
            Some(queue) => time(pool, row, (end, spent, queue), work)?,
            None => Err(PARTIAL.to_owned()),
        },
        (None, None) => Err(by_cause(end).to_owned()),
    };
    Ok(match found {
        Ok(difference) => Difference::Certain(difference),
        Err(why) => Difference::Unknown(format!("What would have had to differ is not told: {why}.")),
    })
}

const PARTIAL: &str = "its beginning is not kept any more, and with it what time it had";

/// Neither a budget nor a limit ended it.
fn by_cause(end: &End) -> &'static str {
    match (end.cause, end.reason) {
        (Some(Cause::ClientDisconnect | Cause::ClientDeadline | Cause::TicketAbandoned), _)
        | (None, Some(Reason::ContextCancelled)) => "its caller ended it, not a setting",
        (Some(Cause::Purged), _) | (None, Some(Reason::Purged)) => "an operator ended it, not a setting",
        (Some(Cause::ShuttingDown | Cause::Restarted), _)
        | (None, Some(Reason::ShuttingDown | Reason::Restarted)) => {
            "the service was stopped or restarted, which no setting prevents"
        }
        (Some(Cause::EndedInPool), _) => "it had ended in the real pool, not by a decision of Weir",
        (_, Some(Reason::BandLimit)) => {
            "no band could be made for its priority, and no limit on requests or bytes stood against it"
        }
        _ => "neither a budget nor a limit on requests or bytes ended it",
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
struct Between {
    /// Time in which an empty or blind pool was charged.
    waiting: Micros,
    left_empty_at: Option<Micros>,
}

/// The admission of the first behind it that waited when it ended; or why there is none that tells anything.
fn taken_in_its_place(
    pool: &PoolProjection,
    row: &Row,
    end: &End,
    work: &Work,
) -> Result<Result<Spot, String>, Fault> {
    let why = match pool.next_admitted(end.spot.seq, row.priority, row.id, work)? {
        // One that came later shows only that nobody waited behind this one any more.
        After::Admitted(_, other) if other > end.spot.seq => {
            "nobody who waited behind it when it ended has been admitted since".to_owned()
        }
        After::Admitted(admitted, _) if row.deadline.is_some_and(|deadline| deadline <= admitted.at) => {
            "the deadline of its caller was over before anybody who waited behind it was admitted".to_owned()
        }
        After::Admitted(admitted, _) => return Ok(Ok(admitted)),
        After::Nobody => "nobody who waited behind it has been admitted since".to_owned(),
        After::Spoiled(spot) => format!(
            "other settings, a restart or an order of an operator came (step {}) before anybody who waited behind it was \
             admitted",
            spot.seq
        ),
        After::TooMany => "too much changed before anybody who waited behind it was admitted".to_owned(),
        After::NotKept => "the step that ended it is not kept any more".to_owned(),
    };
    Ok(Err(why))
}

fn time(
    pool: &PoolProjection,
    row: &Row,
    (end, spent, queue): (&End, SpentBudget, &Queue),
    work: &Work,
) -> Result<Result<Value, String>, Fault> {
    let admitted = match taken_in_its_place(pool, row, end, work)? {
        Ok(admitted) => admitted,
        Err(why) => return Ok(Err(why)),
    };
    let Some(between) = between(pool, end, admitted, work)? else {
        return Ok(Err("too much changed before anybody who waited behind it was admitted".to_owned()));
    };
    let needed = match enough(&between, spent, queue, admitted) {
        Ok(needed) => needed,
        Err(why) => return Ok(Err(why.to_owned())),
    };
    let millis = needed.0.div_ceil(1_000);
    Ok(Ok(json!({
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

/// The time with which it would have been there still; a request is never admitted at the end of its budget or after it.
fn enough(
    between: &Between,
    spent: SpentBudget,
    queue: &Queue,
    admitted: Spot,
) -> Result<Micros, &'static str> {
    match (spent.which, between.left_empty_at) {
        (BudgetKind::Saturation, None) if between.waiting.is_zero() => {
            Ok(admitted.at.since(spent.charged_from) + Micros(1))
        }
        (BudgetKind::Saturation, _) => Err(
            "the pool was empty or blind before anybody who waited behind it was admitted, so more than this budget counts",
        ),
        (BudgetKind::NoEndpoint, None) => Err(
            "the pool had endpoints all the time until somebody who waited behind it was admitted, so its other budget counts too",
        ),
        (BudgetKind::NoEndpoint, Some(left)) => {
            let busy = admitted.at.since(left);
            if !queue.saturation_budget.is_zero() && busy >= queue.saturation_budget {
                return Err(
                    "its budget for a busy pool would have ended next, so this budget alone is not enough",
                );
            }
            Ok(spent.budget + between.waiting + Micros(1))
        }
        (BudgetKind::Whole, _) => Err("its whole wait was bounded by the sum of both budgets"),
    }
}

/// None: too many changes to be sure.
fn between(pool: &PoolProjection, end: &End, admitted: Spot, work: &Work) -> Result<Option<Between>, Fault> {
    let mut between = Between { waiting: Micros::ZERO, left_empty_at: None };
    let mut since = end.spot.at;
    let regimes = pool.regimes(end.spot.at, admitted.at + Micros(1), REGIMES_MAX, work)?;
    if regimes.len() >= REGIMES_MAX {
        return Ok(None);
    }
    for began in
        regimes.iter().filter(|began| began.spot.seq > end.spot.seq && began.spot.seq <= admitted.seq)
    {
        if matches!(began.from, Regime::NoEndpoints | Regime::NoFreshMetrics) {
            between.waiting = between.waiting + began.spot.at.since(since);
        }
        if began.from == Regime::NoEndpoints {
            between.left_empty_at = Some(began.spot.at);
        }
        since = began.spot.at;
    }
    Ok(Some(between))
}
