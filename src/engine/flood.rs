//! Refusals by the thousand: past [`PER_SECOND`] of one band and reason they are decided together, one step for all
//! that came while the batch before was on its way.
//!
//! What will be refused is foreseen by the kernel at the very instant at which it is then decided, so that the log and
//! the callers get what each of them would have got alone. Nothing is set aside that is not foreseen to be refused.

use super::decision::{Decision, Refused, Unavailable};
use super::inbox::Arriving;
use super::pending::Promise;
use super::pool::Pool;
use super::release::Release;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use weir_kernel::{
    Arrival, ArrivedMany, Event, Foreseen, Input, Micros, Outcome, Reason, RejectedMany, RequestId,
};

/// Refusals of one band and reason within a second that have a step each.
const PER_SECOND: u64 = 1_000;
/// Arrivals that are set aside at most.
const ASIDE_MAX: usize = 4_096;
/// Steps that may go before, so that nothing is due at the instant of the refusals.
const DUE_STEPS_MAX: usize = 8;

/// What counts as one flood.
type Kind = (i32, Reason);

/// The refusals of this second and of the one before, and the arrivals that are set aside.
#[derive(Default)]
pub(super) struct Flood {
    second: u64,
    counts: HashMap<Kind, u64>,
    /// Past the limit in the second before, or in this one.
    high: HashSet<Kind>,
    aside: Vec<Arriving>,
    /// The kernel failed on a step for many: there are no more of them in this run.
    is_off: bool,
    /// Refusals in steps that the log has not been given yet, beyond one per step.
    covered: usize,
}

impl Flood {
    /// Counts refusals that were decided.
    fn note(&mut self, now: Micros, kind: Kind, count: u64) {
        let second = now.0 / 1_000_000;
        if second != self.second {
            let lately = second == self.second + 1;
            self.high =
                self.counts.drain().filter(|(_, n)| lately && *n > PER_SECOND).map(|(k, _)| k).collect();
            self.second = second;
        }
        let counted = self.counts.entry(kind).or_default();
        *counted += count;
        if *counted > PER_SECOND {
            self.high.insert(kind);
        }
    }

    /// Does anything wait to be decided?
    pub fn has_aside(&self) -> bool {
        !self.aside.is_empty()
    }

    /// Takes out what waits, to be refused unseen.
    pub fn take_aside(&mut self) -> Vec<Arriving> {
        std::mem::take(&mut self.aside)
    }

    /// The refusals beyond one per step since this was last asked.
    pub fn take_covered(&mut self) -> usize {
        std::mem::take(&mut self.covered)
    }
}

/// Refusals that one step decides.
struct Group {
    outcome: Outcome,
    reason: Reason,
    many: ArrivedMany,
    members: Vec<(Promise, Foreseen, Arrival)>,
}

impl Pool {
    /// Sets an arrival of a flood aside. Given back if it is none.
    pub(super) fn set_aside(&mut self, arriving: Arriving) -> Option<Arriving> {
        if self.flood.high.is_empty() || self.flood.is_off || self.broken || self.state.policy().observe {
            return Some(arriving);
        }
        let at = self.instant();
        let foreseen = self.foresee(at, &arriving.0, 0);
        if !foreseen.is_some_and(|foreseen| self.flood.high.contains(&(foreseen.priority, foreseen.reason))) {
            return Some(arriving);
        }
        self.flood.aside.push(arriving);
        if self.flood.aside.len() >= ASIDE_MAX {
            self.decide_aside();
        }
        None
    }

    /// How this arrival would be refused. Where the kernel fails at that, its input is dealt with like any other.
    fn foresee(&mut self, at: Micros, arrival: &Arrival, ahead: u64) -> Option<Foreseen> {
        let seq = self.state.seq() + 1;
        let state = &mut self.state;
        match catch_unwind(AssertUnwindSafe(|| state.foresee(at, arrival, ahead))) {
            Ok(foreseen) => foreseen,
            Err(panic) => {
                self.poisoned(&Input::Arrived(arrival.clone()), seq, at, panic.as_ref());
                None
            }
        }
    }

    /// Counts the refusal that the last step decided, if it did.
    pub(super) fn note_refusal(&mut self) {
        let rejected =
            self.building.last().into_iter().flat_map(|step| &step.events).find_map(|event| match event {
                Event::Rejected(e) => Some((e.priority, e.reason)),
                _ => None,
            });
        if let Some(kind) = rejected {
            self.flood.note(self.state.now(), kind, 1);
        }
    }

    /// Decides what was set aside, before anything else is decided.
    pub(super) fn decide_aside(&mut self) {
        let waiting = self.flood.take_aside();
        if waiting.is_empty() {
            return;
        }
        for _ in 0..DUE_STEPS_MAX {
            if self.state.next_deadline().is_none_or(|due| due > self.instant()) {
                break;
            }
            self.decide(Input::TimePassed);
        }
        let mut at = self.instant();
        let mut groups: Vec<Group> = Vec::new();
        for (arrival, promise) in waiting {
            let foreseen = self.foresee(at, &arrival, 0);
            if let Some(foreseen) = foreseen {
                self.join(at, &mut groups, foreseen, arrival, promise);
            } else {
                self.close_groups(at, &mut groups);
                self.arrival_alone(arrival, promise);
                at = self.instant();
            }
        }
        self.close_groups(at, &mut groups);
    }

    /// Puts a refusal that is foreseen into the group of its kind, if that still is refused as a whole.
    fn join(
        &mut self,
        at: Micros,
        groups: &mut Vec<Group>,
        mut foreseen: Foreseen,
        arrival: Arrival,
        promise: Promise,
    ) {
        let one = ArrivedMany::one(at, &arrival, &foreseen);
        let same = |group: &&mut Group| {
            group.many.priority == foreseen.priority
                && (group.outcome, group.reason) == (foreseen.outcome, foreseen.reason)
        };
        if let Some(group) = groups.iter_mut().find(same) {
            let both = group.many.and(&one);
            let whole = self.state.foresee_many(at, &both, 0);
            if whole.is_some_and(|w| (w.outcome, w.reason) == (group.outcome, group.reason)) {
                // Each is one more for `Retry-After`.
                let behind = self.state.foresee(at, &arrival, group.many.count);
                foreseen.retry_after = behind.and_then(|behind| behind.retry_after);
                group.many = both;
                group.members.push((promise, foreseen, arrival));
                return;
            }
            self.close_groups(at, groups);
        }
        let (outcome, reason) = (foreseen.outcome, foreseen.reason);
        groups.push(Group { outcome, reason, many: one, members: vec![(promise, foreseen, arrival)] });
    }

    fn close_groups(&mut self, at: Micros, groups: &mut Vec<Group>) {
        for group in groups.drain(..) {
            self.close_group(at, group);
        }
    }

    /// One step for all of it. What an earlier group has changed is looked at once more.
    fn close_group(&mut self, at: Micros, group: Group) {
        let Group { outcome, reason, many, members } = group;
        let holds = self.state.foresee_many(at, &many, 0);
        if members.len() == 1 || holds.is_none_or(|now| (now.outcome, now.reason) != (outcome, reason)) {
            for (promise, _, arrival) in members {
                self.arrival_alone(arrival, promise);
            }
            return;
        }
        let (priority, count) = (many.priority, many.count);
        let seq = self.step_at(at, Input::ArrivedMany(many));
        let rejected = self.building.last().and_then(|step| match step.events.iter().find_map(of_many) {
            Some(rejected) if Some(step.seq) == seq => Some(rejected.clone()),
            _ => None,
        });
        let (Some(seq), Some(rejected)) = (seq, rejected) else {
            // The kernel failed on all of them together. Alone it shows which one it is, if it is one.
            self.flood.is_off = true;
            for (promise, _, arrival) in members {
                self.arrival_alone(arrival, promise);
            }
            return;
        };
        self.flood.note(at, (priority, rejected.reason), count);
        self.flood.covered += members.len() - 1;
        for (promise, foreseen, _) in members {
            promise.slot().name(RequestId(seq));
            let refused = refused(seq, &rejected, &foreseen);
            self.answers.push(Release::Decision(promise, Decision::Refused(refused)));
        }
        self.settle();
    }

    /// Why an input came to nothing.
    pub(super) fn why_not(&self) -> Unavailable {
        if self.broken { Unavailable::Failed } else { Unavailable::Poisoned }
    }
}

fn of_many(event: &Event) -> Option<&RejectedMany> {
    match event {
        Event::RejectedMany(rejected) => Some(rejected),
        _ => None,
    }
}

/// What each caller hears: the words of the log, and what is its own.
fn refused(seq: u64, rejected: &RejectedMany, own: &Foreseen) -> Refused {
    Refused {
        id: RequestId(seq),
        seq,
        outcome: rejected.outcome,
        reason: rejected.reason,
        regime: rejected.regime,
        waited: Micros::ZERO,
        priority: own.priority,
        retry_after: own.retry_after,
        limit: own.limit,
        cause: rejected.cause,
        repeated: false,
    }
}
