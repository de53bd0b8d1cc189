//! The threads on which questions are answered: as many as are answered at once. They give way, so that, whatever is
//! asked, admissions get most of the processors: by their weight, and by taking turns at some of them.
//!
//! Not here: what an answer is (`service.rs`). There is never more to do than there are threads: who finds no place is
//! refused before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use weir_background::{Turns, give_way};

type Job = Box<dyn FnOnce() + Send>;

/// The threads; they end when this is dropped.
#[derive(Debug)]
pub struct Workers {
    to: SyncSender<Job>,
}

impl Workers {
    /// So many threads.
    ///
    /// # Errors
    /// No thread.
    pub fn start(count: usize) -> std::io::Result<Workers> {
        let (to, jobs) = sync_channel(count.max(1));
        let jobs = Arc::new(Mutex::new(jobs));
        let turns = Turns::of_half_the_processors();
        for _ in 0..count {
            let (jobs, turns) = (jobs.clone(), turns.clone());
            std::thread::Builder::new()
                .name("weir-question".to_owned())
                .spawn(move || work(&jobs, &turns))?;
        }
        Ok(Workers { to })
    }

    /// Hands over a piece of work; false if it is not taken.
    pub fn give(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.to.try_send(Box::new(job)).is_ok()
    }
}

fn work(jobs: &Mutex<Receiver<Job>>, turns: &Turns) {
    give_way();
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        // Whoever waits for it hears that it is gone.
        if catch_unwind(AssertUnwindSafe(|| turns.during(job))).is_err() {
            tracing::error!("a question made its thread fail; the thread goes on");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn work_is_done_one_after_the_other_and_a_panic_ends_only_its_own() {
        let workers = Workers::start(1).unwrap();
        let (to, heard) = channel();
        assert!(workers.give(|| panic!("on purpose")));
        let mut given = 0;
        // The first may still be in the way.
        while given < 3 {
            let to = to.clone();
            given += usize::from(workers.give(move || to.send(std::thread::current().id()).unwrap()));
            std::thread::yield_now();
        }
        let threads: Vec<_> = (0..3).map(|_| heard.recv().unwrap()).collect();
        assert!(threads.iter().all(|thread| *thread == threads[0]));
        assert_ne!(threads[0], std::thread::current().id());
    }

    #[test]
    fn no_more_run_at_once_than_half_of_the_processors() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        let most = std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).max(1));
        let workers = Workers::start(most + 3).unwrap();
        let (inside, found) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (to, heard) = channel();
        for _ in 0..most + 3 {
            let (inside, found, to) = (inside.clone(), found.clone(), to.clone());
            assert!(workers.give(move || {
                found.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(5));
                inside.fetch_sub(1, SeqCst);
                to.send(()).unwrap();
            }));
        }
        (0..most + 3).for_each(|_| heard.recv().unwrap());
        assert!(found.load(SeqCst) <= most);
    }
}
