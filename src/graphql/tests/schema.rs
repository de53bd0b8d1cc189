//! Goal: the schema that is committed is the one that is served, every field of it can be answered, and what GraphQL says
//! of a request is what a direct fold of the log says. Method: random worlds, queries over every field.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::world::{Random, World};
use common::{answer, code, data, incident, patient, service, service_with};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use weir_graphql::{Limits, Options, SDL};
use weir_kernel::{Event, Input, Step};
use weir_log::describe::{event_kinds, show_time};

const INTROSPECTION: &str = "
query { __schema { types { kind name description
  fields { name description args { name description type { ...T } } type { ...T } }
  inputFields { name description type { ...T } } enumValues { name description } interfaces { name } } } }
fragment T on __Type { kind name ofType { kind name ofType { kind name ofType { kind name } } } }";

fn shown(ty: &Value) -> String {
    match ty["kind"].as_str().unwrap() {
        "NON_NULL" => format!("{}!", shown(&ty["ofType"])),
        "LIST" => format!("[{}]", shown(&ty["ofType"])),
        _ => ty["name"].as_str().unwrap().to_owned(),
    }
}

/// Types with fields, as the served schema tells them.
fn types(steps: &[Step]) -> BTreeMap<String, Value> {
    let all = data(&service(steps), INTROSPECTION, json!({}));
    let list = all["__schema"]["types"].as_array().unwrap().iter();
    list.map(|ty| (ty["name"].as_str().unwrap().to_owned(), ty.clone())).collect()
}

#[test]
fn the_committed_schema_is_the_one_that_is_served() {
    let steps = World::new(1).run(50);
    let mut served = BTreeSet::new();
    for (name, ty) in types(&steps) {
        if name.starts_with("__") || ["Boolean", "Float", "ID", "Int", "String"].contains(&name.as_str()) {
            continue;
        }
        assert!(ty["description"].as_str().is_some_and(|text| text.len() > 5), "{name} teaches nothing");
        for list in ["fields", "inputFields", "enumValues"] {
            for one in ty[list].as_array().into_iter().flatten() {
                let field = one["name"].as_str().unwrap();
                assert!(
                    one["description"].as_str().is_some_and(|text| text.len() > 3),
                    "{name}.{field} teaches nothing"
                );
                let of = if one["type"].is_object() { shown(&one["type"]) } else { String::new() };
                served.insert(format!("{name}.{field}: {of}").trim_end_matches([':', ' ']).to_owned());
                for arg in one["args"].as_array().into_iter().flatten() {
                    assert!(arg["description"].as_str().is_some(), "{name}.{field}({})", arg["name"]);
                    let arg_type = shown(&arg["type"]);
                    served.insert(format!("{name}.{field}({}: {arg_type})", arg["name"].as_str().unwrap()));
                }
            }
        }
    }
    assert_eq!(served, written(), "graphql/schema.graphql and the served schema differ");
    assert!(served.len() > 700, "{}", served.len());
}

/// The same, read from the text by its lines.
fn written() -> BTreeSet<String> {
    let (mut out, mut of, mut field, mut quoted, mut args) =
        (BTreeSet::new(), String::new(), String::new(), false, false);
    for line in SDL.lines() {
        let text = line.trim();
        if text.starts_with("\"\"\"") {
            quoted ^= text.len() < 6 || !text.ends_with("\"\"\"") || text == "\"\"\"";
            continue;
        }
        if quoted || text.is_empty() {
            continue;
        }
        if let Some(head) =
            ["type ", "input ", "enum ", "interface "].iter().find_map(|kind| line.strip_prefix(kind))
        {
            of = head.split_whitespace().next().unwrap().to_owned();
            continue;
        }
        if of.is_empty() || text == "}" || text.starts_with("scalar ") || text.starts_with("schema ") {
            continue;
        }
        if let Some(name) = text.strip_suffix('(') {
            (field, args) = (name.to_owned(), true);
        } else if let Some(rest) = text.strip_prefix("):") {
            out.insert(format!("{of}.{field}: {}", rest.trim()));
            args = false;
        } else if args {
            out.insert(format!("{of}.{field}({})", text.split(" = ").next().unwrap()));
        } else {
            out.insert(format!("{of}.{text}"));
        }
    }
    out
}

#[test]
fn every_kind_of_event_has_a_type_of_its_own() {
    let missing: Vec<&str> = event_kinds()
        .iter()
        .copied()
        .filter(|kind| !kind.starts_with("Restated"))
        .filter(|kind| !SDL.contains(&format!("type {kind} implements Event")))
        .collect();
    assert!(missing.is_empty(), "no type for {missing:?}");
}

/// A selection of every field of a type, four levels down, as far as fields need no argument.
fn selection(types: &BTreeMap<String, Value>, name: &str, depth: usize) -> String {
    let mut out = String::new();
    for field in types[name]["fields"].as_array().unwrap() {
        let needs = |arg: &Value| arg["type"]["kind"] == "NON_NULL";
        if field["args"].as_array().unwrap().iter().any(needs) {
            continue;
        }
        let base = shown(&field["type"]).replace(['[', ']', '!'], "");
        let key = field["name"].as_str().unwrap();
        match types[&base]["kind"].as_str().unwrap() {
            "OBJECT" if depth > 0 && !(base == "Request" && depth < 3) => {
                out += &format!("{key} {{ {} }} ", selection(types, &base, depth - 1));
            }
            "INTERFACE" if depth > 0 => out += &format!("{key} {{ {} }} ", event_selection(types)),
            "OBJECT" | "INTERFACE" => {}
            _ => out += &format!("{key} "),
        }
    }
    if out.is_empty() { "__typename".to_owned() } else { out }
}

fn event_selection(types: &BTreeMap<String, Value>) -> String {
    let mut out = "__typename kind sequence ".to_owned();
    for (name, ty) in types {
        if ty["interfaces"].as_array().is_some_and(|list| list.iter().any(|one| one["name"] == "Event")) {
            // Under names of its own: fields of the same name have other types elsewhere.
            let own = ty["fields"].as_array().unwrap().iter().map(|field| {
                let field = field["name"].as_str().unwrap();
                format!("{name}_{field}: {field}")
            });
            out += &format!("... on {name} {{ {} }} ", own.collect::<Vec<_>>().join(" "));
        }
    }
    out
}

#[test]
fn every_field_can_be_answered() {
    let limits = Limits {
        bytes: 1 << 20,
        tokens: usize::MAX,
        aliases: 100_000,
        complexity: usize::MAX,
        ..Limits::default()
    };
    for steps in [incident().steps, World::new(11).run(4_000)] {
        let types = types(&steps);
        let service = service_with(&steps, Options { limits: limits.clone(), ..patient() });
        let (from, to) = (show_time(steps[0].at), "2027-01-01");
        let span = format!("from: \"{from}\", to: \"{to}\"");
        for field in types["Query"]["fields"].as_array().unwrap() {
            let name = field["name"].as_str().unwrap();
            let args = match name {
                "request" => "(id: \"chat-9\")".to_owned(),
                "requests" => "(first: 40)".to_owned(),
                "events" => format!("({span}, first: 500)"),
                "outcomes" | "waits" | "queue" => format!(
                    "(from: \"{from}\", to: \"{}\", groupBy: BAND)",
                    show_time(steps.last().unwrap().at)
                ),
                "saturation" => {
                    format!("(from: \"{from}\", to: \"{}\")", show_time(steps.last().unwrap().at))
                }
                "regimes" | "reclamations" | "incidents" => format!("({span})"),
                "pool" => "(pool: \"chat\")".to_owned(),
                _ => String::new(),
            };
            let base = shown(&field["type"]).replace(['[', ']', '!'], "");
            let query = format!("query {{ {name}{args} {{ {} }} }}", selection(&types, &base, 4));
            let answer = answer(&service, &query, json!({}));
            assert!(answer.get("errors").is_none(), "{name}: {}", answer["errors"]);
            assert!(!answer["data"][name].is_null(), "{name}");
        }
        let diff = "{ configurations { diff(a: 2, b: 2) { path } at(sequence: 5) { digest } } }";
        assert_eq!(data(&service, diff, json!({}))["configurations"]["diff"], json!([]));
    }
}

#[test]
fn a_thousand_requests_through_graphql_are_as_a_walk_over_the_log_finds_them() {
    const QUERY: &str =
        "query($id: ID!) { request(id: $id) { number callerId arrivedAt outcome decidedSequence waitedMs
        leaseEnd endedSequence ranMs firstByteAt timeline { sequence what } } }";
    let mut compared = 0;
    for seed in 31..35 {
        let steps = World::new(seed).run(6_000);
        let service = service(&steps);
        let arrivals: Vec<&Step> =
            steps.iter().filter(|step| matches!(step.input, Input::Arrived(_))).collect();
        let mut random = Random(seed);
        for _ in 0..250 {
            let step = arrivals[random.below(arrivals.len() as u64) as usize];
            let id = format!("chat-{}", step.seq);
            let found = data(&service, QUERY, json!({ "id": id }))["request"].clone();
            assert_eq!(found, walked(&steps, step, &found), "{id} of world {seed}");
            compared += 1;
        }
    }
    assert_eq!(compared, 1_000);
}

/// The same object, made of nothing but the steps (the words of the outcome and the timeline are compared by their steps).
fn walked(steps: &[Step], arrived: &Step, found: &Value) -> Value {
    let Input::Arrived(arrival) = &arrived.input else { panic!() };
    let of = arrived.seq;
    let mut wanted = json!({
        "number": of, "callerId": arrival.caller_id, "arrivedAt": show_time(arrived.at), "outcome": null,
        "decidedSequence": null, "waitedMs": null, "leaseEnd": null, "endedSequence": null, "ranMs": null,
        "firstByteAt": null, "timeline": found["timeline"],
    });
    let word = |debug: String| debug.to_uppercase();
    let mut moments: Vec<u64> = vec![0, of];
    for step in &steps[of as usize - 1..] {
        for event in &step.events {
            let mut decided = |outcome: String, waited: u64| {
                let shown = found["outcome"].as_str().unwrap_or_default().to_owned();
                assert_eq!(shown.replace('_', ""), word(outcome), "{of}");
                wanted["outcome"] = shown.into();
                wanted["decidedSequence"] = step.seq.into();
                wanted["waitedMs"] = json!(waited as f64 / 1_000.0);
                moments.push(step.seq);
            };
            match event {
                Event::Enqueued(_) if step.seq == of => moments.push(of),
                Event::Rejected(rejected) if step.seq == of => decided(format!("{:?}", rejected.outcome), 0),
                Event::Dispatched(e) if e.request.0 == of => decided("Dispatched".to_owned(), e.waited.0),
                Event::Evicted(e) if e.request.0 == of => decided(format!("{:?}", e.outcome), e.waited.0),
                Event::FirstByteNoted { request } if request.0 == of => {
                    wanted["firstByteAt"] = show_time(step.at).into();
                    moments.push(step.seq);
                }
                Event::LeaseEnded(e) if e.request.0 == of => {
                    wanted["leaseEnd"] = word(format!("{:?}", e.end)).into();
                    wanted["endedSequence"] = step.seq.into();
                    wanted["ranMs"] = json!(e.ran.0 as f64 / 1_000.0);
                    moments.push(step.seq);
                }
                Event::RevocationIssued(e) if e.request.0 == of => moments.push(step.seq),
                Event::RevocationEnded(e) if e.request.0 == of => moments.push(step.seq),
                Event::Reclaimed(e) if e.request.0 == of => moments.push(0),
                _ => {}
            }
        }
    }
    moments.sort_unstable();
    let mut told: Vec<u64> =
        found["timeline"].as_array().unwrap().iter().map(|m| m["sequence"].as_u64().unwrap()).collect();
    told.sort_unstable();
    assert_eq!(told, moments, "the timeline of {of}");
    wanted
}

#[test]
fn what_is_wrong_has_a_code() {
    let service = service(&World::new(2).run(300));
    for (query, wanted) in [
        ("{ pool(pool: 3) { name } }", "GRAPHQL_VALIDATION_FAILED"),
        ("{ nothing }", "GRAPHQL_VALIDATION_FAILED"),
        ("{ pools { name }", "GRAPHQL_PARSE_FAILED"),
        ("{ regimes(pool: \"x\") { regime } }", "NO_SUCH_POOL"),
        ("{ request(id: \"seven\") { id } }", "BAD_USER_INPUT"),
        ("{ stateAt(sequence: 99999999) { digest } }", "NOT_YET"),
        ("{ stateAt(sequence: 5, time: \"2026-01-01\") { digest } }", "BAD_USER_INPUT"),
        ("{ requests(first: 100000) { nodes { id } } }", "TOO_COMPLEX"),
        ("{ requests(first: 201) { pageInfo { endCursor } } }", "PAGE_TOO_LARGE"),
        ("{ requests(after: \"zz\") { nodes { id } } }", "BAD_USER_INPUT"),
        ("{ regimes(from: \"tomorrow\") { regime } }", "BAD_USER_INPUT"),
        ("{ outcomes(bucketSeconds: 7) { series { count } } }", "BAD_USER_INPUT"),
        (
            "{ outcomes(from: \"2020-01-01\", to: \"2026-01-01\", bucketSeconds: 10) { series { count } } }",
            "TOO_MANY_BUCKETS",
        ),
        ("{ events(kinds: [\"Nonsense\"]) { endCursor } }", "BAD_USER_INPUT"),
    ] {
        assert_eq!(code(&answer(&service, query, json!({}))), wanted, "{query}");
    }
    // Who may see other pools only.
    let terms = service.terms(Some(BTreeSet::from(["other".to_owned()])));
    let body = json!({ "query": "{ request(id: \"chat-9\") { id } pools { name } }" }).to_string();
    let answer: Value = serde_json::from_slice(&service.answer(body.as_bytes(), &terms)).unwrap();
    assert_eq!((code(&answer), &answer["data"]["pools"]), ("FORBIDDEN", &json!([])));
}
