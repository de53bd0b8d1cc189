//! Threads whose work may wait: how they give way to admissions, and how much of the processors they take; and on which
//! processors threads run.
//!
//! An admission passes through many threads, each for some microseconds. Little weight alone does not help it: weight is
//! a share over time, and a thread that wakes may have to wait for the end of the slice of another, however light. So
//! who gives way also takes turns (`turns.rs`) which end soon. Not `SCHED_IDLE` (sched(7)): it is displaced at once, but
//! beside two busy loops on two processors it got 2 ms a second, and whoever holds a lock must be able to let it go.

mod burden;
mod places;
mod turns;

use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use burden::burden;
pub use places::{hold, places, roam};
pub use turns::{Turns, pass_on};

/// A thread whose work can wait, as others see it.
#[derive(Debug)]
struct Seen {
    /// The kernel's number of the thread.
    number: i32,
    /// Nanoseconds on a processor, when they were last looked at.
    taken: AtomicU64,
    ended: AtomicBool,
}

impl Seen {
    fn look(&self) -> u64 {
        if !self.ended.load(Ordering::Acquire)
            && let Some(now) = told(self.number)
        {
            self.taken.fetch_max(now, Ordering::Relaxed);
        }
        self.taken.load(Ordering::Relaxed)
    }
}

/// Those that run, and the nanoseconds of those that ended.
#[derive(Debug)]
struct All {
    running: Vec<Arc<Seen>>,
    ended: u64,
}

static ALL: Mutex<All> = Mutex::new(All { running: Vec::new(), ended: 0 });

/// Says at the end of its thread what that took. It takes no lock: who gives way may be long about it.
struct Listed(Arc<Seen>);

impl Drop for Listed {
    fn drop(&mut self) {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let taken = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
        self.0.taken.fetch_max(taken, Ordering::Relaxed);
        self.0.ended.store(true, Ordering::Release);
    }
}

thread_local! {
    static LISTED: RefCell<Option<Listed>> = const { RefCell::new(None) };
}

/// Counts the calling thread, to its end, among those whose work can wait. It keeps its weight.
pub fn can_wait() {
    LISTED.with_borrow_mut(|listed| {
        listed.get_or_insert_with(|| {
            let number = rustix::thread::gettid().as_raw_nonzero().get();
            let seen = Arc::new(Seen { number, taken: AtomicU64::new(0), ended: AtomicBool::new(false) });
            ALL.lock().unwrap_or_else(PoisonError::into_inner).running.push(seen.clone());
            Listed(seen)
        });
    });
}

/// The same, and it gives way from here on. Where the system refuses, nothing is lost but the courtesy.
pub fn give_way() {
    can_wait();
    // Who started it may be held to one processor.
    roam();
    // On Linux this is the thread's own (setpriority(2)). Of a contended processor it then gets about a tenth.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, 10) {
        tracing::debug!(%error, "a thread keeps its weight");
    }
}

/// Processor time of all threads of this process whose work can wait, and of those that ended, so far. It never falls. Zero
/// where the system does not tell.
pub fn taken() -> Duration {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let All { running, ended } = &mut *all;
    let mut sum = 0;
    running.retain(|seen| {
        let gone = seen.ended.load(Ordering::Acquire);
        *(if gone { &mut *ended } else { &mut sum }) += seen.look();
        !gone
    });
    Duration::from_nanos(sum + *ended)
}

/// Nanoseconds on a processor of one of this process's threads: the first number of its schedstat (proc(5)).
fn told(number: i32) -> Option<u64> {
    let line = std::fs::read_to_string(format!("/proc/self/task/{number}/schedstat")).ok()?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_threads_took_is_known_while_they_run_and_after() {
        let ms = Duration::from_millis;
        let before = taken();
        let (to, ready) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            give_way();
            give_way();
            let own = || LISTED.with_borrow(|listed| listed.as_ref().unwrap().0.clone());
            assert_eq!(rustix::process::getpriority_process(None).unwrap(), 10);
            while own().look() < 5_000_000 {
                std::hint::spin_loop();
            }
            to.send(own()).unwrap();
            let _ = ended.recv();
        });
        let seen = ready.recv().unwrap();
        let listed = || {
            let all = ALL.lock().unwrap();
            all.running.iter().filter(|other| Arc::ptr_eq(other, &seen)).count()
        };
        assert_eq!(listed(), 1, "a thread is listed once");
        let then = taken();
        assert!(then >= before + ms(5));
        drop(end);
        thread.join().unwrap();
        assert!(taken() >= then, "an ended thread's time is not forgotten");
        assert_eq!(listed(), 0);
        assert!(taken() >= then);
    }
}
