//! Reads, checks and decodes batches on threads of their own, so that deciding again is all that the main thread does.
//!
//! One thread reads and verifies batches in order; the decoding threads take them in turn, and their answers are taken
//! in the same turn, so the order is kept.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;
use weir_kernel::Step;
use weir_log::reader::LogReader;
use weir_log::segment::Fault;
use weir_log::{Codec, Damage, Frame, LogError, SegmentError};

/// Batches that go from thread to thread together: waking a thread costs as much as decoding a small one.
const TOGETHER: usize = 16;
/// But not more bytes than this.
const BYTES: usize = 256 << 10;
/// Of these on their way, per decoding thread.
const AHEAD: usize = 6;

type Frames = Vec<Result<Frame, SegmentError>>;
type Decoded = Vec<Result<Vec<Step>, SegmentError>>;

/// Decoded batches, in order.
pub struct Batches {
    lanes: Vec<Receiver<Decoded>>,
    turn: usize,
    taken: std::vec::IntoIter<Result<Vec<Step>, SegmentError>>,
}

impl Batches {
    /// Starts the threads, which end with the log, with an error, or when the value is dropped.
    pub fn start<'scope>(scope: &'scope Scope<'scope, '_>, reader: LogReader, threads: usize) -> Batches {
        let (mut frames, mut lanes) = (Vec::new(), Vec::new());
        for _ in 0..threads.max(1) {
            let (to, from) = sync_channel::<Frames>(AHEAD);
            let (done, lane) = sync_channel(AHEAD);
            scope.spawn(move || decode(&from, &done));
            frames.push(to);
            lanes.push(lane);
        }
        scope.spawn(move || {
            let mut reader = reader;
            for turn in 0.. {
                let some = read(&mut reader);
                let last = some.last().is_none_or(Result::is_err);
                if some.is_empty() || frames[turn % frames.len()].send(some).is_err() || last {
                    return;
                }
            }
        });
        Batches { lanes, turn: 0, taken: Vec::new().into_iter() }
    }
}

impl Iterator for Batches {
    type Item = Result<Vec<Step>, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.taken.next() {
                return Some(batch);
            }
            let lane = self.turn % self.lanes.len();
            self.turn += 1;
            self.taken = self.lanes[lane].recv().ok()?.into_iter();
        }
    }
}

/// The next few batches, up to the first error.
fn read(reader: &mut LogReader) -> Frames {
    let (mut some, mut bytes) = (Vec::with_capacity(TOGETHER), 0);
    while some.len() < TOGETHER && bytes < BYTES {
        let Some(frame) = reader.next() else { break };
        bytes += frame.as_ref().map_or(BYTES, |frame| frame.payload().len());
        some.push(frame);
    }
    some
}

fn decode(from: &Receiver<Frames>, done: &SyncSender<Decoded>) {
    while let Ok(frames) = from.recv() {
        let one = |frame: Result<Frame, SegmentError>| frame.and_then(|frame| decode_one(&frame));
        if done.send(frames.into_iter().map(one).collect()).is_err() {
            return;
        }
    }
}

fn decode_one(frame: &Frame) -> Result<Vec<Step>, SegmentError> {
    let steps = frame.steps().map_err(LogError::from)?;
    // Equal values have equal bytes, if the stored bytes are how the value is encoded: then comparing values later is
    // comparing bytes. An older format is converted on reading and has no such bytes.
    if frame.header.format == weir_migrations::CURRENT && frame.header.codec == Codec::Plain {
        let mut bytes = Vec::with_capacity(frame.payload().len());
        weir_migrations::encode(frame.header.format, &steps, &mut bytes).map_err(LogError::from)?;
        if bytes != frame.payload() {
            let damage = Damage {
                file: "the log".to_owned(),
                offset: None,
                block: None,
                batch: Some(frame.header.first_seq),
                fault: Fault::Encoding("its bytes are not how its steps are encoded".to_owned()),
            };
            return Err(SegmentError::Damaged(Box::new(damage)));
        }
    }
    Ok(steps)
}
