//! Questions that want more than their share: deep, wide, aliased, circular, exploding, huge; and some that are allowed
//! but heavy. What is asked of a service to see that it bounds them and that admissions go on.

use serde_json::{Value, json};

/// One of them: its name, the body of its request, and the code of the refusal (none: it is answered, within bounds).
pub type Hostile = (&'static str, String, Option<&'static str>);

fn asked(query: impl Into<String>) -> String {
    json!({ "query": query.into() }).to_string()
}

/// All of them.
pub fn questions() -> Vec<Hostile> {
    let many = |count: usize, what: &dyn Fn(usize) -> String| -> String { (0..count).map(what).collect() };
    let aliased = |count| asked(format!("{{ {} }}", many(count, &|n| format!("a{n}: pools {{ name }} "))));
    let deep =
        |levels: usize| asked(format!("{{ {} name {} }}", "pool { ".repeat(levels), "} ".repeat(levels)));
    // Each fragment doubles the one before: 2^30 fields.
    let doubling = many(30, &|n| format!("fragment f{n} on Query {{ ...f{} ...f{} }} ", n + 1, n + 1));
    let batch = |count: usize| Value::from(vec![json!({ "query": "{ pools { name } }" }); count]).to_string();
    vec![
        ("deep", deep(40), Some("TOO_DEEP")),
        ("deeper", deep(4_000), Some("TOO_DEEP")),
        ("aliased 500 times", aliased(500), Some("TOO_MANY_ALIASES")),
        ("aliased 1,500 times", aliased(1_500), Some("TOO_MANY_TOKENS")),
        ("aliased 10,000 times", aliased(10_000), Some("REQUEST_TOO_LARGE")),
        ("wide", asked(format!("{{ {} }}", "stateAt { digest } ".repeat(40))), Some("TOO_COMPLEX")),
        ("wider", asked(format!("{{ pools {{ {} }} }}", "name ".repeat(12_000))), Some("TOO_MANY_TOKENS")),
        ("wide and cheap", asked(format!("{{ pools {{ {} }} }}", "name ".repeat(3_900))), None),
        (
            "circular",
            asked("{ ...a } fragment a on Query { ...b } fragment b on Query { ...a }"),
            Some("BAD_REQUEST"),
        ),
        (
            "doubling",
            asked(format!("{{ ...f0 }} {doubling} fragment f30 on Query {{ pools {{ name }} }}")),
            Some("TOO_COMPLEX"),
        ),
        (
            "introspection bomb",
            asked(
                "{ __schema { types { fields { type { fields { type { fields { type { fields { name } } } } } } } } } }",
            ),
            Some("TOO_COMPLEX"),
        ),
        (
            "directives",
            asked(format!("{{ pools {{ name {} }} }}", "@include(if: true) ".repeat(500))),
            Some("TOO_MANY_DIRECTIVES"),
        ),
        (
            "pages of pages",
            asked("{ requests(first: 200) { nodes { events(first: 100) { data } explanation { text } } } }"),
            Some("TOO_COMPLEX"),
        ),
        (
            "a huge page",
            asked("{ requests(last: 2000000000) { pageInfo { endCursor } } }"),
            Some("TOO_COMPLEX"),
        ),
        ("a page too long", asked("{ events(first: 501) { endCursor } }"), Some("PAGE_TOO_LARGE")),
        ("a batch", batch(6), Some("BATCH_TOO_LARGE")),
        ("a large batch", batch(1_000), Some("BATCH_TOO_LARGE")),
        ("no question", "[[[[".to_owned(), Some("BAD_REQUEST")),
        (
            "buckets",
            asked("{ waits(from: \"2000-01-01\", bucketSeconds: 10) { from } }"),
            Some("TOO_MANY_BUCKETS"),
        ),
        // Allowed, and as heavy as what is allowed can be.
        (
            "states",
            asked(format!(
                "{{ {} }}",
                many(20, &|n| format!("s{n}: stateAt(sequence: {}) {{ digest }} ", 5 + n * 97))
            )),
            None,
        ),
        (
            "all requests by their wait",
            asked(
                "{ requests(orderBy: WAIT_ASC, first: 60) { totalCount { count } nodes { id waitedMs callerId } } }",
            ),
            None,
        ),
        (
            "a look through all of the log",
            asked(
                "{ events(from: \"2000-01-01\", kinds: [\"KeyForgotten\"], first: 500) { nodes { text } } }",
            ),
            None,
        ),
        (
            "explanations",
            asked("{ requests(first: 100) { nodes { explanation { text } timeline { text } } } }"),
            None,
        ),
    ]
}

/// The code of the first error of an answer, of one question or of many.
pub fn code(answer: &Value) -> Option<&str> {
    let one = answer.get(0).unwrap_or(answer);
    one["errors"][0]["extensions"]["code"].as_str()
}
