//! Many at once on real threads and a real clock: each request still has one outcome, and no limit is overrun.

use super::rig::{Setup, concurrency_policy, pushed_policy, wait};
use crate::engine::{Clock, Decision};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use weir_kernel::{
    Ended, EndpointChange, Event, Input, Micros, Observation, Policy, Pushed, Reason, Role, Slot, Step,
    Termination,
};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap()
}

/// 10,000 requests whose budget ends about when the pool opens: each is served or expired, never both, and none late.
#[test]
fn c021_dispatch_and_expiry_at_the_same_instant() {
    const ROUNDS: usize = 20;
    const EACH: usize = 500;
    let budget = Micros::from_millis(8);
    let rig = Setup {
        clock: Clock::starting_after(Micros::ZERO),
        ..Setup::policy(Policy { saturation_budget: budget, ..pushed_policy() })
    }
    .start();
    rig.open_pool(1_000_000);
    let runtime = runtime();
    let (served, expired) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for round in 0..ROUNDS {
        rig.saturate(1_000_000);
        let opens_at = rig.clock.now() + budget - Micros(100 * round as u64);
        let tasks: Vec<_> = (0..EACH)
            .map(|i| {
                let (pool, pending) = (rig.pool.clone(), rig.admit(&format!("{round}-{i}")));
                let (served, expired) = (Arc::clone(&served), Arc::clone(&expired));
                runtime.spawn(async move {
                    match pending.await {
                        Decision::Admitted(admitted) => {
                            served.fetch_add(1, Ordering::SeqCst);
                            let termination = Termination::Natural;
                            pool.end(Ended { request: admitted.id, termination, usage: None }).await;
                        }
                        Decision::Refused(refused) => {
                            // Queued, or spent before its turn came.
                            assert_eq!(refused.reason, Reason::TtlExpired, "{refused:?}");
                            expired.fetch_add(1, Ordering::SeqCst);
                        }
                        Decision::Unavailable(why) => panic!("{why}"),
                    }
                })
            })
            .collect();
        wait("the instant", || rig.clock.now() >= opens_at);
        rig.saturate(0);
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
    }
    assert_eq!(served.load(Ordering::SeqCst) + expired.load(Ordering::SeqCst), ROUNDS * EACH);
    rig.wait_idle();
    for step in rig.steps() {
        for event in &step.events {
            if let Event::Dispatched(e) = event {
                assert!(e.waited < budget, "dispatched after {:?}", e.waited);
            }
        }
    }
    rig.check();
}

/// Limit 10, nine running, 64 ask at once: one more is let in, over and over.
#[test]
fn c033_concurrent_admissions_never_overshoot_the_limit() {
    const ROUNDS: usize = 200;
    let rig =
        Setup { clock: Clock::starting_after(Micros::ZERO), ..Setup::policy(concurrency_policy(10)) }.start();
    let joined = EndpointChange::Joined { slot: Slot(0), name: "e0".to_owned(), role: Role::Decode };
    let first = Observation { requested_at: rig.clock.now(), changes: vec![joined], pushed: Pushed::Keep };
    rig.pool.observe(first).unwrap();
    let runtime = runtime();
    let nine: Vec<_> = (0..9).map(|i| runtime.block_on(rig.admit(&format!("n{i}")))).collect();
    assert!(nine.iter().all(|decision| matches!(decision, Decision::Admitted(_))));
    for round in 0..ROUNDS {
        let asks: Vec<_> = (0..64)
            .map(|i| {
                let (pool, arrival) = (rig.pool.clone(), rig.arrival(&format!("{round}-{i}")));
                runtime.spawn(async move {
                    let decision = pool.admit(arrival).unwrap().await;
                    if let Decision::Admitted(admitted) = decision {
                        let termination = Termination::Natural;
                        pool.end(Ended { request: admitted.id, termination, usage: None }).await;
                    } else {
                        panic!("{decision:?}");
                    }
                })
            })
            .collect();
        for ask in asks {
            runtime.block_on(ask).unwrap();
        }
    }
    let (mut running, mut most) = (0_i64, 0);
    for event in rig.steps().iter().flat_map(|step| &step.events) {
        match event {
            Event::Dispatched(_) => running += 1,
            Event::LeaseEnded(_) => running -= 1,
            _ => {}
        }
        most = most.max(running);
    }
    assert_eq!((running, most), (9, 10));
    rig.check();
}

/// Callers come, wait a little and go, on many threads: nothing is left behind and nobody has two outcomes.
#[test]
fn c021_callers_that_leave_at_any_moment_leave_nothing_behind() {
    let rig =
        Setup { clock: Clock::starting_after(Micros::ZERO), ..Setup::policy(concurrency_policy(20)) }.start();
    let joined = EndpointChange::Joined { slot: Slot(0), name: "e0".to_owned(), role: Role::Decode };
    rig.pool
        .observe(Observation { requested_at: rig.clock.now(), changes: vec![joined], pushed: Pushed::Keep })
        .unwrap();
    let runtime = runtime();
    let tasks: Vec<_> = (0..64_u64)
        .map(|who| {
            let (pool, arrival) = (rig.pool.clone(), rig.arrival(&who.to_string()));
            runtime.spawn(async move {
                for round in 0..150_u64 {
                    let Ok(mut pending) = pool.admit(arrival.clone()) else { continue };
                    let patience = std::time::Duration::from_micros((who * 37 + round * 101) % 900);
                    if let Ok(Decision::Admitted(admitted)) =
                        tokio::time::timeout(patience, &mut pending).await
                        && round % 7 != 0
                    {
                        let termination = Termination::Natural;
                        pool.end_unheard(Ended { request: admitted.id, termination, usage: None });
                    } else if let Some(id) = pending.id() {
                        pool.cancel(id, weir_kernel::Cause::Other).await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    // Arrivals whose callers left may still be in the inbox.
    wait("every arrival looked at", || rig.peek(|state| state.counters().arrivals) == 64 * 150);
    rig.wait_idle();
    rig.check();
}

#[test]
fn who_comes_while_one_deadline_follows_another_is_decided_between_them() {
    // So many that more are left when the log takes what it holds up: one step ends 64.
    const QUEUED: usize = 64 * 70;
    let rig = Setup::policy(pushed_policy()).start();
    rig.open_pool(2_000_000);
    let waiting: Vec<_> = (0..QUEUED).map(|n| rig.admit(&format!("q{n}"))).collect();
    wait("everybody queued", || rig.peek(|state| state.queued()) == QUEUED as u64);
    rig.hold();
    rig.clock.advance(pushed_policy().saturation_budget + Micros(1));
    wait("as many decided as may be", || rig.peek(|state| state.queued()) <= (QUEUED - 64 * 32) as u64);
    // With the next batch that the log is given, one more comes.
    let came = Arc::new(Mutex::new(None));
    let (mut late, seen, pool) = (Some(rig.arrival("late")), Arc::clone(&came), rig.pool.clone());
    rig.watch(move |steps| {
        if let Some(late) = late.take() {
            *seen.lock().unwrap() = Some((steps.last().unwrap().seq, pool.admit(late).unwrap()));
        }
    });
    rig.release();
    wait("all evicted", || rig.logged(|event| matches!(event, Event::Evicted(_))) >= QUEUED);
    let (before, late) = came.lock().unwrap().take().unwrap();
    let is_late =
        |step: &&Step| matches!(&step.input, Input::Arrived(arrival) if arrival.caller_id == "late");
    let steps = rig.steps();
    let decided = steps.iter().find(is_late).unwrap().seq;
    assert!(decided <= before + 2, "came after {before}, decided as {decided} of {}", steps.len());
    drop((waiting, late));
    rig.wait_idle();
    rig.check();
}
