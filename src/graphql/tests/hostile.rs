//! Goal: no question, however made, takes more than its share: it is refused with the limit that it breaks, or it ends
//! when its time is over. Method: deep, wide, aliased, circular, exploding, long and batched questions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::world::World;
use common::{answer, code, patient, service, service_with};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use weir_graphql::{Limits, Options};

#[test]
fn hostile_questions_are_refused_by_name_and_at_once() {
    let service = service(&World::new(2).run(400));
    let deep = format!("{{ {} name {} }}", "pool { ".repeat(40), "} ".repeat(40));
    let deeper = format!("{{ {} name {} }}", "pool { ".repeat(5_000), "} ".repeat(5_000));
    let lists = format!("{{ request(id: {}1{}) {{ id }} }}", "[".repeat(9_000), "]".repeat(9_000));
    let aliased: String = (0..10_000).map(|n| format!("a{n}: pools {{ name }} ")).collect();
    let few: String = (0..500).map(|n| format!("a{n}: pools {{ name }} ")).collect();
    let wide = format!("{{ {} }}", "stateAt { digest } ".repeat(40));
    let circular = "{ ...a } fragment a on Query { ...b } fragment b on Query { ...a }";
    // Thirty fragments, each of which doubles the one before: 2^30 fields.
    let mut doubling = "{ ...f0 } ".to_owned();
    for n in 0..30 {
        doubling += &format!("fragment f{n} on Query {{ ...f{} ...f{} }} ", n + 1, n + 1);
    }
    doubling += "fragment f30 on Query { pools { name } }";
    let bomb = "{ __schema { types { fields { type { fields { type { fields { type { fields { name } } } } } } } } } }";
    let directives = format!("{{ pools {{ name {} }} }}", "@include(if: true) ".repeat(500));
    let products = "{ requests(first: 200) { nodes { events(first: 100) { data } explanation { text } } } }";
    for (name, query, wanted) in [
        ("deep", deep, "TOO_DEEP"),
        ("deeper", deeper, "TOO_DEEP"),
        ("lists in lists", lists, "TOO_DEEP"),
        ("too long", format!("{{ {aliased} }}"), "REQUEST_TOO_LARGE"),
        ("aliased", format!("{{ {few} }}"), "TOO_MANY_ALIASES"),
        ("wide and cheap", format!("{{ pools {{ {} }} }}", "name ".repeat(12_000)), "TOO_MANY_TOKENS"),
        ("wide", wide, "TOO_COMPLEX"),
        ("circular", circular.to_owned(), "BAD_REQUEST"),
        ("doubling", doubling, "TOO_COMPLEX"),
        ("introspection bomb", bomb.to_owned(), "TOO_COMPLEX"),
        ("directives", directives, "TOO_MANY_DIRECTIVES"),
        ("pages of pages", products.to_owned(), "TOO_COMPLEX"),
        (
            "a huge page",
            "{ requests(last: 2000000000) { pageInfo { endCursor } } }".to_owned(),
            "TOO_COMPLEX",
        ),
    ] {
        let begun = Instant::now();
        let found = answer(&service, &query, json!({}));
        assert_eq!(code(&found), wanted, "{name}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{name} took {:?}", begun.elapsed());
    }
    let hidden = json!({ "n": 2_000_000_000_u64 });
    let found = answer(&service, "query($n: Int) { requests(first: $n) { nodes { id } } }", hidden);
    assert_eq!(code(&found), "TOO_COMPLEX", "a page behind a variable");
}

#[test]
fn an_error_is_where_it_is_or_of_no_place() {
    let service = service(&World::new(2).run(100));
    for (query, place) in [
        ("", None),
        ("{ nothing }", Some((1, 3))),
        ("{ pools {\n  nothing } }", Some((2, 3))),
        ("{ ...a } fragment a on Query { ...a }", None),
        ("query($id: ID!) { request(id: $id) { id } }", Some((1, 31))),
        ("{ stateAt(pool: \"none\") { digest } }", Some((1, 3))),
        ("{ ", None),
    ] {
        let found = answer(&service, query, json!({}));
        let place = place.map(|(line, column)| json!([{ "line": line, "column": column }]));
        assert_eq!(found["errors"][0].get("locations"), place.as_ref(), "{query}: {found:#}");
    }
    let body: Value = serde_json::from_slice(&service.answer(b"[[", &service.terms(None))).unwrap();
    assert!(
        body["errors"][0].get("message").is_some() && body["errors"][0].get("locations").is_none(),
        "{body}"
    );
}

#[test]
fn a_filter_that_cannot_be_names_what_was_found_and_what_is_allowed() {
    let service = service(&World::new(2).run(100));
    let ask = |filter: &str| {
        let query = format!("{{ requests(first: 5, filter: {{ {filter} }}) {{ nodes {{ id priority }} }} }}");
        answer(&service, &query, json!({}))
    };
    for (filter, said) in [
        (
            "band: 99999999999",
            "band: 99999999999 is not allowed: a whole number from -2147483648 to 2147483647",
        ),
        (
            "band: [0, -99999999999]",
            "band: -99999999999 is not allowed: a whole number from -2147483648 to 2147483647",
        ),
    ] {
        let found = ask(filter);
        assert_eq!(found["errors"][0]["message"], said, "{found:#}");
    }
    // One alone is a list of it.
    assert_eq!(ask("band: 0"), ask("band: [0]"));
    assert_eq!(ask("outcome: DISPATCHED"), ask("outcome: [DISPATCHED]"));
    assert!(ask("band: 0")["data"]["requests"]["nodes"].is_array());
}

/// What clients ask of a schema before anything else, as the reference implementation puts it.
const INTROSPECTION: &str = "query IntrospectionQuery { __schema { description queryType { name kind } mutationType { name kind }
    subscriptionType { name kind } types { ...FullType }
    directives { name description isRepeatable locations args(includeDeprecated: true) { ...InputValue } } } }
  fragment FullType on __Type { kind name description specifiedByURL isOneOf
    fields(includeDeprecated: true) { name description args(includeDeprecated: true) { ...InputValue }
      type { ...TypeRef } isDeprecated deprecationReason }
    inputFields(includeDeprecated: true) { ...InputValue } interfaces { ...TypeRef }
    enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason } possibleTypes { ...TypeRef } }
  fragment InputValue on __InputValue { name description type { ...TypeRef } defaultValue isDeprecated deprecationReason }
  fragment TypeRef on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name
    ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } } } }";

#[test]
fn what_stock_clients_ask_of_the_schema_is_well_within_the_limits() {
    let limits = Limits { complexity: Limits::default().complexity * 2 / 3, ..Limits::default() };
    let service = service_with(&World::new(2).run(100), Options { limits, ..Options::default() });
    let found = answer(&service, INTROSPECTION, json!({}));
    let errors = found["errors"].as_array().cloned().unwrap_or_default();
    // A library may not know the newest fields of the schema's own types; nothing else is wrong with it.
    for error in &errors {
        assert_eq!(error["extensions"]["code"], "GRAPHQL_VALIDATION_FAILED", "{error}");
        assert!(error["message"].as_str().unwrap().starts_with("Unknown field"), "{error}");
    }
    assert!(!errors.is_empty() || found["data"]["__schema"]["types"].as_array().unwrap().len() > 60);
}

#[test]
fn batches_and_bodies_that_are_no_question_are_refused() {
    let service = service(&World::new(2).run(400));
    let terms = service.terms(None);
    let ask = |body: &[u8]| serde_json::from_slice::<Value>(&service.answer(body, &terms)).unwrap();
    let one = json!({ "query": "{ pools { name } }" });
    assert_eq!(code(&ask(Value::from(vec![one.clone(); 6]).to_string().as_bytes())), "BATCH_TOO_LARGE");
    let five = ask(Value::from(vec![one; 5]).to_string().as_bytes());
    assert_eq!(five.as_array().unwrap().len(), 5);
    for body in [
        &b""[..],
        b"{",
        b"[1]",
        b"{}",
        b"{\"query\": 3}",
        b"{\"query\": \"{a}\", \"variables\": [1]}",
        b"\xff\xfe",
    ] {
        let found = ask(body);
        let found = if found.is_array() { found[0].clone() } else { found };
        assert_eq!(code(&found), "BAD_REQUEST", "{body:?}");
    }
    assert_eq!(code(&ask(&[b' '; 100_000])), "REQUEST_TOO_LARGE");
}

#[test]
fn time_that_is_over_ends_the_work() {
    let steps = World::new(2).run(6_000);
    let service = service_with(&steps, Options { timeout: Duration::ZERO, ..Options::default() });
    for query in [
        "{ stateAt(sequence: 5000) { digest } }",
        "{ requests(filter: { flow: \"tenant-a\" }) { nodes { id } } }",
        "{ events(from: \"2025-01-01\", to: \"2027-01-01\", first: 500) { nodes { kind } } }",
    ] {
        assert_eq!(code(&answer(&service, query, json!({}))), "TIMEOUT", "{query}");
    }
    let service = service_with(&steps, patient());
    let terms = service.terms(None);
    terms.work.cancel();
    let body = json!({ "query": "{ stateAt(sequence: 5000) { digest } }" }).to_string();
    let found: Value = serde_json::from_slice(&service.answer(body.as_bytes(), &terms)).unwrap();
    assert_eq!(code(&found), "CANCELLED");
}

#[test]
fn introspection_can_be_switched_off_and_no_more_are_answered_at_once_than_allowed() {
    let steps = World::new(2).run(100);
    let limits = Limits { introspection: false, ..Limits::default() };
    let closed = service_with(&steps, Options { limits, ..patient() });
    for query in [
        "{ __schema { types { name } } }",
        "{ ...a } fragment a on Query { __type(name: \"Pool\") { name } }",
    ] {
        assert_eq!(code(&answer(&closed, query, json!({}))), "INTROSPECTION_DISABLED");
    }
    assert!(answer(&closed, "{ pools { __typename } }", json!({})).get("errors").is_none());
    let none = service_with(&steps, Options { at_once: 0, ..Options::default() });
    assert_eq!(code(&answer(&none, "{ pools { name } }", json!({}))), "BUSY");
}
