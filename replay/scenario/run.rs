//! Runs a scenario: its events in order of time through a kernel under the given settings.

use super::file::{Request, Scenario, Seen};
use std::collections::BTreeMap;
use weir_kernel::{
    Arrival, Cancelled, Cause, Ended, EndpointChange, Event, Face, Input, KERNEL_BEHAVIOUR, LeaseEnd, Micros,
    ObjectivesChange, Observation, Outcome, Policy, PolicyChange, Pushed, Reason, RequestId, Role, Slot,
    Started, State, Termination, step,
};

/// Some day.
const BASE: Micros = Micros::from_secs(1_700_000_000);
/// Steps of one scenario at most.
const STEPS_MAX: usize = 5_000_000;
/// How long the stream of a revoked lease takes to end.
const CONFIRM: Micros = Micros::from_millis(20);

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// How it left the queue, if it has.
    pub outcome: Option<Outcome>,
    /// Why.
    pub reason: Option<Reason>,
    /// How long it was queued.
    pub waited: Micros,
    /// It was taken back.
    pub revoked: bool,
}

/// Something that happens by itself.
#[derive(Clone, Debug)]
enum Due {
    Seen(usize),
    Arrive(usize),
    End(RequestId, Termination),
    GiveUp(RequestId),
}

struct Runner<'a> {
    scenario: &'a Scenario,
    state: State,
    due: BTreeMap<(Micros, u64), Due>,
    number: u64,
    requests: Vec<(String, Request)>,
    ids: BTreeMap<RequestId, usize>,
    courses: Vec<Course>,
    slots: BTreeMap<String, (Slot, (u32, u32, u32))>,
    steps: usize,
}

/// What became of each request, by name.
pub fn run(scenario: &Scenario, policy: &Policy) -> Vec<(String, Course)> {
    let mut requests: Vec<(String, Request)> = Vec::new();
    for request in scenario.leases.iter().chain(&scenario.requests) {
        for n in 0..request.count {
            let name =
                if request.count > 1 { format!("{}-{}", request.id, n + 1) } else { request.id.clone() };
            let at = super::file::Span(request.at.0 + Micros(request.every.0.0.saturating_mul(u64::from(n))));
            requests.push((name, Request { at, ..request.clone() }));
        }
    }
    let mut runner = Runner {
        scenario,
        state: State::new(),
        due: BTreeMap::new(),
        number: 0,
        courses: vec![Course::default(); requests.len()],
        requests,
        ids: BTreeMap::new(),
        slots: BTreeMap::new(),
        steps: 0,
    };
    runner.begin(policy);
    runner.run();
    let names = runner.requests.into_iter().map(|(name, _)| name);
    names.zip(runner.courses).collect()
}

impl Runner<'_> {
    fn begin(&mut self, policy: &Policy) {
        let started =
            Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "scenario".to_owned(), wall: BASE };
        self.feed(Micros::ZERO, Input::Started(started));
        let change = PolicyChange { policy: Box::new(policy.clone()), digest: [0; 32] };
        self.feed(Micros::ZERO, Input::PolicyChanged(change));
        let set = self.scenario.objectives.iter().map(|(name, priority)| (name.clone(), *priority)).collect();
        self.feed(Micros::ZERO, Input::ObjectivesChanged(ObjectivesChange { set, removed: Vec::new() }));
        if !self.scenario.leases.is_empty() {
            self.admit_leases();
        }
        if self.scenario.pool.iter().all(|seen| seen.at.0 > Micros::ZERO) {
            // Nobody said anything of the pool yet: it is known to be empty.
            self.feed(
                Micros::ZERO,
                Input::Observed(Observation { requested_at: BASE, ..Observation::default() }),
            );
        }
        for n in 0..self.scenario.pool.len() {
            self.add(self.scenario.pool[n].at.0, Due::Seen(n));
        }
        for n in self.leases()..self.requests.len() {
            self.add(self.requests[n].1.at.0, Due::Arrive(n));
        }
    }

    fn leases(&self) -> usize {
        self.scenario.leases.iter().map(|lease| lease.count as usize).sum()
    }

    /// What runs already: admitted before anything else, by idle servers.
    fn admit_leases(&mut self) {
        let first: Vec<Seen> =
            self.scenario.pool.iter().filter(|seen| seen.at.0 == Micros::ZERO).cloned().collect();
        let idle = first.iter().map(|seen| Seen { waiting: 0, running: 0, kv: 0.0, ..seen.clone() });
        self.see(Micros::ZERO, &idle.collect::<Vec<_>>());
        for n in 0..self.leases() {
            self.arrive(Micros::ZERO, n);
            // Each is shown as running at once, so that none counts as unseen.
            let shown =
                first.iter().map(|seen| Seen { waiting: 0, running: n as u32 + 1, kv: 0.0, ..seen.clone() });
            self.see(Micros::ZERO, &shown.collect::<Vec<_>>());
        }
    }

    fn add(&mut self, at: Micros, due: Due) {
        self.number += 1;
        self.due.insert((at, self.number), due);
    }

    fn run(&mut self) {
        let mut now = Micros::ZERO;
        let mut idle = 0;
        let until = self.scenario.until.map_or(Micros::MAX, |until| until.0);
        while self.steps < STEPS_MAX {
            let event = self.due.first_key_value().map(|((at, _), _)| *at);
            let queued = self.state.queued() > 0 || !self.due.is_empty();
            let timer = self.state.next_deadline().map(|at| at.since(BASE).max(now)).filter(|_| queued);
            if timer.into_iter().chain(event).min().is_none_or(|next| next > until) {
                return;
            }
            match (timer, event) {
                (Some(timer), event) if event.is_none_or(|event| timer < event) => {
                    let before = self.state.next_deadline();
                    now = timer;
                    self.feed(now, Input::TimePassed);
                    idle = if self.state.next_deadline() == before { idle + 1 } else { 0 };
                    if idle > 1_000 {
                        return;
                    }
                }
                (_, Some(at)) => {
                    now = at;
                    if let Some((_, due)) = self.due.pop_first() {
                        self.happen(at, due);
                    }
                }
                _ => return,
            }
        }
    }

    fn happen(&mut self, at: Micros, due: Due) {
        match due {
            Due::Seen(n) => {
                let seen = self.scenario.pool[n].clone();
                self.see(at, &[seen]);
            }
            Due::Arrive(n) => self.arrive(at, n),
            Due::End(request, termination) => {
                if self.state.lease(request).is_some() {
                    self.feed(at, Input::Ended(Ended { request, termination, usage: None }));
                }
            }
            Due::GiveUp(request) => {
                self.feed(at, Input::Cancelled(Cancelled { request, cause: Cause::ClientDisconnect }));
            }
        }
    }

    fn see(&mut self, at: Micros, all: &[Seen]) {
        let mut changes = Vec::new();
        for seen in all {
            let name = &seen.endpoint;
            if seen.gone {
                if let Some((slot, _)) = self.slots.remove(name) {
                    changes.push(EndpointChange::Left { slot });
                }
                continue;
            }
            let free = (0..=u16::MAX).map(Slot).find(|slot| !self.slots.values().any(|(s, _)| s == slot));
            let Some((slot, before)) = self.slots.get(name).copied().or(free.map(|slot| (slot, (0, 0, 0))))
            else {
                continue;
            };
            if !self.slots.contains_key(name) {
                changes.push(EndpointChange::Joined { slot, name: name.clone(), role: Role::Decode });
            }
            if seen.stale {
                changes.push(EndpointChange::Stale { slot });
                self.slots.insert(name.clone(), (slot, before));
                continue;
            }
            let now = (seen.waiting, seen.running, (seen.kv * 10_000.0).round() as u32);
            let by = |now: u32, before: u32| (i64::from(now) - i64::from(before)) as i32;
            changes.push(EndpointChange::Sampled {
                slot,
                waiting: by(now.0, before.0),
                running: by(now.1, before.1),
                kv: by(now.2, before.2),
            });
            self.slots.insert(name.clone(), (slot, now));
        }
        let observation = Observation { requested_at: BASE + at, changes, pushed: Pushed::Keep };
        self.feed(at, Input::Observed(observation));
    }

    fn arrive(&mut self, at: Micros, n: usize) {
        let (name, request) = &self.requests[n];
        let arrival = Arrival {
            caller_id: name.clone(),
            objective: request.objective.clone(),
            fairness_id: request.flow.clone(),
            priority: request.priority,
            bytes: request.bytes,
            prompt_tokens: request.prompt_tokens,
            ttl: request.ttl.map(|span| span.0),
            slo_ttft: request.slo_ttft.map(|span| span.0),
            received_at: BASE + at,
            face: Face::Proxy,
            choose_endpoint: request.choose_endpoint,
            ..Arrival::default()
        };
        let gives_up = request.gives_up_after;
        let id = RequestId(self.state.seq() + 1);
        self.ids.insert(id, n);
        self.feed(at, Input::Arrived(arrival));
        if let Some(after) = gives_up {
            self.add(at + after.0, Due::GiveUp(id));
        }
    }

    fn feed(&mut self, at: Micros, input: Input) {
        self.steps += 1;
        let done = step(&mut self.state, BASE + at, input);
        for event in &done.events {
            let own = RequestId(done.seq);
            match event {
                Event::Rejected(e) => self.leave(own, e.outcome, Some(e.reason), Micros::ZERO),
                Event::Evicted(e) => self.leave(e.request, e.outcome, Some(e.reason), e.waited),
                Event::Dispatched(e) => {
                    self.leave(e.request, Outcome::Dispatched, None, e.waited);
                    let runs = self.ids.get(&e.request).and_then(|n| self.requests[*n].1.runs);
                    if let Some(runs) = runs {
                        self.add(at + runs.0, Due::End(e.request, Termination::Natural));
                    }
                }
                Event::RevocationIssued(e) => {
                    self.add(at + CONFIRM, Due::End(e.request, Termination::Evicted))
                }
                Event::LeaseEnded(e) if e.end == LeaseEnd::Revoked => {
                    if let Some(n) = self.ids.get(&e.request) {
                        self.courses[*n].revoked = true;
                    }
                }
                _ => {}
            }
        }
    }

    fn leave(&mut self, id: RequestId, outcome: Outcome, reason: Option<Reason>, waited: Micros) {
        if let Some(n) = self.ids.get(&id) {
            let course = &mut self.courses[*n];
            (course.outcome, course.reason, course.waited) = (Some(outcome), reason, waited);
        }
    }
}
