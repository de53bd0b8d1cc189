//! What verification finds: nothing in a log as written, and the place where one byte or one decision was changed.

use super::pool::verify;
use super::*;
use std::path::Path;
use std::sync::Arc;
use weir_kernel::{
    Arrival, Ended, EndpointChange, Event, Input, KERNEL_BEHAVIOUR, Micros, Observation, Outcome, Policy,
    PolicyChange, RequestId, Role, Slot, Started, State, Step, Termination, step,
};
use weir_log::reader::Logs;
use weir_log::seal::Sealer;
use weir_log::segment::list;
use weir_log::{Frame, snapshot};

const START: u64 = 1_764_460_800_000_000;

/// A pool of two endpoints, arrivals of three tenants faster than they end, a queue limit of 50.
fn steps(count: u64, behaviour: u32) -> Vec<Step> {
    let mut state = State::new();
    let mut at = START;
    let mut out = Vec::new();
    let mut take = |state: &mut State, input: Input, out: &mut Vec<Step>| {
        at += 700;
        out.push(step(state, Micros(at), input));
    };
    let started = Started { kernel_behaviour: behaviour, version: "0.1.0".to_owned(), wall: Micros(START) };
    take(&mut state, Input::Started(started), &mut out);
    let policy = Box::new(Policy { max_requests: 50, ..Policy::default() });
    take(&mut state, Input::PolicyChanged(PolicyChange { policy, digest: [1; 32] }), &mut out);
    let mut changes = Vec::new();
    for slot in 0..2 {
        let name = format!("10.0.0.{slot}:8000");
        changes.push(EndpointChange::Joined { slot: Slot(slot), name, role: Role::Decode });
    }
    changes.extend((0..2).map(|slot| sample(slot, 1)));
    take(&mut state, Input::Observed(observation(changes)), &mut out);
    for turn in 0..count {
        let input = match turn % 5 {
            0 | 2 => Input::Arrived(Arrival {
                caller_id: format!("caller-{turn}"),
                fairness_id: format!("tenant-{}", turn % 3),
                bytes: 100 + turn % 77,
                prompt_tokens: Some(50),
                received_at: Micros(START + turn),
                ..Arrival::default()
            }),
            4 => Input::Observed(observation(vec![sample(
                (turn % 2) as u16,
                if turn % 40 < 20 { 1 } else { -1 },
            )])),
            _ => {
                let request = state.leases().next().unwrap_or(RequestId(turn));
                Input::Ended(Ended { request, termination: Termination::Natural, usage: None })
            }
        };
        take(&mut state, input, &mut out);
    }
    out
}

fn observation(changes: Vec<EndpointChange>) -> Observation {
    Observation { requested_at: Micros(START), changes, ..Observation::default() }
}

fn sample(slot: u16, waiting: i32) -> EndpointChange {
    EndpointChange::Sampled { slot: Slot(slot), waiting, running: 1, kv: 5 }
}

fn seal(data: &Path, steps: &[Step]) -> Vec<Frame> {
    let pool: Arc<str> = Arc::from("chat");
    let mut prev = [0; 32];
    let frames: Vec<Frame> = steps
        .chunks(25)
        .map(|chunk| {
            let frame = Frame::encode(&pool, prev, chunk[0].at, chunk).unwrap();
            prev = frame.hash;
            frame
        })
        .collect();
    let bytes = if steps.len() > 100_000 { 8 << 20 } else { 30_000 };
    let sealer = Sealer::new(data, [1; 16]).segment_bytes(bytes);
    sealer.seal("chat", Micros(1), frames.iter().cloned().map(Ok)).unwrap();
    frames
}

fn check(data: &Path, wanted: Wanted) -> PoolReport {
    verify(&Logs::of_dir(data, None).unwrap(), "chat", wanted)
}

const ALL: Wanted = Wanted { from: Bound::Seq(1), to: Bound::Open, across: false };

fn folded(steps: &[Step]) -> State {
    let mut state = State::new();
    steps.iter().for_each(|step| weir_kernel::fold(&mut state, step));
    state
}

#[test]
fn c113_a_log_as_written_is_derived_again_whole() {
    let dir = tempfile::tempdir().unwrap();
    let steps = steps(2_000, KERNEL_BEHAVIOUR);
    seal(dir.path(), &steps);
    let report = check(dir.path(), ALL);
    assert!(matches!(report.verdict, Verdict::Verified), "{report:?}");
    assert_eq!((report.steps, report.compared), (2_003, (1, 2_003)));
    assert_eq!(report.digest, folded(&steps).digest());
    let kinds = |name: &str| {
        steps.iter().flat_map(|s| &s.events).filter(|e| weir_log::describe::event_kind(e) == name).count()
    };
    assert!(kinds("Dispatched") > 100 && kinds("Enqueued") > 100, "the sample decides something");
}

#[test]
fn c113_a_planted_decision_is_found_with_both_values() {
    let dir = tempfile::tempdir().unwrap();
    let mut steps = steps(2_000, KERNEL_BEHAVIOUR);
    let planted = steps
        .iter_mut()
        .skip(1_000)
        .find_map(|step| {
            let seq = step.seq;
            step.events.iter_mut().find_map(|event| match event {
                Event::Dispatched(e) => {
                    e.waited = Micros(e.waited.0 + 1);
                    Some(seq)
                }
                Event::Rejected(e) => {
                    e.outcome = Outcome::RejectedOther;
                    Some(seq)
                }
                _ => None,
            })
        })
        .unwrap();
    seal(dir.path(), &steps);
    let report = check(dir.path(), ALL);
    let Verdict::Differs(difference) = &report.verdict else { panic!("{report:?}") };
    assert_eq!(difference.seq, planted);
    assert_ne!(difference.logged, difference.derived);
    assert_eq!(difference.fields.len(), 1, "{:?}", difference.fields);
    assert!(difference.state.iter().any(|(name, _)| name == "saturation"));
    assert_eq!(report.steps, planted - 1);
}

#[test]
fn a_flipped_byte_names_its_batch() {
    let dir = tempfile::tempdir().unwrap();
    seal(dir.path(), &steps(4_000, KERNEL_BEHAVIOUR));
    let victim = list(dir.path(), "chat").unwrap().remove(1);
    let mut bytes = std::fs::read(&victim.path).unwrap();
    bytes[2_000] ^= 0x10;
    std::fs::write(&victim.path, bytes).unwrap();
    let report = check(dir.path(), ALL);
    let Verdict::Unreadable(error) = &report.verdict else { panic!("{report:?}") };
    let damage = error.damage().unwrap();
    assert_eq!((damage.batch, damage.block), (Some(victim.first_seq), Some(0)));
    assert_eq!(damage.file, victim.path.display().to_string());
}

#[test]
fn steps_of_another_behaviour_are_folded_and_told_apart_across() {
    let dir = tempfile::tempdir().unwrap();
    let mut steps = steps(500, KERNEL_BEHAVIOUR + 1);
    let ended = steps.iter_mut().skip(100).find_map(|step| {
        step.events.iter_mut().find_map(|event| match event {
            Event::LeaseEnded(e) => {
                e.ran = Micros(1);
                Some(step.seq)
            }
            _ => None,
        })
    });
    seal(dir.path(), &steps);
    let report = check(dir.path(), ALL);
    assert!(matches!(report.verdict, Verdict::Verified), "{report:?}");
    assert_eq!((report.steps, report.foreign.get(&(KERNEL_BEHAVIOUR + 1))), (0, Some(&503)));

    let report = check(dir.path(), Wanted { across: true, ..ALL });
    assert!(matches!(report.verdict, Verdict::Verified), "{report:?}");
    assert_eq!((report.across.0, report.across.1[0].seq), (1, ended.unwrap()));
}

#[test]
fn a_trimmed_log_and_a_range_start_from_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let steps = steps(3_000, KERNEL_BEHAVIOUR);
    let frames = seal(dir.path(), &steps);
    let at = &frames[60];
    let state = folded(&steps[..at.header.last_seq() as usize]);
    let made = snapshot::Snapshot::of(&state, "chat", [1; 16], weir_log::Head::of(at));
    snapshot::save(dir.path(), &made, Micros(1), weir_migrations::CURRENT).unwrap();

    let whole = check(dir.path(), ALL);
    assert_eq!((whole.steps, whole.snapshots, whole.from_snapshot), (3_003, 1, None), "{whole:?}");

    let range = Wanted { from: Bound::Seq(2_000), to: Bound::Seq(2_100), across: false };
    let part = check(dir.path(), range);
    assert!(matches!(part.verdict, Verdict::Verified), "{part:?}");
    assert_eq!((part.from_snapshot, part.compared), (Some(1_525), (2_000, 2_100)));
    assert_eq!(part.digest, folded(&steps[..2_100]).digest());

    let first = list(dir.path(), "chat").unwrap().remove(0);
    std::fs::remove_file(first.path).unwrap();
    let trimmed = check(dir.path(), ALL);
    assert!(matches!(trimmed.verdict, Verdict::Verified), "{trimmed:?}");
    assert_eq!((trimmed.from_snapshot, trimmed.compared), (Some(1_525), (1_526, 3_003)));
    let kept = list(dir.path(), "chat").unwrap()[0].first_seq;
    assert_eq!(trimmed.without_state, Some((kept, 1_525)), "what is left between is told");
    assert_eq!((whole.without_state, part.without_state), (None, None));
    assert_eq!(trimmed.digest, whole.digest);
}

#[test]
fn a_gap_and_an_empty_range_are_said_and_what_was_done_up_to_there() {
    let dir = tempfile::tempdir().unwrap();
    let steps = steps(4_000, KERNEL_BEHAVIOUR);
    seal(dir.path(), &steps);
    let files = list(dir.path(), "chat").unwrap();
    assert!(files.len() >= 3, "{}", files.len());
    for (from, to) in [(Bound::Seq(9_999), Bound::Open), (Bound::Seq(500), Bound::Seq(100))] {
        let report = check(dir.path(), Wanted { from, to, across: false });
        assert!(matches!(report.verdict, Verdict::Empty), "{report:?}");
    }

    std::fs::remove_file(&files[1].path).unwrap();
    let report = check(dir.path(), ALL);
    let Verdict::Unreadable(error) = &report.verdict else { panic!("{report:?}") };
    assert!(error.to_string().contains(&files[1].first_seq.to_string()), "{error}");
    assert_eq!(report.compared, (1, files[1].first_seq - 1), "{error}");
}

/// Measures: `cargo test --release -p weir-replay -- --ignored --nocapture speed`
#[test]
#[ignore = "a measurement"]
fn speed() {
    let dir = tempfile::tempdir().unwrap();
    let steps = steps(1_500_000, KERNEL_BEHAVIOUR);
    seal(dir.path(), &steps);
    drop(steps);
    for _ in 0..3 {
        let report = check(dir.path(), ALL);
        assert!(matches!(report.verdict, Verdict::Verified), "{report:?}");
        let rate = report.steps as f64 / report.took.as_secs_f64();
        println!("{} steps in {:.2} s: {rate:.0} steps/s", report.steps, report.took.as_secs_f64());
    }
}
