//! The engine on the log's real writer: restarts, and a disk that fails and comes back.

use super::rig::{concurrency_policy, is_decided, wait, wait_for};
use crate::engine::{
    Admitted, Clock, Decision, Engine, EngineOptions, Fate, INBOX_ARRIVALS_MAX, LogOptions, Place,
    PoolHandle, PoolOptions, Unavailable,
};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_kernel::{
    Arrival, Cause, Ended, EndpointChange, Event, Face, Idempotency, Input, LeaseEnd, LeaseEndCause, Micros,
    Observation, Outcome, Policy, Pushed, Reason, RequestId, Role, Slot, State, Step, Termination, fold,
};
use weir_log::memory::MemoryDisk;

fn options(place: Place, policy: Policy) -> EngineOptions {
    EngineOptions {
        pools: BTreeMap::from([("p".to_owned(), PoolOptions { policy, ..PoolOptions::default() })]),
        place,
        log: LogOptions::default(),
        clock: None,
        inbox_arrivals_max: INBOX_ARRIVALS_MAX,
    }
}

fn pool(engine: &Engine) -> PoolHandle {
    engine.pool("p").unwrap().clone()
}

fn join(pool: &PoolHandle) {
    let joined = EndpointChange::Joined { slot: Slot(0), name: "e0".to_owned(), role: Role::Decode };
    let requested_at = pool.clock().now();
    pool.observe(Observation { requested_at, changes: vec![joined], pushed: Pushed::Keep }).unwrap();
}

fn arrival(pool: &PoolHandle, face: Face, key: Option<u8>) -> Arrival {
    let idempotency = key.map(|key| Idempotency { key: [key; 16], body: [0; 8] });
    Arrival { face, idempotency, received_at: pool.clock().now(), ..Arrival::default() }
}

fn admitted(decision: Decision) -> Admitted {
    match decision {
        Decision::Admitted(admitted) => admitted,
        other => panic!("{other:?}"),
    }
}

fn steps(engine: &Engine) -> Vec<Step> {
    let frames = engine.log_frames().read("p", 1, usize::MAX).unwrap();
    frames.iter().flat_map(|frame| frame.steps().unwrap()).collect()
}

/// The log folds to what the pool's thread holds.
fn check(engine: &Engine) {
    let (seq, digest) = wait_for(pool(engine).query(|state| (state.seq(), state.digest()))).unwrap();
    let mut folded = State::new();
    for step in steps(engine).iter().filter(|step| step.seq <= seq) {
        fold(&mut folded, step);
    }
    assert_eq!(folded.digest(), digest);
}

/// Recovery by face: who cannot come back has an end, who can keeps the place, and leases that survive still count.
#[test]
fn after_a_crash_each_request_ends_or_goes_on_by_its_face() {
    let disk = MemoryDisk::new();
    let place = || Place::Memory(disk.clone());
    let engine = Engine::open(options(place(), concurrency_policy(2))).unwrap();
    let p = pool(&engine);
    join(&p);
    let held = admitted(wait_for(p.admit(arrival(&p, Face::Held, None)).unwrap()));
    let proxied = admitted(wait_for(p.admit(arrival(&p, Face::Proxy, None)).unwrap()));
    let plain = p.admit(arrival(&p, Face::Held, None)).unwrap();
    let keyed = p.admit(arrival(&p, Face::Held, Some(1))).unwrap();
    wait("two are queued", || wait_for(p.query(|state| state.queued())) == Ok(2));
    let (plain_id, keyed_id) = (plain.id().unwrap(), keyed.id().unwrap());
    drop(engine);
    for gone in [plain, keyed] {
        assert_eq!(wait_for(gone), Decision::Unavailable(Unavailable::Failed));
    }

    let engine = Engine::open(options(place(), concurrency_policy(2))).unwrap();
    let p = pool(&engine);
    wait("recovery is over", || {
        steps(&engine).iter().flat_map(|step| &step.events).any(|event| matches!(event, Event::RecoveryEnded))
    });
    let logged = steps(&engine);
    let ends = |wanted: RequestId| {
        logged
            .iter()
            .flat_map(|step| &step.events)
            .filter_map(|event| match event {
                Event::Evicted(e) if e.request == wanted => Some(format!("{:?} {:?}", e.outcome, e.reason)),
                Event::LeaseEnded(e) if e.request == wanted => Some(format!("{:?} {:?}", e.end, e.cause)),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(ends(plain_id), [format!("{:?} {:?}", Outcome::EvictedOther, Reason::Restarted)]);
    assert_eq!(ends(proxied.id), [format!("{:?} {:?}", LeaseEnd::Lost, Some(LeaseEndCause::Restart))]);
    assert_eq!(ends(keyed_id), [] as [String; 0]);
    assert_eq!(ends(held.id), [] as [String; 0]);
    assert_eq!(
        logged.iter().filter(|step| matches!(step.input, Input::PolicyChanged(_))).count(),
        1,
        "as before"
    );

    // The caller with the key comes back and is served; the held lease is completed by its holder.
    let mut back = p.admit(arrival(&p, Face::Held, Some(1))).unwrap();
    wait("it is attached", || back.id() == Some(keyed_id));
    assert_eq!(is_decided(&mut back), None, "nothing is known of the pool yet");
    join(&p);
    assert_eq!(admitted(wait_for(back)).id, keyed_id);
    let done = Ended { request: held.id, termination: Termination::Natural, usage: None };
    assert!(matches!(wait_for(p.end(done)), Fate::Done { .. }));
    check(&engine);
}

/// The time of the log goes on where it was, however far the wall clock is behind it.
#[test]
fn c140_a_restart_never_goes_back_in_time() {
    let disk = MemoryDisk::new();
    let ahead = Clock::wall() + Micros::from_secs(3_600);
    let mut first = options(Place::Memory(disk.clone()), Policy::default());
    first.clock = Some(Clock::manual(ahead));
    let engine = Engine::open(first).unwrap();
    wait("the start is durable", || pool(&engine).status().durable > 0);
    drop(engine);
    let engine = Engine::open(options(Place::Memory(disk), Policy::default())).unwrap();
    assert!(engine.clock().now() >= ahead);
    wait("both starts", || {
        steps(&engine).iter().filter(|step| matches!(step.input, Input::Started(_))).count() == 2
    });
    assert!(steps(&engine).windows(2).all(|pair| pair[0].at <= pair[1].at && pair[0].seq + 1 == pair[1].seq));
}

/// The disk fails under load and comes back: nothing that was answered is missing, nothing is decided twice, and the
/// refused are counted.
#[test]
fn c104_c105_a_disk_that_fails_and_comes_back_loses_no_answer() {
    let disk = MemoryDisk::new();
    let engine = Engine::open(options(Place::Memory(disk.clone()), concurrency_policy(1_000))).unwrap();
    let p = pool(&engine);
    join(&p);
    let mut answered = Vec::new();
    let mut refused = 0;
    for round in 0..5 {
        let mut pending = Vec::new();
        for i in 0..100 {
            if i == 50 {
                match round % 3 {
                    0 => disk.fail_writes(1),
                    1 => disk.fail_syncs(1),
                    _ => disk.fail_all(true),
                }
            }
            match p.admit(arrival(&p, Face::Held, None)) {
                Ok(one) => pending.push(one),
                Err(why) => {
                    assert_eq!(why, Unavailable::Log);
                    refused += 1;
                }
            }
        }
        if round % 3 == 2 {
            wait("readiness turns false", || !p.status().log_writable);
            assert_eq!(p.admit(arrival(&p, Face::Held, None)).err(), Some(Unavailable::Log));
            refused += 1;
            disk.fail_all(false);
        }
        for one in pending {
            match wait_for(one) {
                Decision::Admitted(admitted) => answered.push(admitted),
                Decision::Unavailable(Unavailable::Log) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        wait("it is writable again", || p.status().log_writable);
        for done in answered.iter().rev().take(100) {
            p.end_unheard(Ended { request: done.id, termination: Termination::Natural, usage: None });
        }
    }
    wait("idle", || wait_for(p.query(|state| state.in_flight())) == Ok(0));
    let logged = steps(&engine);
    for admitted in &answered {
        let step = &logged[usize::try_from(admitted.seq).unwrap() - 1];
        assert!(
            step.events.iter().any(|event| matches!(event, Event::Dispatched(e) if e.request == admitted.id))
        );
    }
    let counted: u64 = logged
        .iter()
        .map(|step| match step.input {
            Input::LogResumed { refused, .. } => refused,
            _ => 0,
        })
        .sum();
    assert_eq!((counted, answered.len() as u64), (refused, 500 + 1 - refused));
    check(&engine);
}

/// A data directory: stopped in order and opened again, the state is the same and nothing is left.
#[test]
fn a_data_directory_opens_where_it_was_left() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let place = || Place::Directory(dir.path().to_owned());
    let log =
        LogOptions { snapshot_every: 50, keeping_every: Duration::from_millis(20), ..LogOptions::default() };
    let engine = Engine::open(EngineOptions { log, ..options(place(), concurrency_policy(10)) }).unwrap();
    let p = pool(&engine);
    join(&p);
    let held = admitted(wait_for(p.admit(arrival(&p, Face::Held, None)).unwrap()));
    for _ in 0..100 {
        p.first_byte(held.id);
    }
    wait("a snapshot", || !weir_log::snapshot::list(dir.path(), "p").unwrap().is_empty());
    let seq = wait_for(p.query(|state| state.seq())).unwrap();
    runtime.block_on(engine.shutdown(Duration::ZERO)).unwrap();

    let engine = Engine::open(options(place(), concurrency_policy(10))).unwrap();
    let p = pool(&engine);
    wait("it has started", || p.status().durable > seq);
    assert!(matches!(wait_for(p.cancel(held.id, Cause::Purged)), Fate::Done { .. }));
    assert!(matches!(wait_for(p.cancel(held.id, Cause::Purged)), Fate::Unknown | Fate::AlreadyEnded));
    check(&engine);
    drop(p);
    let second = Engine::open(options(place(), concurrency_policy(10)));
    assert!(second.unwrap_err().to_string().contains("in use"), "c108: one process per log");
}
