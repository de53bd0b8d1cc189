//! Goal: each question of the playbook, put to a log with a known incident, gives what its maker knows. Method: scale to
//! zero, a blind sensor, a burst of a tenant, a reclamation, a death and a reload are driven through the real kernel
//! (`common::incident`); the answers are compared with what was done, to the number.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::world::BASE;
use common::{Incident, data, incident, play, service};
use serde_json::{Value, json};
use weir_graphql::{QUESTIONS, Service};
use weir_kernel::Micros;
use weir_log::describe::show_time;

fn time(seconds: f64) -> String {
    show_time(Micros(BASE + (seconds * 1_000_000.0) as u64))
}

/// The whole of the incident.
fn span() -> Value {
    json!({ "pool": "chat", "from": time(0.0), "to": time(200.0) })
}

fn made() -> (Incident, Service) {
    let made = incident();
    let service = service(&made.steps);
    (made, service)
}

fn rows<'a>(value: &'a Value, keys: &[&str]) -> Vec<Vec<&'a Value>> {
    value.as_array().unwrap().iter().map(|row| keys.iter().map(|key| &row[*key]).collect()).collect()
}

#[test]
fn what_went_wrong() {
    let (_, service) = made();
    let found = play(&service, "what-went-wrong", span());
    let kinds: Vec<(String, f64, u64)> = found["incidents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let (kind, shed) = (one["kind"].as_str().unwrap().to_owned(), one["shed"].as_u64().unwrap());
            (kind, one["durationMs"].as_f64().unwrap(), shed)
        })
        .collect();
    println!("{found:#}");
    let of = |wanted: &str| {
        kinds.iter().find(|(kind, ..)| kind == wanted).unwrap_or_else(|| panic!("no {wanted}"))
    };
    assert_eq!(of("EMPTY_POOL"), &("EMPTY_POOL".to_owned(), 6_000.0, 5));
    assert_eq!(of("BLIND_SENSOR"), &("BLIND_SENSOR".to_owned(), 2_000.0, 0));
    // From the last step before, at 69 s, to the end of recovery.
    assert_eq!(of("RESTART").1, 8_000.0);
    assert_eq!(of("RESTART").2, 1);
    let burst =
        found["incidents"].as_array().unwrap().iter().find(|one| one["kind"] == "SHED_BURST").unwrap();
    assert_eq!(
        (&burst["shed"], &burst["hit"][0]),
        (&json!(40), &json!({ "band": 0, "flow": "tenant-c", "reason": "TTL_EXPIRED", "count": 30 }),)
    );
    assert_eq!(burst["hit"][1], json!({ "band": 0, "flow": "tenant-c", "reason": "SATURATED", "count": 10 }));
    let saturation =
        found["incidents"].as_array().unwrap().iter().find(|one| one["kind"] == "SATURATION").unwrap();
    assert_eq!((&saturation["from"], &saturation["shed"]), (&json!(time(40.0)), &json!(40)));
    assert!(!kinds.iter().any(|(kind, ..)| kind == "RECLAMATION_STORM" || kind == "PAUSED"));
}

#[test]
fn who_was_shed_and_why() {
    let (_, service) = made();
    let found = play(&service, "who-was-shed-and-why", span());
    let by_flow = |series: &Value| {
        let row =
            |one: &Value| (one["group"]["flow"].as_str().unwrap().to_owned(), one["count"].as_u64().unwrap());
        series.as_array().unwrap().iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(
        by_flow(&found["byFlow"]["series"]),
        [("tenant-c".to_owned(), 40), ("tenant-a".to_owned(), 6)]
    );
    let by_reason: Vec<(&str, u64)> = found["byReason"]["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["group"]["reason"].as_str().unwrap(), one["count"].as_u64().unwrap()))
        .collect();
    let wanted = [("TTL_EXPIRED", 30), ("SATURATED", 10), ("NO_ENDPOINTS", 5), ("RESTARTED", 1)];
    assert_eq!(by_reason, wanted);
}

#[test]
fn why_was_this_request_shed() {
    let (made, service) = made();
    let why = |number: u64| {
        play(&service, "why-was-this-request-shed", json!({ "id": format!("chat-{number}") }))["request"]
            .clone()
    };
    let starved = why(made.starved[0]);
    assert_eq!(
        (&starved["outcome"], &starved["waitedMs"]),
        (&json!("EVICTED_NO_ENDPOINTS"), &json!(2_500.0))
    );
    let text = starved["explanation"]["text"].as_str().unwrap();
    println!("{text}");
    for part in [
        "tenant-a",
        "the pool had no endpoints",
        "budget for an empty or blind pool of 2.5s",
        "503 rejected-no-endpoints",
        "is not told: band 10 does not take strictly the oldest request first",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The last of the burst met a full queue: thirty were held, thirty are allowed.
    let refused = why(made.burst[39]);
    println!("{:#}", refused["explanation"]);
    assert_eq!((&refused["outcome"], &refused["reason"]), (&json!("REJECTED_CAPACITY"), &json!("SATURATED")));
    let difference = &refused["explanation"]["difference"];
    assert_eq!(
        (&difference["setting"], &difference["needed"], &difference["then"]),
        (&json!("maxRequests"), &json!("31 requests"), &json!("queued"),)
    );
    let expired = why(made.burst[0]);
    let text = expired["explanation"]["text"].as_str().unwrap();
    println!("{text}");
    for part in [
        "band 0 was at its ceiling: saturation 1.8 against 1",
        "budget for a busy pool of 1.5s",
        "429 rejected-ttl-expired",
        "is not told: other settings, a restart or an order of an operator came (step",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(expired["waitedMs"], json!(1_500.0));
    let died = why(made.restarted);
    assert_eq!((&died["outcome"], &died["reason"]), (&json!("EVICTED_OTHER"), &json!("RESTARTED")));
    assert!(died["explanation"]["text"].as_str().unwrap().contains("the service restarted"), "{died:#}");
}

#[test]
fn who_was_evicted_for_whom() {
    let (made, service) = made();
    let found = play(&service, "who-was-evicted-for-whom", span());
    println!("{found:#}");
    let decisions = found["reclamations"].as_array().unwrap();
    assert_eq!(decisions.len(), 1);
    let decision = &decisions[0];
    assert_eq!(
        (&decision["demandBand"], &decision["depth"], &decision["inFlight"]),
        (&json!(10), &json!(1), &json!(4))
    );
    // 1.8 against 1 with four leases: ceil(0.8 × 4 / 1.8) = 2.
    assert_eq!(
        (&decision["saturation"], &decision["ceiling"], &decision["wanted"]),
        (&json!(1.8), &json!(1.0), &json!(2))
    );
    let victims = decision["victims"].as_array().unwrap();
    assert_eq!(victims.len(), 2);
    for victim in victims {
        let number: u64 =
            victim["requestId"].as_str().unwrap().strip_prefix("chat-").unwrap().parse().unwrap();
        assert!(made.batch.contains(&number));
        assert_eq!((&victim["band"], &victim["request"]["flow"]), (&json!(-10), &json!("nightly")));
        assert_eq!(
            (&victim["revocation"]["end"], &victim["revocation"]["tookMs"]),
            (&json!("confirmed"), &json!(40.0))
        );
    }
    let whose = data(
        &service,
        "query($id: ID!) { request(id: $id) { outcome waitedMs } }",
        json!({ "id": format!("chat-{}", made.urgent) }),
    );
    assert_eq!(whose["request"], json!({ "outcome": "DISPATCHED", "waitedMs": 240.0 }));
}

#[test]
fn since_when_was_the_pool_empty_or_blind() {
    let (_, service) = made();
    let found = play(&service, "since-when-was-the-pool-empty-or-blind", span());
    let found = rows(&found["regimes"], &["regime", "from", "until"]);
    let spans: Vec<(&str, &str, Option<&str>)> = found
        .iter()
        .map(|row| (row[0].as_str().unwrap(), row[1].as_str().unwrap(), row[2].as_str()))
        .collect();
    println!("{spans:#?}");
    assert!(spans.contains(&("NO_ENDPOINTS", &time(2.0), Some(&time(8.0)))));
    assert!(spans.contains(&("NO_FRESH_METRICS", &time(25.0), Some(&time(27.0)))));
    assert_eq!(spans.last().unwrap(), &("HAS_ENDPOINTS", time(77.0).as_str(), None));
}

#[test]
fn what_did_the_queue_look_like() {
    let (made, service) = made();
    let found = play(&service, "what-did-the-queue-look-like", json!({ "pool": "chat", "time": time(41.0) }))
        ["stateAt"]
        .clone();
    assert_eq!(
        (&found["regime"], &found["queuedRequests"], &found["inFlight"]),
        (&json!("HAS_ENDPOINTS"), &json!(30), &json!(0))
    );
    assert_eq!(found["effectiveSaturation"], json!(1.8));
    let queue = found["queue"].as_array().unwrap();
    assert_eq!(queue.len(), 30);
    for (place, (queued, number)) in queue.iter().zip(&made.burst).enumerate() {
        assert_eq!(queued["requestId"], format!("chat-{number}"));
        assert_eq!((&queued["position"], &queued["flow"]), (&json!(place + 1), &json!("tenant-c")));
        assert_eq!((&queued["waitedMs"], &queued["due"]), (&json!(1_000.0), &json!(time(41.5))));
    }
    let blocked = rows(&found["bands"], &["priority", "blocked"]);
    assert_eq!(blocked[0], [&json!(10), &json!(true)]);
}

#[test]
fn which_configuration_decided() {
    let (made, service) = made();
    let ask = |seconds: f64| {
        play(&service, "which-configuration-decided", json!({ "pool": "chat", "time": time(seconds) }))["configurations"].clone()
    };
    let (before, after) = (ask(60.0), ask(95.0));
    assert_eq!((&before["at"]["sequence"], &after["at"]["sequence"]), (&json!(2), &json!(made.reload)));
    assert_eq!(before["at"]["until"], json!(time(90.0)));
    let changes = &after["history"][1]["changes"];
    assert_eq!(changes, &json!([{ "path": "saturation_budget", "before": 1_500_000, "after": 3_000_000 }]));
    let diff = data(
        &service,
        "query($b: Long!) { configurations { diff(a: 2, b: $b) { path before after } } }",
        json!({ "b": made.reload }),
    );
    assert_eq!(&diff["configurations"]["diff"], changes);
}

#[test]
fn was_the_pool_saturated_and_what_stood_in_its_queue() {
    let (_, service) = made();
    let found = play(&service, "was-the-pool-saturated", span())["saturation"].clone();
    println!("{:#}", found["whole"]);
    let whole = &found["whole"];
    assert_eq!((&whole["max"], &whole["minEndpoints"]), (&json!(1.8), &json!(0)));
    let regime = |wanted: &str| {
        let list = whole["regimes"].as_array().unwrap().iter();
        list.filter(|one| one["regime"] == wanted).map(|one| one["ms"].as_f64().unwrap()).sum::<f64>()
    };
    assert_eq!((regime("NO_ENDPOINTS"), regime("NO_FRESH_METRICS")), (6_000.0, 2_000.0));
    // Band 0 until its last request had expired, band 10 while the reclamation worked; of the hold at 69 s the log has one step.
    let held = rows(&whole["held"], &["band", "heldMs"]);
    assert_eq!(held, [[&json!(10), &json!(240.0)], [&json!(0), &json!(1_500.0)]]);
    let queue = play(&service, "what-stood-in-the-queue", span())["queue"].clone();
    let band = |wanted: i64| {
        queue["series"].as_array().unwrap().iter().find(|one| one["group"]["band"] == wanted).unwrap().clone()
    };
    assert_eq!((&band(0)["maxRequests"], &band(10)["maxRequests"]), (&json!(30), &json!(5)));
}

#[test]
fn how_long_did_requests_wait_and_which_longest() {
    let (made, service) = made();
    let found = play(&service, "how-long-did-requests-wait", span())["waits"].clone();
    let of = |flow: &str| {
        let one =
            found["series"].as_array().unwrap().iter().find(|one| one["group"]["flow"] == flow).unwrap();
        one["whole"].clone()
    };
    let figures = of("tenant-c");
    assert_eq!(
        (&figures["count"], &figures["maxMs"], &figures["meanMs"]),
        (&json!(40), &json!(1_500.0), &json!(1_125.0))
    );
    assert_eq!((&of("tenant-b")["count"], &of("tenant-b")["p50Ms"]), (&json!(3), &json!(1_000.0)));
    let longest = play(&service, "which-requests-waited-longest", span())["requests"]["nodes"].clone();
    assert_eq!(longest.as_array().unwrap().len(), 20);
    // The one that the dead service kept waiting, then those of the empty pool.
    assert_eq!(longest[0]["id"], json!(format!("chat-{}", made.restarted)));
    assert_eq!(longest[0]["waitedMs"], json!(8_000.0));
    for node in &longest.as_array().unwrap()[1..6] {
        assert!(made.starved.iter().any(|number| node["id"] == format!("chat-{number}")), "{node:#}");
    }
}

#[test]
fn what_became_of_a_callers_request_and_what_happened_in_order() {
    let (made, service) = made();
    let found = play(&service, "what-became-of-a-callers-request", json!({ "callerId": "call-of-nightly" }));
    let nodes = found["requests"]["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 4);
    let ends: Vec<&str> = nodes.iter().map(|node| node["leaseEnd"].as_str().unwrap()).collect();
    assert_eq!(ends.iter().filter(|end| **end == "REVOKED").count(), 2);
    let revoked = nodes.iter().find(|node| node["leaseEnd"] == "REVOKED").unwrap();
    let told: Vec<&str> =
        revoked["timeline"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert!(told.starts_with(&["received", "arrived", "queued", "admitted", "revoked"]), "{told:?}");
    let order = play(&service, "what-happened-in-order", span())["events"].clone();
    let kinds: Vec<&str> =
        order["nodes"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    let count = |kind: &str| kinds.iter().filter(|found| **found == kind).count();
    assert_eq!((count("Rejected"), count("Evicted"), count("StartNoted")), (10, 36, 2));
    assert_eq!((count("RevocationIssued"), count("RevocationEnded"), count("PolicyAdopted")), (2, 2, 2));
    assert_eq!(order["endCursor"], Value::Null);
    let position = play(&service, "how-far-are-the-answers", json!({}))["projection"][0].clone();
    assert_eq!((&position["sequence"], &position["lag"]), (&json!(made.steps.len()), &json!(0)));
}

#[test]
fn every_question_says_what_it_answers_and_is_a_query_of_its_own() {
    assert!(QUESTIONS.len() >= 10);
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphql/queries");
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), QUESTIONS.len(), "each file is a question");
    for question in QUESTIONS {
        assert!(question.about().ends_with(['?', '.']), "{}: {:?}", question.name, question.about());
        assert!(question.text.contains("\nquery "), "{}", question.name);
    }
    let variables = weir_graphql::Question::named("which-configuration-decided").unwrap().variables();
    assert_eq!(variables, [("pool".to_owned(), "String".to_owned()), ("time".to_owned(), "Time".to_owned())]);
}

#[test]
fn a_longer_budget_would_have_been_enough_and_the_log_says_which() {
    use common::arrival;
    use common::world::World;
    use weir_kernel::Face;
    let mut world = World::new(1);
    world.wait(1_000_000);
    world.load(9);
    let short =
        weir_kernel::Arrival { ttl: Some(Micros::from_millis(100)), ..arrival("tenant-a", None, Face::Held) };
    let first = world.arrive(short);
    let second = world.arrive(arrival("tenant-b", None, Face::Held));
    world.wait(700_000);
    world.load(0);
    world.wait(10_000);
    let service = service(&world.steps);
    let id = |number: u64| json!({ "id": format!("chat-{number}") });
    let found = play(&service, "why-was-this-request-shed", id(first))["request"].clone();
    println!("{:#}", found["explanation"]);
    assert_eq!(found["outcome"], "EVICTED_TTL");
    // The one behind it was admitted 700 ms after the arrival of both: any budget beyond that would have done.
    let difference = &found["explanation"]["difference"];
    assert_eq!((&difference["needed"], &difference["then"]), (&json!("701 ms"), &json!("admitted")));
    let other = data(&service, "query($id: ID!) { request(id: $id) { waitedMs outcome } }", id(second));
    assert_eq!(other["request"], json!({ "waitedMs": 700.0, "outcome": "DISPATCHED" }));
    // And so it is: the same world, with that budget.
    let mut again = World::new(1);
    again.wait(1_000_000);
    again.load(9);
    let longer =
        weir_kernel::Arrival { ttl: Some(Micros::from_millis(701)), ..arrival("tenant-a", None, Face::Held) };
    let first = again.arrive(longer);
    again.arrive(arrival("tenant-b", None, Face::Held));
    again.wait(700_000);
    again.load(0);
    let found =
        data(&common::service(&again.steps), "query($id: ID!) { request(id: $id) { outcome } }", id(first));
    assert_eq!(found["request"]["outcome"], "DISPATCHED");
}

/// After an orderly restart with nothing to end no event says that all is ended.
#[test]
fn a_restart_with_nothing_to_recover_is_over_at_once() {
    use common::arrival;
    use common::world::World;
    use weir_kernel::{Face, Input};
    let mut world = World::new(1);
    world.wait(5_000_000);
    world.take(Input::Stopped);
    world.at += 3_000_000;
    world.start();
    world.join(4);
    world.wait(9_000_000);
    world.load(9);
    (0..40).for_each(|_| {
        world.arrive(arrival("tenant-c", None, Face::Held));
    });
    world.wait(4_000_000);
    let found = play(&service(&world.steps), "what-went-wrong", span())["incidents"].clone();
    let of = |kind: &str| found.as_array().unwrap().iter().find(|one| one["kind"] == kind).unwrap().clone();
    println!("{found:#}");
    let restart = of("RESTART");
    assert_eq!((&restart["shed"], restart["until"].is_null()), (&json!(0), false), "{restart:#}");
    // From the last step before to the first one after.
    assert_eq!(restart["durationMs"], json!(3_000.0), "{restart:#}");
    assert_eq!(of("SHED_BURST")["shed"], json!(40));
}
