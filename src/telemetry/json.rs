//! OTLP as JSON: one document per batch of spans, a line each in a file, as the OpenTelemetry Collector's file exporter
//! writes and its receiver reads them.

use crate::context::hex;
use crate::names::SCOPE;
use crate::span::{Attribute, Kind, Link, Span, SpanEvent, Status, Value};
use crate::variables::{Warning, pairs};
use serde_json::{Value as Json, json};
use weir_kernel::Micros;

/// An `ExportTraceServiceRequest` with these spans of this resource.
pub fn document(resource: &[(String, String)], spans: &[Span]) -> Json {
    let resource: Vec<Json> =
        resource.iter().map(|(key, value)| json!({"key": key, "value": {"stringValue": value}})).collect();
    let spans: Vec<Json> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{
            "scope": {"name": SCOPE, "version": env!("CARGO_PKG_VERSION")},
            "spans": spans,
        }],
    }]})
}

/// What the spans are of: the name of the service, and what `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` say. What of
/// them is no attribute is left out, and told.
pub fn resource(get: impl Fn(&str) -> Option<String>) -> (Vec<(String, String)>, Vec<Warning>) {
    let mut found = vec![
        ("service.name".to_owned(), "weir".to_owned()),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let mut set = |key: &str, value: &str| match found.iter_mut().find(|(known, _)| known == key) {
        Some((_, known)) => value.clone_into(known),
        None => found.push((key.to_owned(), value.to_owned())),
    };
    let attributes = "OTEL_RESOURCE_ATTRIBUTES";
    let (given, warnings) = pairs(attributes, &get(attributes).unwrap_or_default(), false);
    for (key, value) in &given {
        set(key, value);
    }
    if let Some(name) = get("OTEL_SERVICE_NAME").filter(|name| !name.is_empty()) {
        set("service.name", &name);
    }
    (found, warnings)
}

fn span(span: &Span) -> Json {
    let mut json = json!({
        "traceId": hex(&span.trace_id),
        "spanId": hex(&span.span_id),
        "name": span.name,
        "kind": match span.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
            Kind::Client => 3,
        },
        // Sampled; then: whether the parent is remote is known, and whether it is.
        "flags": 0x101 | if span.parent_is_remote { 0x200 } else { 0 },
        "startTimeUnixNano": nanos(span.start),
        "endTimeUnixNano": nanos(span.end),
        "attributes": attributes(&span.attributes),
        "events": span.events.iter().map(event).collect::<Vec<_>>(),
        "droppedEventsCount": span.events_dropped,
        "links": span.links.iter().map(link).collect::<Vec<_>>(),
        "status": match &span.status {
            Status::Unset => json!({}),
            Status::Error(message) => json!({"code": 2, "message": message}),
        },
    });
    if let Some(parent) = &span.parent {
        json["parentSpanId"] = Json::from(hex(parent));
    }
    json
}

fn nanos(at: Micros) -> String {
    (u128::from(at.0) * 1_000).to_string()
}

fn event(event: &SpanEvent) -> Json {
    json!({
        "timeUnixNano": nanos(event.at),
        "name": event.name,
        "attributes": attributes(&event.attributes),
    })
}

fn link(link: &Link) -> Json {
    json!({
        "traceId": hex(&link.trace_id),
        "spanId": hex(&link.span_id),
        "attributes": attributes(&link.attributes),
    })
}

fn attributes(attributes: &[Attribute]) -> Vec<Json> {
    let one = |Attribute(name, value): &Attribute| json!({"key": name, "value": any(value)});
    attributes.iter().map(one).collect()
}

fn any(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!({"stringValue": text}),
        Value::Word(word) => json!({"stringValue": word}),
        // 64-bit numbers are texts in the JSON of protobuf.
        Value::Int(number) => json!({"intValue": number.to_string()}),
        Value::Float(number) => json!({"doubleValue": number}),
        Value::Bool(yes) => json!({"boolValue": yes}),
        Value::Texts(texts) => {
            let values: Vec<Json> = texts.iter().map(|text| json!({"stringValue": text})).collect();
            json!({"arrayValue": {"values": values}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::attribute;

    #[test]
    fn a_span_in_json_has_what_the_standard_wants() {
        let event = SpanEvent { name: "e", at: Micros(2), attributes: vec![attribute("n", 7_u64)] };
        let link = Link { trace_id: [1; 16], span_id: [2; 8], attributes: Vec::new() };
        let one = Span {
            trace_id: [0xab; 16],
            span_id: [0xcd; 8],
            parent: Some([1; 8]),
            parent_is_remote: true,
            name: "x",
            kind: Kind::Server,
            start: Micros(1),
            end: Micros(3),
            attributes: vec![
                Attribute("t", Value::Texts(vec!["a".to_owned()])),
                attribute("b", true),
                attribute("f", Micros(1_500_000)),
            ],
            events: vec![event],
            events_dropped: 4,
            links: vec![link],
            status: Status::Error("evicted".to_owned()),
        };
        let text = document(&[("service.name".to_owned(), "w".to_owned())], &[one]);
        let span = &text["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "ab".repeat(16));
        assert_eq!(span["parentSpanId"], "01".repeat(8));
        assert_eq!((&span["kind"], &span["flags"]), (&json!(2), &json!(0x301)));
        assert_eq!((&span["startTimeUnixNano"], &span["endTimeUnixNano"]), (&json!("1000"), &json!("3000")));
        assert_eq!(span["attributes"][0]["value"]["arrayValue"]["values"][0]["stringValue"], "a");
        assert_eq!(span["attributes"][2]["value"]["doubleValue"], 1.5);
        assert_eq!(span["events"][0]["attributes"][0]["value"]["intValue"], "7");
        assert_eq!(span["droppedEventsCount"], 4);
        assert_eq!(span["links"][0]["spanId"], "02".repeat(8));
        assert_eq!(span["status"], json!({"code": 2, "message": "evicted"}));
        assert_eq!(text["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"], "w");
    }

    #[test]
    fn the_resource_is_named_by_the_environment() {
        let (none, _) = resource(|_| None);
        assert_eq!(none[0], ("service.name".to_owned(), "weir".to_owned()));
        let (given, warnings) = resource(|name| match name {
            "OTEL_SERVICE_NAME" => Some("edge".to_owned()),
            "OTEL_RESOURCE_ATTRIBUTES" => Some("service.name=other, zone=a%20b,broken".to_owned()),
            _ => None,
        });
        assert_eq!(given[0].1, "edge");
        assert!(given.contains(&("zone".to_owned(), "a b".to_owned())));
        assert_eq!(given.len(), 3);
        let said = warnings[0].to_string();
        assert!(said.starts_with("OTEL_RESOURCE_ATTRIBUTES: \"broken\" is not allowed"), "{said}");
    }
}
