//! Reads, checks and decodes batches on threads of their own, so that deciding again is all that the main thread does.
//!
//! One thread reads and verifies batches in order; the decoding threads take them in turn, and their answers are taken
//! in the same turn, so the order is kept. What is done with goes back to be freed where it was made.

use std::ops::Deref;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
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

/// Steps that lie together in the log, and what else was made of them.
#[derive(Debug)]
pub struct Batch<T = ()> {
    steps: Vec<Step>,
    /// What was made of them.
    pub with: T,
    home: Option<Sender<Vec<Step>>>,
}

impl<T> Batch<T> {
    /// Of no thread in particular.
    pub const fn new(steps: Vec<Step>, with: T) -> Batch<T> {
        Batch { steps, with, home: None }
    }

    /// The steps themselves.
    pub fn into_steps(mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }
}

impl<T> Deref for Batch<T> {
    type Target = [Step];

    fn deref(&self) -> &[Step] {
        &self.steps
    }
}

/// Freeing what another thread allocated costs the most of all: the steps go home for it, where that is still there.
impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        if let Some(home) = self.home.take().filter(|_| !self.steps.is_empty()) {
            let _ = home.send(std::mem::take(&mut self.steps));
        }
    }
}

type Frames = Vec<Result<Frame, SegmentError>>;
type Decoded<T> = Vec<Result<Batch<T>, SegmentError>>;

/// Decoded batches, in order.
pub struct Batches<T> {
    lanes: Vec<Receiver<Decoded<T>>>,
    turn: usize,
    taken: std::vec::IntoIter<Result<Batch<T>, SegmentError>>,
}

impl Batches<()> {
    /// Starts the threads, which end with the log, with an error, or when the value is dropped.
    pub fn start<'scope>(scope: &'scope Scope<'scope, '_>, reader: LogReader, threads: usize) -> Batches<()> {
        Batches::spawn(scope, reader, (0..threads.max(1)).map(|_| |_: &[Step]| ()))
    }
}

impl<T: Send> Batches<T> {
    /// The same with one decoding thread, which makes something of the steps as well.
    pub fn with<'scope, F>(scope: &'scope Scope<'scope, '_>, reader: LogReader, make: F) -> Batches<T>
    where
        T: 'scope,
        F: FnMut(&[Step]) -> T + Send + 'scope,
    {
        Batches::spawn(scope, reader, std::iter::once(make))
    }

    fn spawn<'scope, F>(
        scope: &'scope Scope<'scope, '_>,
        reader: LogReader,
        makers: impl Iterator<Item = F>,
    ) -> Batches<T>
    where
        T: 'scope,
        F: FnMut(&[Step]) -> T + Send + 'scope,
    {
        let (mut frames, mut lanes) = (Vec::new(), Vec::new());
        for make in makers {
            let (to, from) = sync_channel::<Frames>(AHEAD);
            let (done, lane) = sync_channel(AHEAD);
            scope.spawn(move || decode(&from, &done, make));
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

impl<T> Iterator for Batches<T> {
    type Item = Result<Batch<T>, SegmentError>;

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

fn decode<T>(from: &Receiver<Frames>, done: &SyncSender<Decoded<T>>, mut make: impl FnMut(&[Step]) -> T) {
    let (home, back) = channel::<Vec<Step>>();
    while let Ok(frames) = from.recv() {
        back.try_iter().for_each(drop);
        let mut one = |frame: Result<Frame, SegmentError>| {
            let steps = frame.and_then(|frame| decode_one(&frame))?;
            let with = make(&steps);
            Ok(Batch { steps, with, home: Some(home.clone()) })
        };
        if done.send(frames.into_iter().map(&mut one).collect()).is_err() {
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
