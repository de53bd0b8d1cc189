//! Goal: no odd input to `/graphql` gets anything but an answer, or a typed error with a `code`; nothing panics. Method: a list
//! of wrong arguments for every field, and bodies that are cut, mixed and bent at random.

use crate::binary::{Served, settings};
use crate::harness::call;
use serde_json::{Value, json};
use weir_graphql::QUESTIONS;

async fn post(served: &Served, body: &[u8]) -> Value {
    let reply = call(served.addr, "POST", "/graphql", &[("content-type", "application/json")], body).await;
    assert_eq!(reply.status, 200, "{}: {}", String::from_utf8_lossy(body), reply.text());
    reply.json()
}

/// Every error has a code, and none is a fault of ours.
fn typed(answer: &Value, what: &str) -> Vec<String> {
    let answers = match answer {
        Value::Array(list) => list.clone(),
        one => vec![one.clone()],
    };
    let errors = answers.iter().flat_map(|one| one["errors"].as_array().cloned().unwrap_or_default());
    let code = |error: Value| {
        let code = error["extensions"]["code"].as_str();
        let code = code.unwrap_or_else(|| panic!("{what}: an error without a code: {error}")).to_owned();
        assert_ne!(code, "INTERNAL", "{what}: {error}");
        assert!(!error["message"].as_str().unwrap().is_empty(), "{what}");
        code
    };
    errors.map(code).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_arguments_are_named() {
    let served = Served::start(
        &(settings("{drainTimeout: 0s}", "maxRequests: 40") + "pools: {default: {}, chat: {}}\n"),
    );
    served.pool_is(0.2).await;
    for _ in 0..20 {
        served.admit().await.admitted();
    }
    served
        .until("the projections", async || {
            let asked = br#"{"query": "{ requests { totalCount { count } } }"}"#;
            post(&served, asked).await["data"]["requests"]["totalCount"]["count"] == json!(20)
        })
        .await;
    const BAD: &str = "BAD_USER_INPUT";
    const INVALID: &str = "GRAPHQL_VALIDATION_FAILED";
    for (field, wanted) in [
        ("pool(name: 7) { name }", INVALID),
        ("stateAt(pool: \"nowhere\") { digest }", "NO_SUCH_POOL"),
        ("stateAt(sequence: -1) { digest }", BAD),
        ("stateAt(sequence: 99999999) { digest }", "NOT_YET"),
        ("stateAt(sequence: 5, time: \"2026-01-01\") { digest }", BAD),
        ("stateAt(time: \"half past nine\") { digest }", BAD),
        ("stateAt { leases(first: 1001) { requestId } }", "PAGE_TOO_LARGE"),
        ("stateAt { queue(first: -3) { position } }", BAD),
        ("requests(first: -1) { nodes { id } }", BAD),
        ("requests(first: 201) { nodes { id } }", "PAGE_TOO_LARGE"),
        ("requests(first: 2, last: 2) { nodes { id } }", BAD),
        ("requests(last: -9) { nodes { id } }", BAD),
        ("requests(after: \"nonsense\") { nodes { id } }", BAD),
        ("requests(before: \"\") { nodes { id } }", BAD),
        ("requests(after: \"99999999999999999999999999999:1\") { nodes { id } }", BAD),
        ("requests(orderBy: SIDEWAYS) { nodes { id } }", INVALID),
        ("requests(filter: { outcome: [LOST] }) { nodes { id } }", INVALID),
        ("requests(filter: { waitedMinMs: -4 }) { nodes { id } }", BAD),
        ("requests(filter: { from: \"2026-13-45\" }) { nodes { id } }", BAD),
        ("requests(filter: { band: [99999999999] }) { nodes { id } }", BAD),
        ("request(id: \"\") { id }", BAD),
        ("request(id: \"default\") { id }", BAD),
        ("request(id: \"default-\") { id }", BAD),
        ("request(id: \"default--4\") { id }", ""),
        ("request(id: \"nowhere-4\") { id }", "NO_SUCH_POOL"),
        ("request(id: \"default-99999999999999999999999\") { id }", BAD),
        ("events(kinds: [\"NoSuchKind\"]) { endCursor }", BAD),
        ("events(kinds: [3]) { endCursor }", INVALID),
        ("events(first: -1) { endCursor }", BAD),
        ("events(first: 501) { endCursor }", "PAGE_TOO_LARGE"),
        ("events(after: \"here\") { endCursor }", BAD),
        ("events(request: \"chat-5\", pool: \"default\") { endCursor }", BAD),
        ("events(from: \"2027-01-01\", to: \"2026-01-01\") { endCursor }", BAD),
        ("waits(bucketSeconds: 0) { from }", BAD),
        ("waits(bucketSeconds: 7) { from }", BAD),
        ("waits(bucketSeconds: -10) { from }", BAD),
        ("waits(bucketSeconds: 10, from: \"1970-01-01\") { from }", "TOO_MANY_BUCKETS"),
        ("outcomes(groupBy: COLOUR) { from }", INVALID),
        ("incidents(from: \"\", to: \"\") { kind }", BAD),
        ("configurations { diff(a: \"x\", b: \"y\") { path } }", ""),
        ("nothing { of } the kind", INVALID),
    ] {
        let answer = post(&served, json!({ "query": format!("{{ {field} }}") }).to_string().as_bytes()).await;
        let codes = typed(&answer, field);
        let found = codes.first().map_or("", String::as_str);
        // Without a word: it may be an error or nothing found, but typed.
        assert!(wanted.is_empty() || found == wanted, "{field}: {answer}");
        assert!(!codes.is_empty() || wanted.is_empty(), "{field}: {answer}");
    }
}

/// A small generator, so that a failure comes again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bent_questions_are_answered_or_refused_by_name() {
    let served = Served::start(&settings("{drainTimeout: 0s}", "maxRequests: 40"));
    served.pool_is(0.2).await;
    for _ in 0..20 {
        served.admit().await.admitted();
    }
    let mut random = Random(0x5eed);
    let odd = [
        json!(null),
        json!(-1),
        json!(0),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("default-1"),
        json!("\u{0}\u{202e}"),
        json!([]),
        json!({ "a": [1, { "b": null }] }),
        json!(true),
        json!("9999-12-31T23:59:60.999999999Z"),
        json!("-0001-01-01"),
        json!("@-5"),
        json!("x".repeat(5_000)),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for turn in 0..600 {
        let question = QUESTIONS[random.below(QUESTIONS.len())];
        let mut text: Vec<char> = question.text.chars().collect();
        let variables: serde_json::Map<String, Value> = question
            .variables()
            .into_iter()
            .map(|(name, _)| (name, odd[random.below(odd.len())].clone()))
            .collect();
        let mut asked = json!({ "query": question.text, "variables": variables });
        match turn % 4 {
            // Wrong values alone.
            0 => {}
            // A piece of the text doubled, taken out, or another sign.
            1 => {
                let (at, length) = (random.below(text.len()), random.below(30));
                let end = (at + length).min(text.len());
                let piece: Vec<char> = text[at..end].to_vec();
                match random.below(3) {
                    0 => drop(text.splice(at..at, piece)),
                    1 => drop(text.drain(at..end)),
                    _ => text[at] = ['{', '}', '(', '"', '$', '\u{1F4A5}', '\u{0}', '!'][random.below(8)],
                }
                asked["query"] = json!(text.into_iter().collect::<String>());
            }
            2 => asked["operationName"] = odd[random.below(odd.len())].clone(),
            _ => asked["variables"] = odd[random.below(odd.len())].clone(),
        }
        let mut body = asked.to_string().into_bytes();
        if turn % 5 == 4 {
            // And the body itself: a byte is another, or its end is missing.
            let at = random.below(body.len());
            if random.below(2) == 0 { body.truncate(at) } else { body[at] = random.below(256) as u8 }
        }
        let answer = post(&served, &body).await;
        seen.extend(typed(&answer, &String::from_utf8_lossy(&body)));
    }
    for code in ["BAD_REQUEST", "BAD_USER_INPUT", "GRAPHQL_PARSE_FAILED", "GRAPHQL_VALIDATION_FAILED"] {
        assert!(seen.contains(code), "{code} among {seen:?}");
    }
}
