//! Goal: the spans of a request say what the log says of it. Method: logs of a real kernel, stepped by hand.

use super::*;
use crate::names::*;
use crate::span::{SpanEvent, Value};
use weir_kernel::*;

/// A pool whose saturation is pushed, stepped by hand.
struct Log {
    state: State,
    spans: Spans,
    steps: Vec<Step>,
    out: Vec<Span>,
}

const SECOND: u64 = 1_000_000;

impl Log {
    fn new(change: impl FnOnce(&mut Policy)) -> Log {
        let mut policy = Policy { detector: Detector::Pushed, ..Policy::default() };
        change(&mut policy);
        let mut log = Log {
            state: State::new(),
            spans: Spans::new("p", Sampler::default()),
            steps: Vec::new(),
            out: Vec::new(),
        };
        let started =
            Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "test".to_owned(), wall: Micros(SECOND) };
        log.step(1, Input::Started(started));
        let digest = [0; 32];
        log.step(1, Input::PolicyChanged(PolicyChange { policy: Box::new(policy), digest }));
        log
    }

    /// One input, and whatever is due right then.
    fn step(&mut self, millis: u64, input: Input) -> u64 {
        let at = Micros(SECOND + millis * 1_000);
        let seq = self.take(at, input);
        while self.state.next_deadline().is_some_and(|due| due <= at) {
            self.take(at, Input::TimePassed);
        }
        seq
    }

    fn take(&mut self, at: Micros, input: Input) -> u64 {
        let step = step(&mut self.state, at, input);
        self.spans.apply(&step, &mut self.out);
        self.steps.push(step);
        self.state.seq()
    }

    /// The pool has these endpoints and is so saturated.
    fn pool(&mut self, millis: u64, endpoints: u16, saturation: i64) {
        let known = self.state.endpoint_count();
        let joined = (known..endpoints).map(|slot| EndpointChange::Joined {
            slot: Slot(slot),
            name: format!("e{slot}"),
            role: Role::Both,
        });
        let left = (endpoints..known).map(|slot| EndpointChange::Left { slot: Slot(slot) });
        let sampled = (0..endpoints).map(|slot| EndpointChange::Sampled {
            slot: Slot(slot),
            waiting: 0,
            running: 0,
            kv: 0,
        });
        let observation = Observation {
            requested_at: Micros(SECOND + millis * 1_000),
            changes: joined.chain(left).chain(sampled).collect(),
            pushed: Pushed::Pool(Ratio(saturation)),
        };
        self.step(millis, Input::Observed(observation));
    }

    fn arrive(&mut self, millis: u64, change: impl FnOnce(&mut Arrival)) -> u64 {
        let received_at = Micros(SECOND + millis * 1_000);
        let mut arrival = Arrival { received_at, bytes: 10, ..Arrival::default() };
        change(&mut arrival);
        self.step(millis, Input::Arrived(arrival))
    }

    fn end(&mut self, millis: u64, request: u64, termination: Termination, usage: Option<Usage>) {
        let ended = Ended { request: RequestId(request), termination, usage };
        self.step(millis, Input::Ended(ended));
    }

    fn span(&self, name: &str) -> &Span {
        let found: Vec<&Span> = self.out.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name}: {found:#?}");
        found[0]
    }
}

fn names(events: &[SpanEvent]) -> Vec<&'static str> {
    events.iter().map(|event| event.name).collect()
}

fn millis(span: &Span) -> (u64, u64) {
    ((span.start.0 - SECOND) / 1_000, (span.end.0 - SECOND) / 1_000)
}

#[test]
fn a_request_that_waited_for_its_pool_tells_what_it_waited_for() {
    let mut log = Log::new(|policy| policy.saturation_budget = Micros(5 * SECOND));
    log.pool(2, 0, 0);
    let caller = Trace { trace_id: [9; 16], parent_id: [8; 8], flags: 1 };
    let request = log.arrive(10, |arrival| {
        arrival.trace = Some(caller);
        arrival.model = Some("m".to_owned());
        arrival.caller_id = "r-1".to_owned();
    });
    log.pool(500, 1, 0);
    assert_eq!(log.out.len(), 1, "the queue span is there once the wait is over: {:#?}", log.out);
    log.step(510, Input::FirstByte { request: RequestId(request) });
    log.end(900, request, Termination::Natural, Some(Usage { prompt: 7, completion: 40 }));
    assert_eq!(log.out.len(), 3);
    let (whole, queue, lease) = (log.span(ADMISSION), log.span(QUEUE), log.span(LEASE));
    assert!(log.out.iter().all(|span| span.trace_id == [9; 16]));
    assert_eq!((whole.parent, whole.parent_is_remote), (Some([8; 8]), true));
    assert_eq!((queue.parent, lease.parent), (Some(whole.span_id), Some(whole.span_id)));
    assert_eq!((millis(whole), millis(queue), millis(lease)), ((10, 900), (10, 500), (500, 900)));
    let seen = names(&queue.events);
    assert_eq!(seen[0], ENQUEUED);
    for name in [REGIME_CHANGED, BUDGET_RECHARGED, DISPATCHED] {
        assert!(seen.contains(&name), "{name} in {seen:?}");
    }
    assert_eq!(queue.events[0].attributes[0], attribute(DEPTH, 1_u64));
    assert_eq!(names(&lease.events), [DISPATCHED, FIRST_BYTE, USAGE, ENDED]);
    assert_eq!(whole.get(OUTPUT_TOKENS), Some(&Value::Int(40)));
    assert_eq!(whole.get(MODEL), Some(&Value::Text("m".to_owned())));
    assert_eq!(whole.get(REQUEST_ID), Some(&Value::Texts(vec!["r-1".to_owned()])));
    assert_eq!(whole.status, Status::Unset);
    assert_eq!((log.spans.open(), log.spans.missed()), (0, 0));
}

#[test]
fn c130_refusals_tell_a_429_from_a_503() {
    let mut log = Log::new(|policy| {
        policy.saturation_budget = Micros(SECOND);
        policy.no_endpoint_budget = Micros(SECOND);
        policy.max_requests = 1;
    });
    log.pool(2, 1, 2_000_000);
    log.arrive(10, |_| {});
    log.arrive(20, |_| {});
    let full = log.span(ADMISSION).clone();
    assert_eq!(full.get(STATUS_CODE), Some(&Value::Int(429)));
    assert_eq!(full.get(AVAILABILITY), Some(&Value::Word("contended")));
    assert_eq!(full.get(LIMIT), Some(&Value::Word("maxRequests")));
    assert_eq!((full.status, names(&full.events)), (Status::Unset, vec![REFUSED]));
    log.out.clear();
    log.step(1_010, Input::TimePassed);
    let spent = log.span(ADMISSION);
    assert_eq!(spent.get(BUDGET_SPENT), Some(&Value::Word("saturation")));
    assert_eq!((millis(spent), &spent.status), ((10, 1_010), &Status::Unset));
    let queue = log.span(QUEUE);
    assert!(names(&queue.events).contains(&HELD), "what held it: {:?}", names(&queue.events));
    assert_eq!(queue.events.last().map(|event| event.name), Some(REFUSED));
    log.out.clear();
    log.pool(1_100, 0, 0);
    log.arrive(1_200, |_| {});
    log.step(2_200, Input::TimePassed);
    let empty = log.span(ADMISSION);
    assert_eq!(empty.get(STATUS_CODE), Some(&Value::Int(503)));
    assert_eq!(empty.get(ERROR_TYPE), Some(&Value::Text("rejected-no-endpoints".to_owned())));
    assert_eq!(empty.status, Status::Error("rejected-no-endpoints".to_owned()));
}

#[test]
fn a_reclamation_is_linked_to_its_demand_and_its_victims() {
    let mut log = Log::new(|policy| {
        policy.eviction.enabled = true;
    });
    log.pool(2, 1, 500_000);
    let victim = log.arrive(10, |arrival| {
        arrival.priority = Some(-1);
        arrival.face = Face::Stream;
    });
    log.pool(3_000, 1, 1_500_000);
    let demand = log.arrive(3_010, |arrival| arrival.priority = Some(5));
    let issued =
        log.steps.iter().flat_map(|step| &step.events).any(
            |event| matches!(event, Event::RevocationIssued(issued) if issued.request == RequestId(victim)),
        );
    assert!(issued, "{:#?}", log.steps.last());
    log.end(3_050, victim, Termination::Evicted, None);
    let lease = log.span(LEASE).clone();
    assert_eq!(names(&lease.events), [DISPATCHED, REVOKED, REVOCATION_ENDED, ENDED]);
    assert_eq!(lease.status, Status::Error("evicted".to_owned()));
    // The end of cooling closes it, whether a sample shows the release or not.
    log.pool(9_000, 1, 1_400_000);
    let decision = log.span(RECLAMATION);
    assert_eq!(decision.get(WANTED), Some(&Value::Int(1)));
    assert_eq!(decision.get(DEMAND), Some(&Value::Int(5)));
    assert_eq!(names(&decision.events)[..2], [REVOKED, REVOCATION_ENDED]);
    let links: Vec<_> = decision.links.iter().map(|link| (link.span_id, &link.attributes[0].1)).collect();
    let demand = Context::of("p", RequestId(demand), Micros(SECOND + 3_010_000), None, &Sampler::default());
    assert_eq!(links[0], (demand.admission, &Value::Text("demand".to_owned())));
    assert_eq!(links[1], (lease.span_id, &Value::Text("victim".to_owned())));
    assert_eq!(lease.links[0].span_id, decision.span_id);
}

#[test]
fn what_is_not_sampled_leaves_nothing_and_a_replay_gives_it_back() {
    let mut log = Log::new(|policy| policy.saturation_budget = Micros(5 * SECOND));
    log.pool(2, 1, 0);
    let no = Trace { trace_id: [9; 16], parent_id: [8; 8], flags: 0 };
    let request = log.arrive(10, |arrival| arrival.trace = Some(no));
    log.end(900, request, Termination::Natural, None);
    assert!(log.out.is_empty());
    let replayed = |sampler| {
        let (mut spans, mut out) = (Spans::new("p", sampler), Vec::new());
        log.steps.iter().for_each(|step| spans.apply(step, &mut out));
        out
    };
    assert!(replayed(Sampler::default()).is_empty());
    let all = replayed(Sampler::EVERYTHING);
    assert_eq!(all.len(), 3);
    assert_eq!(all, replayed(Sampler::EVERYTHING), "a function of the log");
    assert!(all.iter().all(|span| span.trace_id == [9; 16]));
}

#[test]
fn steps_that_begin_later_have_no_spans_of_what_was_before() {
    let mut log = Log::new(|policy| policy.saturation_budget = Micros(5 * SECOND));
    log.pool(2, 1, 0);
    let first = log.arrive(10, |_| {});
    let later = log.steps.len();
    log.end(20, first, Termination::Natural, None);
    let second = log.arrive(30, |_| {});
    log.end(40, second, Termination::Natural, None);
    let (mut spans, mut out) = (Spans::new("p", Sampler::default()), Vec::new());
    log.steps[later..].iter().for_each(|step| spans.apply(step, &mut out));
    assert_eq!((out.len(), spans.missed(), spans.open()), (3, 1, 0));
    log.arrive(50, |_| {});
    assert_eq!((log.spans.gap(), log.spans.open()), (1, 0));
}

#[test]
fn c060_a_negative_priority_keeps_its_sign_on_its_spans() {
    let mut log = Log::new(|_| {});
    log.pool(2, 1, 0);
    let request = log.arrive(10, |arrival| arrival.priority = Some(-7));
    log.end(20, request, Termination::Natural, None);
    for name in [ADMISSION, QUEUE] {
        assert_eq!(log.span(name).get(PRIORITY), Some(&Value::Int(-7)), "{name}");
    }
}
