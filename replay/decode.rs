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

/// Batches on their way, per decoding thread.
const AHEAD: usize = 64;

/// Decoded batches, in order.
pub struct Batches {
    lanes: Vec<Receiver<Result<Vec<Step>, SegmentError>>>,
    turn: usize,
}

impl Batches {
    /// Starts the threads, which end with the log, with an error, or when the value is dropped.
    pub fn start<'scope>(scope: &'scope Scope<'scope, '_>, reader: LogReader, threads: usize) -> Batches {
        let (mut frames, mut lanes) = (Vec::new(), Vec::new());
        for _ in 0..threads.max(1) {
            let (to, from) = sync_channel::<Result<Frame, SegmentError>>(AHEAD);
            let (done, lane) = sync_channel(AHEAD);
            scope.spawn(move || decode(&from, &done));
            frames.push(to);
            lanes.push(lane);
        }
        scope.spawn(move || {
            for (turn, frame) in reader.enumerate() {
                let failed = frame.is_err();
                if frames[turn % frames.len()].send(frame).is_err() || failed {
                    return;
                }
            }
        });
        Batches { lanes, turn: 0 }
    }
}

impl Iterator for Batches {
    type Item = Result<Vec<Step>, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        let lane = self.turn % self.lanes.len();
        self.turn += 1;
        self.lanes[lane].recv().ok()
    }
}

fn decode(from: &Receiver<Result<Frame, SegmentError>>, done: &SyncSender<Result<Vec<Step>, SegmentError>>) {
    while let Ok(frame) = from.recv() {
        let batch = frame.and_then(|frame| decode_one(&frame));
        if done.send(batch).is_err() {
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
