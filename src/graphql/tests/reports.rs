//! Goal: what users of other systems reported does not happen here: limits hold through fragments, numbers come back whole, the
//! edges of pages are edges. Method: each report's own case, through the service.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::world::{World, append};
use common::{answer, arrival, code, data, service, service_with};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_graphql::{Limits, Options, Service};
use weir_kernel::{Arrival, Face, Input, Micros, ObjectivesChange};
use weir_log::memory::{MemoryDisk, MemoryStore};
use weir_projection::{Projections, Source};

#[test]
fn c119_limits_hold_inline_and_through_fragments_alike() {
    let steps = World::new(2).run(400);
    let limits = Limits { depth: 7, complexity: 200, ..Limits::default() };
    let service = service_with(&steps, Options { limits, ..Options::default() });
    let fields = "name ".repeat(1_000);
    let nested = |levels: usize| {
        let parts = (0..levels).map(|n| format!("fragment f{n} on Pool {{ pool {{ ...f{} }} }} ", n + 1));
        let parts: String = parts.collect();
        format!("{{ pools {{ ...f0 }} }} {parts} fragment f{levels} on Pool {{ name }}")
    };
    let inline = |levels: usize| {
        format!("{{ pools {{ {} name {} }} }}", "pool { ".repeat(levels), "} ".repeat(levels))
    };
    for (written, through, wanted) in [
        (
            format!("{{ pools {{ {fields} }} }}"),
            format!("{{ pools {{ ...a }} }} fragment a on Pool {{ {fields} }}"),
            "TOO_COMPLEX",
        ),
        (inline(12), nested(12), "TOO_DEEP"),
    ] {
        assert_eq!(code(&answer(&service, &written, json!({}))), wanted);
        assert_eq!(code(&answer(&service, &through, json!({}))), wanted);
    }
    let circle = "{ pools { ...a } } fragment a on Pool { ...b } fragment b on Pool { name ...a }";
    assert_eq!(code(&answer(&service, circle, json!({}))), "BAD_REQUEST");
    // Refused before any work: where no work at all is allowed, it is still the limit that is named.
    let terms = service.terms(None);
    terms.work.cancel();
    let body = json!({ "query": nested(12) }).to_string();
    let found: Value = serde_json::from_slice(&service.answer(body.as_bytes(), &terms)).unwrap();
    assert_eq!(code(&found), "TOO_DEEP");
}

#[test]
fn c121_numbers_beyond_32_bits_come_back_whole() {
    let mut world = World::new(2);
    let set = vec![("last".to_owned(), i32::MIN)];
    world.take(Input::ObjectivesChanged(ObjectivesChange { set, removed: vec![] }));
    world.load(9);
    world.wait(1_234_567);
    let at = world.at;
    let id = world.arrive(Arrival { bytes: 500_000_000, ..arrival("whale", Some("last"), Face::Held) });
    let large = world.arrive(Arrival { bytes: 5_000_000_000, ..arrival("whale", Some("last"), Face::Held) });
    world.wait(2_000_000);
    let service = service(&world.steps);
    let query = "query($id: ID!) { request(id: $id) { number bytes priority arrivedAt outcome } }";
    let found = data(&service, query, json!({ "id": format!("chat-{id}") }))["request"].clone();
    assert_eq!(found["number"], json!(id));
    assert_eq!((&found["bytes"], &found["priority"]), (&json!(500_000_000_u64), &json!(i32::MIN)));
    assert_eq!(found["arrivedAt"], json!(weir_log::describe::show_time(Micros(at))));
    assert!(found["arrivedAt"].as_str().unwrap().contains("."), "to the microsecond: {found}");
    let found = data(&service, query, json!({ "id": format!("chat-{large}") }))["request"].clone();
    assert_eq!(found["bytes"], json!(5_000_000_000_u64), "{found}");
    // Filters on them, and a sequence that no float holds.
    let filter =
        json!({ "filter": { "band": [i32::MIN], "from": weir_log::describe::show_time(Micros(at)) } });
    let found = data(
        &service,
        "query($filter: RequestFilter) { requests(filter: $filter) { totalCount { count } } }",
        filter,
    );
    assert_eq!(found["requests"]["totalCount"]["count"], json!(2));
    for sequence in [json!(9_007_199_254_740_993_u64), json!("9007199254740993")] {
        let found = answer(
            &service,
            "query($s: Long) { stateAt(sequence: $s) { digest } }",
            json!({ "s": sequence }),
        );
        assert_eq!(code(&found), "NOT_YET");
        assert!(found["errors"][0]["message"].as_str().unwrap().contains("9007199254740993"), "{found}");
    }
}

#[test]
fn c123_the_edges_of_pages_are_edges() {
    let steps = World::new(12).run(6_000);
    let service = service(&steps);
    let page =
        |args: &str| answer(&service, &format!("{{ requests({args}) {{ nodes {{ id }} }} }}"), json!({}));
    let shown = |args: &str| page(args)["data"]["requests"]["nodes"].as_array().unwrap().len();
    assert_eq!((shown("first: 0"), shown("first: 100"), shown("last: 100")), (0, 100, 100));
    for (args, wanted) in [
        ("first: -1", "BAD_USER_INPUT"),
        ("first: 1000000000", "TOO_COMPLEX"),
        ("first: 201", "PAGE_TOO_LARGE"),
        ("first: 5, last: 5", "BAD_USER_INPUT"),
        ("after: \"garbage\"", "BAD_USER_INPUT"),
    ] {
        let found = page(args);
        assert_eq!(code(&found), wanted, "{args}");
    }
    let found = page("first: 201");
    assert!(found["errors"][0]["message"].as_str().unwrap().contains("200"), "the cap is stated: {found}");
}

/// Paging through all, oldest first, while as many again arrive.
#[test]
fn c123_pages_of_a_growing_log_hold_each_request_once() {
    let steps = World::new(13).run(9_000);
    let disk = MemoryDisk::new();
    let mut store = MemoryStore::open(&disk);
    let half = steps.len() / 2;
    append(&mut store, "chat", &steps[..half], 50);
    let all = Projections::open(None, &Source::new(None, Some(Arc::new(disk)))).unwrap();
    all.catch_up(|_, _| {}).unwrap();
    let service = Service::new(Arc::new(all), Options::default()).unwrap();
    let query = "query($a: String) { requests(orderBy: ARRIVAL_ASC, first: 60, after: $a) {
        nodes { number } pageInfo { hasNextPage endCursor } } }";
    let (mut seen, mut after, mut written) = (Vec::new(), Value::Null, half);
    loop {
        let found = data(&service, query, json!({ "a": after }))["requests"].clone();
        seen.extend(found["nodes"].as_array().unwrap().iter().map(|node| node["number"].as_u64().unwrap()));
        if found["pageInfo"]["hasNextPage"] != json!(true) && written == steps.len() {
            break;
        }
        after = found["pageInfo"]["endCursor"].clone();
        let to = (written + 100).min(steps.len());
        append(&mut store, "chat", &steps[written..to], 50);
        service.projections().catch_up(|_, _| {}).unwrap();
        written = to;
    }
    let wanted: BTreeSet<u64> = steps
        .iter()
        .filter(|step| matches!(step.input, Input::Arrived(_)))
        .filter(|step| step.events.iter().any(|event| weir_log::describe::event_kind(event) != "Repeated"))
        .map(|step| step.seq)
        .collect();
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "in order, none twice");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), wanted);
}

/// The figures of a whole do not depend on whether those of its buckets are asked for beside them, which decides from
/// which pieces they are summed up.
#[test]
fn a_whole_is_the_same_with_its_buckets_and_without() {
    let mut world = World::new(14);
    for turn in 0..1_500_u64 {
        // More kinds of outcomes than a piece of ten minutes keeps apart, in the second of them.
        let (flows, times) = if (300..700).contains(&turn) { (9_000, 8) } else { (4, 1) };
        let objective = [None, Some("interactive"), Some("batch")][(turn % 3) as usize];
        let mut id = 0;
        for n in 0..times {
            let flow = format!("tenant-{:03}", (turn * 8 + n) * 7 % flows);
            id = world.arrive(arrival(&flow, objective, Face::Held));
        }
        world.load([0, 9, 3][(turn / 40 % 3) as usize]);
        world.wait(if flows > 4 { 700_000 } else { 2_000_000 });
        if world.state.lease(weir_kernel::RequestId(id)).is_some() {
            world.end(id);
        }
    }
    let service = service(&world.steps);
    let span = |from: u64, to: u64| {
        let time =
            |seconds: u64| weir_log::describe::show_time(Micros(common::world::BASE + seconds * 1_000_000));
        json!({ "from": time(from), "to": time(to) })
    };
    let last = (world.at - common::world::BASE) / 1_000_000;
    assert!(last > 2_000, "{last} s");
    let figures = "count meanMs minMs p50Ms p95Ms maxMs";
    let level = "mean min max last effectiveMax endpoints inFlight maxInFlight held { band heldMs } regimes { regime ms }";
    for (from, to) in [(0, last + 1), (0, 1_800), (37, 2_041), (610, 1_190), (599, 1_201)] {
        for (report, whole) in [
            (
                "outcomes(from: $from, to: $to, groupBy: FLOW)",
                "series { group { flow } count bytes share POINTS }",
            ),
            (
                "waits(from: $from, to: $to, groupBy: FLOW)",
                &format!("series {{ group {{ flow }} whole {{ {figures} }} POINTS }}"),
            ),
            (
                "queue(from: $from, to: $to, groupBy: FLOW)",
                "series { group { flow } meanRequests maxRequests POINTS }",
            ),
            ("saturation(from: $from, to: $to)", &format!("whole {{ {level} }} POINTS")),
        ] {
            let ask = |points: &str| {
                let query = format!(
                    "query($from: Time, $to: Time) {{ it: {report} {{ from to bucketSeconds {} }} }}",
                    whole.replace("POINTS", points)
                );
                data(&service, &query, span(from, to))["it"].clone()
            };
            let (mut with, without) = (ask("points { time }"), ask(""));
            let mut points = 0;
            let mut strip = |value: &mut Value| {
                let found = value.as_object_mut().and_then(|fields| fields.remove("points"));
                points += found.and_then(|list| list.as_array().map(Vec::len)).unwrap_or(0);
            };
            strip(&mut with);
            let series = with.get_mut("series").and_then(Value::as_array_mut);
            series.into_iter().flatten().for_each(&mut strip);
            assert!(points > 20, "{points} buckets of {report}");
            assert_eq!(with, without, "{report} of {from} to {to}");
        }
    }
}

/// More flows in ten seconds than are kept apart: those that share a name are said to, and objectives keep their figures.
#[test]
fn figures_that_are_not_each_flows_own_are_said_not_to_be() {
    let mut world = World::new(15);
    world.wait(10_000_000 - (world.at - common::world::BASE) % 10_000_000);
    world.load(9);
    for n in 0..5_000_u64 {
        let objective = [None, Some("interactive"), Some("batch")][(n % 3) as usize];
        world.arrive(arrival(&format!("tenant-{n:04}"), objective, Face::Held));
        world.wait(500);
    }
    world.wait(1_000_000);
    let service = service(&world.steps);
    let ask = |args: &str| {
        let query =
            format!("{{ outcomes({args}) {{ exact series {{ group {{ flow objective }} count }} }} }}");
        data(&service, &query, json!({}))["outcomes"].clone()
    };
    let count = |report: &Value| {
        report["series"].as_array().unwrap().iter().map(|one| one["count"].as_u64().unwrap()).sum::<u64>()
    };
    let all = ask("groupBy: OUTCOME");
    assert_eq!((&all["exact"], count(&all)), (&json!(true), 5_000));
    for (objective, wanted) in [("interactive", 1_667), ("batch", 1_666)] {
        let found = ask(&format!("filter: {{ objective: \"{objective}\" }}"));
        assert_eq!((&found["exact"], count(&found)), (&json!(true), wanted), "{objective}");
    }
    assert_eq!(ask("groupBy: OBJECTIVE")["exact"], json!(true));
    let flows = ask("groupBy: FLOW");
    assert_eq!((&flows["exact"], count(&flows)), (&json!(false), 5_000));
    assert_eq!(flows["series"][0]["group"]["flow"], json!("(other)"));
    assert_eq!(ask("filter: { flow: \"tenant-4999\" }")["exact"], json!(false));
}
