//! Requests: one, a page of many, their lives step by step.

use crate::ask::{Ask, Out, wrong};
use crate::fault::Fault;
use crate::values::{self, hold, ms, ratio, time};
use serde_json::{Value, json};
use std::sync::Arc;
use weir_kernel::{BudgetKind, BudgetSource, LeaseEnd, Micros, Outcome, Reason, Regime, SpentBudget};
use weir_projection::{Filter, Key, Order, Page, PoolProjection, ProjectionError, Row, Rows};

/// Requests of one page at the most.
pub const PAGE_MAX: usize = 200;
const PAGE: usize = 50;
/// Requests that are counted at the most.
const COUNT_MAX: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
enum OrderBy {
    ArrivalAsc,
    ArrivalDesc,
    WaitAsc,
    WaitDesc,
}

/// The pool and the number in an id.
pub fn parse_id(id: &str) -> Result<(&str, u64), Fault> {
    let parsed = id.rsplit_once('-').and_then(|(pool, number)| Some((pool, number.parse().ok()?)));
    parsed.ok_or_else(|| wrong("id", id, "the pool, a dash, and the number of the request: default-5"))
}

fn found(pool: &PoolProjection, number: u64, ask: &Ask<'_>) -> Result<Out, Fault> {
    let row = pool.request(number, ask.work())?;
    Ok(row.map_or(Out::None, |row| Out::Value(value(pool.name(), &row))))
}

/// `Query.request`.
pub fn by_id(ask: &Ask<'_>) -> Result<Out, Fault> {
    let id = ask.text("id")?.unwrap_or_default();
    let (pool, number) = parse_id(&id)?;
    found(ask.pool_named(pool)?, number, ask)
}

/// The request that the parent names.
pub fn by_parent(ask: &Ask<'_>) -> Result<Out, Fault> {
    let (pool, number) = parse_id(ask.of_parent("requestId")?)?;
    found(ask.pool_named(pool)?, number, ask)
}

/// The pool and the row of the parent, which is a request.
pub fn parent<'a>(ask: &Ask<'a>) -> Result<(&'a Arc<PoolProjection>, Row), Fault> {
    let (pool, number) = parse_id(ask.of_parent("id")?)?;
    let pool = ask.pool_named(pool)?;
    let row = pool.request(number, ask.work())?;
    row.map(|row| (pool, row)).ok_or_else(|| not_kept(pool, &format!("request {number}")))
}

fn filter(ask: &Ask<'_>) -> Result<Filter, Fault> {
    let Some(fields) = ask.object("filter")? else { return Ok(Filter::default()) };
    Ok(Filter {
        from: fields.time("from")?,
        to: fields.time("to")?,
        outcomes: fields.any_of("outcome", &Outcome::ALL)?,
        reasons: fields.any_of("reason", &Reason::ALL)?,
        regimes: fields.any_of("regime", &Regime::ALL)?,
        priorities: fields.priorities("band")?,
        flow: fields.text("flow")?,
        objective: fields.text("objective")?,
        model: fields.text("model")?,
        caller_id: fields.text("callerId")?,
        waited_min: fields.millis("waitedMinMs")?,
        waited_max: fields.millis("waitedMaxMs")?,
        revoked: fields.truth("revoked")?,
        lease_ends: fields.any_of("leaseEnd", &LeaseEnd::ALL)?,
        over: fields.truth("ended")?,
    })
}

fn cursor(key: Key) -> String {
    format!("{:x}.{:x}", key.0, key.1)
}

fn parse_cursor(ask: &Ask<'_>, name: &'static str) -> Result<Option<Key>, Fault> {
    let Some(text) = ask.text(name)? else { return Ok(None) };
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let key = text.split_once('.').and_then(|(key, id)| Some((number(key)?, number(id)?)));
    key.map(Some).ok_or_else(|| wrong(name, &text, "a cursor of an earlier page"))
}

/// Retention has removed it.
fn not_kept(pool: &PoolProjection, wanted: &str) -> Fault {
    let from = pool.position().map_or(0, |position| position.begun.seq);
    ProjectionError::Trimmed { pool: pool.name().to_owned(), wanted: wanted.to_owned(), from }.into()
}

/// A cursor names a request: where that is not kept any more, a page behind it would have a gap that nobody sees.
fn is_kept(ask: &Ask<'_>, pool: &PoolProjection, cursor: Option<Key>) -> Result<(), Fault> {
    let Some((_, id)) = cursor else { return Ok(()) };
    let begun = pool.position()?.begun.seq;
    if begun > 1 && id < begun && pool.request(id, ask.work())?.is_none() {
        return Err(not_kept(pool, &format!("request {id}, which this cursor names,")));
    }
    Ok(())
}

/// `Query.requests`.
pub fn connection(ask: &Ask<'_>) -> Result<Out, Fault> {
    let pool = ask.pool()?;
    let (filter, order) = (filter(ask)?, order(ask)?);
    let (first, last) = (ask.count("first", PAGE_MAX)?, ask.count("last", PAGE_MAX)?);
    if first.is_some() && last.is_some() {
        return Err(wrong("last", "first and last", "one of them"));
    }
    let (after, before) = (parse_cursor(ask, "after")?, parse_cursor(ask, "before")?);
    is_kept(ask, pool, after)?;
    is_kept(ask, pool, before)?;
    let limit = first.or(last).unwrap_or(PAGE);
    let page = Page { after, before, limit, backwards: last.is_some() };
    let Rows { rows, more } = pool.requests(&filter, order, page, ask.work())?;
    let edge = |(key, row): &(Key, Row)| json!({ "cursor": cursor(*key), "node": value(pool.name(), row) });
    let edges: Vec<Value> = rows.iter().map(edge).collect();
    let nodes: Vec<Value> = edges.iter().map(|edge| edge["node"].clone()).collect();
    let page_info = json!({
        "hasNextPage": if page.backwards { before.is_some() } else { more },
        "hasPreviousPage": if page.backwards { more } else { after.is_some() },
        "startCursor": rows.first().map(|(key, _)| cursor(*key)),
        "endCursor": rows.last().map(|(key, _)| cursor(*key)),
    });
    let asked = encode_filter(pool.name(), &filter);
    Ok(json!({ "edges": edges, "nodes": nodes, "pageInfo": page_info, "asked": asked }).into())
}

fn order(ask: &Ask<'_>) -> Result<Order, Fault> {
    let all = [OrderBy::ArrivalAsc, OrderBy::ArrivalDesc, OrderBy::WaitAsc, OrderBy::WaitDesc];
    Ok(match ask.one_of("orderBy", &all)?.unwrap_or(OrderBy::ArrivalDesc) {
        OrderBy::ArrivalAsc => Order::Arrival,
        OrderBy::ArrivalDesc => Order::ArrivalDesc,
        OrderBy::WaitAsc => Order::Wait,
        OrderBy::WaitDesc => Order::WaitDesc,
    })
}

/// What was asked for, so that `totalCount` can count it, if it is asked.
fn encode_filter(pool: &str, filter: &Filter) -> String {
    let words = |list: Vec<String>| list.join(" ");
    let number = |at: Option<Micros>| at.map(|at| at.0);
    let truth = |value: Option<bool>| value;
    json!({
        "pool": pool,
        "from": number(filter.from),
        "to": number(filter.to),
        "outcomes": words(filter.outcomes.iter().map(|o| values::outcome(*o)).collect()),
        "reasons": words(filter.reasons.iter().map(|r| values::reason(*r)).collect()),
        "regimes": words(filter.regimes.iter().map(|r| values::regime(*r)).collect()),
        "leaseEnds": words(filter.lease_ends.iter().map(|e| values::lease_end(*e)).collect()),
        "bands": filter.priorities,
        "flow": filter.flow,
        "objective": filter.objective,
        "model": filter.model,
        "callerId": filter.caller_id,
        "waitedMin": number(filter.waited_min),
        "waitedMax": number(filter.waited_max),
        "revoked": truth(filter.revoked),
        "over": truth(filter.over),
    })
    .to_string()
}

fn decode_filter(text: &str) -> Option<(String, Filter)> {
    fn named<T: Copy + std::fmt::Debug>(asked: &Value, key: &str, all: &[T]) -> Vec<T> {
        let words = asked[key].as_str().unwrap_or_default().split_whitespace();
        words.filter_map(|word| values::named(all, word)).collect()
    }
    let asked: Value = serde_json::from_str(text).ok()?;
    let number = |key: &str| asked[key].as_u64().map(Micros);
    let word = |key: &str| asked[key].as_str().map(str::to_owned);
    let bands = asked["bands"].as_array()?.iter();
    let filter = Filter {
        from: number("from"),
        to: number("to"),
        outcomes: named(&asked, "outcomes", &Outcome::ALL),
        reasons: named(&asked, "reasons", &Reason::ALL),
        regimes: named(&asked, "regimes", &Regime::ALL),
        lease_ends: named(&asked, "leaseEnds", &LeaseEnd::ALL),
        priorities: bands.filter_map(|band| i32::try_from(band.as_i64()?).ok()).collect(),
        flow: word("flow"),
        objective: word("objective"),
        model: word("model"),
        caller_id: word("callerId"),
        waited_min: number("waitedMin"),
        waited_max: number("waitedMax"),
        revoked: asked["revoked"].as_bool(),
        over: asked["over"].as_bool(),
    };
    Some((word("pool")?, filter))
}

/// `RequestConnection.totalCount`.
pub fn total(ask: &Ask<'_>) -> Result<Out, Fault> {
    let asked = decode_filter(ask.of_parent("asked")?);
    let (pool, filter) = asked.ok_or_else(|| crate::schema::missing("what was asked for"))?;
    let (count, exact) = ask.pool_named(&pool)?.count(&filter, COUNT_MAX, ask.work())?;
    Ok(json!({ "count": count, "exact": exact }).into())
}

/// A row as a `Request`.
pub fn value(pool: &str, row: &Row) -> Value {
    let mut value = arrival(pool, row);
    if let Value::Object(fields) = &mut value {
        for more in [queue(row), end(row), lease(row)] {
            if let Value::Object(more) = more {
                fields.extend(more);
            }
        }
    }
    value
}

fn phase(row: &Row) -> &'static str {
    match (&row.end, row.is_over()) {
        (None, _) => "QUEUED",
        (Some(_), false) => "RUNNING",
        (Some(_), true) => "ENDED",
    }
}

fn arrival(pool: &str, row: &Row) -> Value {
    json!({
        "id": format!("{pool}-{}", row.id),
        "number": row.id,
        "pool": pool,
        "phase": phase(row),
        "callerId": row.caller_id,
        "traceId": row.trace.map(|trace| values::hex(&trace.trace_id)),
        "objective": row.objective,
        "flow": row.flow,
        "priority": row.priority,
        "model": row.model,
        "bytes": row.bytes,
        "promptTokens": row.prompt_tokens,
        "ttlMs": row.ttl.map(ms),
        "sloTtftMs": row.slo_ttft.map(ms),
        "deadline": row.deadline.map(time),
        "face": row.face.word(),
        "arrivedAt": time(row.arrived_at),
        "receivedAt": time(row.received_at),
        "regimeAtArrival": values::regime(row.regime),
        "holdAtArrival": row.hold.map(hold),
        "aheadInBand": row.ahead_band,
        "aheadInHigherBands": row.ahead_higher,
        "repeats": row.repeats,
        "partial": row.partial,
        "revoked": row.is_revoked(),
    })
}

fn queue(row: &Row) -> Value {
    let Some(queue) = &row.queue else { return json!({ "queued": false }) };
    json!({
        "queued": true,
        "saturationBudgetMs": ms(queue.saturation_budget),
        "noEndpointBudgetMs": ms(queue.no_endpoint_budget),
        "budgetSource": match queue.budget_source {
            BudgetSource::Global => "global",
            BudgetSource::Band => "band",
            BudgetSource::Header => "header",
        },
    })
}

/// The name of a budget.
pub const fn budget_name(kind: BudgetKind) -> &'static str {
    match kind {
        BudgetKind::Saturation => "saturation",
        BudgetKind::NoEndpoint => "no-endpoint",
        BudgetKind::Whole => "whole",
    }
}

fn budget(spent: &SpentBudget) -> Value {
    json!({
        "name": budget_name(spent.which),
        "budgetMs": ms(spent.budget),
        "chargedFrom": time(spent.charged_from),
    })
}

fn end(row: &Row) -> Value {
    let Some(end) = &row.end else { return json!({}) };
    json!({
        "outcome": values::outcome(end.outcome),
        "reason": end.reason.map(values::reason),
        "regime": values::regime(end.regime),
        "decidedAt": time(end.spot.at),
        "decidedSequence": end.spot.seq,
        "waitedMs": ms(end.waited),
        "cause": end.cause.map(weir_kernel::Cause::word),
        "limit": end.limit.map(|l| json!({ "name": l.which.word(), "held": l.held, "limit": l.limit })),
        "budget": end.budget.as_ref().map(budget),
        "heldBy": end.held_by.map(hold),
        "retryAfterSeconds": end.retry_after,
        "saturation": end.raw.map(ratio),
        "effectiveSaturation": end.effective.map(ratio),
        "ceiling": end.ceiling.map(ratio),
        "observedSequence": end.observed,
        "endpoint": end.endpoint,
    })
}

fn lease(row: &Row) -> Value {
    let Some(lease) = &row.lease else { return json!({}) };
    let first_byte = lease.first_byte;
    let finish = lease.end.as_ref();
    json!({
        "firstByteAt": first_byte.map(|spot| time(spot.at)),
        "ttftMs": first_byte.map(|spot| ms(spot.at.since(row.received_at))),
        "endedAt": finish.map(|finish| time(finish.spot.at)),
        "endedSequence": finish.map(|finish| finish.spot.seq),
        "leaseEnd": finish.map(|finish| values::lease_end(finish.end)),
        "ranMs": finish.map(|finish| ms(finish.ran)),
        "leaseEndCause": finish.and_then(|finish| finish.cause).map(|cause| format!("{cause:?}")),
        "termination": finish.and_then(|finish| finish.termination).map(|t| format!("{t:?}")),
        "usagePromptTokens": finish.and_then(|finish| finish.usage).map(|usage| usage.prompt),
        "usageCompletionTokens": finish.and_then(|finish| finish.usage).map(|usage| usage.completion),
    })
}

/// `Request.timeline`.
pub fn timeline(ask: &Ask<'_>) -> Result<Out, Fault> {
    let (pool, row) = parent(ask)?;
    let mut moments = Vec::new();
    let mut add =
        |at: Micros, seq: u64, what: &str, text: String| moments.push((at, seq, what.to_owned(), text));
    add(row.received_at, 0, "received", format!("a face ({}) saw it", row.face.word()));
    add(row.arrived_at, row.id, "arrived", format!("it came to band {} in flow {}", row.priority, row.flow));
    if row.queue.is_some() {
        let ahead =
            format!("it was queued; {} waited in its band, {} above", row.ahead_band, row.ahead_higher);
        add(row.arrived_at, row.id, "queued", ahead);
    }
    if let Some(end) = &row.end {
        let reason = end.reason.map_or("", Reason::word);
        let (what, text) = match end.outcome {
            Outcome::Dispatched => {
                ("admitted", format!("it was admitted after {}", values::span(end.waited)))
            }
            outcome if outcome.was_queued() => (
                "evicted",
                format!(
                    "it left the queue after {}: {} ({reason})",
                    values::span(end.waited),
                    outcome.word()
                ),
            ),
            outcome => ("refused", format!("it was refused: {} ({reason})", outcome.word())),
        };
        add(end.spot.at, end.spot.seq, what, text);
    }
    if let Some(lease) = &row.lease {
        if let Some(spot) = lease.first_byte {
            add(spot.at, spot.seq, "first-byte", "the first byte of its response was seen".to_owned());
        }
        for number in &lease.revocations {
            let Some(revocation) = pool.revocation(*number)? else { continue };
            let by = revocation.order.word();
            add(
                revocation.issued.at,
                revocation.issued.seq,
                "revoked",
                format!("it was ordered back by {by}"),
            );
            if let Some((end, spot)) = revocation.ended {
                add(spot.at, spot.seq, "revocation-ended", format!("that order ended: {}", end.word()));
            }
            if let Some(at) = revocation.reclaimed_at {
                add(at, 0, "reclaimed", "metrics of the endpoint showed the release".to_owned());
            }
        }
        if let Some(finish) = &lease.end {
            let text = format!("its lease ended after {}: {}", values::span(finish.ran), finish.end.word());
            add(finish.spot.at, finish.spot.seq, "ended", text);
        }
    }
    moments.sort_by_key(|(at, ..)| *at);
    let shown = moments.into_iter().map(|(at, seq, what, text)| {
        json!({ "time": time(at), "sequence": seq, "afterMs": ms(at.since(row.received_at)), "what": what, "text": text })
    });
    Ok(Out::Value(shown.collect()))
}
