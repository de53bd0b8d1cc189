//! What the faces and the observer hold of a pool: cheap to clone, never blocking.

use super::about::{About, News, Queued, Told};
use super::clock::Clock;
use super::decision::{Change, Fate, LeaseNotice, Unavailable};
use super::inbox::{Inbox, Look, Message, Reply};
use super::pending::Pending;
use super::poison::Poison;
use super::pseudonym::Pseudonyms;
use super::timings::Timings;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::sync::{broadcast, oneshot, watch};
use weir_kernel::{
    Arrival, Cancelled, Cause, Ended, Event, Face, Micros, ObjectivesChange, Observation, Policy, Regime,
    RequestId, State, Step,
};

/// Handed to everybody by a pool's thread.
pub(super) struct Shared {
    pub name: String,
    pub clock: Clock,
    pub inbox: Arc<Inbox>,
    pub steps: broadcast::Sender<Arc<Vec<Step>>>,
    pub status: std::sync::Mutex<PoolStatus>,
    pub poison: Poison,
    pub regimes: watch::Sender<RegimeNote>,
    /// Until when requests were queued or running, in microseconds; the largest number while they are.
    pub worked_until: AtomicU64,
    /// What takes the place of callers' ids in the log.
    pub pseudonyms: Option<Arc<Pseudonyms>>,
    /// The figures of the batches that were handed over.
    pub timings: std::sync::Mutex<Timings>,
    /// For whoever takes it first: the state before the first step of this run, and every batch since.
    pub beginning: std::sync::Mutex<Option<Beginning>>,
}

/// A state as events, and the batches that follow it.
pub type Beginning = (Vec<Event>, broadcast::Receiver<Arc<Vec<Step>>>);

impl Shared {
    /// A step at `at` left the pool with or without requests, and let one go or not.
    pub fn note_work(&self, at: Micros, busy: bool, let_go: bool) {
        let before = self.worked_until.load(Ordering::Relaxed);
        let now = match (busy, let_go || before == u64::MAX) {
            (true, _) => u64::MAX,
            (false, true) => at.0,
            (false, false) => before,
        };
        self.worked_until.store(now, Ordering::Relaxed);
    }

    /// These steps are durable, and left the pool in this regime.
    pub fn note_regime(&self, steps: &[Step], regime: Regime) {
        if self.regimes.borrow().regime == regime {
            return;
        }
        let changed =
            |step: &&Step| step.events.iter().any(|event| matches!(event, Event::RegimeChanged { .. }));
        let seq = steps.iter().rev().find(changed).or(steps.last()).map_or(0, |step| step.seq);
        self.regimes.send_replace(RegimeNote { regime, seq });
    }
}

/// A pool's regime, and the step that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegimeNote {
    /// The regime.
    pub regime: Regime,
    /// The step; of several changes that became durable at once the last.
    pub seq: u64,
}

/// A request that was handed in by a caller that stays on.
#[derive(Debug)]
pub struct Watched {
    /// Its decision. Dropped before that, the request is cancelled.
    pub pending: Pending,
    /// Tells that it waits, once that is durable; ends without a word if it never does.
    pub queued: oneshot::Receiver<Box<Queued>>,
    /// Tells of the end of its lease; ends without a word if the pool's thread does, or if that lease had ended before.
    pub ended: oneshot::Receiver<LeaseNotice>,
}

/// How a pool is, as of its last durable batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// The last durable step.
    pub durable: u64,
    /// The regime after that step.
    pub regime: Regime,
    /// Can its log be written?
    pub log_writable: bool,
    /// It takes no new requests any more.
    pub stopping: bool,
    /// Its thread ended because of a fault of ours.
    pub failed: bool,
    /// The kernel failed on an input; the pool is coming back without it.
    pub recovering: bool,
    /// How often the kernel failed.
    pub faults: u64,
    /// How many of those inputs were observations: whoever made them tells the whole view again.
    pub views_lost: u64,
}

impl PoolStatus {
    /// May it be sent traffic: seen, writable, not stopping, alive?
    pub fn ready(&self) -> bool {
        let at_work = !self.stopping && !self.failed && !self.recovering;
        at_work && self.log_writable && self.regime != Regime::Unknown
    }
}

/// One pool's engine.
#[derive(Clone)]
pub struct PoolHandle(pub(super) Arc<Shared>);

impl PoolHandle {
    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The clock that its inputs are stamped with; absolute deadlines of callers are in its time.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Until when requests were queued or running (now, while they are), or one was let go.
    pub fn worked_until(&self) -> Micros {
        Micros(self.0.worked_until.load(Ordering::Relaxed)).min(self.0.clock.now())
    }

    /// How it is.
    pub fn status(&self) -> PoolStatus {
        *self.0.status.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The state before the first step of this run, as events, and every batch since: for figures that leave nothing out.
    /// The first who asks gets it.
    pub fn beginning(&self) -> Option<Beginning> {
        self.0.beginning.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }

    /// How long steps took, and how late deadlines were noticed.
    pub fn timings(&self) -> Timings {
        *self.0.timings.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Inputs that were refused because their like made the kernel fail.
    pub fn poison_refused(&self) -> u64 {
        self.0.poison.refused()
    }

    /// Hands in a request, checked before.
    ///
    /// # Errors
    /// Nothing can be decided now; the refusal is counted into the log later.
    pub fn admit(&self, arrival: Arrival) -> Result<Pending, Unavailable> {
        self.arrive(arrival, None)
    }

    /// The same, telling more than the decision.
    ///
    /// # Errors
    /// As [`PoolHandle::admit`].
    pub fn admit_watched(&self, arrival: Arrival) -> Result<Watched, Unavailable> {
        let (queued_to, queued) = oneshot::channel();
        let (ended_to, ended) = oneshot::channel();
        let told = Told { queued: Some(queued_to), ended: Some(ended_to) };
        Ok(Watched { pending: self.arrive(arrival, Some(Box::new(told)))?, queued, ended })
    }

    fn arrive(&self, mut arrival: Arrival, told: Option<Box<Told>>) -> Result<Pending, Unavailable> {
        if let Some(pseudonyms) = &self.0.pseudonyms {
            arrival.caller_id = pseudonyms.caller(&arrival.caller_id);
            arrival.fairness_id = pseudonyms.flow(&arrival.fairness_id);
        }
        if self.0.poison.refuses_arrival(&arrival) {
            self.0.inbox.refused(arrival.received_at);
            return Err(Unavailable::Poisoned);
        }
        // The lease of a stream ends with the stream, whoever may come back.
        let keyed = arrival.idempotency.is_some() && arrival.face != Face::Stream;
        let (pending, promise) = Pending::new(keyed, Arc::clone(&self.0.inbox), told);
        self.0.inbox.arrive((arrival, promise))?;
        Ok(pending)
    }

    /// What a request is. Asked of a ticket that waits, it shows that its holder lives. With `news`, what comes next
    /// of it is told as well.
    pub fn about(&self, request: RequestId, news: bool) -> Answer<Result<About, Unavailable>> {
        let (to, from) = oneshot::channel();
        let (news_to, news) = if news { Some(News::channel()) } else { None }.unzip();
        let put = self.0.inbox.put(Message::About(request, to, news_to.map(Box::new)));
        Answer::new(async move {
            put?;
            let (seen, caller_id) = from.await.map_err(|_| Unavailable::Failed)??;
            Ok(About { seen, caller_id, news })
        })
    }

    /// The regime and its changes, once they are durable.
    pub fn regimes(&self) -> watch::Receiver<RegimeNote> {
        self.0.regimes.subscribe()
    }

    /// Ends a request early: queued, it leaves the queue; running, its lease ends.
    /// Handed in at once; only the answer is waited for.
    pub fn cancel(&self, request: RequestId, cause: Cause) -> Answer<Fate> {
        self.ask(|to| Message::Cancel(Cancelled { request, cause }, Some(to)))
    }

    /// A running request's stream has ended. Handed in at once; only the answer is waited for.
    pub fn end(&self, ended: Ended) -> Answer<Fate> {
        self.ask(|to| Message::End(ended, Some(to)))
    }

    /// The same where nobody waits to hear of it.
    pub fn end_unheard(&self, ended: Ended) {
        // A pool that is gone has nothing to end.
        let _ = self.0.inbox.put(Message::End(ended, None));
    }

    /// The first byte of a running request's response was seen.
    pub fn first_byte(&self, request: RequestId) {
        let _ = self.0.inbox.put(Message::FirstByte(request));
    }

    /// The holder of a lease or of a ticket lives.
    pub fn renew(&self, request: RequestId) -> Answer<Fate> {
        self.ask(|to| Message::Renew(request, Some(to)))
    }

    /// Waits for the end of a lease. Unavailable if no such lease runs.
    pub fn watch_lease(&self, request: RequestId) -> Answer<Result<LeaseNotice, Unavailable>> {
        self.ask_for(|to| Message::WatchLease(request, to), Ok, Err)
    }

    /// Hands in a round of pool observation.
    ///
    /// # Errors
    /// [`Unavailable::InboxFull`] while earlier rounds are unread: keep the differences for the next round.
    pub fn observe(&self, observation: Observation) -> Result<(), Unavailable> {
        self.0.inbox.put(Message::Observe(observation))
    }

    /// Puts other settings in force.
    pub fn change_policy(&self, policy: Policy) -> Answer<Result<Change, Unavailable>> {
        self.ask_for(|to| Message::Policy(Box::new(policy), to), |answer| answer, Err)
    }

    /// Changes the table of objectives.
    pub fn change_objectives(&self, change: ObjectivesChange) -> Answer<Result<Change, Unavailable>> {
        self.ask_for(|to| Message::Objectives(change, to), |answer| answer, Err)
    }

    /// Each batch of steps once it is durable, from here on. A receiver that falls too far behind is told how many
    /// batches it missed (`RecvError::Lagged`) and reads them from the log; it never holds the pool up.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Vec<Step>>> {
        self.0.steps.subscribe()
    }

    /// Looks at the state and answers once everything that was seen is durable. Short looks only: the pool waits.
    pub fn query<T: Send + 'static>(
        &self,
        see: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Answer<Result<T, Unavailable>> {
        self.look(see, true)
    }

    /// The same at once, also while the log fails; what is seen may still be lost with a crash.
    pub fn peek<T: Send + 'static>(
        &self,
        see: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Answer<Result<T, Unavailable>> {
        self.look(see, false)
    }

    fn look<T: Send + 'static>(
        &self,
        see: impl FnOnce(&State) -> T + Send + 'static,
        durable: bool,
    ) -> Answer<Result<T, Unavailable>> {
        let (to, from) = oneshot::channel();
        let see = Box::new(move |state: &State| -> Reply {
            let seen = see(state);
            Box::new(move || drop(to.send(seen)))
        });
        let asked = self.0.inbox.look(Look { see, durable, after: 0 });
        Answer::new(async move {
            asked?;
            from.await.map_err(|_| Unavailable::Failed)
        })
    }

    fn ask(&self, message: impl FnOnce(oneshot::Sender<Fate>) -> Message) -> Answer<Fate> {
        let (to, from) = oneshot::channel();
        match self.0.inbox.put(message(to)) {
            Ok(()) => Answer(Coming::Told(from, Fate::Unavailable)),
            Err(why) => Answer::new(std::future::ready(Fate::Unavailable(why))),
        }
    }

    pub(super) fn ask_for<T, U>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> Message,
        heard: fn(T) -> U,
        unheard: fn(Unavailable) -> U,
    ) -> Answer<U>
    where
        T: Send + 'static,
        U: Send + 'static,
    {
        let (to, from) = oneshot::channel();
        let put = self.0.inbox.put(message(to));
        Answer::new(async move {
            if let Err(why) = put {
                return unheard(why);
            }
            from.await.map_or_else(|_| unheard(Unavailable::Failed), heard)
        })
    }
}

impl std::fmt::Debug for PoolHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolHandle({})", self.0.name)
    }
}

/// An answer that comes once what it tells of is durable. Dropping it does not take the input back.
pub struct Answer<T>(Coming<T>);

enum Coming<T> {
    /// Every request is ended by one of these, so they do without a box.
    Told(oneshot::Receiver<T>, fn(Unavailable) -> T),
    Other(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Answer<T> {
    fn new(coming: impl Future<Output = T> + Send + 'static) -> Self {
        Answer(Coming::Other(Box::pin(coming)))
    }
}

impl<T> Future for Answer<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            Coming::Told(from, unheard) => {
                let unheard = *unheard;
                Pin::new(from).poll(context).map(|told| told.unwrap_or_else(|_| unheard(Unavailable::Failed)))
            }
            Coming::Other(coming) => coming.as_mut().poll(context),
        }
    }
}
