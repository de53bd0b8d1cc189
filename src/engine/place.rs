//! Opens the log where it lives and brings back each pool's state from it.

use super::service::{EngineError, Place};
use std::collections::BTreeMap;
use weir_kernel::{Micros, State, fold};
use weir_log::LogError;
use weir_log::hot::{HotOptions, HotStore};
use weir_log::memory::MemoryStore;
use weir_log::store::{Frames, Store};
use weir_log::writer::{Durability, Writer, WriterHandle, WriterOptions};

/// Bytes of batches that are read at once.
const READ_BYTES: usize = 4 << 20;

/// An open log, and what it says of the pools that were asked for.
pub(super) struct Opened {
    pub writer: WriterHandle,
    pub states: BTreeMap<String, State>,
    /// The time of the last step of any pool.
    pub last_logged: Micros,
}

/// Opens the log and folds each pool.
pub(super) fn open(place: &Place, durability: Durability, pools: &[&str]) -> Result<Opened, EngineError> {
    let store: Box<dyn Store> = match place {
        Place::Memory(disk) => Box::new(MemoryStore::open(disk)),
        Place::Directory(path) => Box::new(HotStore::open(path, HotOptions::default())?),
    };
    let frames = store.frames();
    let mut states = BTreeMap::new();
    for pool in pools {
        states.insert((*pool).to_owned(), recover(frames.as_ref(), pool)?);
    }
    let last_logged = states.values().map(State::now).max().unwrap_or_default();
    // Each pool has at most a few batches in flight, so that no thread of a pool ever waits for the queue.
    let options =
        WriterOptions { durability, queue_batches: 64.max(4 * pools.len()), ..WriterOptions::default() };
    let writer = Writer::spawn(store, options)?;
    Ok(Opened { writer, states, last_logged })
}

fn recover(frames: &dyn Frames, pool: &str) -> Result<State, EngineError> {
    let mut state = State::new();
    while state.seq() < frames.head(pool).seq {
        for frame in frames.read(pool, state.seq() + 1, READ_BYTES)? {
            let steps = frame.steps().map_err(LogError::from)?;
            let known = state.seq();
            for step in steps.iter().filter(|step| step.seq > known) {
                fold(&mut state, step);
            }
        }
    }
    Ok(state)
}
