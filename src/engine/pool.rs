//! A pool's thread: takes inputs, lets the kernel decide, hands steps to the log, answers when they are durable.
//!
//! While one batch is being made durable the next one is built. Only a bounded number of steps is ever decided and
//! not yet durable; beyond it inputs wait in the inbox. Nothing is decided while the log fails.

use super::comeback::{Failures, Rebuild};
use super::decision::{Decision, Unavailable};
use super::flood::Flood;
use super::handle::Shared;
use super::inbox::{Arriving, Intake, Lanes, Look, Message};
use super::journal::{Journal, Port};
use super::pace::{FULL, Pace, is_full};
use super::release::{Release, Waiters};
use super::timings::Timings;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use weir_kernel::{Event, Input, Micros, Regime, State, Step};

/// Steps that are built while another batch is in flight; a batch is never much larger.
const BATCH_MAX: usize = 3_072;
/// Events in them beyond the first of each step: where steps end many requests at once, so that a batch is soon
/// durable and those who arrive meanwhile do not wait for a large one.
const BATCH_EVENTS_MAX: usize = 2_048;
/// Batches handed to the log and not yet durable. The log commits those that wait in one sync.
const FLIGHTS_MAX: usize = 4;
/// While a batch gathers, the thread is woken for so many inputs, not for each.
const HANDFUL: usize = 64;
/// Arrivals taken from the inbox in one turn, so that ends and cancels come in between.
const ARRIVALS_PER_TURN: usize = 128;
/// Other messages taken in one turn.
const MESSAGES_PER_TURN: usize = 256;
/// Refusals of a full inbox are counted into the log at most this often.
const REFUSALS_NOTED_EVERY: Micros = Micros::from_secs(1);
/// How long a failed thread waits for what it handed to the log.
const ABORT_WAIT: Duration = Duration::from_secs(5);
/// After the drain time, how long leases whose streams are being cut may take to end.
const CUT_GRACE: Micros = Micros::from_secs(1);

/// How a step is decided: the kernel, or in tests a kernel with a fault.
pub type Decide = fn(&mut State, Micros, &Input) -> Vec<Event>;

/// What one pool's thread owns.
pub(super) struct Pool {
    pub(super) state: State,
    pub(super) decide: Decide,
    pub(super) shared: Arc<Shared>,
    port: Arc<Port>,
    journal: Box<dyn Journal>,
    pub(super) waiters: Waiters,
    /// Decided and not handed to the log yet.
    pub(super) building: Vec<Step>,
    pub(super) building_events: usize,
    /// What the steps of `building` answer.
    pub(super) answers: Vec<Release>,
    pub(super) flights: VecDeque<Flight>,
    /// Until when the next batch gathers.
    pace: Pace,
    /// Set while stopping: until when the queue is served.
    pub(super) drain_until: Option<Micros>,
    /// When the log began to fail.
    failing_since: Option<Micros>,
    refusals_noted_at: Micros,
    messages: Vec<Message>,
    arriving: Vec<Arriving>,
    pub(super) flood: Flood,
    pub(super) rebuild: Rebuild,
    pub(super) failures: Failures,
    pub(super) timings: Timings,
    /// The kernel failed in a way that the pool does not come back from: nothing is decided any more.
    pub(super) broken: bool,
}

/// A batch that the log has and that is not durable yet.
pub(super) struct Flight {
    pub(super) steps: Arc<Vec<Step>>,
    answers: Vec<Release>,
    regime: Regime,
}

/// How a pool's thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// In order, with everything durable.
    Stopped,
    /// It was told to leave everything as it is.
    Left,
    /// Through a fault of ours.
    Failed,
}

impl Pool {
    pub fn new(
        state: State,
        decide: Decide,
        shared: Arc<Shared>,
        port: Arc<Port>,
        journal: Box<dyn Journal>,
        rebuild: Rebuild,
    ) -> Self {
        Pool {
            waiters: Waiters::of(&state),
            state,
            decide,
            shared,
            port,
            journal,
            building: Vec::new(),
            building_events: 0,
            answers: Vec::new(),
            flights: VecDeque::new(),
            pace: Pace::default(),
            drain_until: None,
            failing_since: None,
            refusals_noted_at: Micros::ZERO,
            messages: Vec::new(),
            arriving: Vec::new(),
            flood: Flood::default(),
            rebuild,
            failures: Failures::default(),
            timings: Timings::default(),
            broken: false,
        }
    }

    /// Runs until told to stop. The kernel's failing on an input is survived (`comeback.rs`). A panic of ours, or a
    /// kernel that goes on failing, ends the pool cleanly: what was durable is answered, everybody else hears of the
    /// fault, and readiness turns false.
    pub fn run(mut self, first: Vec<Input>) -> End {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            for input in first {
                if self.step(input).is_none() {
                    return End::Failed;
                }
            }
            self.work()
        }));
        let end = ended.unwrap_or(End::Failed);
        match end {
            End::Stopped => self.close(Unavailable::Stopped),
            End::Left => self.close(Unavailable::Failed),
            End::Failed => {
                tracing::error!(pool = %self.shared.name, seq = self.state.seq() + 1, "the pool's thread failed");
                self.close(Unavailable::Failed);
            }
        }
        end
    }

    fn work(&mut self) -> End {
        loop {
            self.land();
            self.hand_over();
            if self.port.is_lost() || self.broken {
                return End::Failed;
            }
            if !self.collect() {
                return End::Left;
            }
            self.land();
            let mut messages = std::mem::take(&mut self.messages);
            for message in messages.drain(..) {
                self.message(message);
            }
            self.messages = messages;
            let mut arriving = std::mem::take(&mut self.arriving);
            for (arrival, promise) in arriving.drain(..) {
                self.arrival(arrival, promise);
            }
            self.arriving = arriving;
            if self.may_build() {
                self.pass_time();
            }
            if self.is_drained() {
                return self.stop();
            }
        }
    }

    /// The time of a step that is decided now.
    pub(super) fn instant(&self) -> Micros {
        self.shared.clock.now().max(self.state.now())
    }

    /// Decides one input at the present time. None if it, or one like it, made the kernel fail.
    pub(super) fn step(&mut self, input: Input) -> Option<u64> {
        self.decide_aside();
        self.step_at(self.instant(), input)
    }

    /// The same as [`Pool::step`], and collects the answers that it gives.
    pub(super) fn decide(&mut self, input: Input) -> Option<u64> {
        let seq = self.step(input)?;
        self.settle();
        Some(seq)
    }

    /// Collects the answers of the last step.
    pub(super) fn settle(&mut self) {
        if let Some(step) = self.building.last() {
            self.waiters.settle(&self.state, step, &mut self.answers);
        }
    }

    fn pass_time(&mut self) {
        let now = self.shared.clock.now().max(self.state.now());
        if let Some(deadline) = self.state.next_deadline().filter(|deadline| *deadline <= now) {
            self.timings.lateness.add(Duration::from_micros(now.since(deadline).0));
            self.decide(Input::TimePassed);
        }
        let noted = self.refusals_noted_at + REFUSALS_NOTED_EVERY;
        let back = self.failing_since.is_some();
        if !back && now < noted {
            return;
        }
        let (refused, since) = {
            let mut lanes = self.shared.inbox.lock();
            if lanes.intake == Intake::Closed(Unavailable::Log) {
                lanes.intake = Intake::Open;
            }
            (std::mem::take(&mut lanes.refused), lanes.refused_since)
        };
        if back || refused > 0 {
            let since = self.failing_since.take().unwrap_or(since);
            self.refusals_noted_at = now;
            self.decide(Input::LogResumed { since, refused });
            self.publish(|status| status.log_writable = true);
        }
    }

    fn may_build(&self) -> bool {
        let room = self.building.len() < BATCH_MAX && self.building_events < BATCH_EVENTS_MAX;
        !self.port.is_failing() && (self.flights.len() < FLIGHTS_MAX || room)
    }

    /// Waits for something to do and takes it out of the inbox. False if the thread shall leave.
    fn collect(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut lanes = shared.inbox.lock();
        loop {
            if lanes.left {
                return false;
            }
            if std::mem::take(&mut lanes.poked) {
                self.take_along_if_due(&mut lanes);
                return true;
            }
            let looks = lanes.looks_due(!self.may_build());
            if !looks.is_empty() {
                drop(lanes);
                self.look(looks);
                lanes = shared.inbox.lock();
                continue;
            }
            if self.port.is_failing() {
                self.refuse_all(&mut lanes);
                lanes = shared.inbox.sleep(lanes, None, 1);
                continue;
            }
            let gathers_until = self.gathers_until();
            let built = !self.building.is_empty() || self.flood.has_aside();
            if gathers_until.is_none() && built && self.flights.len() < FLIGHTS_MAX {
                self.take_along_if_due(&mut lanes);
                return true;
            }
            // What comes in while a batch gathers is decided by the handful.
            let handful = if gathers_until.is_some() { HANDFUL } else { 1 };
            let mut span = None;
            if self.may_build() {
                let waiting = lanes.first.len() + lanes.arrivals.len();
                span = self.next_wake(lanes.refused > 0).map(|deadline| shared.clock.until(deadline));
                let due = span == Some(Some(Duration::ZERO)) || self.is_due(lanes.refused > 0);
                if waiting >= handful || self.failing_since.is_some() || due {
                    self.take(&mut lanes);
                    return true;
                }
            }
            let gathering = gathers_until.map(|until| until.saturating_duration_since(Instant::now()));
            let span = span.flatten().into_iter().chain(gathering).min();
            lanes.revoking = self.state.revoked().next().is_some();
            lanes = shared.inbox.sleep(lanes, span, handful);
        }
    }

    fn take(&mut self, lanes: &mut Lanes) {
        lanes.take(&mut self.messages, MESSAGES_PER_TURN, &mut self.arriving, ARRIVALS_PER_TURN);
    }

    /// In a turn that a deadline will have a step in, whatever the turn is for, those who wait come first: where one
    /// deadline follows another there would else be no turn for less than a handful.
    fn take_along_if_due(&mut self, lanes: &mut Lanes) {
        if self.may_build() && self.is_due(lanes.refused > 0) {
            self.take(lanes);
        }
    }

    fn next_wake(&self, refused: bool) -> Option<Micros> {
        let noted = refused.then_some(self.refusals_noted_at + REFUSALS_NOTED_EVERY);
        let now = self.state.now();
        let drained = self.drain_until.map(|until| if until > now { until } else { until + CUT_GRACE });
        [self.state.next_deadline(), noted, drained].into_iter().flatten().min()
    }

    fn is_due(&self, refused: bool) -> bool {
        self.next_wake(refused).is_some_and(|deadline| deadline <= self.shared.clock.now())
    }

    /// The log fails: arrivals that nobody has looked at are refused outside the kernel, and counted.
    fn refuse_all(&mut self, lanes: &mut Lanes) {
        if self.failing_since.is_none() {
            self.failing_since = Some(self.shared.clock.now());
            tracing::warn!(pool = %self.shared.name, "the log cannot be written: new requests are refused");
            self.publish(|status| status.log_writable = false);
        }
        if lanes.intake == Intake::Open {
            lanes.intake = Intake::Closed(Unavailable::Log);
        }
        for (_, promise) in self.flood.take_aside() {
            lanes.refused += 1;
            promise.answer(Decision::Unavailable(Unavailable::Log));
        }
        for (_, promise) in lanes.arrivals.drain(..) {
            lanes.refused += 1;
            promise.answer(Decision::Unavailable(Unavailable::Log));
        }
    }

    fn look(&mut self, looks: VecDeque<Look>) {
        for look in looks {
            let reply = (look.see)(&self.state);
            if look.durable && !(self.building.is_empty() && self.flights.is_empty()) {
                match self.flights.back_mut() {
                    Some(flight) if self.building.is_empty() => flight.answers.push(Release::Reply(reply)),
                    _ => self.answers.push(Release::Reply(reply)),
                }
            } else {
                reply();
            }
        }
    }

    /// Until when the batch at hand waits for more to join it.
    fn gathers_until(&self) -> Option<Instant> {
        if is_full(self.building.len(), self.answers.len()) || self.drain_until.is_some() {
            return None;
        }
        self.pace.until().filter(|until| *until > Instant::now())
    }

    fn may_hand_over(&self) -> bool {
        self.flights.len() < FLIGHTS_MAX && !self.port.is_failing() && self.gathers_until().is_none()
    }

    /// Gives the log what was built, if it may have another batch.
    fn hand_over(&mut self) {
        if self.flood.has_aside() && self.may_hand_over() {
            self.decide_aside();
        }
        if self.building.is_empty() {
            // Answers that rest on steps already handed over (or on none).
            if !self.answers.is_empty() {
                let answers = std::mem::take(&mut self.answers);
                match self.flights.back_mut() {
                    Some(flight) => flight.answers.extend(answers),
                    None => answers.into_iter().for_each(Release::give),
                }
            }
            return;
        }
        if !self.may_hand_over() {
            return;
        }
        let (now, count) = (Instant::now(), self.building.len());
        let weight = count + self.flood.take_covered();
        self.pace.handed_over(now, weight);
        self.timings.hand_over(&mut self.shared.timings.lock().unwrap_or_else(PoisonError::into_inner));
        let steps = Arc::new(std::mem::replace(&mut self.building, Vec::with_capacity(count.min(FULL))));
        self.building_events = 0;
        self.journal.submit(Arc::clone(&steps));
        let room = self.answers.len();
        let answers = std::mem::replace(&mut self.answers, Vec::with_capacity(room));
        self.flights.push_back(Flight { steps, answers, regime: self.state.regime() });
    }

    /// Gives the answers of the batches that have become durable.
    fn land(&mut self) {
        let durable = self.port.durable();
        while let Some(flight) = self.flights.front() {
            let last = flight.steps.last().map_or(0, |step| step.seq);
            if last > durable {
                break;
            }
            if let Some(flight) = self.flights.pop_front() {
                self.publish(|status| (status.durable, status.regime) = (last, flight.regime));
                self.shared.note_regime(&flight.steps, flight.regime);
                flight.answers.into_iter().for_each(Release::give);
                // Nobody may be listening.
                let _ = self.shared.steps.send(flight.steps);
            }
        }
    }

    pub(super) fn publish(&self, change: impl FnOnce(&mut super::handle::PoolStatus)) {
        change(&mut self.shared.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// While stopping: is there nothing left that an orderly end waits for?
    fn is_drained(&self) -> bool {
        let Some(until) = self.drain_until else {
            return false;
        };
        let now = self.shared.clock.now();
        let due = self.state.next_deadline().is_some_and(|deadline| deadline <= now);
        let idle = self.state.queued() == 0 && self.waiters.tied() == 0;
        idle || (now >= until && !due && (self.waiters.tied() == 0 || now >= until + CUT_GRACE))
    }

    /// The last step of the run, made durable.
    fn stop(&mut self) -> End {
        self.decide(Input::Stopped);
        let shared = Arc::clone(&self.shared);
        loop {
            self.hand_over();
            if self.building.is_empty() && self.flights.is_empty() {
                return End::Stopped;
            }
            let mut lanes = shared.inbox.lock();
            while !std::mem::take(&mut lanes.poked) {
                if lanes.left {
                    return End::Left;
                }
                lanes = shared.inbox.sleep(lanes, None, 1);
            }
            drop(lanes);
            self.land();
            if self.port.is_lost() {
                return End::Failed;
            }
        }
    }

    /// Lets nothing more in and answers everybody who still waits.
    fn close(&mut self, why: Unavailable) {
        let mut lanes = self.shared.inbox.lock();
        lanes.intake = Intake::Closed(why);
        let aside = self.flood.take_aside();
        let arrivals: Vec<Arriving> =
            lanes.arrivals.drain(..).chain(self.arriving.drain(..)).chain(aside).collect();
        let messages: Vec<Message> = lanes.first.drain(..).chain(self.messages.drain(..)).collect();
        lanes.looks.clear();
        drop(lanes);
        self.publish(|status| {
            status.stopping = true;
            status.failed = why == Unavailable::Failed;
        });
        for (_, promise) in arrivals {
            promise.answer(Decision::Unavailable(why));
        }
        messages.into_iter().for_each(|message| message.deny(why));
        self.await_flights();
        for flight in self.flights.drain(..) {
            flight.answers.into_iter().for_each(|answer| answer.deny(why));
        }
        self.answers.drain(..).for_each(|answer| answer.deny(why));
        self.waiters.abort(why);
    }

    /// What the log was given may still become durable: those callers get their answers.
    fn await_flights(&mut self) {
        let patience = Instant::now() + ABORT_WAIT;
        loop {
            self.land();
            let left = patience.saturating_duration_since(Instant::now());
            let shared = Arc::clone(&self.shared);
            let mut lanes = shared.inbox.lock();
            if self.flights.is_empty() || lanes.left || left.is_zero() || self.port.is_failing() {
                return;
            }
            if !std::mem::take(&mut lanes.poked) {
                drop(shared.inbox.sleep(lanes, Some(left), 1));
            }
        }
    }
}
