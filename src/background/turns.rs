//! Turns of a few threads at the processors: no more run at once than there are turns, one after the other in the order
//! in which they came. Who works long passes its turn on twice a millisecond, where it says that it can.
//!
//! A processor that nobody takes is what a thread that wakes finds free at once; where every one is taken, be it by
//! threads that give way, each of an admission's many turns begins with a switch. So some are left alone.

use crate::burden;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a turn lasts where others wait for one, or where the processors are wanted.
const TURN: Duration = Duration::from_micros(500);
/// Where what cannot wait takes this share of the processors, nobody runs for a while after each turn: for so long times
/// the share, unless another rest is asked for. At half of the processors that is 5 ms, so that what is left for turns is
/// a tenth of one.
const BUSY: f64 = 0.2;
const REST: Duration = Duration::from_millis(10);

/// So many turns at once.
#[derive(Clone, Debug)]
pub struct Turns(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rest: Duration,
    queue: Mutex<Queue>,
    called: Condvar,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    next: u64,
    /// Who waits, in order.
    waiting: VecDeque<u64>,
}

/// Somebody's turn, until it is dropped.
struct Turn {
    of: Turns,
    since: Instant,
}

thread_local! {
    static HELD: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

impl Turns {
    /// As many as half of the processors, at least one.
    pub fn of_half_the_processors() -> Turns {
        Turns::new(std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).max(1)))
    }

    /// So many; at least one.
    pub fn new(count: usize) -> Turns {
        Turns::resting(count, REST)
    }

    /// So many, with a rest of so long after each where every processor is taken by what cannot wait. A turn is half a
    /// millisecond: the rest says how much work gets done under full load.
    pub fn resting(count: usize, rest: Duration) -> Turns {
        let queue = Queue { free: count.max(1), next: 0, waiting: VecDeque::new() };
        Turns(Arc::new(Shared { rest, queue: Mutex::new(queue), called: Condvar::new() }))
    }

    /// Does it when it is this thread's turn. Not to be called within itself.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let turn = self.wait();
        HELD.set(Some(turn));
        // Also where the work panics.
        let _end = End;
        work()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Turn {
        let mut queue = self.lock();
        let ours = queue.next;
        queue.next += 1;
        queue.waiting.push_back(ours);
        while queue.free == 0 || queue.waiting.front() != Some(&ours) {
            queue = self.0.called.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.waiting.pop_front();
        queue.free -= 1;
        let more = queue.free > 0 && !queue.waiting.is_empty();
        drop(queue);
        if more {
            self.0.called.notify_all();
        }
        Turn { of: self.clone(), since: Instant::now() }
    }
}

/// After a turn, where others take such a share of the processors: a part of the whole rest.
fn rest(whole: Duration, share: f64) -> Option<Duration> {
    (share >= BUSY).then(|| whole.mul_f64(share.min(1.0)))
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        HELD.set(None);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.of.lock().free += 1;
        self.of.0.called.notify_all();
    }
}

/// A point at which a thread can wait: where it has had its turn, it rests if the processors are wanted, and passes the
/// turn on if others wait for one. Elsewhere it costs next to nothing.
pub fn pass_on() {
    let over = HELD.with_borrow(|held| {
        held.as_ref().filter(|turn| turn.since.elapsed() >= TURN).map(|turn| turn.of.clone())
    });
    let Some(turns) = over else { return };
    if let Some(rest) = rest(turns.0.rest, burden(Instant::now())) {
        std::thread::sleep(rest);
    }
    if turns.lock().waiting.is_empty() {
        HELD.with_borrow_mut(|held| held.iter_mut().for_each(|turn| turn.since = Instant::now()));
        return;
    }
    HELD.set(None);
    let turn = turns.wait();
    HELD.set(Some(turn));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_run_at_once_than_there_are_turns_and_all_get_one() {
        for count in [1, 3] {
            let turns = Turns::new(count);
            let (inside, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                for _ in 0..6 {
                    scope.spawn(|| {
                        turns.during(|| {
                            for _ in 0..5 {
                                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                                most.fetch_max(now, Ordering::SeqCst);
                                std::thread::sleep(TURN);
                                inside.fetch_sub(1, Ordering::SeqCst);
                                pass_on();
                            }
                            done.fetch_add(1, Ordering::SeqCst);
                        });
                    });
                }
            });
            assert!(most.into_inner() <= count);
            assert_eq!(done.into_inner(), 6);
        }
    }

    #[test]
    fn the_more_others_take_the_longer_is_the_rest() {
        let ms = Duration::from_millis;
        assert_eq!(rest(ms(10), 0.19), None);
        assert_eq!(rest(ms(10), 0.2), Some(ms(2)));
        assert_eq!(rest(ms(4), 0.5), Some(ms(2)));
        assert_eq!(rest(ms(10), 1.3), Some(ms(10)), "a share is measured, and may be over all there is");
    }

    #[test]
    fn a_turn_is_passed_on_in_the_middle_of_work_and_given_back_by_a_panic() {
        let turns = Turns::new(1);
        let failed = std::panic::catch_unwind(|| turns.during(|| panic!("on purpose")));
        assert!(failed.is_err());
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            turns.during(|| {
                scope.spawn(|| turns.during(|| order.lock().unwrap().push("the second")));
                while turns.lock().waiting.is_empty() {
                    std::thread::yield_now();
                }
                std::thread::sleep(TURN);
                pass_on();
                order.lock().unwrap().push("the first");
            });
        });
        assert_eq!(order.into_inner().unwrap(), ["the second", "the first"]);
        // Who has no turn passes nothing on.
        pass_on();
    }
}
