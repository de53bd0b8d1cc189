//! Opens the log where it lives and brings back each pool's state from it.

use super::keeping::{Keeping, KeepingThread};
use super::service::EngineError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_config::LogSettings;
use weir_kernel::{Micros, State, fold};
use weir_log::LogError;
use weir_log::hot::{HotOptions, HotStore};
use weir_log::memory::{MemoryDisk, MemoryStore};
use weir_log::reader::Logs;
use weir_log::retention::Retention;
use weir_log::snapshot;
use weir_log::store::{Frames, Store};
use weir_log::upkeep::Upkeep;
use weir_log::writer::{Durability, Writer, WriterHandle, WriterOptions};

/// Bytes of batches that are read at once.
const READ_BYTES: usize = 4 << 20;

/// Where the log lives.
#[derive(Clone, Debug)]
pub enum Place {
    /// In memory: gone with the process (and never trimmed).
    Memory(MemoryDisk),
    /// In this data directory.
    Directory(PathBuf),
}

/// How the log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// When callers may hear of a decision.
    pub durability: Durability,
    /// The hot window.
    pub hot: HotOptions,
    /// What is kept.
    pub retention: Retention,
    /// Steps of a pool between snapshots (default 200,000): they bound the time of recovery.
    pub snapshot_every: u64,
    /// How often older batches are sealed, snapshots made and the log trimmed (default 5 s).
    pub keeping_every: Duration,
    /// The file of the key by which callers' ids and fairness ids are written as pseudonyms; none: as they are.
    pub pseudonym_key: Option<PathBuf>,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            durability: Durability::default(),
            hot: HotOptions::default(),
            retention: Retention::default(),
            snapshot_every: 200_000,
            keeping_every: Duration::from_secs(5),
            pseudonym_key: None,
        }
    }
}

impl LogOptions {
    /// As the settings say.
    pub fn from_settings(settings: &LogSettings) -> LogOptions {
        let retention = Retention {
            max_age: Some(settings.retention_age).filter(|age| !age.is_zero()),
            max_bytes: Some(settings.retention_bytes).filter(|bytes| *bytes > 0),
        };
        LogOptions {
            durability: match settings.durability {
                weir_config::Durability::Group => Durability::Group,
                weir_config::Durability::Interval => {
                    Durability::Interval(Duration::from_micros(settings.interval.0))
                }
            },
            hot: HotOptions {
                rotate_bytes: retention.rotate_bytes(settings.rotate_bytes),
                cache_bytes: settings.cache_bytes,
            },
            retention,
            snapshot_every: settings.snapshot_every,
            keeping_every: Duration::from_micros(settings.upkeep_interval.0),
            pseudonym_key: settings.pseudonymise.clone(),
        }
    }
}

/// An open log, and what it says of the pools that were asked for.
pub(super) struct Opened {
    pub writer: WriterHandle,
    /// Seals, makes snapshots and trims, where there is a directory.
    pub keeping: Option<KeepingThread>,
    pub states: BTreeMap<String, State>,
    /// The time of the last step of any pool.
    pub last_logged: Micros,
}

/// Opens the log and brings back each pool.
pub(super) fn open(place: &Place, options: &LogOptions, pools: &[&str]) -> Result<Opened, EngineError> {
    let (store, states, keeping): (Box<dyn Store>, _, _) = match place {
        Place::Memory(disk) => {
            let store = MemoryStore::open(disk);
            let frames = store.frames();
            (Box::new(store), each(pools, |pool| fold_all(frames.as_ref(), pool))?, None)
        }
        Place::Directory(path) => {
            let store = HotStore::open(path, options.hot.clone())?;
            let states = recover(path, &store, pools)?;
            let keeping = keep(path, &store, options, pools)?;
            (Box::new(store), states, Some(keeping))
        }
    };
    let last_logged = states.values().map(State::now).max().unwrap_or_default();
    // Each pool has at most a few batches in flight, so that no thread of a pool ever waits for the queue.
    let queue_batches = 64.max(4 * pools.len());
    let writing = WriterOptions { durability: options.durability, queue_batches, ..WriterOptions::default() };
    Ok(Opened { writer: Writer::spawn(store, writing)?, keeping, states, last_logged })
}

/// From the newest snapshot and what follows it, sealed or hot.
fn recover(path: &Path, store: &HotStore, pools: &[&str]) -> Result<BTreeMap<String, State>, EngineError> {
    let logs = Logs::of_dir(path, Some(store.frames()))?;
    each(pools, |pool| {
        let began = std::time::Instant::now();
        let recovered = snapshot::recover(&logs, pool)?;
        tracing::info!(
            pool,
            seq = recovered.state.seq(),
            from_snapshot = recovered.from_snapshot,
            steps = recovered.tail_steps,
            ms = began.elapsed().as_millis() as u64,
            "recovered"
        );
        Ok(recovered.state)
    })
}

fn keep(
    path: &Path,
    store: &HotStore,
    options: &LogOptions,
    pools: &[&str],
) -> Result<KeepingThread, EngineError> {
    let description = store.dir().description();
    let (log_id, format) = (description.log_id_bytes(), description.format);
    let keeping = Keeping {
        data: path.to_owned(),
        log_id,
        format,
        frames: store.frames(),
        upkeep: Upkeep::new(path, log_id, format, store.window(), options.retention),
        pools: pools.iter().map(|pool| (*pool).to_owned()).collect(),
        every: options.keeping_every,
        snapshot_every: options.snapshot_every,
    };
    keeping.spawn()
}

fn each(
    pools: &[&str],
    recover: impl Fn(&str) -> Result<State, EngineError>,
) -> Result<BTreeMap<String, State>, EngineError> {
    pools.iter().map(|pool| Ok(((*pool).to_owned(), recover(pool)?))).collect()
}

pub(super) fn fold_all(frames: &dyn Frames, pool: &str) -> Result<State, EngineError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_say_how_the_log_is_kept() {
        let text = "weir: {log: {durability: interval, interval: 250ms, rotateBytes: 32Mi, upkeepInterval: 7s, retention: {age: 2h, size: 64Mi}}}";
        let settings = weir_config::from_text(text, []);
        let Ok(effective) = settings else { panic!("{:?}", settings.err().map(|e| e.to_string())) };
        let options = LogOptions::from_settings(&effective.settings.log);
        assert_eq!(options.durability, Durability::Interval(Duration::from_millis(250)));
        assert_eq!(options.retention.max_age, Some(Micros::from_secs(7_200)));
        assert_eq!(options.retention.max_bytes, Some(64 << 20));
        assert_eq!(options.keeping_every, Duration::from_secs(7));
        assert!(options.hot.rotate_bytes <= 8 << 20, "so that the limit can be held");
    }
}
