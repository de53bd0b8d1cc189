//! Goal: "had it had so long, it would have been admitted" is true, and a millisecond less would not have been enough.
//! Method: random worlds in which a request is said to have needed more time run again through the real kernel, every
//! input at its instant, with that request's own time changed and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::world::World;
use common::{arrival, data, service};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use weir_kernel::{
    Arrival, Cancelled, Cause, Event, Face, Fairness, Input, Micros, Outcome, Policy, RequestId, State, Step,
    step,
};

/// The outcome of a request if its caller had asked for this time.
fn again(steps: &[Step], request: u64, ttl: Micros) -> Option<Outcome> {
    let mut state = State::new();
    for logged in steps {
        let mut input = logged.input.clone();
        if let Input::Arrived(arrival) = &mut input
            && logged.seq == request
        {
            arrival.ttl = Some(ttl);
        }
        let made = step(&mut state, logged.at, input);
        for event in &made.events {
            match event {
                Event::Dispatched(dispatched) if dispatched.request.0 == request => {
                    return Some(Outcome::Dispatched);
                }
                Event::Evicted(evicted) if evicted.request.0 == request => {
                    return Some(evicted.outcome);
                }
                _ => {}
            }
        }
    }
    None
}

#[test]
fn with_the_time_that_it_needed_it_is_admitted_and_with_a_millisecond_less_it_is_not() {
    let (mut told, mut silent) = (0, 0);
    let mut reasons = BTreeMap::<String, usize>::new();
    for seed in 11..=24 {
        let steps = World::new(seed).run(4_000);
        let service = service(&steps);
        let ended = steps.iter().flat_map(|step| &step.events).filter_map(|event| match event {
            Event::Evicted(evicted) if evicted.budget.is_some() => Some(evicted.request.0),
            _ => None,
        });
        let evicted: BTreeSet<u64> = ended.collect();
        for logged in &steps {
            let Input::Arrived(arrival) = &logged.input else { continue };
            // Only those that asked for less time than others: of a queue with one budget for all, everyone ends.
            if arrival.ttl.is_none() || !evicted.contains(&logged.seq) {
                continue;
            }
            let query = "query($id: ID!) { request(id: $id) { outcome explanation { facts { kind text data } difference { setting neededNumber then } } } }";
            let found = data(&service, query, json!({ "id": format!("chat-{}", logged.seq) }));
            let explanation = &found["request"]["explanation"];
            let difference = &explanation["difference"];
            let facts = explanation["facts"].as_array().unwrap();
            let said: Vec<_> = facts.iter().filter(|fact| fact["kind"] == "DIFFERENCE").collect();
            assert_eq!(said.len(), 1, "{explanation:#}");
            assert_eq!(said[0]["data"].is_null(), difference.is_null(), "{explanation:#}");
            if difference.is_null() {
                let text = said[0]["text"].as_str().unwrap();
                let why = text.strip_prefix("What would have had to differ is not told: ").unwrap();
                let without = why.replace(|letter: char| letter.is_ascii_digit(), "");
                *reasons.entry(without).or_insert(0) += 1;
                silent += 1;
                continue;
            }
            assert_eq!(difference["then"], "admitted");
            let needed = Micros::from_millis(difference["neededNumber"].as_u64().unwrap());
            let outcome = |ttl| again(&steps, logged.seq, ttl);
            assert_eq!(outcome(needed), Some(Outcome::Dispatched), "world {seed}, request {}", logged.seq);
            assert_ne!(
                outcome(Micros(needed.0 - 1_000)),
                Some(Outcome::Dispatched),
                "world {seed}, request {}",
                logged.seq
            );
            told += 1;
        }
    }
    println!("{told} told, {silent} silent: {reasons:#?}");
    assert!(reasons.len() >= 3, "{reasons:#?}");
    assert!(told >= 10, "{told} told, {silent} silent");
}

/// The words of a request's difference, and whether there is one.
fn said_of(steps: &[Step], request: u64) -> (String, bool) {
    let query =
        "query($id: ID!) { request(id: $id) { explanation { facts { kind text } difference { then } } } }";
    let found = data(&service(steps), query, json!({ "id": format!("chat-{request}") }));
    let explanation = &found["request"]["explanation"];
    let facts = explanation["facts"].as_array().unwrap();
    let text = facts
        .iter()
        .find(|fact| fact["kind"] == "DIFFERENCE")
        .map_or("", |fact| fact["text"].as_str().unwrap());
    (text.to_owned(), !explanation["difference"].is_null())
}

/// A full pool in which one waits that asked for 100 ms, and another behind it if it is wanted; 700 ms later.
fn too_short(policy: Policy, behind: bool) -> (World, u64) {
    let mut world = World::new(1);
    world.adopt(policy);
    world.wait(1_000_000);
    world.load(9);
    let short = Arrival { ttl: Some(Micros::from_millis(100)), ..arrival("tenant-a", None, Face::Held) };
    let first = world.arrive(short);
    if behind {
        world.arrive(arrival("tenant-b", None, Face::Held));
    }
    world.wait(700_000);
    (world, first)
}

fn room_again(world: &mut World) {
    world.load(0);
    world.wait(10_000);
}

#[test]
fn where_nothing_is_certain_the_reason_is_given() {
    let policy = common::world::policy;
    let (mut world, first) = too_short(policy(), true);
    let (text, is_told) = said_of(&world.steps, first);
    assert!(!is_told && text.contains("nobody who waited behind it has been admitted since"), "{text}");
    room_again(&mut world);
    let (text, is_told) = said_of(&world.steps, first);
    assert!(is_told && text.starts_with("Had it alone had"), "{text}");

    // One that came when it was over.
    let (mut world, first) = too_short(policy(), false);
    world.arrive(arrival("tenant-b", None, Face::Held));
    room_again(&mut world);
    let (text, is_told) = said_of(&world.steps, first);
    assert!(
        !is_told && text.contains("nobody who waited behind it when it ended has been admitted"),
        "{text}"
    );

    // Other settings in between.
    let (mut world, first) = too_short(policy(), true);
    world.adopt(Policy { saturation_budget: Micros::from_millis(900_000), ..policy() });
    room_again(&mut world);
    let (text, is_told) = said_of(&world.steps, first);
    assert!(
        !is_told && text.contains("other settings, a restart or an order of an operator came (step"),
        "{text}"
    );

    // A band that takes turns between flows.
    let mut turns = policy();
    turns.bands.entry(0).or_default().fairness = Fairness::RoundRobin;
    let (mut world, first) = too_short(turns, true);
    room_again(&mut world);
    let (text, is_told) = said_of(&world.steps, first);
    assert!(!is_told && text.contains("does not take strictly the oldest request first"), "{text}");

    // Two limits at once.
    let mut full = policy();
    full.bands.entry(0).or_default().max_requests = full.max_requests;
    let mut world = World::new(1);
    world.adopt(full);
    world.wait(1_000_000);
    world.load(9);
    let last =
        (0..=policy().max_requests).map(|_| world.arrive(arrival("tenant-a", None, Face::Held))).last();
    let (text, is_told) = said_of(&world.steps, last.unwrap());
    assert!(!is_told && text.contains("another limit stood against it as well"), "{text}");

    // Its caller went; and one that was admitted, of which there is nothing to say.
    let mut world = World::new(1);
    world.wait(1_000_000);
    world.load(9);
    let (gone, stays) = (
        world.arrive(arrival("tenant-a", None, Face::Held)),
        world.arrive(arrival("tenant-b", None, Face::Held)),
    );
    world.take(Input::Cancelled(Cancelled { request: RequestId(gone), cause: Cause::ClientDisconnect }));
    room_again(&mut world);
    let (text, is_told) = said_of(&world.steps, gone);
    assert!(!is_told && text.ends_with("its caller ended it, not a setting."), "{text}");
    assert_eq!(said_of(&world.steps, stays), (String::new(), false));
}
