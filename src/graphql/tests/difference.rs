//! Goal: "had it had so long, it would have been admitted" is true, and a millisecond less would not have been enough.
//! Method: random worlds in which a request is said to have needed more time run again through the real kernel, every
//! input at its instant, with that request's own time changed and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::world::World;
use common::{data, service};
use serde_json::json;
use std::collections::BTreeSet;
use weir_kernel::{Event, Input, Micros, Outcome, State, Step, step};

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
            let query = "query($id: ID!) { request(id: $id) { outcome explanation { difference { setting neededNumber then } } } }";
            let found = data(&service, query, json!({ "id": format!("chat-{}", logged.seq) }));
            let difference = &found["request"]["explanation"]["difference"];
            if difference.is_null() {
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
    println!("{told} told, {silent} silent");
    assert!(told >= 10, "{told} told, {silent} silent");
}
