//! What the tests of the schema share: a service over a log that was made by the real kernel, and an incident.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../projection/tests/common/mod.rs"]
pub mod world;

use serde_json::{Value, json};
use std::sync::Arc;
use weir_graphql::{Options, Question, Service};
use weir_kernel::{Arrival, Ended, Face, Input, Micros, Policy, RequestId, Step, Termination};
use weir_projection::{Projections, Source};
use world::{World, memory};

pub fn service_with(steps: &[Step], options: Options) -> Service {
    let disk = memory("chat", steps);
    let all = Projections::open(None, &Source::new(None, Some(Arc::new(disk)))).unwrap();
    all.catch_up(|_, _| {}).unwrap();
    Service::new(Arc::new(all), options).unwrap()
}

/// On a machine that is busy a build without optimization takes its time, which is not what is tested.
pub fn patient() -> Options {
    Options { timeout: std::time::Duration::from_secs(600), ..Options::default() }
}

pub fn service(steps: &[Step]) -> Service {
    service_with(steps, patient())
}

/// The whole answer.
pub fn answer(service: &Service, query: &str, variables: Value) -> Value {
    let body = json!({ "query": query, "variables": variables }).to_string();
    serde_json::from_slice(&service.answer(body.as_bytes(), &service.terms(None))).unwrap()
}

/// The data of an answer without errors.
pub fn data(service: &Service, query: &str, variables: Value) -> Value {
    let answer = answer(service, query, variables);
    assert!(answer.get("errors").is_none(), "{query}: {answer:#}");
    answer["data"].clone()
}

pub fn play(service: &Service, name: &str, variables: Value) -> Value {
    data(service, Question::named(name).expect(name).text, variables)
}

/// The code of the first error.
pub fn code(answer: &Value) -> &str {
    answer["errors"][0]["extensions"]["code"].as_str().unwrap_or_else(|| panic!("no code: {answer:#}"))
}

pub fn arrival(flow: &str, objective: Option<&str>, face: Face) -> Arrival {
    Arrival {
        caller_id: format!("call-of-{flow}"),
        objective: objective.map(str::to_owned),
        fairness_id: flow.to_owned(),
        bytes: 1_000,
        face,
        ..Arrival::default()
    }
}

/// The incident: what happened, as its maker knows it.
pub struct Incident {
    pub steps: Vec<Step>,
    /// Five of tenant-a, while the pool was empty.
    pub starved: Vec<u64>,
    /// Three of tenant-b, that waited out the blind sensor.
    pub blind: Vec<u64>,
    /// Forty of tenant-c at once: thirty were queued, ten refused.
    pub burst: Vec<u64>,
    /// Four of batch that ran when tenant-a needed room.
    pub batch: Vec<u64>,
    /// The one of tenant-a for whom two of them were taken back.
    pub urgent: u64,
    /// One of tenant-a, queued when the service died.
    pub restarted: u64,
    /// The step that put other settings in force.
    pub reload: u64,
}

/// Seconds from the beginning of the world.
fn at(world: &mut World, seconds: u64) {
    let until = world::BASE + seconds * 1_000_000;
    world.wait(until - world.at);
}

/// Scale to zero at 2 s, back at 8 s; blind from 20 s to 27 s; a burst at 40 s; a reclamation at 52 s; the service dies
/// at 70 s and is back at 77 s; a reload at 90 s.
pub fn incident() -> Incident {
    let mut world = World::new(1);
    let policy = Policy { saturation_budget: Micros::from_millis(1_500), ..world::policy() };
    at(&mut world, 2);
    world.leave();
    at(&mut world, 3);
    let starved =
        (0..5).map(|_| world.arrive(arrival("tenant-a", Some("interactive"), Face::Held))).collect();
    at(&mut world, 8);
    world.join(4);
    at(&mut world, 20);
    world.blind();
    at(&mut world, 26);
    let blind = (0..3).map(|_| world.arrive(arrival("tenant-b", None, Face::Untracked))).collect();
    at(&mut world, 27);
    world.load(0);
    world.load(0);
    at(&mut world, 40);
    world.load(9);
    let burst = (0..40).map(|_| world.arrive(arrival("tenant-c", None, Face::Held))).collect();
    at(&mut world, 50);
    world.load(0);
    let batch: Vec<u64> =
        (0..4).map(|_| world.arrive(arrival("nightly", Some("batch"), Face::Stream))).collect();
    at(&mut world, 52);
    world.load(9);
    let urgent = world.arrive(arrival("tenant-a", Some("interactive"), Face::Untracked));
    let revoked: Vec<RequestId> = world.state.revoked().collect();
    assert!(!revoked.is_empty(), "{:?}", world.steps.last());
    world.wait(40_000);
    for request in revoked {
        world.take(Input::Ended(Ended { request, termination: Termination::Evicted, usage: None }));
    }
    world.wait(200_000);
    world.load(0);
    at(&mut world, 60);
    for request in batch.clone() {
        if world.state.lease(RequestId(request)).is_some() {
            world.end(request);
        }
    }
    at(&mut world, 69);
    world.load(9);
    let restarted = world.arrive(arrival("tenant-a", Some("interactive"), Face::Held));
    at(&mut world, 70);
    world.at += 7_000_000;
    world.start();
    world.join(4);
    at(&mut world, 90);
    world.adopt(Policy { saturation_budget: Micros::from_secs(3), ..policy });
    let reload = world.steps.last().unwrap().seq;
    at(&mut world, 120);
    world.load(0);
    Incident { steps: world.steps, starved, blind, burst, batch, urgent, restarted, reload }
}
