//! Goal: whatever comes in on a stream, its request has one end. Method: streams are played by hand to a processor over a
//! real engine in memory; no Envoy is needed. With the real one: `tests/envoy`.

use super::message::{
    Answer, Body, HttpHeaders, Mutation, Part, ProcessingRequest, ProtocolConfiguration, Trailers,
};
use super::{Answers, Call, Processor};
use crate::engine::{
    Engine, EngineOptions, INBOX_ARRIVALS_MAX, LogOptions, Place, PoolHandle, PoolOptions, Revoking,
};
use crate::gateway::envoy::Pace;
use crate::gateway::grpc::message::{HeaderMap, HeaderValue};
use crate::gateway::{EnvoyOptions, Gateway, History, Options, PoolFace};
use crate::observer::{Feed, Load, Observer, ObserverOptions, Push, ScrapeOptions, Spec};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use weir_kernel::{
    Cause, Detector, Event, Input, Micros, Policy, Pushed, Ratio, RequestId, RevocationEnd, Role, Step,
    Termination,
};

mod window;

const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    processor: Arc<Processor>,
    observer: Observer,
    pool: PoolHandle,
    steps: tokio::sync::broadcast::Receiver<Arc<Vec<Step>>>,
    seen: Vec<Step>,
    _engine: Engine,
}

/// One stream, played by hand.
struct Stream {
    to: mpsc::Sender<Result<ProcessingRequest, Status>>,
    from: Answers,
}

impl World {
    async fn start(options: Options) -> World {
        let policy = Policy { detector: Detector::Pushed, ..Policy::default() };
        let engine = Engine::open(EngineOptions {
            pools: BTreeMap::from([(
                "p".to_owned(),
                PoolOptions {
                    policy,
                    objectives: BTreeMap::from([("batch".to_owned(), -1)]),
                    keep_objectives: false,
                },
            )]),
            place: Place::Memory(weir_log::memory::MemoryDisk::new()),
            log: LogOptions::default(),
            clock: None,
            inbox_arrivals_max: INBOX_ARRIVALS_MAX,
        })
        .unwrap();
        let pool = engine.pool("p").unwrap().clone();
        let steps = pool.subscribe();
        let staleness = Micros::from_secs(3_600);
        let observing = ObserverOptions { feed: Feed::Pushed, scrape: ScrapeOptions::default(), staleness };
        let observer = Observer::start(pool.clone(), observing).await;
        let face = PoolFace::new(pool.clone(), observer.clone(), String::new());
        let history = History::new(None, engine.log_writer());
        let gateway = Arc::new(Gateway::new(vec![face], history, options));
        let processor = Arc::new(Processor::new(gateway));
        World { processor, observer, pool, steps, seen: Vec::new(), _engine: engine }
    }

    fn saturated(&self, saturation: i64) {
        let spec = Spec { name: "10.0.0.1:8000".to_owned(), role: Role::Both, metrics_url: None };
        let load = Load::default();
        let saturation = Pushed::Pool(Ratio(saturation * 1_000_000));
        self.observer.push(Push { endpoints: Some(vec![(spec, Some(load))]), saturation }).unwrap();
    }

    fn open(&self) -> Stream {
        let (to, inbound) = mpsc::channel(64);
        let call = Call { pool: None, trace: None, pace: Pace::new(), actor: None };
        let from = self.processor.process(call, ReceiverStream::new(inbound));
        Stream { to, from }
    }

    /// Waits for a step that has what is looked for.
    async fn step<T>(&mut self, mut found: impl FnMut(&Step) -> Option<T>) -> T {
        if let Some(found) = self.seen.iter().find_map(&mut found) {
            return found;
        }
        let come = async {
            loop {
                let batch = self.steps.recv().await.unwrap();
                self.seen.extend(batch.iter().cloned());
                if let Some(found) = batch.iter().find_map(&mut found) {
                    return found;
                }
            }
        };
        tokio::time::timeout(PATIENCE, come).await.expect("waited in vain for a step")
    }

    async fn queued(&mut self) {
        self.step(|step| matches!(step.input, Input::Arrived(_)).then_some(())).await;
    }

    /// Why the request left the queue.
    async fn evicted(&mut self) -> Option<Cause> {
        let evicted = |event: &Event| match event {
            Event::Evicted(e) => Some(e.cause),
            _ => None,
        };
        self.step(|step| step.events.iter().find_map(evicted)).await
    }

    /// How the request's stream ended.
    async fn ended(&mut self) -> Termination {
        let ended = |step: &Step| match &step.input {
            Input::Ended(ended) => Some(ended.termination),
            _ => None,
        };
        self.step(ended).await
    }
}

impl Stream {
    async fn send(&self, part: Part) {
        // A stream that has been given up takes nothing more.
        let _ =
            self.to.send(Ok(ProcessingRequest { request: Some(part), ..ProcessingRequest::default() })).await;
    }

    async fn begin(&self, modes: (i32, i32), headers: &[(&str, &str)], end_of_stream: bool) {
        let message = ProcessingRequest {
            request: Some(Part::RequestHeaders(list(headers, end_of_stream))),
            observability_mode: false,
            protocol_config: Some(ProtocolConfiguration {
                request_body_mode: modes.0,
                response_body_mode: modes.1,
            }),
        };
        self.to.send(Ok(message)).await.unwrap();
    }

    async fn answer(&mut self) -> Answer {
        let next = tokio::time::timeout(PATIENCE, self.from.next()).await.expect("no answer in time");
        next.expect("the stream ended").unwrap().response.unwrap()
    }

    /// The status, details and body of a refusal.
    async fn refused(&mut self) -> (i32, String, String) {
        match self.answer().await {
            Answer::Immediate(immediate) => {
                let body = String::from_utf8(immediate.body.to_vec()).unwrap();
                (immediate.status.unwrap().code, immediate.details, body)
            }
            other => panic!("no refusal: {other:?}"),
        }
    }
}

fn list(headers: &[(&str, &str)], end_of_stream: bool) -> HttpHeaders {
    let value = |(key, value): &(&str, &str)| HeaderValue {
        key: (*key).to_owned(),
        value: String::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    HttpHeaders { headers: Some(HeaderMap { headers: headers.iter().map(value).collect() }), end_of_stream }
}

fn body(text: &'static str, end_of_stream: bool) -> Body {
    Body { body: Bytes::from_static(text.as_bytes()), end_of_stream }
}

const LIGHT: (i32, i32) = (0, 0);
const DUPLEX: (i32, i32) = (4, 4);

#[tokio::test]
async fn headers_only_from_admission_to_the_end() {
    let mut world = World::start(Options::default()).await;
    world.saturated(0);
    let mut stream = world.open();
    stream.begin(LIGHT, &[("x-request-id", "r")], true).await;
    assert!(matches!(stream.answer().await, Answer::RequestHeaders(common) if common.response.is_some()));
    stream.send(Part::ResponseHeaders(list(&[(":status", "200")], false))).await;
    assert!(matches!(stream.answer().await, Answer::ResponseHeaders(_)));
    assert_eq!(world.pool.peek(weir_kernel::State::in_flight).await, Ok(1), "its body still comes");
    drop(stream.to);
    assert_eq!(world.ended().await, Termination::Natural);
    assert!(stream.from.next().await.is_none(), "our end closes after Envoy's");
}

#[tokio::test]
async fn a_stream_that_is_over_while_queued_leaves_the_queue() {
    let mut world = World::start(Options::default()).await;
    world.saturated(1);
    let stream = world.open();
    stream.begin(LIGHT, &[], true).await;
    world.queued().await;
    drop(stream.to);
    assert_eq!(world.evicted().await, Some(Cause::ClientDisconnect));
}

#[tokio::test]
async fn an_answer_of_envoys_own_while_queued_is_a_timer() {
    let mut world = World::start(Options::default()).await;
    world.saturated(1);
    let mut stream = world.open();
    stream.begin(DUPLEX, &[], true).await;
    world.queued().await;
    stream.send(Part::ResponseHeaders(list(&[(":status", "504")], true))).await;
    assert!(matches!(stream.answer().await, Answer::ResponseHeaders(_)));
    assert_eq!(world.evicted().await, Some(Cause::ClientDeadline));
}

#[tokio::test]
async fn an_answer_that_nobody_takes_ends_the_lease() {
    let mut world = World::start(Options::default()).await;
    world.saturated(1);
    let stream = world.open();
    stream.begin(LIGHT, &[], true).await;
    world.queued().await;
    let Stream { to, from } = stream;
    // Envoy hears nothing any more, and has not said so.
    drop(from);
    world.saturated(0);
    assert_eq!(world.ended().await, Termination::ClientDisconnect);
    drop(to);
}

#[tokio::test]
async fn in_full_duplex_every_chunk_is_sent_back() {
    let mut world = World::start(Options::default()).await;
    world.saturated(0);
    let mut stream = world.open();
    stream.begin(DUPLEX, &[], false).await;
    stream.send(Part::RequestBody(body("{\"model\":\"m\",", false))).await;
    stream.send(Part::RequestBody(body("\"n\":1}", false))).await;
    stream.send(Part::RequestTrailers(Trailers {})).await;
    assert!(matches!(stream.answer().await, Answer::RequestHeaders(_)));
    let echoed = |answer| match answer {
        Answer::RequestBody(common) | Answer::ResponseBody(common) => {
            let Some(Mutation::Streamed(chunk)) = common.response.unwrap().body_mutation.unwrap().mutation
            else {
                panic!("no chunk")
            };
            (String::from_utf8(chunk.body.to_vec()).unwrap(), chunk.end_of_stream)
        }
        other => panic!("no chunk: {other:?}"),
    };
    assert_eq!(echoed(stream.answer().await), ("{\"model\":\"m\",".to_owned(), false));
    assert_eq!(echoed(stream.answer().await), ("\"n\":1}".to_owned(), false));
    assert!(matches!(stream.answer().await, Answer::RequestTrailers(_)));
    stream.send(Part::ResponseHeaders(list(&[(":status", "200")], false))).await;
    assert!(matches!(stream.answer().await, Answer::ResponseHeaders(_)));
    stream.send(Part::ResponseBody(body("{\"usage\":{\"prompt_tokens\":1,", false))).await;
    assert!(!echoed(stream.answer().await).1);
    stream.send(Part::ResponseBody(body("\"completion_tokens\":2}}", true))).await;
    assert!(echoed(stream.answer().await).1);
    // The lease ends with the response: Envoy's end of the stream is still open.
    let (termination, usage, model) = (world.ended().await, world.step(usage).await, world.step(model).await);
    assert_eq!((termination, usage, model.as_str()), (Termination::Natural, (1, 2), "m"));
}

fn usage(step: &Step) -> Option<(u32, u32)> {
    match &step.input {
        Input::Ended(ended) => ended.usage.map(|usage| (usage.prompt, usage.completion)),
        _ => None,
    }
}

fn model(step: &Step) -> Option<String> {
    match &step.input {
        Input::Arrived(arrival) => arrival.model.clone(),
        _ => None,
    }
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_in_words() {
    let world = World::start(Options { body_bytes_max: 4, ..Options::default() }).await;
    world.saturated(0);
    let mut stream = world.open();
    stream.begin((5, 0), &[], true).await;
    let (status, details, body_text) = stream.refused().await;
    assert_eq!((status, details.as_str()), (500, "weir_rejected-internal"));
    assert!(body_text.contains("request_body_mode is GRPC"), "{body_text}");
    let mut stream = world.open();
    stream.begin(DUPLEX, &[("x-request-id", "r")], false).await;
    stream.send(Part::RequestBody(body("12345", false))).await;
    let (status, details, body_text) = stream.refused().await;
    assert_eq!((status, details.as_str()), (413, "weir_rejected-invalid"));
    assert!(body_text.contains("\"requestId\":\"r\""), "{body_text}");
    let mut stream = world.open();
    stream.send(Part::RequestBody(body("1", true))).await;
    assert_eq!(stream.refused().await.0, 500, "a body and no headers");
}

#[tokio::test]
async fn bodies_that_wait_have_a_bound_together_and_give_their_room_back() {
    let envoy = EnvoyOptions { held_bytes_max: 8, ..EnvoyOptions::default() };
    let mut world = World::start(Options { envoy, ..Options::default() }).await;
    world.saturated(1);
    let mut first = world.open();
    first.begin(DUPLEX, &[], false).await;
    first.send(Part::RequestBody(body("12345", true))).await;
    world.queued().await;
    let mut second = world.open();
    second.begin(DUPLEX, &[], false).await;
    second.send(Part::RequestBody(body("12345", true))).await;
    let (status, details, _) = second.refused().await;
    assert_eq!((status, details.as_str()), (429, "weir_rejected-saturated"));
    // What goes on makes room, as does what ends.
    world.saturated(0);
    assert!(matches!(first.answer().await, Answer::RequestHeaders(_)));
    let mut third = world.open();
    third.begin(DUPLEX, &[], false).await;
    third.send(Part::RequestBody(body("12345678", true))).await;
    assert!(matches!(third.answer().await, Answer::RequestHeaders(_)));
}

/// Before the response's headers and after them alike Envoy is told once, and the lease ends when the stream has.
#[tokio::test]
async fn a_revoked_request_is_ended_by_an_immediate_response_and_confirmed_by_the_streams_end() {
    for (modes, responded) in [(LIGHT, false), (LIGHT, true), (DUPLEX, true)] {
        let mut world = World::start(Options::default()).await;
        world.saturated(0);
        let mut stream = world.open();
        stream.begin(modes, &[("x-request-id", "r")], true).await;
        assert!(matches!(stream.answer().await, Answer::RequestHeaders(_)));
        let id =
            world.step(|step| matches!(step.input, Input::Arrived(_)).then_some(RequestId(step.seq))).await;
        if responded {
            stream.send(Part::ResponseHeaders(list(&[(":status", "200")], false))).await;
            assert!(matches!(stream.answer().await, Answer::ResponseHeaders(_)));
        }
        let number = match world.pool.revoke(id, "ops", "test").await {
            Revoking::Issued { number, .. } => number,
            other => panic!("not issued: {other:?}"),
        };
        let (status, details, body_text) = stream.refused().await;
        assert_eq!((status, details.as_str()), (429, "weir_evicted"));
        assert!(body_text.contains("\"requestId\":\"r\""), "{body_text}");
        assert_eq!(world.pool.peek(weir_kernel::State::in_flight).await, Ok(1), "its stream is still open");
        drop(stream.to);
        assert_eq!(world.ended().await, Termination::Evicted);
        let confirmed = |event: &Event| match event {
            Event::RevocationEnded(e) if e.number == number => Some(e.end),
            _ => None,
        };
        let end = world.step(|step| step.events.iter().find_map(confirmed)).await;
        assert_eq!(end, RevocationEnd::Confirmed);
    }
}

/// In full duplex the head of a sheddable response goes on with what follows it, so that until then its caller can be
/// told in a plain answer.
#[tokio::test]
async fn the_head_of_a_sheddable_response_goes_on_with_what_follows_it() {
    let follows = [
        Some(Part::ResponseBody(body("a", false))),
        Some(Part::ResponseBody(body("", true))),
        Some(Part::ResponseTrailers(Trailers {})),
        None,
    ];
    for next in follows {
        let mut world = World::start(Options::default()).await;
        world.saturated(0);
        let mut stream = world.open();
        stream.begin(DUPLEX, &[("x-llm-d-inference-objective", "batch")], true).await;
        assert!(matches!(stream.answer().await, Answer::RequestHeaders(_)));
        let id =
            world.step(|step| matches!(step.input, Input::Arrived(_)).then_some(RequestId(step.seq))).await;
        stream.send(Part::ResponseHeaders(list(&[(":status", "200")], false))).await;
        let early = tokio::time::timeout(Duration::from_millis(20), stream.from.next()).await;
        assert!(early.is_err(), "{early:?}");
        let Some(next) = next else {
            assert!(matches!(world.pool.revoke(id, "ops", "test").await, Revoking::Issued { .. }));
            assert_eq!(stream.refused().await.0, 429, "and no head before it");
            continue;
        };
        stream.send(next).await;
        assert!(matches!(stream.answer().await, Answer::ResponseHeaders(_)));
        assert!(matches!(stream.answer().await, Answer::ResponseBody(_) | Answer::ResponseTrailers(_)));
    }
    // Where nothing follows, or nobody would take it back, it does not wait.
    for (objective, end) in [("batch", true), ("none", false)] {
        let world = World::start(Options::default()).await;
        world.saturated(0);
        let mut stream = world.open();
        stream.begin(DUPLEX, &[("x-llm-d-inference-objective", objective)], true).await;
        assert!(matches!(stream.answer().await, Answer::RequestHeaders(_)));
        stream.send(Part::ResponseHeaders(list(&[(":status", "200")], end))).await;
        assert!(matches!(stream.answer().await, Answer::ResponseHeaders(_)));
    }
}

/// A response that is complete is not taken back any more.
#[tokio::test]
async fn a_response_that_ends_first_is_no_longer_revoked() {
    let mut world = World::start(Options::default()).await;
    world.saturated(0);
    let mut stream = world.open();
    stream.begin(LIGHT, &[], true).await;
    assert!(matches!(stream.answer().await, Answer::RequestHeaders(_)));
    let id = world.step(|step| matches!(step.input, Input::Arrived(_)).then_some(RequestId(step.seq))).await;
    stream.send(Part::ResponseHeaders(list(&[(":status", "200")], true))).await;
    assert!(matches!(stream.answer().await, Answer::ResponseHeaders(_)));
    assert_eq!(world.ended().await, Termination::Natural);
    assert_eq!(world.pool.revoke(id, "ops", "late").await, Revoking::Unknown);
    drop(stream.to);
    assert!(stream.from.next().await.is_none(), "nothing more is said");
}

/// Part number `kind` of a stream, with a look of its own.
fn part(kind: u8) -> Part {
    let (last, text) = (kind & 64 != 0, if kind & 32 != 0 { "{\"usage\":{}" } else { "" });
    match kind % 6 {
        0 => Part::RequestHeaders(list(&[("x-weir-deadline-ms", "7")], last)),
        1 => Part::ResponseHeaders(list(&[(":status", "x"), ("content-type", "text/event-stream")], last)),
        2 => Part::RequestBody(body(text, last)),
        3 => Part::ResponseBody(body(text, last)),
        4 => Part::RequestTrailers(Trailers {}),
        _ => Part::ResponseTrailers(Trailers {}),
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 32, ..Default::default() })]
    #[test]
    fn whatever_comes_in_whatever_order_nothing_is_left_behind(
        streams in proptest::collection::vec(
            (0..6_i32, 0..6_i32, proptest::num::u8::ANY, proptest::collection::vec(proptest::num::u8::ANY, 0..12)),
            1..6,
        ),
        saturation in 0..2_i64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::start(Options::default()).await;
            world.saturated(saturation);
            for (request, response, first, parts) in streams {
                let stream = world.open();
                if first % 4 == 0 {
                    stream.send(part(first)).await;
                } else {
                    stream.begin((request, response), &[], first & 8 != 0).await;
                }
                for kind in parts {
                    stream.send(part(kind)).await;
                }
                let Stream { to, mut from } = stream;
                drop(to);
                while let Ok(Some(answer)) = tokio::time::timeout(PATIENCE, from.next()).await {
                    assert!(answer.is_ok());
                }
            }
            let left = |state: &weir_kernel::State| (state.queued(), state.in_flight());
            let none = async {
                while world.pool.query(left).await != Ok((0, 0)) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, none).await.expect("a request without an end");
        });
    }
}
