//! The kernel before truth servers, in virtual time: what a service would have logged, as a sealed log.
//!
//! The pool is seen only by scrapes that come late; timers are late by a grain; revoked streams take their time to end.
//! What is measured here is never looked at by what predicts it.

use super::plan::{CLASSES, Planned};
use crate::numbers::Table;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_kernel::{
    Arrival, Ended, EndpointChange, Event, Face, Input, KERNEL_BEHAVIOUR, Micros, ObjectivesChange,
    Observation, Policy, PolicyChange, Pushed, RequestId, Role, Slot, Started, State, Step, Termination,
    Usage, step,
};
use weir_truth::{Job, Server, Spec, What};

/// The pool and its sensor.
#[derive(Clone, Debug)]
pub struct Truth {
    /// Each server.
    pub server: Spec,
    /// How many.
    pub endpoints: u16,
    /// When the servers join; until then there are none.
    pub join_at: Micros,
    /// From one scrape to the next.
    pub scrape_every: Micros,
    /// From asking to having.
    pub scrape_lag: Micros,
    /// How late a timer is.
    pub grain: Micros,
    /// From the order to end a stream to its end.
    pub confirm: Micros,
    /// Decides stalls.
    pub seed: u64,
}

/// Some day, so that virtual time looks like the real one.
const BASE: Micros = Micros::from_secs(1_700_000_000);
/// After the last arrival, everything must be over by then.
const TAIL: Micros = Micros::from_secs(900);
/// As the service's own observer: a KV share within this of the last logged one says nothing new.
const DEADBAND: u32 = 50;
/// But each server is logged this often.
const LOGGED_EVERY: Micros = Micros::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Server(usize),
    Join,
    Sample,
    Scrape,
    Confirm(usize),
    Reload(usize),
    Arrival(usize),
}

type Load = (u32, u32, u32);

/// A request that kernel or servers still know.
struct Live {
    planned: Planned,
    id: RequestId,
    /// The server that works on it.
    place: Option<usize>,
}

struct Driver<'a, P, S> {
    truth: &'a Truth,
    plan: P,
    /// The next arrival, and how many came before it.
    next: Option<Planned>,
    arrived: usize,
    last: Micros,
    state: State,
    servers: Vec<Server>,
    due: BinaryHeap<Reverse<(Micros, Due)>>,
    asked: (Micros, Vec<Load>),
    logged: Vec<Option<(Load, Micros)>>,
    numbers: Table<RequestId, usize>,
    live: Table<usize, Live>,
    reloads: &'a [(Micros, Policy)],
    sink: S,
}

/// Runs the plan under these settings; `sink` is given every step.
pub fn run(truth: &Truth, plan: &[Planned], policy: &Policy, sink: impl FnMut(Step)) {
    run_with(truth, plan.iter().copied(), policy, &[], sink);
}

/// The same with other settings from those times on. The plan is asked for one arrival after the other; memory is
/// bounded by the requests that are there.
pub fn run_with(
    truth: &Truth,
    plan: impl Iterator<Item = Planned>,
    policy: &Policy,
    reloads: &[(Micros, Policy)],
    sink: impl FnMut(Step),
) {
    let mut driver = Driver {
        truth,
        plan,
        next: None,
        arrived: 0,
        last: Micros::ZERO,
        state: State::new(),
        servers: Vec::new(),
        due: BinaryHeap::new(),
        asked: (Micros::ZERO, Vec::new()),
        logged: vec![None; usize::from(truth.endpoints)],
        numbers: Table::default(),
        live: Table::default(),
        reloads,
        sink,
    };
    driver.begin(policy);
    driver.run();
}

impl<P: Iterator<Item = Planned>, S: FnMut(Step)> Driver<'_, P, S> {
    fn begin(&mut self, policy: &Policy) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let started = Started { kernel_behaviour: KERNEL_BEHAVIOUR, version, wall: BASE };
        self.feed(Micros::ZERO, Input::Started(started));
        let change = PolicyChange { policy: Box::new(policy.clone()), digest: [0; 32] };
        self.feed(Micros::ZERO, Input::PolicyChanged(change));
        let set = CLASSES.iter().map(|(name, priority, _)| ((*name).to_owned(), *priority)).collect();
        self.feed(Micros::ZERO, Input::ObjectivesChanged(ObjectivesChange { set, removed: Vec::new() }));
        if self.truth.join_at > Micros::ZERO {
            // The pool is known to be empty.
            self.feed(
                Micros::ZERO,
                Input::Observed(Observation { requested_at: BASE, ..Observation::default() }),
            );
        }
        for (n, (at, _)) in self.reloads.iter().enumerate() {
            self.due.push(Reverse((*at, Due::Reload(n))));
        }
        self.due.push(Reverse((self.truth.join_at, Due::Join)));
        self.ask(Micros::ZERO);
    }

    /// Asks the plan for the next arrival, which is at `now` or later.
    fn ask(&mut self, now: Micros) {
        self.next = self.plan.next();
        if let Some(next) = self.next {
            self.last = next.at.max(now);
            self.due.push(Reverse((self.last, Due::Arrival(self.arrived))));
        }
    }

    fn run(&mut self) {
        let mut now = Micros::ZERO;
        loop {
            let event = self.due.peek().map(|Reverse((at, _))| *at);
            let timer = self.state.next_deadline().map(|at| at.since(BASE).max(now));
            let busy = self.state.queued() + self.state.in_flight() > 0;
            if !busy && self.next.is_none() {
                return;
            }
            let until = if self.next.is_some() { Micros::MAX } else { self.last + TAIL };
            let late = timer.map(|at| if at > now { at + self.truth.grain } else { at });
            match (late, event) {
                (Some(timer), event) if event.is_none_or(|event| timer < event) => {
                    now = timer;
                    if now > until {
                        return;
                    }
                    self.feed(now, Input::TimePassed);
                }
                (_, Some(at)) if at <= until => {
                    now = at;
                    if let Some(Reverse((at, due))) = self.due.pop() {
                        self.happen(at, due);
                    }
                }
                _ => return,
            }
        }
    }

    fn happen(&mut self, at: Micros, due: Due) {
        match due {
            Due::Join => self.join(at),
            Due::Arrival(n) => {
                if let Some(planned) = self.next.take() {
                    self.arrive(at, n, planned);
                }
            }
            Due::Scrape => {
                let samples = self.servers.iter().map(|server| {
                    let g = server.gauges();
                    (g.waiting, g.running, g.kv_per_myriad())
                });
                self.asked = (at, samples.collect());
                self.due.push(Reverse((at + self.truth.scrape_lag, Due::Sample)));
                self.due.push(Reverse((at + self.truth.scrape_every, Due::Scrape)));
            }
            Due::Reload(n) => {
                let policy = Box::new(self.reloads[n].1.clone());
                self.feed(at, Input::PolicyChanged(PolicyChange { policy, digest: [0; 32] }));
            }
            Due::Sample => self.sample(at),
            Due::Server(i) => self.advance(at, i),
            Due::Confirm(n) => {
                if let Some(Live { id: request, place: Some(i), .. }) = self.live.remove(&n) {
                    self.servers[i].abort(n as u64);
                    let ended = Ended { request, termination: Termination::Evicted, usage: None };
                    self.feed(at, Input::Ended(ended));
                }
            }
        }
    }

    fn join(&mut self, at: Micros) {
        let seed = self.truth.seed;
        let mut changes = Vec::new();
        for i in 0..self.truth.endpoints {
            self.servers.push(Server::new(self.truth.server.clone(), at, seed.wrapping_add(u64::from(i))));
            let name = format!("10.0.0.{}:8000", i + 1);
            changes.push(EndpointChange::Joined { slot: Slot(i), name, role: Role::Decode });
        }
        self.feed(
            at,
            Input::Observed(Observation { requested_at: BASE + at, changes, ..Observation::default() }),
        );
        self.due.push(Reverse((at, Due::Scrape)));
    }

    fn arrive(&mut self, at: Micros, n: usize, planned: Planned) {
        let id = RequestId(self.state.seq() + 1);
        self.numbers.insert(id, n);
        self.live.insert(n, Live { planned, id, place: None });
        self.arrived = n + 1;
        let (objective, _, _) = CLASSES[planned.class];
        self.feed(
            at,
            Input::Arrived(Arrival {
                caller_id: format!("request-{n}"),
                objective: Some(objective.to_owned()),
                fairness_id: format!("tenant-{}", planned.flow),
                model: Some("sim".to_owned()),
                bytes: u64::from(planned.prompt) * 4,
                prompt_tokens: Some(planned.prompt),
                received_at: BASE + at,
                face: Face::Proxy,
                choose_endpoint: true,
                ..Arrival::default()
            }),
        );
        self.ask(at);
    }

    fn sample(&mut self, at: Micros) {
        let (requested, samples) = std::mem::take(&mut self.asked);
        let mut changes = Vec::new();
        for (i, now) in samples.into_iter().enumerate() {
            let before = self.logged[i];
            let same = before.is_some_and(|(load, since)| {
                (load.0, load.1) == (now.0, now.1)
                    && load.2.abs_diff(now.2) <= DEADBAND
                    && at.since(since) < LOGGED_EVERY
            });
            if same {
                continue;
            }
            let load = before.map_or((0, 0, 0), |(load, _)| load);
            let by = |now: u32, before: u32| (i64::from(now) - i64::from(before)) as i32;
            changes.push(EndpointChange::Sampled {
                slot: Slot(i as u16),
                waiting: by(now.0, load.0),
                running: by(now.1, load.1),
                kv: by(now.2, load.2),
            });
            self.logged[i] = Some((now, at));
        }
        if !changes.is_empty() {
            let observation = Observation { requested_at: BASE + requested, changes, pushed: Pushed::Keep };
            self.feed(at, Input::Observed(observation));
        }
    }

    fn advance(&mut self, at: Micros, i: usize) {
        let mut happened = Vec::new();
        self.servers[i].advance(at, &mut |progress| match progress.what {
            What::Token(1) => happened.push((progress.id as usize, false)),
            What::Finished => happened.push((progress.id as usize, true)),
            What::Token(_) | What::Preempted => {}
        });
        if let Some(next) = self.servers[i].next_event() {
            self.due.push(Reverse((next, Due::Server(i))));
        }
        for (n, finished) in happened {
            let Some(&Live { id: request, planned: Planned { prompt, output, .. }, .. }) = self.live.get(&n)
            else {
                continue;
            };
            if finished {
                self.live.remove(&n);
                let usage = Some(Usage { prompt, completion: output });
                self.feed(at, Input::Ended(Ended { request, termination: Termination::Natural, usage }));
            } else {
                self.feed(at, Input::FirstByte { request });
            }
        }
    }

    fn feed(&mut self, at: Micros, input: Input) {
        let done = step(&mut self.state, BASE + at, input);
        let mut admitted = Vec::new();
        for event in &done.events {
            match event {
                Event::Dispatched(e) => {
                    if let Some(n) = self.numbers.get(&e.request) {
                        admitted.push((*n, usize::from(e.endpoint.unwrap_or_default().0)));
                    }
                }
                Event::RevocationIssued(e) => {
                    if let Some(n) = self.numbers.get(&e.request) {
                        self.due.push(Reverse((at + self.truth.confirm, Due::Confirm(*n))));
                    }
                }
                Event::LeaseEnded(e) => {
                    self.numbers.remove(&e.request);
                }
                Event::Rejected(_) => self.gone(RequestId(done.seq)),
                Event::Evicted(e) => self.gone(e.request),
                _ => {}
            }
        }
        (self.sink)(done);
        for (n, endpoint) in admitted {
            self.submit(at, n, endpoint);
        }
    }

    /// A request that no server has seen is over.
    fn gone(&mut self, request: RequestId) {
        if let Some(n) = self.numbers.remove(&request) {
            self.live.remove(&n);
        }
    }

    fn submit(&mut self, at: Micros, n: usize, endpoint: usize) {
        let Some(live) = self.live.get_mut(&n) else { return };
        let Planned { prompt, output, .. } = live.planned;
        let Some(server) = self.servers.get_mut(endpoint) else { return };
        let idle = server.next_event().is_none();
        if server.submit(at, Job { id: n as u64, prompt, output }).is_err() {
            return;
        }
        live.place = Some(endpoint);
        if let Some(next) = server.next_event().filter(|_| idle) {
            self.due.push(Reverse((next, Due::Server(endpoint))));
        }
    }
}
