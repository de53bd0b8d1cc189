//! The kernel under a clock of whole milliseconds: inputs, timers when they are due, and a note of what was decided.
//!
//! Whoever drives it may watch each step. Not here: what the pool does (`plant.rs`).

use crate::bench::BenchError;
use weir_kernel::{
    Ended, EndpointChange, Event, Face, Input, KERNEL_BEHAVIOUR, Micros, Observation, Outcome, Policy,
    PolicyChange, Pushed, RequestId, RestatedLease, Started, State, Step, Termination, Whereabouts, step,
};

/// The instant that a run calls 0 ms: far enough from the epoch for times before it.
const EPOCH: i64 = 1_000_000_000_000_000;
/// Timers that may fire between two inputs before the run counts as stuck.
const MOST_TIMERS: u32 = 5_000_000;

/// Sees the state after each step; without a step where it was put back from a changed snapshot.
pub type Watch<'a> = &'a mut dyn FnMut(&State, Option<&Step>) -> Result<(), String>;

/// An instant of a run, in milliseconds from its start.
pub fn at(ms: i64) -> Micros {
    Micros(u64::try_from(EPOCH.saturating_add(ms.saturating_mul(1_000))).unwrap_or(0))
}

/// Adds a lease that is there to the events of a snapshot.
pub fn restate_lease(events: &mut Vec<Event>, request: RequestId, priority: i32, dispatched_at: Micros) {
    if let Some(Event::RestatedCore(core)) = events.first_mut() {
        // Arrivals, and after three counters the outcomes.
        for index in [0, 3 + Outcome::Dispatched.index()] {
            if let Some(counter) = core.counters.get_mut(index) {
                *counter += 1;
            }
        }
    }
    events.push(Event::RestatedLease(Box::new(RestatedLease {
        request,
        priority,
        at: Whereabouts::Unknown,
        dispatched_at,
        heard_at: dispatched_at,
        prompt_tokens: 0,
        output_estimate: 0,
        program: None,
        first_byte: false,
        face: Face::Proxy,
        orphan: false,
        doomed: false,
        key: None,
    })));
}

/// One pool.
pub struct Kernel<'a> {
    state: State,
    watch: Watch<'a>,
    /// Admitted, in order, and how long each had waited.
    pub dispatched: Vec<(RequestId, Micros)>,
    /// Ordered to end, in order.
    pub revoked: Vec<RequestId>,
}

impl<'a> Kernel<'a> {
    /// A pool with these settings that nothing has been seen of, at 0 ms.
    pub fn new(policy: Policy, watch: Watch<'a>) -> Result<Kernel<'a>, BenchError> {
        let mut kernel = Kernel { state: State::new(), watch, dispatched: Vec::new(), revoked: Vec::new() };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        kernel
            .feed(0, Input::Started(Started { kernel_behaviour: KERNEL_BEHAVIOUR, version, wall: at(0) }))?;
        // Nothing in the kernel rests on the digest.
        kernel.feed(0, Input::PolicyChanged(PolicyChange { policy: Box::new(policy), digest: [0; 32] }))?;
        Ok(kernel)
    }

    /// Puts the state back from a snapshot that was changed on the way.
    pub fn restate(&mut self, change: impl FnOnce(&mut Vec<Event>)) -> Result<(), BenchError> {
        let mut events = self.state.restate();
        change(&mut events);
        self.state = State::from_restated(&events).map_err(|error| BenchError(error.to_string()))?;
        (self.watch)(&self.state, None).map_err(BenchError)
    }

    /// The pool.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Fires the timers due before `ms`, then takes the input, then whatever is still due at `ms`.
    pub fn feed(&mut self, ms: i64, input: Input) -> Result<(), BenchError> {
        self.run_timers(at(ms), false)?;
        self.one(at(ms), input)?;
        self.run_timers(at(ms), true)
    }

    /// Lets time pass up to and including `ms`.
    pub fn pass(&mut self, ms: i64) -> Result<(), BenchError> {
        self.feed(ms, Input::TimePassed)
    }

    /// One round of looking at the pool.
    pub fn look(&mut self, ms: i64, changes: Vec<EndpointChange>) -> Result<(), BenchError> {
        self.feed(ms, Input::Observed(Observation { requested_at: at(ms), changes, pushed: Pushed::Keep }))
    }

    /// The stream of a lease has ended.
    pub fn end(&mut self, ms: i64, request: RequestId) -> Result<(), BenchError> {
        self.feed(ms, Input::Ended(Ended { request, termination: Termination::Natural, usage: None }))
    }

    fn run_timers(&mut self, now: Micros, inclusive: bool) -> Result<(), BenchError> {
        for _ in 0..MOST_TIMERS {
            let due = match self.state.next_deadline() {
                Some(due) if due < now || (inclusive && due == now) => due.max(self.state.now()),
                _not_yet => return Ok(()),
            };
            self.one(due, Input::TimePassed)?;
        }
        Err(BenchError(format!("timers never came to rest before {now:?}")))
    }

    fn one(&mut self, now: Micros, input: Input) -> Result<(), BenchError> {
        let done = step(&mut self.state, now, input);
        for event in &done.events {
            match event {
                Event::Dispatched(e) => self.dispatched.push((e.request, e.waited)),
                Event::RevocationIssued(e) => self.revoked.push(e.request),
                _other => {}
            }
        }
        (self.watch)(&self.state, Some(&done)).map_err(BenchError)
    }
}
