//! Opening the hot window: which databases count, where each pool's log ends, and whether that is all of it.

use super::HotOptions;
use super::generation::Generation;
use crate::chain::{Chain, Head};
use crate::error::LogError;
use crate::frame::Frame;
use crate::mark::Mark;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The databases, oldest first (the last one is written), and where each pool's log ends.
pub(super) struct Recovered {
    pub(super) generations: Vec<Arc<Generation>>,
    pub(super) heads: BTreeMap<Arc<str>, Head>,
}

/// The directory of a generation.
pub(super) fn generation_path(hot: &Path, number: u32) -> PathBuf {
    hot.join(format!("{number:06}"))
}

/// Opens every generation that the mark vouches for, holds their batches to the chain, and the ends to the mark.
pub(super) fn recover(dir: &Path, mark: &Mark, options: &HotOptions) -> Result<Recovered, LogError> {
    let hot = crate::dir::hot_dir(dir);
    let mut generations = Vec::new();
    for number in tidy(&hot, mark)? {
        let path = generation_path(&hot, number);
        generations.push(Arc::new(Generation::open(&path, number, options.cache_bytes)?));
    }
    if mark.generation > 0 && generations.last().map(|last| last.number) != Some(mark.generation) {
        let path = generation_path(&hot, mark.generation);
        return Err(LogError::Damaged { path, error: "it is missing".to_owned() });
    }
    let mut heads = BTreeMap::new();
    if mark.generation == 0 {
        // Nothing was ever committed here: the logs end where the mark says (zero, or the end of an import).
        heads = mark.pools.iter().map(|(pool, (durable, _))| (pool.clone(), *durable)).collect();
    }
    let mut seen = Seen::new(dir, mark);
    let mut torn = Vec::new();
    heads.iter().for_each(|head| seen.head(head));
    for (at, generation) in generations.iter().enumerate() {
        take_bases(&mut heads, generation, at == 0)?;
        for head in &heads {
            seen.head(head);
        }
        let cut = generation.visit(&mut |frame| follow(&mut heads, &mut seen, frame))?;
        torn.extend(cut.into_iter().map(|batch| (generation.clone(), batch)));
    }
    seen.check(&heads)?;
    for (generation, batch) in torn {
        generation.remove(&batch)?;
    }
    if mark.generation == 0 {
        generations.push(Arc::new(begin(&hot, 1, options, None)?));
    }
    Ok(Recovered { generations, heads })
}

/// Creates an empty generation whose files survive a loss of power; with its ground laid, at this pace, where much is to
/// come.
pub(super) fn begin(
    hot: &Path,
    number: u32,
    options: &HotOptions,
    ground: Option<Duration>,
) -> Result<Generation, LogError> {
    let path = generation_path(hot, number);
    discard(&path)?;
    let generation = Generation::open(&path, number, options.cache_bytes)?;
    if let Some(pause) = ground {
        generation.lay_ground(options.rotate_bytes, pause);
    }
    generation.settle_files()?;
    Ok(generation)
}

/// Removes a directory in two steps, so that one that is half removed is never taken for a database.
pub(super) fn discard(path: &Path) -> Result<(), LogError> {
    if !path.exists() {
        return Ok(());
    }
    let gone = path.with_extension("deleted");
    let fail = |error: std::io::Error| LogError::io("remove", path, &error);
    if gone.exists() {
        fs::remove_dir_all(&gone).map_err(fail)?;
    }
    fs::rename(path, &gone).map_err(fail)?;
    path.parent().map_or(Ok(()), crate::dir::sync_dir)?;
    fs::remove_dir_all(&gone).map_err(fail)
}

/// Removes what is left of deletions that were broken off.
pub(super) fn sweep(hot: &Path) -> Result<(), LogError> {
    let entries = fs::read_dir(hot).map_err(|error| LogError::io("list", hot, &error))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "deleted") {
            fs::remove_dir_all(&path).map_err(|error| LogError::io("remove", &path, &error))?;
        }
    }
    Ok(())
}

/// The numbers of the generations that count, in order. Left-overs of deletions go, and generations that were made
/// ready but never committed to.
fn tidy(hot: &Path, mark: &Mark) -> Result<Vec<u32>, LogError> {
    crate::dir::create_dir(hot)?;
    sweep(hot)?;
    let entries = fs::read_dir(hot).map_err(|error| LogError::io("list", hot, &error))?;
    let mut numbers = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| LogError::io("list", hot, &error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name.parse::<u32>() {
            Ok(number) if number <= mark.generation => numbers.push(number),
            Ok(_) => discard(&path)?,
            Err(_) => {
                tracing::warn!(path = %path.display(), "not a generation of the hot window: left alone")
            }
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A generation says where the logs ended when it was begun: that must be where the one before it ends. Of a pool that
/// the one before it does not know at all, all is lost that it held.
fn take_bases(
    heads: &mut BTreeMap<Arc<str>, Head>,
    generation: &Generation,
    oldest: bool,
) -> Result<(), LogError> {
    for (pool, held) in generation.held() {
        let Some(base) = held.base else { continue };
        let before = heads.get(&pool).copied();
        let known = before.or(oldest.then_some(base)).unwrap_or_default();
        if known != base {
            let error = format!(
                "it was begun when the log of pool {pool} ended at sequence {}, but what came before ends at {}",
                base.seq, known.seq
            );
            return Err(LogError::Damaged { path: generation.path().to_owned(), error });
        }
        heads.insert(pool, base);
    }
    Ok(())
}

fn follow(heads: &mut BTreeMap<Arc<str>, Head>, seen: &mut Seen<'_>, frame: &Frame) -> Result<(), LogError> {
    let pool = &frame.header.pool;
    let mut chain = Chain::after(heads.get(pool).copied().unwrap_or_default());
    chain.follow(frame)?;
    let head = Head::of(frame);
    seen.head((pool, &head));
    heads.insert(pool.clone(), head);
    Ok(())
}

/// Holds what is found to what the mark says was durable.
struct Seen<'a> {
    dir: &'a Path,
    durable: BTreeMap<Arc<str>, (Head, bool)>,
}

impl<'a> Seen<'a> {
    fn new(dir: &'a Path, mark: &Mark) -> Seen<'a> {
        let durable =
            mark.pools.iter().map(|(pool, (durable, _))| (pool.clone(), (*durable, durable.seq == 0)));
        Seen { dir, durable: durable.collect() }
    }

    fn head(&mut self, (pool, head): (&Arc<str>, &Head)) {
        if let Some((durable, found)) = self.durable.get_mut(pool) {
            *found |= durable == head;
        }
    }

    fn check(&self, heads: &BTreeMap<Arc<str>, Head>) -> Result<(), LogError> {
        for (pool, (durable, found)) in &self.durable {
            let head = heads.get(pool).copied().unwrap_or_default();
            if head.seq < durable.seq {
                let (dir, pool) = (self.dir.to_owned(), pool.clone());
                return Err(LogError::TailMissing { dir, pool, found: head.seq, expected: durable.seq });
            }
            if !found {
                return Err(LogError::HeadDiffers {
                    dir: self.dir.to_owned(),
                    pool: pool.clone(),
                    seq: durable.seq,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HotStore, keys};
    use super::*;
    use crate::store::Store;
    use crate::world::World;

    /// One flipped bit in sled's file may take the name of a pool, and with it every batch of that pool in that database.
    #[test]
    fn a_database_that_lost_all_of_a_pool_is_found_out_by_the_next_one() {
        let tmp = tempfile::tempdir().unwrap();
        let options = HotOptions::default();
        let dir = tmp.path().join("log");
        let mut store = HotStore::open(&dir, options.clone()).unwrap();
        let (mut a, mut b) = (World::new("a", 7), World::new("b", 9));
        for world in [&mut a, &mut b] {
            store.write(&world.frames(3, 20)).unwrap();
        }
        store.sync().unwrap();
        store.rotate_now().unwrap();
        store.write(&a.frames(1, 20)).unwrap();
        store.sync().unwrap();
        drop(store);
        drop(HotStore::open(&dir, options.clone()).unwrap());
        let first = generation_path(&crate::dir::hot_dir(&dir), 1);
        let config = sled::Config::new().path(&first).flush_every_ms(None);
        let db = crate::sled_open::open_let_go(&config, || Ok::<_, sled::Error>(())).unwrap();
        for id in 1..=2 {
            if db.get(keys::pool_key(id)).unwrap().unwrap() == "b" {
                db.remove(keys::pool_key(id)).unwrap();
            }
        }
        drop(db);
        match HotStore::open(&dir, options).map(|_| ()) {
            Err(LogError::Damaged { error, .. }) => {
                assert!(error.contains("pool b ended at sequence") && error.contains("ends at 0"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}
