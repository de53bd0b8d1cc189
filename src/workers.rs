//! The runtime that serves: its workers, and whether each has a processor of its own.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use tokio::runtime::{Builder, Runtime};
use weir_background::{hold, places, roam};

/// A runtime of as many workers as this process may keep processors busy. Where they are to be `pinned`, each is held to
/// one: then none waits for another while a processor stands idle, which a kernel that gathers threads on few processors
/// (to let the others sleep) brings about below full load. They are not where a quota of processor time leaves fewer
/// workers than processors, since then each would be bound to one that it shares, nor where the system refuses.
///
/// # Errors
/// No threads to be had.
pub fn runtime(pinned: bool) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.enable_all();
    if pinned {
        match workers_to_pin() {
            Ok(workers) => {
                let started = AtomicUsize::new(0);
                // The workers start first, before anything runs. What comes later reads files, where there is room.
                builder.worker_threads(workers).on_thread_start(move || {
                    let number = started.fetch_add(1, Ordering::Relaxed);
                    if number >= workers {
                        roam();
                    } else if let Err(error) = hold(number) {
                        tracing::warn!(%error, "a worker is not held to a processor of its own");
                    }
                });
            }
            Err(why) => tracing::warn!("weir.gateway.pinWorkers has no effect: {why}"),
        }
    }
    builder.build()
}

fn workers_to_pin() -> Result<usize, String> {
    let workers = available_parallelism().map_err(|error| error.to_string())?.get();
    match places() {
        Ok(places) if places == workers => Ok(workers),
        Ok(places) => Err(format!("the quota leaves {workers} workers on {places} processors")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity};
    use std::sync::{Arc, Barrier};

    fn here() -> CpuSet {
        sched_getaffinity(None).unwrap()
    }

    /// Where each worker may run, and a thread that one of them has read a file for it.
    fn seen(runtime: &Runtime) -> (Vec<CpuSet>, CpuSet) {
        let count = runtime.metrics().num_workers();
        let together = Arc::new(Barrier::new(count));
        let tasks: Vec<_> = (0..count)
            .map(|_| {
                let together = Arc::clone(&together);
                runtime.spawn(async move {
                    // No worker runs two of these.
                    together.wait();
                    here()
                })
            })
            .collect();
        runtime.block_on(async {
            let mut workers = Vec::new();
            for task in tasks {
                workers.push(task.await.unwrap());
            }
            let reader = tokio::spawn(async { tokio::task::spawn_blocking(here).await.unwrap() });
            (workers, reader.await.unwrap())
        })
    }

    #[test]
    fn each_pinned_worker_has_a_processor_of_its_own_and_nobody_else_is_held() {
        let given = here();
        let workers = available_parallelism().unwrap().get();
        let (free, reader) = seen(&runtime(false).unwrap());
        assert!(free.len() == workers && free.iter().all(|set| *set == given) && reader == given);

        let (pinned, reader) = seen(&runtime(true).unwrap());
        assert_eq!(reader, given);
        assert_eq!(here(), given, "whoever made it is not held");
        if places().unwrap() == workers {
            let alone =
                |set: &CpuSet| (0..CpuSet::MAX_CPU).find(|place| set.is_set(*place) && set.count() == 1);
            let mut held: Vec<_> = pinned.iter().map(|set| alone(set).unwrap()).collect();
            held.sort_unstable();
            held.dedup();
            assert_eq!(held.len(), workers, "each on another one");
        } else {
            assert!(pinned.iter().all(|set| *set == given), "under a quota");
        }
    }
}
