//! What the log says became of each request that is still of interest.

use super::look::Known;
use super::tally::{Counts, Group};
use crate::model::prompt_of;
use crate::numbers::Table;
use weir_kernel::{
    Arrival, DEFAULT_FLOW, Event, Input, LeaseEnd, Micros, Outcome, Reason, RequestId, Slot, Step,
};

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// In the queue.
    Queued,
    /// Admitted.
    Running {
        /// Since when.
        since: Micros,
        /// Where, if the kernel chose.
        slot: Option<Slot>,
    },
    /// Nowhere.
    Gone,
}

/// How it left the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Its outcome.
    pub outcome: Outcome,
    /// Why, where it was not admitted.
    pub reason: Option<Reason>,
    /// How long it was queued.
    pub waited: Micros,
}

/// A request's course in one of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// Where it is.
    pub stage: Stage,
    /// How it left the queue.
    pub fate: Option<Fate>,
    /// How its lease ended.
    pub end: Option<LeaseEnd>,
    /// Its lease has been ordered to end early.
    pub revoked: bool,
}

impl Course {
    /// Not decided.
    pub const NEW: Course = Course { stage: Stage::Queued, fate: None, end: None, revoked: false };

    /// Takes an event about it.
    pub fn take(&mut self, at: Micros, event: &Event) {
        match event {
            Event::Rejected(e) => self.leave(e.outcome, Some(e.reason), Micros::ZERO),
            Event::Evicted(e) => self.leave(e.outcome, Some(e.reason), e.waited),
            Event::Dispatched(e) => {
                self.stage = Stage::Running { since: at, slot: e.endpoint };
                self.fate = Some(Fate { outcome: Outcome::Dispatched, reason: None, waited: e.waited });
            }
            Event::LeaseEnded(e) => (self.stage, self.end) = (Stage::Gone, Some(e.end)),
            Event::RevocationIssued(_) => self.revoked = true,
            Event::Repeated { .. } => self.stage = Stage::Gone,
            _ => {}
        }
    }

    /// It waits, or is not decided.
    pub fn is_queued(&self) -> bool {
        self.stage == Stage::Queued
    }

    /// Where it is, and whether it is to stay there.
    pub const fn standing(&self) -> (Stage, bool) {
        (self.stage, self.revoked)
    }

    fn leave(&mut self, outcome: Outcome, reason: Option<Reason>, waited: Micros) {
        self.stage = Stage::Gone;
        self.fate = Some(Fate { outcome, reason, waited });
    }

    /// The same outcome, whatever the times?
    pub fn ends_as(&self, other: &Course) -> bool {
        let outcome = |course: &Course| course.fate.map(|fate| fate.outcome);
        let taken_back = |course: &Course| course.end == Some(LeaseEnd::Revoked);
        outcome(self) == outcome(other) && taken_back(self) == taken_back(other)
    }
}

/// What of an arrival is kept beside what is always needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep {
    /// The caller's own id: where changed requests are listed.
    pub caller_ids: bool,
    /// All of it: where it may come again.
    pub arrivals: bool,
}

/// A request as logged.
#[derive(Clone, Debug)]
pub struct Fact {
    /// The rows it is counted in.
    pub group: Group,
    /// The caller's own id, where that is kept.
    pub caller_id: String,
    /// Prompt tokens.
    pub prompt: u32,
    /// When it arrived.
    pub arrived: Micros,
    /// What became of it.
    pub course: Course,
    /// What the log says of its service, as far as that is in view.
    pub known: Option<Known>,
    /// Candidates that are through with it.
    pub settled: usize,
    /// As it arrived, where it may come again.
    pub arrival: Option<Box<Arrival>>,
}

/// All that are of interest, by the number of the log.
pub type Facts = Table<u64, Fact>;

impl Fact {
    /// It is over.
    pub fn is_gone(&self) -> bool {
        self.course.stage == Stage::Gone
    }

    /// All of its service, where the log shows that.
    pub fn whole(&self) -> Option<&Known> {
        self.known.as_ref().filter(|known| known.whole)
    }

    /// A request that arrives.
    pub fn new(at: Micros, arrival: &Arrival, keep: Keep) -> Fact {
        let flow = if arrival.fairness_id.is_empty() { DEFAULT_FLOW } else { &arrival.fairness_id };
        Fact {
            group: Group {
                flow: (0, flow.to_owned()),
                objective: arrival.objective.clone().unwrap_or_default(),
            },
            caller_id: if keep.caller_ids { arrival.caller_id.clone() } else { String::new() },
            prompt: prompt_of(arrival),
            arrived: at,
            course: Course::NEW,
            known: None,
            settled: 0,
            arrival: keep.arrivals.then(|| Box::new(arrival.clone())),
        }
    }
}

/// The request that an event of a step is about, by the step's own numbering.
pub fn subject(seq: u64, event: &Event) -> Option<RequestId> {
    match event {
        Event::Enqueued(_) | Event::Rejected(_) | Event::Repeated { .. } => Some(RequestId(seq)),
        Event::Dispatched(e) => Some(e.request),
        Event::Evicted(e) => Some(e.request),
        Event::LeaseEnded(e) => Some(e.request),
        Event::RevocationIssued(e) => Some(e.request),
        _ => None,
    }
}

/// Takes a logged step; `touched` are then the numbers of the requests that it is about.
pub fn take(facts: &mut Facts, counts: Option<&mut Counts>, step: &Step, keep: Keep, touched: &mut Vec<u64>) {
    touched.clear();
    if let Input::Arrived(arrival) = &step.input {
        facts.insert(step.seq, Fact::new(step.at, arrival, keep));
    }
    let mut counts = counts;
    for event in &step.events {
        if let (Event::RejectedMany(e), Input::ArrivedMany(many), Some(counts)) =
            (event, &step.input, counts.as_deref_mut())
        {
            let group = Group { flow: (many.priority, "(refused together)".to_owned()), ..Group::default() };
            counts.outcome(&group, e.outcome, Some(e.reason), Micros::ZERO, many.count);
        }
        let Some(RequestId(id)) = subject(step.seq, event) else { continue };
        let Some(fact) = facts.get_mut(&id) else { continue };
        if let Event::Enqueued(weir_kernel::Enqueued { priority, .. })
        | Event::Rejected(weir_kernel::Rejected { priority, .. }) = event
        {
            fact.group.flow.0 = *priority;
        }
        fact.course.take(step.at, event);
        if let Some(counts) = counts.as_deref_mut() {
            count(counts, &fact.group, &fact.course, event, usage(step, id));
        }
        if touched.last() != Some(&id) {
            touched.push(id);
        }
    }
}

/// Requests that wait.
pub fn waiting(facts: &Facts) -> impl Iterator<Item = &Fact> {
    facts.values().filter(|fact| fact.course.is_queued())
}

/// Counts the requests that still wait where the steps end.
pub fn count_waiting(facts: &Facts, counts: &mut Counts) {
    waiting(facts).for_each(|fact| counts.waiting(&fact.group));
}

/// Requests that came with an input; one that is known already is no other.
pub fn came(input: &Input, events: &[Event]) -> u64 {
    match input {
        Input::Arrived(_) => u64::from(!events.iter().any(|e| matches!(e, Event::Repeated { .. }))),
        Input::ArrivedMany(many) => many.count,
        _ => 0,
    }
}

/// Tokens that the step says a request made.
fn usage(step: &Step, id: u64) -> u32 {
    match &step.input {
        Input::Ended(ended) if ended.request.0 == id => ended.usage.map_or(0, |usage| usage.completion),
        _ => 0,
    }
}

/// Counts an event about a request.
pub fn count(counts: &mut Counts, group: &Group, course: &Course, event: &Event, tokens: u32) {
    match event {
        Event::Rejected(_) | Event::Evicted(_) | Event::Dispatched(_) => {
            if let Some(fate) = course.fate {
                counts.outcome(group, fate.outcome, fate.reason, fate.waited, 1);
            }
        }
        Event::LeaseEnded(e) => counts.end(group, e.end, tokens),
        _ => {}
    }
}
