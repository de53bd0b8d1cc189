//! Events of the log, each kind as a type of its own. Their fields follow from the schema: `waitedMs: Float` is the
//! event's `waited` in milliseconds, `due: Time` a moment, and so on.

use crate::ask::{Ask, Out, wrong};
use crate::fault::Fault;
use crate::request::{self, parse_id};
use crate::schema::{SDL, event};
use crate::values::{known_reason, screaming};
use async_graphql::dynamic::{FieldValue, ResolverContext};
use async_graphql::{Name, Value};
use serde_json::json;
use std::sync::LazyLock;
use weir_kernel::{Event, Micros, Step};
use weir_log::describe::{
    event_kind, event_kinds, event_request, event_text, input_kind, same_kind, show_time,
};
use weir_log::reader::Bound;
use weir_projection::{PoolProjection, ProjectionError};

const PAGE: usize = 100;
const PAGE_MAX: usize = 500;
const OF_REQUEST: usize = 100;

/// An event, and the type it has in the schema.
#[derive(Clone, Debug)]
pub struct Found {
    /// The type.
    pub kind: String,
    /// Its fields; those of its kind alone are in `data`.
    pub value: serde_json::Value,
}

/// A page of them.
pub struct Page {
    /// The events.
    pub list: Vec<Found>,
    /// Where the next page begins.
    pub cursor: Option<String>,
}

/// The kinds that the schema has types for.
static KINDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let lines =
        SDL.lines().filter_map(|line| line.strip_prefix("type ")?.strip_suffix(" implements Event {"));
    lines.map(str::to_owned).collect()
});

/// The type of a kind of event.
fn type_of(kind: &str) -> String {
    if KINDS.iter().any(|known| known == kind) { kind.to_owned() } else { "OtherEvent".to_owned() }
}

/// An event of a step.
pub fn found(pool: &str, step: &Step, event: &Event) -> Found {
    let kind = event_kind(event);
    let data = match serde_json::to_value(event).unwrap_or_default() {
        serde_json::Value::Object(fields) => {
            fields.into_iter().next().map(|(_, data)| data).unwrap_or_default()
        }
        _ => json!({}),
    };
    let own = || matches!(event, Event::Enqueued(_) | Event::Rejected(_)).then_some(step.seq);
    let request = event_request(event).map(|id| id.0).or_else(own);
    Found {
        kind: type_of(kind),
        value: json!({
            "kind": kind,
            "pool": pool,
            "sequence": step.seq,
            "time": show_time(step.at),
            "input": input_kind(&step.input),
            "requestId": request.map(|id| format!("{pool}-{id}")),
            "text": event_text(event),
            "data": data,
        }),
    }
}

/// A field of an event, found in its `data` and put as its type in the schema says.
pub fn field(ctx: &ResolverContext<'_>, name: &str, base: &str) -> Option<Value> {
    let Some(Value::Object(fields)) = ctx.parent_value.as_value() else { return None };
    if let Some(value) = fields.get(name) {
        return Some(value).filter(|value| **value != Value::Null).cloned();
    }
    let Some(Value::Object(data)) = fields.get("data") else { return None };
    let key = name.strip_suffix("Ms").filter(|_| base == "Float").unwrap_or(name);
    let value = data.get(snake(key).as_str()).filter(|value| **value != Value::Null)?;
    shown(value, base)
}

fn snake(camel: &str) -> String {
    let mut out = String::with_capacity(camel.len() + 4);
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

fn shown(value: &Value, base: &str) -> Option<Value> {
    let number = || match value {
        Value::Number(number) => number.as_f64(),
        _ => None,
    };
    Some(match (base, value) {
        ("Time", Value::Number(number)) => Value::String(show_time(Micros(number.as_u64()?))),
        ("Float", _) => Value::from(number()? / 1_000.0),
        ("Ratio", _) => Value::from(number()? / 1_000_000.0),
        ("Reason", Value::String(word)) => Value::Enum(Name::new(known_reason(screaming(word)))),
        ("Outcome" | "Regime" | "LeaseEnd", Value::String(word)) => Value::Enum(Name::new(screaming(word))),
        ("String", Value::String(_))
        | ("Int" | "Long", Value::Number(_))
        | ("Boolean", Value::Boolean(_)) => value.clone(),
        ("String", other) => Value::String(other.to_string()),
        ("JSON", _) => value.clone(),
        _ => return None,
    })
}

/// What is wanted of a log.
pub struct Wanted {
    kinds: Vec<String>,
    request: Option<u64>,
}

impl Wanted {
    /// By the arguments `kinds` and `request`.
    ///
    /// # Errors
    /// A kind that there is not; a request of another pool.
    pub fn of(kinds: Vec<String>, request: Option<String>, pool: &PoolProjection) -> Result<Wanted, Fault> {
        for kind in &kinds {
            if !event_kinds().iter().any(|known| same_kind(known, kind)) {
                return Err(wrong("kinds", kind, &event_kinds().join(", ")));
            }
        }
        let request = match request.as_deref().map(parse_id).transpose()? {
            Some((of, _)) if of != pool.name() => {
                return Err(wrong("request", of, &format!("a request of the pool {}", pool.name())));
            }
            found => found.map(|(_, number)| number),
        };
        Ok(Wanted { kinds, request })
    }

    /// Is this one wanted?
    pub fn holds(&self, step: &Step, event: &Event) -> bool {
        let kind = event_kind(event);
        let by_kind = self.kinds.is_empty() || self.kinds.iter().any(|wanted| same_kind(kind, wanted));
        by_kind
            && self
                .request
                .is_none_or(|request| event_request(event).map_or(step.seq == request, |id| id.0 == request))
    }
}

/// The argument `kinds`.
pub fn kinds(ask: &Ask<'_>) -> Result<Vec<String>, Fault> {
    let Some(list) = ask.arg("kinds") else { return Ok(Vec::new()) };
    let list = list.list().map_err(|_| wrong("kinds", "something else", "a list"))?;
    list.iter()
        .map(|kind| kind.string().map(str::to_owned).map_err(|_| wrong("kinds", "something", "names")))
        .collect()
}

/// `Query.events`.
pub fn page(ask: &Ask<'_>) -> Result<Out, Fault> {
    let pool = ask.pool()?;
    let wanted = Wanted::of(kinds(ask)?, ask.text("request")?, pool)?;
    let count = ask.count("first", PAGE_MAX)?.unwrap_or(PAGE);
    let (from, to) = ask.span(pool)?;
    let from = match (ask.number("after")?, ask.number("fromSequence")?, wanted.request) {
        (Some(after), ..) => Bound::Seq(after.saturating_add(1)),
        (None, Some(seq), _) => Bound::Seq(seq.max(1)),
        // Nothing of a request comes before it does.
        (None, None, Some(request)) if ask.arg("from").is_none() => Bound::Seq(request.max(1)),
        _ => Bound::Time(from),
    };
    let mut list = Vec::new();
    let mut cursor = None;
    let kept = pool.position()?.begun.seq;
    let from = if matches!(from, Bound::Time(_)) && kept > 1 { later(pool, from, kept) } else { from };
    pool.steps(from, Bound::Open, ask.work(), |step| {
        if step.at >= to {
            return Ok(false);
        }
        // A step is shown whole, so that a cursor can be its number.
        let events = step.events.iter().filter(|event| wanted.holds(&step, event));
        list.extend(events.map(|event| found(pool.name(), &step, event)));
        if list.len() >= count {
            cursor = Some(step.seq.to_string());
            return Ok(false);
        }
        Ok(true)
    })?;
    Ok(Out::EventPage(list, cursor))
}

/// A time before what is kept means: from the first step that is.
fn later(pool: &PoolProjection, from: Bound, kept: u64) -> Bound {
    match (from, pool.position()) {
        (Bound::Time(at), Ok(position)) if at < position.begun.at => Bound::Seq(kept),
        _ => from,
    }
}

/// `Request.events`.
pub fn of_request(ask: &Ask<'_>) -> Result<Out, Fault> {
    let (pool, row) = request::parent(ask)?;
    let count = ask.count("first", OF_REQUEST)?.unwrap_or(OF_REQUEST);
    let wanted = Wanted { kinds: Vec::new(), request: Some(row.id) };
    let ends = [row.end.as_ref().map(|end| end.spot.seq), lease_end(&row)];
    let last = if row.is_over() { ends.into_iter().flatten().max() } else { None };
    let to = last.map_or(Bound::Open, Bound::Seq);
    let mut list = Vec::new();
    pool.steps(Bound::Seq(row.id), to, ask.work(), |step| {
        let events = step.events.iter().filter(|event| wanted.holds(&step, event));
        list.extend(events.map(|event| found(pool.name(), &step, event)));
        Ok::<_, ProjectionError>(list.len() < count)
    })?;
    list.truncate(count);
    Ok(Out::Events(list))
}

fn lease_end(row: &weir_projection::Row) -> Option<u64> {
    row.lease.as_ref()?.end.as_ref().map(|end| end.spot.seq)
}

/// Answers the fields of a page, which are not values.
pub fn page_field<'a>(page: &'a Page, name: &str) -> Option<FieldValue<'a>> {
    match name {
        "nodes" => Some(FieldValue::list(page.list.iter().cloned().map(event))),
        "endCursor" => page.cursor.as_ref().map(|cursor| FieldValue::value(cursor.clone())),
        _ => None,
    }
}
