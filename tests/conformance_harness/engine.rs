//! The kernel under a clock of whole vectors: feeds inputs, fires timers when they are due, and notes what was decided.
//!
//! After every step the state's invariants are checked, and a twin that only folds the steps must end up the same.

use super::results::{Answer, Fate};
use std::collections::{BTreeMap, BTreeSet};
use weir_kernel::{
    Arrival, Cancelled, Cause, Ended, EndpointChange, Event, FlowId, Input, KERNEL_BEHAVIOUR, LeaseEnd,
    Micros, Observation, Outcome, Policy, PolicyChange, Pushed, Ratio, Reason, Rejected, RequestId,
    RevocationEnd, Role, Slot, Started, State, Step, Termination, Usage, fold, service, step,
};

/// The instant that vectors call 0 ms: far enough from the epoch for times before it.
const EPOCH_US: i64 = 1_000_000_000_000_000;

/// Timers that may fire between two events before the run counts as stuck.
const MOST_TIMERS: u32 = 5_000_000;

/// One pool.
pub struct Engine {
    state: State,
    twin: State,
    slots: u16,
    /// Do timers that are due between two events fire at their own time? Vectors allow both: else with the next event.
    pub fires_early: bool,
    pub notes: Notes,
}

/// What the events said.
#[derive(Default)]
pub struct Notes {
    pub fates: BTreeMap<RequestId, Vec<Fate>>,
    pub dispatched: Vec<RequestId>,
    pub waited_us: BTreeMap<RequestId, u64>,
    pub lease_ends: BTreeMap<RequestId, LeaseEnd>,
    /// Revocations in order: when (us) and whose.
    pub revoked: Vec<(i64, RequestId)>,
    /// Confirmed ones, and how long each took (us).
    pub confirmed: Vec<(RequestId, u64)>,
    pub flows: BTreeMap<FlowId, (String, i32)>,
    /// Fairness ids that least-attained-service fairness keeps an account of.
    pub programs: BTreeSet<String>,
    /// Their scaled service, where any was charged.
    pub services: BTreeMap<String, u128>,
    pub service_epoch: Micros,
    /// Fairness id of each request.
    pub names: BTreeMap<RequestId, String>,
}

/// An instant of a vector.
pub fn at(ms: i64) -> Micros {
    at_us(ms.saturating_mul(1_000))
}

fn at_us(us: i64) -> Micros {
    Micros(u64::try_from(EPOCH_US.saturating_add(us)).unwrap_or(0))
}

/// The other way.
pub fn vector_us(at: Micros) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX) - EPOCH_US
}

impl Engine {
    /// A pool with these settings that nothing has been seen of, at this instant.
    pub fn new(policy: Policy, now: Micros) -> Result<Engine, String> {
        let mut engine = Engine {
            state: State::new(),
            twin: State::new(),
            slots: 0,
            fires_early: true,
            notes: Notes::default(),
        };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        engine
            .feed(now, Input::Started(Started { kernel_behaviour: KERNEL_BEHAVIOUR, version, wall: now }))?;
        engine.change_policy(now, policy)?;
        Ok(engine)
    }

    pub fn change_policy(&mut self, now: Micros, policy: Policy) -> Result<(), String> {
        // Nothing in the kernel rests on the digest; the service fills in SHA-256 of the canonical form.
        let digest = [0; 32];
        self.feed(now, Input::PolicyChanged(PolicyChange { policy: Box::new(policy), digest })).map(|_| ())
    }

    /// Puts the state back from a snapshot that was changed on the way.
    pub fn restate(&mut self, change: impl FnOnce(&mut Vec<Event>)) -> Result<(), String> {
        let mut events = self.state.restate();
        change(&mut events);
        let back = || State::from_restated(&events).map_err(|error| error.to_string());
        (self.state, self.twin) = (back()?, back()?);
        self.state.check().map_err(|violation| format!("a changed snapshot: {violation}"))
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Fires the timers due before `now`, then takes the input, then whatever is still due at `now`.
    pub fn feed(&mut self, now: Micros, input: Input) -> Result<Vec<Event>, String> {
        self.run_timers(now, false)?;
        let events = self.one(now, input)?;
        self.run_timers(now, true)?;
        Ok(events)
    }

    /// Lets time pass up to and including `now`.
    pub fn pass(&mut self, now: Micros) -> Result<(), String> {
        self.feed(now, Input::TimePassed).map(|_| ())
    }

    fn run_timers(&mut self, now: Micros, inclusive: bool) -> Result<(), String> {
        let now = if self.fires_early { now } else { now.min(self.state.now()) };
        for _ in 0..MOST_TIMERS {
            let due = match self.state.next_deadline() {
                Some(due) if due < now || (inclusive && due == now) => due.max(self.state.now()),
                _not_yet => return Ok(()),
            };
            self.one(due, Input::TimePassed)?;
        }
        Err(format!("timers never came to rest before {now:?}"))
    }

    fn one(&mut self, now: Micros, input: Input) -> Result<Vec<Event>, String> {
        let done = step(&mut self.state, now, input);
        self.state.check().map_err(|violation| format!("after step {}: {violation:?}", done.seq))?;
        fold(&mut self.twin, &done);
        if self.twin.digest() != self.state.digest() {
            return Err(format!("step {} folds to another state: {:?}", done.seq, done.events));
        }
        self.note(&done);
        Ok(done.events)
    }

    fn note(&mut self, step: &Step) {
        let at_us = vector_us(step.at);
        for event in &step.events {
            match event {
                Event::FlowOpened { flow, priority } => {
                    let name = self.state.flow_name(*flow).unwrap_or_default().to_owned();
                    self.notes.flows.insert(*flow, (name, *priority));
                }
                Event::FlowClosed { flow } => {
                    self.notes.flows.remove(flow);
                }
                Event::Enqueued(enqueued) => {
                    let name = self.state.flow_name(enqueued.flow).unwrap_or_default().to_owned();
                    self.notes.programs.insert(name.clone());
                    self.notes.names.insert(RequestId(step.seq), name);
                }
                Event::Rejected(rejected) => {
                    let fate = Fate {
                        outcome: rejected.outcome,
                        at_us,
                        answer: Answer::refused(rejected.reason),
                        causes: causes_of_rejection(rejected),
                    };
                    self.notes.fates.entry(RequestId(step.seq)).or_default().push(fate);
                }
                Event::Evicted(evicted) => {
                    let spent = evicted.budget.is_some();
                    let fate = Fate {
                        outcome: evicted.outcome,
                        at_us,
                        answer: Answer::refused(evicted.reason),
                        causes: causes("evicted", spent, evicted.reason, evicted.cause),
                    };
                    self.notes.fates.entry(evicted.request).or_default().push(fate);
                }
                Event::Dispatched(dispatched) => {
                    let (outcome, answer) = (Outcome::Dispatched, Answer::admitted());
                    let fate = Fate { outcome, at_us, answer, causes: BTreeSet::new() };
                    self.notes.fates.entry(dispatched.request).or_default().push(fate);
                    self.notes.dispatched.push(dispatched.request);
                    self.notes.waited_us.insert(dispatched.request, dispatched.waited.0);
                }
                Event::LeaseEnded(ended) => {
                    self.notes.lease_ends.insert(ended.request, ended.end);
                }
                Event::RevocationIssued(issued) => self.notes.revoked.push((at_us, issued.request)),
                Event::RevocationEnded(ended) if ended.end == RevocationEnd::Confirmed => {
                    self.notes.confirmed.push((ended.request, ended.took.0));
                }
                _other => self.note_service(event),
            }
        }
    }

    fn note_service(&mut self, event: &Event) {
        match event {
            Event::ServiceCharged { request, service } => {
                let name = self.notes.names.get(request).cloned().unwrap_or_default();
                self.notes.services.insert(name, *service);
            }
            Event::ServiceRescaled { epoch, shift } => {
                self.notes.service_epoch = *epoch;
                for service in self.notes.services.values_mut() {
                    *service = service::rescale(*service, *shift);
                }
            }
            Event::ProgramForgotten { program } => {
                self.notes.programs.remove(&**program);
                self.notes.services.remove(&**program);
            }
            _other => {}
        }
    }

    /// One round of looking at the pool.
    pub fn look(&mut self, now: Micros, changes: Vec<EndpointChange>, pushed: Pushed) -> Result<(), String> {
        self.feed(now, Input::Observed(Observation { requested_at: now, changes, pushed })).map(|_| ())
    }

    /// Fires every timer up to and including `now`, and nothing else.
    pub fn until(&mut self, now: Micros) -> Result<(), String> {
        self.run_timers(now, true)
    }

    /// One plain endpoint with this figure, in place of whatever was there.
    pub fn script(&mut self, now: Micros, saturation: Ratio) -> Result<(), String> {
        let mut changes = self.everyone_leaves();
        let slot = self.new_slot();
        changes.push(EndpointChange::Joined { slot, name: "endpoint".to_owned(), role: Role::Decode });
        self.look(now, changes, Pushed::Pool(saturation))
    }

    pub fn everyone_leaves(&self) -> Vec<EndpointChange> {
        self.state.endpoints().map(|old| EndpointChange::Left { slot: old.slot }).collect()
    }

    pub fn new_slot(&mut self) -> Slot {
        self.slots = self.slots.wrapping_add(1);
        Slot(self.slots)
    }

    /// A request arrives; its number, and what the step decided.
    pub fn arrive(&mut self, now: Micros, arrival: Arrival) -> Result<RequestId, String> {
        self.run_timers(now, false)?;
        self.one(now, Input::Arrived(arrival))?;
        let id = RequestId(self.state.seq());
        self.run_timers(now, true)?;
        Ok(id)
    }

    pub fn cancel(&mut self, now: Micros, request: RequestId, cause: Cause) -> Result<(), String> {
        self.feed(now, Input::Cancelled(Cancelled { request, cause })).map(|_| ())
    }

    pub fn end(&mut self, now: Micros, request: RequestId, usage: Option<Usage>) -> Result<(), String> {
        let termination = Termination::Natural;
        self.feed(now, Input::Ended(Ended { request, termination, usage })).map(|_| ())
    }

    /// The one outcome of a request, if it has left the queue.
    pub fn fate(&self, id: RequestId) -> Option<&Fate> {
        self.notes.fates.get(&id).and_then(|fates| fates.first())
    }

    pub fn runs(&self, id: RequestId) -> bool {
        self.state.lease(id).is_some()
    }
}

fn causes_of_rejection(rejected: &Rejected) -> BTreeSet<&'static str> {
    let spent = rejected.reason == Reason::TtlExpired;
    let mut all = causes("rejected", spent, rejected.reason, rejected.cause);
    if rejected.limit.is_some() {
        all.insert("at-capacity");
    }
    all
}

/// The vectors' words for why, from what the event says.
fn causes(family: &'static str, spent: bool, reason: Reason, cause: Option<Cause>) -> BTreeSet<&'static str> {
    let mut all = BTreeSet::from([family]);
    if spent {
        all.insert("ttl-expired");
    }
    if matches!(reason, Reason::NoEndpoints | Reason::NoFreshMetrics | Reason::NotReady) {
        all.insert("no-endpoints");
    }
    match cause {
        Some(Cause::ShuttingDown) => {
            all.insert("not-running");
        }
        Some(Cause::ClientDisconnect | Cause::ClientDeadline | Cause::TicketAbandoned) => {
            all.insert("context-cancelled");
        }
        _other => {}
    }
    all
}
