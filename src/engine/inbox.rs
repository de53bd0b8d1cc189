//! The bounded inbox of a pool's thread: arrivals in one lane, everything else in a lane that goes first.
//!
//! A flood of arrivals fills its own lane and is refused there; ends, cancels and observations never wait behind
//! it. That second lane needs no bound of its own: it holds at most a few entries for each request that was let in.

use super::about::{NewsTo, Seen};
use super::admin::Obeyed;
use super::decision::{Change, Fate, LeaseNotice, Unavailable};
use super::pending::{Promise, Slot};
use super::revocation::{Revocation, Revoking};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use weir_kernel::{
    Admin, Arrival, Cancelled, Ended, Micros, ObjectivesChange, Observation, Policy, RequestId, State,
};

/// An arrival and where its answer goes.
pub(super) type Arriving = (Arrival, Promise);

/// Where an answer about a request goes: what it is, and its caller's own label.
pub(super) type SeenTo = oneshot::Sender<Result<(Seen, Option<String>), Unavailable>>;

/// Everything but arrivals.
pub(super) enum Message {
    /// The caller of this arrival is gone.
    Abandon(Arc<Slot>),
    Cancel(Cancelled, Option<oneshot::Sender<Fate>>),
    End(Ended, Option<oneshot::Sender<Fate>>),
    FirstByte(RequestId),
    Renew(RequestId, Option<oneshot::Sender<Fate>>),
    Observe(Observation),
    Policy(Box<Policy>, oneshot::Sender<Result<Change, Unavailable>>),
    Objectives(ObjectivesChange, oneshot::Sender<Result<Change, Unavailable>>),
    WatchLease(RequestId, oneshot::Sender<LeaseNotice>),
    /// Somebody waits for the revocation of this lease.
    Revocation(RequestId, oneshot::Sender<Revocation>),
    /// An operator's order.
    Revoke {
        request: RequestId,
        by: String,
        why: String,
        to: oneshot::Sender<Revoking>,
    },
    Undeliverable(RequestId),
    /// A long poll of this request begins or ends.
    Watch(RequestId, bool),
    /// An operator's.
    Order(Admin, oneshot::Sender<Obeyed>),
    About(RequestId, SeenTo, Option<Box<NewsTo>>),
    /// No new requests; the end comes when all is drained.
    Stop {
        drain_until: Micros,
    },
}

impl Message {
    /// Tells whoever waits that nothing will come of it.
    pub fn deny(self, why: Unavailable) {
        match self {
            Message::Cancel(_, to) | Message::End(_, to) | Message::Renew(_, to) => {
                if let Some(to) = to {
                    let _ = to.send(Fate::Unavailable(why));
                }
            }
            Message::Order(_, to) => drop(to.send(Obeyed::Unavailable(why))),
            Message::Policy(_, to) | Message::Objectives(_, to) => drop(to.send(Err(why))),
            Message::Revoke { to, .. } => drop(to.send(Revoking::Unavailable(why))),
            Message::About(_, to, _) => drop(to.send(Err(why))),
            // Dropping the sender of a watch tells the other side; nobody waits for the rest.
            Message::Abandon(_)
            | Message::FirstByte(_)
            | Message::Observe(_)
            | Message::WatchLease(..)
            | Message::Revocation(..)
            | Message::Undeliverable(_)
            | Message::Watch(..)
            | Message::Stop { .. } => {}
        }
    }
}

/// Sends what was seen.
pub(super) type Reply = Box<dyn FnOnce() + Send>;

/// A look at the state, which changes nothing.
pub(super) struct Look {
    pub see: Box<dyn FnOnce(&State) -> Reply + Send>,
    /// Reply only once all that was seen is durable.
    pub durable: bool,
    /// Messages that were put in before it: it sees what they did.
    pub after: u64,
}

/// May arrivals come in?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intake {
    Open,
    Closed(Unavailable),
}

/// Both lanes and the state of the intake.
pub(super) struct Lanes {
    pub arrivals: VecDeque<Arriving>,
    pub first: VecDeque<Message>,
    pub looks: VecDeque<Look>,
    /// Messages of the first lane so far: put in, and taken out.
    put: u64,
    taken: u64,
    pub intake: Intake,
    /// The thread shall end and leave everything as it is.
    pub left: bool,
    /// Arrivals refused here since the last time they were counted into the log, and since when.
    pub refused: u64,
    pub refused_since: Micros,
    /// Observations in `first`.
    pub observations: usize,
    /// Somebody moved the clock, or the log has news: look again.
    pub poked: bool,
    /// A revocation is outstanding, so that whoever asks for it must be told now.
    pub revoking: bool,
    asleep: bool,
    /// So many must be waiting to wake the sleeper: more than one while a batch gathers anyway.
    handful: usize,
}

impl Lanes {
    /// Takes out the looks whose turn it is: what was put in before them has been taken. All of them where `at_once`,
    /// because nothing is taken now.
    pub fn looks_due(&mut self, at_once: bool) -> VecDeque<Look> {
        let waiting = self.looks.iter().position(|look| look.after > self.taken && !at_once);
        let later = self.looks.split_off(waiting.unwrap_or(self.looks.len()));
        std::mem::replace(&mut self.looks, later)
    }

    /// Moves at most so many of each lane out, in order.
    pub fn take(
        &mut self,
        messages: &mut Vec<Message>,
        messages_max: usize,
        arriving: &mut Vec<Arriving>,
        arriving_max: usize,
    ) {
        let count = self.first.len().min(messages_max);
        messages.extend(self.first.drain(..count));
        self.taken += count as u64;
        self.observations -= messages.iter().filter(|message| matches!(message, Message::Observe(_))).count();
        let count = self.arrivals.len().min(arriving_max);
        arriving.extend(self.arrivals.drain(..count));
    }
}

/// Shared by a pool's thread (which alone takes) and everybody who has input for it.
pub(super) struct Inbox {
    lanes: Mutex<Lanes>,
    wake: Condvar,
    arrivals_max: usize,
}

/// Observations that may wait unread; beyond it the observer keeps its differences for the next round.
const OBSERVATIONS_MAX: usize = 4;

impl Inbox {
    pub fn new(arrivals_max: usize) -> Self {
        let lanes = Lanes {
            arrivals: VecDeque::new(),
            first: VecDeque::new(),
            looks: VecDeque::new(),
            put: 0,
            taken: 0,
            intake: Intake::Open,
            left: false,
            refused: 0,
            refused_since: Micros::ZERO,
            observations: 0,
            poked: false,
            revoking: false,
            asleep: false,
            handful: 1,
        };
        Inbox { lanes: Mutex::new(lanes), wake: Condvar::new(), arrivals_max }
    }

    /// Takes an arrival in, or says why not (and counts it).
    pub fn arrive(&self, arriving: Arriving) -> Result<(), Unavailable> {
        let mut lanes = self.lock();
        let refusal = match lanes.intake {
            Intake::Closed(why) => Some(why),
            Intake::Open if lanes.arrivals.len() >= self.arrivals_max => Some(Unavailable::InboxFull),
            Intake::Open => None,
        };
        if let Some(why) = refusal {
            if lanes.refused == 0 {
                lanes.refused_since = arriving.0.received_at;
            }
            lanes.refused += 1;
            return Err(why);
        }
        lanes.arrivals.push_back(arriving);
        self.rouse_for_many(lanes);
        Ok(())
    }

    /// Counts an arrival that was refused outside the kernel.
    pub fn refused(&self, since: Micros) {
        let mut lanes = self.lock();
        if lanes.refused == 0 {
            lanes.refused_since = since;
        }
        lanes.refused += 1;
    }

    /// Puts anything else into the lane that goes first. Given back if the pool's thread is gone.
    pub fn put(&self, message: Message) -> Result<(), Unavailable> {
        let mut lanes = self.lock();
        if let Intake::Closed(why @ (Unavailable::Stopped | Unavailable::Failed)) = lanes.intake {
            return Err(why);
        }
        if matches!(message, Message::Observe(_)) {
            if lanes.observations >= OBSERVATIONS_MAX {
                return Err(Unavailable::InboxFull);
            }
            lanes.observations += 1;
        }
        lanes.first.push_back(message);
        lanes.put += 1;
        self.rouse_for_many(lanes);
        Ok(())
    }

    /// The same for what can wait until the thread is awake for something else, before which nothing new can be decided.
    pub fn put_quietly(&self, message: Message) -> Result<(), Unavailable> {
        let mut lanes = self.lock();
        if let Intake::Closed(why @ (Unavailable::Stopped | Unavailable::Failed)) = lanes.intake {
            return Err(why);
        }
        lanes.first.push_back(message);
        lanes.put += 1;
        if lanes.revoking {
            self.rouse(lanes);
        }
        Ok(())
    }

    /// Asks for a look at the state, after what was put in before it.
    pub fn look(&self, mut look: Look) -> Result<(), Unavailable> {
        let mut lanes = self.lock();
        if let Intake::Closed(why @ (Unavailable::Stopped | Unavailable::Failed)) = lanes.intake {
            return Err(why);
        }
        look.after = lanes.put;
        lanes.looks.push_back(look);
        self.rouse(lanes);
        Ok(())
    }

    /// Tells the thread to end at once and leave everything as it is.
    pub fn leave(&self) {
        let mut lanes = self.lock();
        lanes.left = true;
        self.rouse(lanes);
    }

    /// Wakes the thread to look again at the clock and the log.
    pub fn poke(&self) {
        let mut lanes = self.lock();
        lanes.poked = true;
        self.rouse(lanes);
    }

    pub fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rouse_for_many(&self, lanes: MutexGuard<'_, Lanes>) {
        if lanes.arrivals.len() + lanes.first.len() >= lanes.handful {
            self.rouse(lanes);
        }
    }

    fn rouse(&self, mut lanes: MutexGuard<'_, Lanes>) {
        if std::mem::take(&mut lanes.asleep) {
            drop(lanes);
            self.wake.notify_one();
        }
    }

    /// Sleeps until so many inputs are there (a look, a poke and the end count at once) or `span` is over (`None`: no
    /// end). May wake for nothing.
    pub fn sleep<'a>(
        &'a self,
        mut lanes: MutexGuard<'a, Lanes>,
        span: Option<Duration>,
        handful: usize,
    ) -> MutexGuard<'a, Lanes> {
        lanes.asleep = true;
        lanes.handful = handful;
        let mut lanes = match span {
            Some(span) => self.wake.wait_timeout(lanes, span).unwrap_or_else(PoisonError::into_inner).0,
            None => self.wake.wait(lanes).unwrap_or_else(PoisonError::into_inner),
        };
        lanes.asleep = false;
        lanes
    }
}
