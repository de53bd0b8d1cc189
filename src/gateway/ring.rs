//! The last durable steps of a pool in memory, as NDJSON lines, for `…/log` of a running server.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use weir_kernel::Step;

/// Memory for lines, beyond which the oldest go even if there is room for more of them.
const BYTES_MAX: usize = 16 << 20;

/// Newest steps, oldest first, without gaps.
#[derive(Debug)]
pub struct Ring {
    inner: Mutex<Inner>,
    max: usize,
    head: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    steps: VecDeque<Step>,
    bytes: usize,
}

/// What a read gives.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// These steps, from the one asked for on; empty if it is still to come.
    Steps(Vec<Step>),
    /// The ring begins later.
    From(u64),
}

impl Ring {
    /// Room for `max` steps.
    pub fn new(max: usize) -> Self {
        Ring { inner: Mutex::default(), max: max.max(1), head: watch::Sender::new(0) }
    }

    /// Takes in what became durable. After a gap only what follows it is kept.
    pub fn push(&self, steps: &[Step]) {
        let mut inner = self.lock();
        for step in steps {
            match inner.steps.back() {
                Some(last) if step.seq <= last.seq => continue,
                Some(last) if step.seq != last.seq + 1 => inner.clear(),
                _ => {}
            }
            inner.bytes += size(step);
            inner.steps.push_back(step.clone());
        }
        while inner.steps.len() > self.max || inner.bytes > BYTES_MAX {
            let Some(step) = inner.steps.pop_front() else { break };
            inner.bytes = inner.bytes.saturating_sub(size(&step));
        }
        let head = inner.steps.back().map_or(0, |step| step.seq);
        drop(inner);
        self.head.send_replace(head);
    }

    /// At most `limit` steps from `from` on. `durable` is the pool's last durable step as known elsewhere.
    pub fn read(&self, from: u64, limit: usize, durable: u64) -> Read {
        let inner = self.lock();
        match inner.steps.front() {
            Some(first) if from >= first.seq => {
                let skip = usize::try_from(from - first.seq).unwrap_or(usize::MAX);
                Read::Steps(inner.steps.iter().skip(skip).take(limit).cloned().collect())
            }
            Some(first) => Read::From(first.seq),
            None if from > durable => Read::Steps(Vec::new()),
            None => Read::From(durable + 1),
        }
    }

    /// Changes whenever steps come in.
    pub fn head(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn clear(&mut self) {
        self.steps.clear();
        self.bytes = 0;
    }
}

/// Roughly what a step holds in memory.
fn size(step: &Step) -> usize {
    let input = match &step.input {
        weir_kernel::Input::Observed(observation) => observation.changes.len() * 48,
        weir_kernel::Input::PolicyChanged(_) => 4_096,
        weir_kernel::Input::ObjectivesChanged(change) => (change.set.len() + change.removed.len()) * 64,
        _ => 0,
    };
    size_of::<Step>() + step.events.len() * size_of::<weir_kernel::Event>() + input
}

/// A step as one line of JSON.
pub fn line(step: &Step) -> Bytes {
    // Steps are made of types that always serialize.
    let value = weir_log::describe::step_json(step).unwrap_or_default();
    let mut line = serde_json::to_vec(&value).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_kernel::{Input, Micros};

    fn steps(seqs: std::ops::Range<u64>) -> Vec<Step> {
        seqs.map(|seq| Step { seq, at: Micros(seq), input: Input::TimePassed, events: vec![] }).collect()
    }

    fn seqs(read: Read) -> Vec<u64> {
        match read {
            Read::Steps(steps) => steps.iter().map(|step| step.seq).collect(),
            Read::From(seq) => panic!("begins at {seq}"),
        }
    }

    #[test]
    fn what_is_gone_is_said_and_what_is_to_come_is_waited_for() {
        let ring = Ring::new(3);
        assert_eq!(ring.read(8, 9, 7), Read::Steps(vec![]));
        assert_eq!(ring.read(7, 9, 7), Read::From(8));
        ring.push(&steps(8..13));
        assert_eq!(ring.read(8, 9, 12), Read::From(10));
        assert_eq!(seqs(ring.read(10, 2, 12)), [10, 11]);
        assert_eq!(seqs(ring.read(11, 9, 12)), [11, 12]);
        assert_eq!(seqs(ring.read(13, 9, 12)), [0u64; 0]);
        ring.push(&steps(12..14));
        assert_eq!(seqs(ring.read(11, 9, 13)), [11, 12, 13]);
        assert_eq!(*ring.head().borrow(), 13);
    }

    #[test]
    fn a_gap_is_never_read_over() {
        let ring = Ring::new(10);
        ring.push(&steps(1..4));
        ring.push(&steps(6..8));
        assert_eq!(ring.read(2, 9, 7), Read::From(6));
        assert_eq!(seqs(ring.read(6, 9, 7)), [6, 7]);
    }

    #[test]
    fn a_line_is_one_line_of_json() {
        let line = line(&steps(5..6)[0]);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["seq"], 5);
    }
}
