//! Why a request ended as it did: the chain that led to it, in plain words and as data.

use crate::ask::{Ask, Out};
use crate::difference::{self, Difference};
use crate::fault::Fault;
use crate::incidents::counted;
use crate::reclamations;
use crate::request;
use crate::values::{self, hold_text, ms, span, time};
use serde_json::{Value, json};
use weir_kernel::{BudgetKind, BudgetSource, LeaseEndCause, Micros, Outcome, Reason, Regime};
use weir_projection::{End, PoolProjection, Row};

/// Regimes and settings that changed while it waited, of which so many are told.
const CHANGES_MAX: usize = 20;

/// A link of the chain.
struct Fact {
    kind: &'static str,
    text: String,
    at: Option<Micros>,
    data: Value,
}

/// `Request.explanation`.
pub fn of_request(ask: &Ask<'_>) -> Result<Out, Fault> {
    let (pool, row) = request::parent(ask)?;
    let mut facts = vec![arrival(&row)];
    facts.extend(budgets(&row));
    facts.extend(changes(pool, &row, ask)?);
    if let Some(end) = &row.end {
        facts.extend(decision(&row, end));
    } else {
        facts.push(fact("WAIT", "It still waits.".to_owned(), None, json!({})));
    }
    facts.extend(lease(pool, &row)?);
    let difference = match difference::of(pool, &row, ask.work())? {
        Difference::NoMatter => Value::Null,
        Difference::Unknown(why) => {
            facts.push(fact("DIFFERENCE", why, None, Value::Null));
            Value::Null
        }
        Difference::Certain(difference) => {
            let text = difference["text"].as_str().unwrap_or_default().to_owned();
            facts.push(fact("DIFFERENCE", text, None, difference.clone()));
            difference
        }
    };
    let text = facts.iter().map(|fact| fact.text.as_str()).collect::<Vec<_>>().join(" ");
    let facts: Vec<Value> = facts
        .into_iter()
        .map(|fact| json!({ "kind": fact.kind, "text": fact.text, "time": fact.at.map(time), "data": fact.data }))
        .collect();
    Ok(json!({ "text": text, "facts": facts, "difference": difference }).into())
}

fn fact(kind: &'static str, text: String, at: Option<Micros>, data: Value) -> Fact {
    Fact { kind, text, at, data }
}

fn arrival(row: &Row) -> Fact {
    let objective = row.objective.as_ref().map_or(String::new(), |name| format!(" (objective {name})"));
    let held = row.hold.map_or(String::new(), |hold| format!(" Just then, {}.", hold_text(hold)));
    let above = if row.ahead_higher == 0 {
        String::new()
    } else {
        format!(" and {} in higher bands", row.ahead_higher)
    };
    let partial = if row.partial {
        " It arrived before what is kept of the log, so its beginning is not known."
    } else {
        ""
    };
    let text = format!(
        "It came at {} to band {}{objective} in flow {}, when {}; {} waited before it in its band{above}.{held}{partial}",
        weir_log::describe::show_time(row.arrived_at),
        row.priority,
        row.flow,
        values::regime_text(row.regime),
        counted(row.ahead_band, "request", "requests"),
    );
    let data = json!({
        "band": row.priority, "flow": row.flow, "objective": row.objective, "regime": values::regime(row.regime),
        "aheadInBand": row.ahead_band, "aheadInHigherBands": row.ahead_higher,
    });
    fact("ARRIVAL", text, Some(row.arrived_at), data)
}

fn budgets(row: &Row) -> Option<Fact> {
    let queue = row.queue.as_ref()?;
    let source = match queue.budget_source {
        BudgetSource::Global => "the default of the pool",
        BudgetSource::Band => "the default of its band",
        BudgetSource::Header => "what its caller asked for",
    };
    let shown = |budget: Micros| if budget.is_zero() { "without end".to_owned() } else { span(budget) };
    let text = format!(
        "It might wait {} while the pool was busy ({source}), and {} while the pool was empty or blind.",
        shown(queue.saturation_budget),
        shown(queue.no_endpoint_budget),
    );
    let data = json!({
        "saturationBudgetMs": ms(queue.saturation_budget), "noEndpointBudgetMs": ms(queue.no_endpoint_budget),
    });
    Some(fact("BUDGET", text, Some(row.arrived_at), data))
}

/// What changed between its arrival and the decision.
fn changes(pool: &PoolProjection, row: &Row, ask: &Ask<'_>) -> Result<Vec<Fact>, Fault> {
    let until = row.end.as_ref().map_or_else(|| pool.at().at, |end| end.spot.at);
    if until <= row.arrived_at {
        return Ok(Vec::new());
    }
    let last = row.end.as_ref().map_or(u64::MAX, |end| end.spot.seq);
    let mut facts = Vec::new();
    for began in pool.regimes(row.arrived_at, until + Micros(1), CHANGES_MAX, ask.work())? {
        if began.spot.seq <= row.id || began.spot.seq > last {
            continue;
        }
        let (at, after) = (began.spot.at, span(began.spot.at.since(row.arrived_at)));
        let text = match began.by_start {
            true => format!(
                "After {after} the service restarted; time while it was down counts against no budget."
            ),
            false => format!(
                "After {after} the regime became {}: {}.",
                began.regime,
                values::regime_text(began.regime)
            ),
        };
        let data = json!({ "from": values::regime(began.from), "to": values::regime(began.regime) });
        facts.push(fact("CHANGE", text, Some(at), data));
    }
    // Decided as it came, there is no step between.
    let policies = if last > row.id { pool.policies_of(row.id + 1..=last, ask.work())? } else { Vec::new() };
    for policy in policies {
        if facts.len() < CHANGES_MAX {
            let after = span(policy.spot.at.since(row.arrived_at));
            let text = format!("After {after} other settings came into force (step {}).", policy.spot.seq);
            facts.push(fact("CHANGE", text, Some(policy.spot.at), json!({ "sequence": policy.spot.seq })));
        }
    }
    facts.sort_by_key(|fact| fact.at);
    Ok(facts)
}

fn decision(row: &Row, end: &End) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Some(hold) = end.held_by {
        let text = format!("At the end it was held: {}.", hold_text(hold));
        facts.push(fact("WAIT", text, None, values::hold(hold)));
    }
    if let Some(limit) = end.limit {
        let text = format!(
            "The limit {} stood against it: {} were held, and {} are allowed.",
            limit.which.word(),
            limit.held,
            limit.limit
        );
        let data = json!({ "limit": limit.which.word(), "held": limit.held, "allowed": limit.limit });
        facts.push(fact("CEILING", text, None, data));
    }
    if let Some(budget) = &end.budget {
        facts.push(spent(row, end, budget));
    }
    if let (Some(effective), Some(ceiling)) = (end.effective, end.ceiling) {
        let text =
            format!("The gauge stood at {effective} against a ceiling of {ceiling}, so its band was open.");
        let data = json!({ "saturation": values::ratio(effective), "ceiling": values::ratio(ceiling) });
        facts.push(fact("CEILING", text, Some(end.spot.at), data));
    }
    facts.push(decided(row, end));
    facts
}

fn spent(row: &Row, end: &End, budget: &weir_kernel::SpentBudget) -> Fact {
    let late = budget.charged_from > row.arrived_at && budget.which == BudgetKind::Saturation;
    let from = if late {
        format!(
            "charged from {} after its arrival, when the pool had endpoints again",
            span(budget.charged_from.since(row.arrived_at))
        )
    } else {
        "charged from its arrival".to_owned()
    };
    let (name, size) = (request::budget_name(budget.which), span(budget.budget));
    let text = match budget.which {
        BudgetKind::Saturation => format!("Its budget for a busy pool of {size}, {from}, was used up."),
        BudgetKind::NoEndpoint => {
            format!(
                "Its budget for an empty or blind pool of {size}, which adds up over such times, was used up."
            )
        }
        BudgetKind::Whole => format!("Its whole wait had reached {size}, the sum of both budgets."),
    };
    let data =
        json!({ "budget": name, "budgetMs": ms(budget.budget), "chargedFrom": time(budget.charged_from) });
    fact("BUDGET", text, Some(end.spot.at), data)
}

fn decided(row: &Row, end: &End) -> Fact {
    let status = end.reason.map_or(200, Reason::status);
    let why = end.reason.map_or(String::new(), |reason| format!(" with {status} {}", reason.word()));
    let cause = end.cause.map_or(String::new(), |cause| format!(", because of {}", cause.word()));
    let retry = end
        .retry_after
        .map_or(String::new(), |seconds| format!("; its caller was asked to wait {seconds} s"));
    let waited = span(end.waited);
    let text = match end.outcome {
        Outcome::Dispatched => {
            let to = end.endpoint.as_ref().map_or(String::new(), |name| format!(" to {name}"));
            let wait = if end.waited.is_zero() { "at once".to_owned() } else { format!("after {waited}") };
            format!("It was admitted {wait}{to}.")
        }
        outcome if outcome.was_queued() => {
            format!(
                "It ended in the queue after {waited} ({}){why}{cause}, while {}.",
                outcome.word(),
                regime(end.regime)
            )
        }
        outcome => {
            format!(
                "It was refused at once ({}){why}{cause}{retry}, while {}.",
                outcome.word(),
                regime(end.regime)
            )
        }
    };
    let data = json!({
        "outcome": values::outcome(end.outcome), "reason": end.reason.map(values::reason), "status": status,
        "waitedMs": ms(end.waited), "sequence": end.spot.seq, "flow": row.flow,
    });
    fact("DECISION", text, Some(end.spot.at), data)
}

const fn regime(regime: Regime) -> &'static str {
    values::regime_text(regime)
}

fn lease(pool: &PoolProjection, row: &Row) -> Result<Vec<Fact>, Fault> {
    let Some(lease) = &row.lease else { return Ok(Vec::new()) };
    let mut facts = Vec::new();
    for number in &lease.revocations {
        if let Some(revocation) = pool.revocation(*number)? {
            let text = reclamations::story(pool, &revocation)?;
            facts.push(fact("REVOCATION", text, Some(revocation.issued.at), json!({ "number": number })));
        }
    }
    let Some(finish) = &lease.end else {
        facts.push(fact("LEASE", "It still runs.".to_owned(), None, json!({})));
        return Ok(facts);
    };
    let why = match finish.cause {
        None => "",
        Some(LeaseEndCause::Restart) => ": the service restarted, and its stream died with it",
        Some(LeaseEndCause::Timeout) => ": nobody renewed it",
        Some(LeaseEndCause::NotAtEngine) => ": after a restart the endpoints did not show it any more",
        Some(LeaseEndCause::Cancelled(_)) => ": it was cancelled",
    };
    let text = format!("Its lease ended after {} ({}){why}.", span(finish.ran), finish.end.word());
    let data = json!({ "end": values::lease_end(finish.end), "ranMs": ms(finish.ran) });
    facts.push(fact("LEASE", text, Some(finish.spot.at), data));
    Ok(facts)
}
