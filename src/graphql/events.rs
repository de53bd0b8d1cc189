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
use weir_projection::{Kinds, PoolProjection, ProjectionError, Spot};

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
    shown_as(pool, Spot { seq: step.seq, at: step.at }, input_kind(&step.input), event)
}

/// An event of the step there, whose input was of this kind.
fn shown_as(pool: &str, spot: Spot, input: &str, event: &Event) -> Found {
    let kind = event_kind(event);
    let data = match serde_json::to_value(event).unwrap_or_default() {
        serde_json::Value::Object(fields) => {
            fields.into_iter().next().map(|(_, data)| data).unwrap_or_default()
        }
        _ => json!({}),
    };
    let own = || matches!(event, Event::Enqueued(_) | Event::Rejected(_)).then_some(spot.seq);
    let request = event_request(event).map(|id| id.0).or_else(own);
    Found {
        kind: type_of(kind),
        value: json!({
            "kind": kind,
            "pool": pool,
            "sequence": spot.seq,
            "time": show_time(spot.at),
            "input": input,
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
    let kept = pool.position()?.begun.seq;
    let from = if matches!(from, Bound::Time(_)) && kept > 1 { later(pool, from, kept) } else { from };
    let kinds = Kinds::named(&wanted.kinds);
    let mut list = Listed { list: Vec::new(), count, last: 0 };
    // What is noted is found without a look at the rest; the log has what came since.
    let from = if wanted.request.is_none() && kinds.are_noted() {
        if let Bound::Seq(first) = from
            && first < kept
            && kept > 1
        {
            let (pool, wanted) = (pool.name().to_owned(), format!("sequence {first}"));
            return Err(ProjectionError::Trimmed { pool, wanted, from: kept }.into());
        }
        let at = noted(ask, pool, kinds, (from, to), &mut list)?;
        match from {
            Bound::Seq(first) => Bound::Seq(first.max(at.seq + 1)),
            _ if at.at < to => Bound::Seq(at.seq + 1),
            // Whatever comes is later.
            _ => return Ok(list.page()),
        }
    } else {
        from
    };
    if !list.is_full() {
        let until = last_of(ask, pool, wanted.request)?;
        pool.steps(from, until, ask.work(), |step| {
            if step.at >= to {
                return Ok(false);
            }
            let events = step.events.iter().filter(|event| wanted.holds(&step, event));
            list.take(step.seq, events.map(|event| found(pool.name(), &step, event)));
            Ok(!list.is_full())
        })?;
    }
    Ok(list.page())
}

/// A page that fills. A step is shown whole, so that a cursor can be its number.
struct Listed {
    list: Vec<Found>,
    count: usize,
    last: u64,
}

impl Listed {
    fn is_full(&self) -> bool {
        self.list.len() >= self.count
    }

    fn take(&mut self, seq: u64, events: impl Iterator<Item = Found>) {
        self.last = seq;
        self.list.extend(events);
    }

    fn page(self) -> Out {
        let cursor = (self.is_full() && self.last > 0).then(|| self.last.to_string());
        Out::EventPage(self.list, cursor)
    }
}

/// What the read models have noted of these kinds; gives how far they are.
fn noted(
    ask: &Ask<'_>,
    pool: &PoolProjection,
    kinds: Kinds,
    (from, to): (Bound, Micros),
    list: &mut Listed,
) -> Result<Spot, Fault> {
    let (first, since) = match from {
        Bound::Open => (0, Micros::ZERO),
        Bound::Seq(first) => (first, Micros::ZERO),
        Bound::Time(since) => (0, since),
    };
    let at = pool.notes(kinds, (first, since, to), ask.work(), |note| {
        if list.is_full() && note.spot.seq != list.last {
            return Ok(false);
        }
        let event = shown_as(pool.name(), note.spot, note.input(), &note.event);
        list.take(note.spot.seq, std::iter::once(event));
        Ok(true)
    })?;
    Ok(at)
}

/// The last step that may say something of a request: the one that settled it.
fn last_of(ask: &Ask<'_>, pool: &PoolProjection, request: Option<u64>) -> Result<Bound, Fault> {
    let Some(id) = request else { return Ok(Bound::Open) };
    let known = pool.at().seq;
    Ok(match pool.request(id, ask.work())? {
        Some(row) => settled(&row),
        None if id <= known => Bound::Seq(id),
        None => Bound::Open,
    })
}

/// Where a request is settled; open as long as it is not.
fn settled(row: &weir_projection::Row) -> Bound {
    let ends = [row.end.as_ref().map(|end| end.spot.seq), lease_end(row)];
    let last = if row.is_over() { ends.into_iter().flatten().max() } else { None };
    last.map_or(Bound::Open, Bound::Seq)
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
    let mut list = Vec::new();
    pool.steps(Bound::Seq(row.id), settled(&row), ask.work(), |step| {
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
