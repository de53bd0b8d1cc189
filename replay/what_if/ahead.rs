//! Steps in order, some way behind what has been read: what a request needed is known, where the log says so, before the
//! candidate admits it.

use super::facts::Facts;
use super::look::{Known, Services};
use crate::decode::Batch;
use crate::numbers::Table;
use std::collections::VecDeque;
use std::ops::Deref;
use std::rc::Rc;
use weir_kernel::{Micros, RequestId, Step};
use weir_log::SegmentError;

/// How far ahead it looks.
const AHEAD: Micros = Micros::from_secs(300);
/// But not more than so many steps, which bounds the memory.
const AHEAD_STEPS: usize = 150_000;

/// A step where it lies in its batch: a step is large to move.
#[derive(Clone, Debug)]
pub struct Held {
    batch: Rc<Batch<Services>>,
    place: usize,
}

impl Held {
    /// That which is at this place of a batch.
    pub const fn new(batch: Rc<Batch<Services>>, place: usize) -> Held {
        Held { batch, place }
    }
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
    /// Batches that were read, the place of the next step in the first of them, and how many steps are left.
    buffer: VecDeque<Rc<Batch<Services>>>,
    place: usize,
    buffered: usize,
    /// The time of the last step in them.
    last: Micros,
    /// The last step that was given out.
    given: u64,
    /// Services of requests that are still to arrive.
    known: Table<RequestId, Known>,
    failed: Option<SegmentError>,
}

impl<I: Iterator<Item = Result<Batch<Services>, SegmentError>>> Ahead<I> {
    /// Of batches that come with what the log says of services in them.
    pub fn new(source: I) -> Self {
        Ahead {
            source,
            buffer: VecDeque::new(),
            place: 0,
            buffered: 0,
            last: Micros::ZERO,
            given: 0,
            known: Table::default(),
            failed: None,
        }
    }

    /// The service of a request that arrives, if its end is in view already; else its fact hears of it later.
    pub fn claim(&mut self, request: RequestId) -> Option<Known> {
        self.known.remove(&request)
    }

    /// Why the steps ended, if it was not their end.
    pub fn failed(&mut self) -> Option<SegmentError> {
        self.failed.take()
    }

    /// The next step. The services that come into view with it are told to the facts of those that are there.
    pub fn step(&mut self, facts: &mut Facts) -> Option<Held> {
        while self.buffered < AHEAD_STEPS {
            let first = self.buffer.front().and_then(|batch| batch.get(self.place));
            if first.is_some_and(|first| self.last.since(first.at) > AHEAD) {
                break;
            }
            let Some(batch) = self.read() else { break };
            self.tell(&batch.with, facts);
            self.buffered += batch.len();
            self.last = batch.last().map_or(self.last, |step| step.at);
            self.buffer.push_back(Rc::new(batch));
        }
        loop {
            let batch = self.buffer.front()?;
            if self.place < batch.len() {
                let held = Held::new(batch.clone(), self.place);
                self.place += 1;
                self.buffered -= 1;
                self.given = held.seq;
                return Some(held);
            }
            self.buffer.pop_front();
            self.place = 0;
        }
    }

    fn tell(&mut self, services: &Services, facts: &mut Facts) {
        for (id, known) in services {
            if id.0 > self.given {
                self.known.insert(*id, *known);
            } else if let Some(fact) = facts.get_mut(&id.0) {
                fact.known = Some(*known);
            }
        }
    }

    fn read(&mut self) -> Option<Batch<Services>> {
        match self.source.next()? {
            Ok(batch) => Some(batch),
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }
}
