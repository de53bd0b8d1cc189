//! Goal: who pages on with a cursor whose request retention has removed meanwhile is told so, and gets no page with a gap;
//! so is who asks for a state that is gone. Method: a log on disk that is sealed and trimmed between two pages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::world::{World, append};
use common::{answer, code, data, patient};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use weir_graphql::Service;
use weir_kernel::Micros;
use weir_log::hot::{HotOptions, HotStore};
use weir_log::reader::Logs;
use weir_log::retention::Retention;
use weir_log::store::Store as _;
use weir_log::upkeep::Upkeep;
use weir_projection::{Projections, Source};

fn upkeep(store: &HotStore, retention: Retention) -> Upkeep {
    let id = store.dir().description().log_id_bytes();
    Upkeep::new(store.dir().path(), id, store.format(), store.window(), retention)
}

fn service(data: &Path) -> (Service, Logs) {
    let logs = Logs::open(data).unwrap();
    let source = Source::new(Some(data), logs.hot().cloned());
    let all = Projections::open(Some(data), &source).unwrap();
    all.catch_up(|_, _| {}).unwrap();
    (Service::new(Arc::new(all), patient()).unwrap(), logs)
}

#[test]
fn a_cursor_whose_request_is_not_kept_any_more_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let steps = World::new(42).run(24_000);
    {
        let mut store =
            HotStore::open(dir.path(), HotOptions { rotate_bytes: 64 << 20, cache_bytes: 8 << 20 }).unwrap();
        for part in steps.chunks(steps.len() / 4) {
            append(&mut store, "chat", part, 200);
            store.rotate_now().unwrap();
            upkeep(&store, Retention::default()).round(Micros(1)).unwrap();
        }
    }
    let query = "query($after: String, $before: String, $first: Int, $last: Int, $order: RequestOrder) {
        requests(orderBy: $order, first: $first, after: $after, last: $last, before: $before) {
            nodes { number } pageInfo { endCursor } } }";
    let page = |service: &Service, variables: Value| answer(service, query, variables);
    let (early, late) = {
        let (service, _logs) = service(dir.path());
        let cursor = |order: &str| {
            let found = data(&service, query, json!({ "first": 5, "order": order }));
            found["requests"]["pageInfo"]["endCursor"].clone()
        };
        let found = (cursor("ARRIVAL_ASC"), cursor("ARRIVAL_DESC"));
        let on = page(&service, json!({ "first": 5, "order": "ARRIVAL_ASC", "after": found.0 }));
        assert_eq!(on["data"]["requests"]["nodes"].as_array().unwrap().len(), 5, "as long as it is kept");
        found
    };
    let (now, half) = (steps.last().unwrap().at, steps[steps.len() / 2].at);
    {
        let store = HotStore::open(dir.path(), HotOptions::default()).unwrap();
        let retention = Retention { max_age: Some(now.since(half) + Micros(1)), max_bytes: None };
        assert!(upkeep(&store, retention).round(now).unwrap().trimmed.segments >= 1);
    }
    let (service, _logs) = service(dir.path());
    for variables in [
        json!({ "first": 5, "order": "ARRIVAL_ASC", "after": early }),
        json!({ "last": 5, "order": "ARRIVAL_ASC", "before": early }),
    ] {
        let found = page(&service, variables.clone());
        assert_eq!(code(&found), "NOT_KEPT", "{variables}");
        let message = found["errors"][0]["message"].as_str().unwrap();
        assert!(message.contains("cursor") && message.contains("chat"), "{message}");
    }
    let on = page(&service, json!({ "first": 5, "order": "ARRIVAL_DESC", "after": late }));
    assert_eq!(on["data"]["requests"]["nodes"].as_array().unwrap().len(), 5, "{on:#}");
    let state = answer(&service, "{ stateAt(sequence: 100) { digest } }", json!({}));
    assert_eq!(code(&state), "NOT_KEPT");
}
