//! Spans as OpenTelemetry's SDK has them.

use crate::names::SCOPE;
use crate::span::{Attribute, Kind, Link, Span, SpanEvent, Status, Value};
use opentelemetry::trace::{
    Event, Link as OtelLink, SpanContext, SpanId, SpanKind, Status as OtelStatus, TraceFlags, TraceId,
    TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value as OtelValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use std::borrow::Cow;
use std::time::{Duration, SystemTime};
use weir_kernel::Micros;

/// The scope of every span.
pub fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(SCOPE).with_version(env!("CARGO_PKG_VERSION")).build()
}

/// One span.
pub fn span(span: Span, scope: &InstrumentationScope) -> SpanData {
    let mut events = SpanEvents::default();
    events.events = span.events.into_iter().map(event).collect();
    events.dropped_count = span.events_dropped;
    let mut links = SpanLinks::default();
    links.links = span.links.into_iter().map(link).collect();
    SpanData {
        span_context: context(span.trace_id, span.span_id, false),
        parent_span_id: span.parent.map_or(SpanId::INVALID, SpanId::from_bytes),
        parent_span_is_remote: span.parent_is_remote,
        span_kind: match span.kind {
            Kind::Internal => SpanKind::Internal,
            Kind::Server => SpanKind::Server,
            Kind::Client => SpanKind::Client,
        },
        name: Cow::Borrowed(span.name),
        start_time: instant(span.start),
        end_time: instant(span.end),
        attributes: attributes(span.attributes),
        dropped_attributes_count: 0,
        events,
        links,
        status: match span.status {
            Status::Unset => OtelStatus::Unset,
            Status::Error(message) => OtelStatus::error(message),
        },
        instrumentation_scope: scope.clone(),
    }
}

fn context(trace_id: [u8; 16], span_id: [u8; 8], is_remote: bool) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(trace_id),
        SpanId::from_bytes(span_id),
        TraceFlags::SAMPLED,
        is_remote,
        // The log does not hold it, and a span made from the log is the same.
        TraceState::NONE,
    )
}

fn instant(at: Micros) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(at.0)).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn event(event: SpanEvent) -> Event {
    Event::new(event.name, instant(event.at), attributes(event.attributes), 0)
}

fn link(link: Link) -> OtelLink {
    OtelLink::new(context(link.trace_id, link.span_id, false), attributes(link.attributes), 0)
}

fn attributes(attributes: Vec<Attribute>) -> Vec<KeyValue> {
    attributes.into_iter().map(|Attribute(name, value)| KeyValue::new(name, any(value))).collect()
}

fn any(value: Value) -> OtelValue {
    match value {
        Value::Text(text) => text.into(),
        Value::Word(word) => word.into(),
        Value::Int(number) => number.into(),
        Value::Float(number) => number.into(),
        Value::Bool(yes) => yes.into(),
        Value::Texts(texts) => {
            OtelValue::Array(Array::String(texts.into_iter().map(StringValue::from).collect()))
        }
    }
}
