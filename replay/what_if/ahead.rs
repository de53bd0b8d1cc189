//! Looks some way ahead in the log: what a request needed, where the log says so, before the candidate admits it.
//!
//! The model of the pool is run over what was logged, and each request is taken out of it when the log says that it
//! ended: what it had got by then, in the model's units, is its own recorded service, for whatever load it then meets.

use crate::model::{Pool, Work, prompt_of};
use crate::numbers::Table;
use std::collections::VecDeque;
use std::ops::Deref;
use std::rc::Rc;
use weir_kernel::{EndpointChange, Event, Input, LeaseEnd, Micros, RequestId, Step, Termination, Usage};
use weir_log::SegmentError;

/// How far ahead it looks.
const AHEAD: Micros = Micros::from_secs(300);
/// But not more than so many steps, which bounds the memory.
const AHEAD_STEPS: usize = 150_000;

/// What the log says of a service.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What it needed.
    pub work: Work,
    /// How long it took.
    pub ran: Micros,
    /// What it used.
    pub usage: Option<Usage>,
    /// It came to its own end, so that this is all that it needs.
    pub whole: bool,
}

/// A step where it lies in its batch: a step is large to move.
#[derive(Clone, Debug)]
pub struct Held {
    batch: Rc<Vec<Step>>,
    place: usize,
}

impl Deref for Held {
    type Target = Step;

    fn deref(&self) -> &Step {
        &self.batch[self.place]
    }
}

/// Steps in order, and what lies ahead of them.
pub struct Ahead<I> {
    source: I,
    /// Batches that were looked at, the place of the next step in the first of them, and how many steps are left.
    buffer: VecDeque<Rc<Vec<Step>>>,
    place: usize,
    buffered: usize,
    /// The time of the last step in them.
    last: Micros,
    pool: Pool,
    prompts: Table<RequestId, u32>,
    since: Table<RequestId, Micros>,
    known: Table<RequestId, Known>,
    failed: Option<SegmentError>,
}

impl<I: Iterator<Item = Result<Vec<Step>, SegmentError>>> Ahead<I> {
    /// `pool` is an empty model.
    pub fn new(source: I, pool: Pool) -> Self {
        Ahead {
            source,
            buffer: VecDeque::new(),
            place: 0,
            buffered: 0,
            last: Micros::ZERO,
            pool,
            prompts: Table::default(),
            since: Table::default(),
            known: Table::default(),
            failed: None,
        }
    }

    /// What the log says of services, as far as they are in view.
    pub fn known(&self) -> &Table<RequestId, Known> {
        &self.known
    }

    /// Nobody will ask for it again.
    pub fn forget(&mut self, request: RequestId) {
        self.known.remove(&request);
    }

    /// Why the steps ended, if it was not their end.
    pub fn failed(&mut self) -> Option<SegmentError> {
        self.failed.take()
    }

    /// The next step.
    pub fn step(&mut self) -> Option<Held> {
        while self.buffered < AHEAD_STEPS {
            let first = self.buffer.front().and_then(|batch| batch.get(self.place));
            if first.is_some_and(|first| self.last.since(first.at) > AHEAD) {
                break;
            }
            let Some(batch) = self.read() else { break };
            batch.iter().for_each(|step| self.look(step));
            self.buffered += batch.len();
            self.last = batch.last().map_or(self.last, |step| step.at);
            self.buffer.push_back(Rc::new(batch));
        }
        loop {
            let batch = self.buffer.front()?;
            if self.place < batch.len() {
                let held = Held { batch: batch.clone(), place: self.place };
                self.place += 1;
                self.buffered -= 1;
                return Some(held);
            }
            self.buffer.pop_front();
            self.place = 0;
        }
    }

    fn read(&mut self) -> Option<Vec<Step>> {
        match self.source.next()? {
            Ok(batch) => Some(batch),
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    fn look(&mut self, step: &Step) {
        self.pool.advance(step.at, &mut |_| {});
        servers(&mut self.pool, step);
        if let Input::Arrived(arrival) = &step.input {
            self.prompts.insert(RequestId(step.seq), prompt_of(arrival));
        }
        for event in &step.events {
            match event {
                Event::Rejected(_) | Event::Repeated { .. } => {
                    self.prompts.remove(&RequestId(step.seq));
                }
                Event::Evicted(e) => {
                    self.prompts.remove(&e.request);
                }
                Event::Dispatched(e) => {
                    let prompt = self.prompts.remove(&e.request).unwrap_or(1);
                    self.since.insert(e.request, step.at);
                    self.pool.submit(step.at, e.request.0, e.endpoint, Work::open(prompt));
                }
                Event::LeaseEnded(e) => {
                    let ran = self.since.remove(&e.request).map_or(e.ran, |since| step.at.since(since));
                    let Some(work) = self.pool.remove(step.at, e.request.0) else { continue };
                    let (usage, termination) = match &step.input {
                        Input::Ended(ended) if ended.request == e.request => (ended.usage, ended.termination),
                        _ => (None, Termination::Natural),
                    };
                    let by_itself = matches!(&step.input, Input::Ended(ended) if ended.request == e.request);
                    let natural =
                        !matches!(termination, Termination::ClientDisconnect | Termination::Evicted);
                    let whole = by_itself && natural && e.end == LeaseEnd::Completed;
                    self.known.insert(e.request, Known { work, ran, usage, whole });
                }
                _ => {}
            }
        }
    }
}

/// Servers that joined and left in this step.
pub fn servers(pool: &mut Pool, step: &Step) {
    let Input::Observed(observation) = &step.input else { return };
    for change in &observation.changes {
        match change {
            EndpointChange::Joined { slot, .. } => pool.join(*slot),
            EndpointChange::Left { slot } => pool.leave(*slot),
            EndpointChange::Sampled { .. } | EndpointChange::Stale { .. } => {}
        }
    }
}
