//! The thread that keeps the high-water mark, so that its sync runs beside the database's own.
//!
//! A commit publishes what is durable and what is on its way, and goes on; it waits only if the mark that was published
//! before is not written yet. While commits follow each other closely a mark is written at a pace of its own: a sync for
//! each would take the disk and the processor from the commits (measured: 270 µs of processor time). So when a batch is
//! released, the mark on disk names the batch before it, or one that was released at most 2 ms earlier. 20 ms after the
//! last commit one more write confirms the end.

use crate::error::LogError;
use crate::mark::{Mark, MarkFile};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long after a commit its end is confirmed.
const SETTLE: Duration = Duration::from_millis(20);
/// From one mark to the next while commits follow each other.
const PACE: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
struct Wanted {
    mark: Mark,
    /// Counts publications.
    published: u64,
    /// When the last one was asked for.
    published_at: Option<Instant>,
    /// The publication that is on disk.
    written: u64,
    /// `mark` differs from what is on disk, but not urgently.
    unsettled: bool,
    /// The thread sleeps without an end.
    resting: bool,
    error: Option<LogError>,
    stop: bool,
}

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, wanted: MutexGuard<'a, Wanted>) -> MutexGuard<'a, Wanted> {
        self.changed.wait(wanted).unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle to the thread; dropping it writes what is unsettled and ends the thread.
#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn spawn(file: MarkFile, mark: Mark) -> Result<Keeper, LogError> {
        let shared = Arc::new(Shared::default());
        shared.lock().mark = mark;
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("weir-log-mark".to_owned())
            .spawn(move || run(&theirs, file))
            .map_err(|error| LogError::Unavailable { error: format!("no thread for the mark: {error}") })?;
        Ok(Keeper { shared, thread: Some(thread) })
    }

    /// Has a mark written from now on, or soon after the one before it; waits only for the one before it.
    pub(crate) fn publish(&self, mark: Mark) -> Result<(), LogError> {
        let mut wanted = self.shared.lock();
        let now = Instant::now();
        if wanted.error.is_none() && wanted.published_at.is_some_and(|at| now < at + PACE) {
            self.note(&mut wanted, mark);
            return Ok(());
        }
        while wanted.written < wanted.published && wanted.error.is_none() {
            wanted = self.shared.wait(wanted);
        }
        if let Some(error) = &wanted.error {
            return Err(error.clone());
        }
        wanted.mark = mark;
        wanted.published += 1;
        wanted.published_at = Some(now);
        wanted.unsettled = false;
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Notes what is durable now, to be written with the next mark or once nothing has come for a while.
    pub(crate) fn settle(&self, mark: Mark) {
        self.note(&mut self.shared.lock(), mark);
    }

    fn note(&self, wanted: &mut Wanted, mark: Mark) {
        wanted.mark = mark;
        wanted.unsettled = true;
        if wanted.resting {
            self.shared.changed.notify_all();
        }
    }

    /// Waits until all that was published and noted is on disk.
    pub(crate) fn finish(&self) -> Result<(), LogError> {
        let mut wanted = self.shared.lock();
        if wanted.unsettled {
            wanted.published += 1;
            wanted.unsettled = false;
            self.shared.changed.notify_all();
        }
        while wanted.written < wanted.published && wanted.error.is_none() {
            wanted = self.shared.wait(wanted);
        }
        wanted.error.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.finish();
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, mut file: MarkFile) {
    let mut settled = true;
    let mut wanted = shared.lock();
    loop {
        if wanted.stop {
            return;
        }
        let mut due = wanted.written < wanted.published;
        if !due && settled && !wanted.unsettled {
            wanted.resting = true;
            wanted = shared.wait(wanted);
            wanted.resting = false;
            continue;
        }
        if !due {
            let (back, timeout) = match shared.changed.wait_timeout(wanted, SETTLE) {
                Ok((back, timeout)) => (back, timeout.timed_out()),
                Err(poisoned) => (poisoned.into_inner().0, false),
            };
            wanted = back;
            due = wanted.written < wanted.published || (timeout && wanted.unsettled);
            if !due {
                continue;
            }
        }
        let (mark, number) = (wanted.mark.clone(), wanted.published);
        wanted.unsettled = false;
        drop(wanted);
        let result = file.write(&mark);
        wanted = shared.lock();
        settled = mark.pools.values().all(|(durable, coming)| durable == coming);
        wanted.written = number;
        if let Err(error) = result {
            wanted.error = Some(error);
        }
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Head;

    fn mark(durable: u64, coming: u64) -> Mark {
        let head = |seq| Head { seq, ..Head::default() };
        Mark { generation: 1, pools: [(Arc::from("a"), (head(durable), head(coming)))].into() }
    }

    #[test]
    fn what_is_published_is_written_and_the_end_is_confirmed_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        crate::mark::create(&path, &Mark::default()).unwrap();
        let (file, first) = MarkFile::open(&path).unwrap();
        let keeper = Keeper::spawn(file, first).unwrap();
        for seq in 0..50 {
            keeper.publish(mark(seq, seq + 1)).unwrap();
            keeper.settle(mark(seq + 1, seq + 1));
        }
        let begun = Instant::now();
        while crate::mark::read(&path).unwrap() != mark(50, 50) {
            assert!(begun.elapsed() < Duration::from_secs(60), "the end is never confirmed");
            std::thread::yield_now();
        }
        keeper.publish(mark(50, 51)).unwrap();
        keeper.settle(mark(51, 51));
        drop(keeper);
        assert_eq!(crate::mark::read(&path).unwrap(), mark(51, 51));
    }

    #[test]
    fn a_mark_that_cannot_be_written_is_an_error_of_the_next_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        crate::mark::create(&path, &Mark::default()).unwrap();
        let (file, first) = MarkFile::open(&path).unwrap();
        let keeper = Keeper::spawn(file, first).unwrap();
        let mut many = mark(1, 1);
        for pool in 0..3_000 {
            many.pools.insert(Arc::from(format!("{pool:0>128}")), (Head::default(), Head::default()));
        }
        keeper.publish(many).unwrap();
        let error = keeper.finish().unwrap_err();
        assert!(matches!(error, LogError::Mark { .. }), "{error}");
        assert_eq!(keeper.publish(mark(1, 2)).unwrap_err().to_string(), error.to_string());
    }
}
