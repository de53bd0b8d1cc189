//! Goal: a subscriber hears events in order and whole, or is told that it fell behind and is ended; nothing is buffered without
//! end. Method: streams over a log in memory that is written while they are read, or are not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::code;
use common::world::{World, append};
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_stream::{Stream, StreamExt};
use weir_graphql::{Options, Service, block_on};
use weir_kernel::Step;
use weir_log::memory::{MemoryDisk, MemoryStore};
use weir_projection::{Projections, Source};

const EVENTS: &str = "subscription { events { kind sequence } }";
/// Messages that may wait for a subscriber.
const WAITING_MAX: usize = 1_024;

struct Rig {
    service: Service,
    store: MemoryStore,
    steps: Vec<Step>,
    written: usize,
}

impl Rig {
    fn new(seed: u64, steps: usize) -> Rig {
        let steps = World::new(seed).run(steps);
        let disk = MemoryDisk::new();
        let mut store = MemoryStore::open(&disk);
        append(&mut store, "chat", &steps[..10], 10);
        let all = Projections::open(None, &Source::new(None, Some(Arc::new(disk)))).unwrap();
        all.catch_up(|_, _| {}).unwrap();
        let service = Service::new(Arc::new(all), Options::default()).unwrap();
        Rig { service, store, steps, written: 10 }
    }

    fn write(&mut self, count: usize, batch: usize) {
        let to = (self.written + count).min(self.steps.len());
        append(&mut self.store, "chat", &self.steps[self.written..to], batch);
        self.written = to;
    }

    fn subscribe(&self, query: &str) -> Pin<Box<dyn Stream<Item = Vec<u8>> + Send>> {
        Box::pin(self.service.subscribe(json!({ "query": query }), &self.service.terms(None)).unwrap())
    }
}

fn next(stream: &mut Pin<Box<dyn Stream<Item = Vec<u8>> + Send>>) -> Option<Value> {
    block_on(stream.next()).map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

/// Its first message, while steps are written until it comes: before it is there, they pass it by.
fn first(rig: &mut Rig, stream: &mut Pin<Box<dyn Stream<Item = Vec<u8>> + Send>>) -> Value {
    let heard = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let until = Instant::now() + Duration::from_secs(30);
            while !heard.load(Ordering::Relaxed) && Instant::now() < until {
                rig.write(1, 1);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let message = next(stream).unwrap();
        heard.store(true, Ordering::Relaxed);
        writing.join().unwrap();
        message
    })
}

/// One test at a time: their threads are counted.
static ONE: Mutex<()> = Mutex::new(());

/// Threads that read the log for a subscriber.
fn readers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let named =
        |task: &std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    // The system keeps fifteen bytes of a name.
    tasks.filter(|task| named(task).starts_with("weir-subscripti")).count()
}

#[test]
fn who_keeps_up_hears_every_event_in_order() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rig = Rig::new(31, 6_000);
    let mut stream = rig.subscribe(EVENTS);
    let begun = first(&mut rig, &mut stream)["data"]["events"]["sequence"].as_u64().unwrap();
    rig.write(120, 7);
    let written = rig.written as u64;
    let steps = rig.steps.iter().filter(|step| step.seq >= begun && step.seq <= written);
    let wanted: Vec<u64> = steps.flat_map(|step| step.events.iter().map(|_| step.seq)).collect();
    // The first one is heard already.
    for sequence in &wanted[1..] {
        assert_eq!(next(&mut stream).unwrap()["data"]["events"]["sequence"], json!(sequence));
    }
}

#[test]
fn who_falls_behind_is_told_and_ended() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rig = Rig::new(32, 12_000);
    let mut stream = rig.subscribe(EVENTS);
    first(&mut rig, &mut stream);
    // Far more than may wait, and nobody listens: who reads the log for it gives up.
    rig.write(8_000, 200);
    let until = Instant::now() + Duration::from_secs(60);
    while readers() > 0 {
        assert!(Instant::now() < until, "the log is still read for who does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (mut heard, mut last) = (0, 0);
    let fault = loop {
        let message = next(&mut stream).expect("it is told before it is ended");
        if message.get("errors").is_some() {
            break message;
        }
        let sequence = message["data"]["events"]["sequence"].as_u64().unwrap();
        assert!(sequence >= last, "{sequence} after {last}");
        (heard, last) = (heard + 1, sequence);
    };
    assert_eq!(code(&fault), "FELL_BEHIND", "{fault}");
    assert!(heard <= WAITING_MAX + 8, "{heard} messages were kept for it");
    assert!(next(&mut stream).is_none(), "it is ended");
    // Its place is free again, and who subscribes anew hears what comes from then on.
    drop(stream);
    let mut again = rig.subscribe(EVENTS);
    assert!(first(&mut rig, &mut again)["data"]["events"]["sequence"].as_u64().unwrap() > last);
}

#[test]
fn there_are_no_more_subscriptions_than_allowed() {
    let rig = Rig::new(33, 200);
    let streams: Vec<_> = (0..Options::default().subscriptions).map(|_| rig.subscribe(EVENTS)).collect();
    let one_more = rig.service.subscribe(json!({ "query": EVENTS }), &rig.service.terms(None));
    let fault = one_more.err().unwrap();
    assert_eq!(fault.code(), "BUSY");
    assert_eq!(
        fault.to_string(),
        "there are as many subscriptions as there may be (32); end one, or ask again later"
    );
    drop(streams);
    drop(rig.subscribe(EVENTS));
    let question = rig.service.subscribe(json!({ "query": "{ pools { name } }" }), &rig.service.terms(None));
    assert_eq!(question.err().map(|fault| fault.code()), Some("BAD_REQUEST"));
}
