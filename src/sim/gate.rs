//! Weir's kernel as the gate of a virtual-time world: the same steps as in the service, without a log or a wait.

use super::truth::Gauges;
use super::world::{Gate, PushAll};
use crate::load::{Classes, Planned};
use crate::observer::{Load, Spec as EndpointSpec, Table, TooMany};
use std::collections::BTreeMap;
use weir_kernel::{
    Arrival, Cancelled, Cause, Ended, EndpointChange, Event, Face, Input, KERNEL_BEHAVIOUR, Micros,
    ObjectivesChange, Observation, Policy, PolicyChange, Pushed, RequestId, Role, Slot, Started, State, Step,
    Termination, Usage, step,
};

/// Who chooses the endpoint of an admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The kernel, from what it knows.
    Kernel,
    /// A scheduler behind it, which knows all that was given to each endpoint.
    LeastGiven,
}

/// The kernel, its observer's table, and who is who.
pub struct KernelGate<S> {
    state: State,
    base: Micros,
    table: Table,
    staleness: Micros,
    names: Vec<String>,
    slots: BTreeMap<Slot, usize>,
    choice: Choice,
    scheduler: PushAll,
    classes: Classes,
    numbers: BTreeMap<RequestId, (usize, u32)>,
    ids: Vec<Option<RequestId>>,
    admitted: Vec<(usize, usize)>,
    revoked: Vec<usize>,
    ended_in_queue: Vec<usize>,
    refused: u64,
    face: Face,
    /// By class, where the engine is told.
    ranks: Vec<i32>,
    worked_until: Micros,
    sink: S,
}

/// An observer's table that waits for these.
fn watching(names: &[String]) -> Result<Table, TooMany> {
    let mut table = Table::default();
    let spec = |name: &String| EndpointSpec { name: name.clone(), role: Role::Decode, metrics_url: None };
    table.want(names.iter().map(spec).collect())?;
    Ok(table)
}

impl<S: FnMut(Step)> KernelGate<S> {
    /// A kernel at its first start, with these settings, for a pool of this size and a plan of this length.
    /// `sink` is given every step.
    ///
    /// # Errors
    /// More endpoints than a pool may have.
    pub fn new(
        policy: Policy,
        priorities: &[(&str, i32)],
        endpoints: usize,
        choice: Choice,
        classes: &Classes,
        requests: usize,
        sink: S,
    ) -> Result<Self, TooMany> {
        let names: Vec<String> =
            (0..endpoints).map(|i| format!("10.0.{}.{}:8000", i / 250, 1 + i % 250)).collect();
        let table = watching(&names)?;
        let mut gate = KernelGate {
            state: State::new(),
            // Some day, so that virtual time looks like the real one in a log.
            base: Micros::from_secs(1_700_000_000),
            table,
            staleness: Micros::from_millis(200),
            names,
            slots: BTreeMap::new(),
            choice,
            scheduler: PushAll::new(endpoints, requests),
            classes: classes.clone(),
            numbers: BTreeMap::new(),
            ids: vec![None; requests],
            admitted: Vec::new(),
            revoked: Vec::new(),
            ended_in_queue: Vec::new(),
            refused: 0,
            face: Face::Held,
            ranks: Vec::new(),
            worked_until: Micros::ZERO,
            sink,
        };
        gate.start();
        gate.adopt(policy, [0; 32]);
        let set = priorities.iter().map(|(name, priority)| ((*name).to_owned(), *priority)).collect();
        gate.feed(Micros::ZERO, Input::ObjectivesChanged(ObjectivesChange { set, removed: Vec::new() }));
        Ok(gate)
    }

    /// Its requests come in by this face. (Only one that can be told is taken back.)
    #[must_use]
    pub fn through(self, face: Face) -> Self {
        KernelGate { face, ..self }
    }

    /// The engine is told the priority of each request, as `enginePriority: vllm` does: lower goes first.
    #[must_use]
    pub fn engine_priority(self, priorities: &[(&str, i32)]) -> Self {
        let of = |name: &str| priorities.iter().find(|(known, _)| *known == name).map_or(0, |(_, p)| *p);
        let ranks = self.classes.classes.iter().map(|class| of(class.name()).saturating_neg()).collect();
        KernelGate { ranks, ..self }
    }

    fn start(&mut self) {
        let (wall, version) = (self.base, env!("CARGO_PKG_VERSION").to_owned());
        self.feed(
            Micros::ZERO,
            Input::Started(Started { kernel_behaviour: KERNEL_BEHAVIOUR, version, wall }),
        );
    }

    /// Other settings come into force, at the beginning of the current plan's time.
    pub fn adopt(&mut self, policy: Policy, digest: [u8; 32]) {
        let change = PolicyChange { policy: Box::new(policy), digest };
        self.feed(Micros::ZERO, Input::PolicyChanged(change));
    }

    /// Goes on with another plan of so many requests, whose time begins `after` that of the one before; what has not
    /// ended by then has ended with its servers.
    pub fn go_on(&mut self, after: Micros, requests: usize) {
        self.base = self.base + after;
        for request in std::mem::take(&mut self.numbers).into_keys() {
            let input = if self.state.lease(request).is_some() {
                Input::Ended(Ended { request, termination: Termination::Natural, usage: None })
            } else {
                Input::Cancelled(Cancelled { request, cause: Cause::ClientDisconnect })
            };
            self.feed(Micros::ZERO, input);
        }
        self.ids = vec![None; requests];
        self.scheduler = PushAll::new(self.names.len(), requests);
        for left in [&mut self.revoked, &mut self.ended_in_queue] {
            left.clear();
        }
        self.admitted.clear();
    }

    /// The service stops and starts again, and finds its endpoints anew.
    ///
    /// # Errors
    /// As [`KernelGate::new`].
    pub fn restart(&mut self) -> Result<(), TooMany> {
        self.feed(Micros::ZERO, Input::Stopped);
        self.start();
        self.table = watching(&self.names)?;
        self.slots.clear();
        Ok(())
    }

    /// The kernel's state.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Requests that were refused or ended in the queue.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// As the service's engine tells its observer.
    fn worked_until(&self, now: Micros) -> Micros {
        if self.state.queued() + self.state.in_flight() > 0 { now } else { self.worked_until }
    }

    fn refuse(&mut self, id: RequestId) {
        self.refused += 1;
        self.ended_in_queue.extend(self.numbers.remove(&id).map(|(n, _)| n));
    }

    fn feed(&mut self, at: Micros, input: Input) -> u64 {
        let step = step(&mut self.state, self.base + at, input);
        for event in &step.events {
            match event {
                Event::Dispatched(dispatched) => {
                    self.worked_until = self.base + at;
                    let Some((n, prompt)) = self.numbers.get(&dispatched.request).copied() else { continue };
                    let chosen = dispatched.endpoint.and_then(|slot| self.slots.get(&slot).copied());
                    match chosen {
                        Some(endpoint) => self.admitted.push((n, endpoint)),
                        None => self.scheduler.place(n, prompt),
                    }
                }
                Event::Rejected(_) => self.refuse(RequestId(step.seq)),
                Event::Evicted(evicted) => self.refuse(evicted.request),
                Event::RevocationIssued(issued) => {
                    self.revoked.extend(self.numbers.get(&issued.request).map(|(n, _)| *n));
                }
                Event::LeaseEnded(_) => self.worked_until = self.base + at,
                _ => {}
            }
        }
        let seq = step.seq;
        (self.sink)(step);
        seq
    }
}

impl<S: FnMut(Step)> KernelGate<S> {
    fn ended(
        &mut self,
        at: Micros,
        n: usize,
        request: &Planned,
        termination: Termination,
        usage: Option<Usage>,
    ) {
        let Some(id) = self.ids[n] else { return };
        self.numbers.remove(&id);
        if self.choice == Choice::LeastGiven {
            self.scheduler.end(at, n, request);
        }
        self.feed(at, Input::Ended(Ended { request: id, termination, usage }));
    }
}

impl<S: FnMut(Step)> Gate for KernelGate<S> {
    fn arrive(&mut self, at: Micros, n: usize, request: &Planned) {
        // A request is named by the step it arrives in, which may already admit it.
        let id = RequestId(self.state.seq() + 1);
        self.numbers.insert(id, (n, request.prompt));
        self.ids[n] = Some(id);
        let objective = self.classes.classes.get(request.class).and_then(|class| class.objective.clone());
        let arrival = Arrival {
            caller_id: format!("load-{n}"),
            objective,
            fairness_id: format!("flow-{}", request.flow),
            model: Some("sim".to_owned()),
            bytes: u64::from(request.prompt) * 2,
            prompt_tokens: Some(request.prompt),
            received_at: self.base + at,
            face: self.face,
            choose_endpoint: self.choice == Choice::Kernel,
            ..Arrival::default()
        };
        self.feed(at, Input::Arrived(arrival));
    }

    fn observe(&mut self, at: Micros, requested_at: Micros, samples: &[Gauges]) {
        let (now, asked) = (self.base + at, self.base + requested_at);
        for (name, gauges) in self.names.iter().zip(samples) {
            let load = Load { waiting: gauges.waiting, running: gauges.running, kv: gauges.kv_per_myriad() };
            self.table.sampled(name, load, asked, now);
        }
        self.table.worked(self.worked_until(now));
        let changes = self.table.changes(asked, now, self.staleness);
        self.table.logged(&changes, Pushed::Keep, asked, now);
        if changes.is_empty() {
            return;
        }
        for change in &changes {
            if let EndpointChange::Joined { slot, name, .. } = change
                && let Some(i) = self.names.iter().position(|known| known == name)
            {
                self.slots.insert(*slot, i);
            }
        }
        self.feed(at, Input::Observed(Observation { requested_at: asked, changes, pushed: Pushed::Keep }));
    }

    fn end(&mut self, at: Micros, n: usize, request: &Planned) {
        let usage = Some(Usage { prompt: request.prompt, completion: request.output });
        self.ended(at, n, request, Termination::Natural, usage);
    }

    fn rank(&self, request: &Planned) -> i32 {
        self.ranks.get(request.class).copied().unwrap_or(0)
    }

    fn revoked(&mut self, into: &mut Vec<usize>) {
        into.append(&mut self.revoked);
    }

    fn turned_away(&mut self, into: &mut Vec<usize>) {
        into.append(&mut self.ended_in_queue);
    }

    fn cut(&mut self, at: Micros, n: usize, request: &Planned) {
        self.ended(at, n, request, Termination::Evicted, None);
    }

    fn deadline(&self) -> Option<Micros> {
        self.state.next_deadline().map(|at| at.since(self.base))
    }

    fn pass(&mut self, at: Micros) {
        self.feed(at, Input::TimePassed);
    }

    fn admitted(&mut self, into: &mut Vec<(usize, usize)>) {
        into.append(&mut self.admitted);
        self.scheduler.admitted(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::from_rate;
    use crate::sim::truth::Spec;
    use crate::sim::world::{WorldSpec, run};
    use std::time::Duration;
    use weir_kernel::fold;

    #[test]
    fn the_kernel_gates_a_world_keeps_its_invariants_and_folds_from_its_steps() {
        let world = WorldSpec {
            server: Spec::default(),
            endpoints: 2,
            scrape_every: Micros::from_millis(50),
            scrape_lag: Micros::from_millis(10),
            until: Micros::from_secs(15),
            seed: 1,
        };
        let classes = Classes::parse(&["interactive=0.3".to_owned()], 3).unwrap();
        let plan = from_rate(30.0, Duration::from_secs(8), (1_500, 20), &classes, 4);
        let policy = Policy { saturation_budget: Micros::from_secs(2), ..Policy::default() };
        let mut steps = Vec::new();
        let mut gate = KernelGate::new(
            policy,
            &[("interactive", 100)],
            2,
            Choice::Kernel,
            &classes,
            plan.len(),
            |step| steps.push(step),
        )
        .unwrap();
        let seen = run(&world, &plan, &mut gate);
        gate.state().check().unwrap();
        let (refused, digest) = (gate.refused(), gate.state().digest());
        let admitted = seen.courses.iter().filter(|course| course.admitted.is_some()).count() as u64;
        assert!(refused > 10 && admitted > 50, "{refused} refused, {admitted} admitted");
        assert_eq!(refused + admitted, plan.len() as u64, "everyone has an outcome");
        assert_eq!(seen.totals.finished, admitted, "and everyone admitted was served");
        assert!(seen.worst_saturation < 2.0, "{}", seen.worst_saturation);
        let mut folded = State::new();
        for step in &steps {
            fold(&mut folded, step);
        }
        assert_eq!(folded.digest(), digest);
    }

    /// 8 callers that come again as soon as they are served, each for 50 ms, beside a load of others that shows 8
    /// running; its KV share is `kv(round)` per myriad. Admissions in 10 s.
    fn admitted_in_a_closed_loop(kv: fn(u32) -> u32) -> usize {
        const CALLERS: usize = 8;
        let classes = Classes::parse(&["interactive=1".to_owned()], 1).unwrap();
        let policy = Policy::default();
        let priorities = [("interactive", 0)];
        let mut gate =
            KernelGate::new(policy, &priorities, 1, Choice::Kernel, &classes, 10_000, |_| {}).unwrap();
        let request = Planned { at: Micros::ZERO, prompt: 100, output: 10, class: 0, flow: 0 };
        let (mut sent, mut running) = (0, Vec::<(Micros, usize)>::new());
        for ms in 0..10_000_u32 {
            let at = Micros::from_millis(u64::from(ms));
            if ms % 50 == 0 {
                let gauges = Gauges { waiting: 0, running: 8, kv_used: kv(ms / 50), kv_total: 10_000 };
                gate.observe(at, at, &[gauges]);
            }
            let ended = running.extract_if(.., |(until, _)| *until <= at).collect::<Vec<_>>();
            ended.into_iter().for_each(|(_, n)| gate.end(at, n, &request));
            let waiting = gate.state().queued() as usize;
            for _ in running.len() + waiting..CALLERS {
                gate.arrive(at, sent, &request);
                sent += 1;
            }
            if gate.deadline().is_some_and(|due| due <= at) {
                gate.pass(at);
            }
            let mut admitted = Vec::new();
            gate.admitted(&mut admitted);
            running.extend(admitted.into_iter().map(|(n, _)| (at + Micros::from_millis(50), n)));
        }
        sent - gate.state().queued() as usize
    }

    /// A gauge that stands still says as much as one that moves: what was dispatched before it is in it.
    #[test]
    fn a_steady_gauge_throttles_no_more_than_one_that_moves() {
        let (steady, moving) =
            (admitted_in_a_closed_loop(|_| 6_000), admitted_in_a_closed_loop(|round| 6_000 + round % 2 * 51));
        assert!(moving > 100, "{moving}");
        assert!(
            steady * 10 >= moving * 9,
            "{steady} admitted beside a steady gauge, {moving} beside a moving one"
        );
    }
}
