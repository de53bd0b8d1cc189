//! Reads the log after each kill and holds it to what callers heard.

use super::callers::Heard;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir::engine::ExternalId;
use weir_kernel::{Event, Input, LeaseEnd, Outcome, RequestId, State, Step, fold};
use weir_log::reader::{Bound, Logs};
use weir_log::snapshot;

const POOL: &str = "default";

pub struct Audit {
    data: PathBuf,
    /// The fold from the very start.
    state: State,
    /// What the inputs give, decided again from the very start.
    decided: State,
    /// The caller's own id of each arrival.
    callers: BTreeMap<RequestId, String>,
    outcomes: BTreeMap<RequestId, (u64, Outcome)>,
    ends: BTreeMap<RequestId, (u64, LeaseEnd)>,
    starts: u64,
}

impl Audit {
    pub fn new(dir: &Path) -> Audit {
        Audit {
            data: dir.join("data"),
            state: State::new(),
            decided: State::new(),
            callers: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            ends: BTreeMap::new(),
            starts: 0,
        }
    }

    pub fn steps(&self) -> u64 {
        self.state.seq()
    }

    pub fn figures(&self) -> String {
        let of = |wanted: Outcome| self.outcomes.values().filter(|(_, outcome)| *outcome == wanted).count();
        let all: Vec<String> =
            Outcome::ALL.iter().map(|outcome| format!("{} {}", outcome.word(), of(*outcome))).collect();
        all.join(", ")
    }

    /// Takes in what was logged since the last round, and finds every answer in the log.
    pub fn check_round(&mut self, heard: &[Heard]) {
        let logs = Logs::open(&self.data).unwrap();
        let from = self.state.seq() + 1;
        for step in logs.reader(POOL, Bound::Seq(from), Bound::Open).steps() {
            self.take_in(&step.unwrap());
        }
        self.state.check().unwrap();
        assert_eq!(self.decided.digest(), self.state.digest(), "deciding gives another state than the fold");
        let recovered = snapshot::recover(&logs, POOL).unwrap();
        assert_eq!(
            recovered.state.digest(),
            self.state.digest(),
            "recovery gives another state than the fold"
        );
        for answer in heard {
            self.find(answer);
        }
    }

    /// All callers are gone: every request has its end.
    pub fn check_end(&mut self, kills: u64) {
        self.check_round(&[]);
        assert_eq!((self.state.queued(), self.state.queued_bytes(), self.state.in_flight()), (0, 0, 0));
        for id in self.callers.keys() {
            let (_, outcome) = self.outcomes.get(id).unwrap_or_else(|| panic!("request {id} has no outcome"));
            assert_eq!(
                *outcome == Outcome::Dispatched,
                self.ends.contains_key(id),
                "request {id}: {outcome:?}"
            );
        }
        assert!(self.starts > kills, "a start of each run");
    }

    fn take_in(&mut self, step: &Step) {
        let again = weir_kernel::step(&mut self.decided, step.at, step.input.clone());
        assert_eq!(&again, step, "re-derived otherwise");
        fold(&mut self.state, step);
        if let Input::Started(_) = step.input {
            self.starts += 1;
        }
        if let Input::Arrived(arrival) = &step.input
            && !step.events.iter().any(|event| matches!(event, Event::Repeated { .. }))
        {
            self.callers.insert(RequestId(step.seq), arrival.caller_id.clone());
        }
        for event in &step.events {
            let (request, outcome) = match event {
                Event::Rejected(e) => (RequestId(step.seq), e.outcome),
                Event::Dispatched(e) => (e.request, Outcome::Dispatched),
                Event::Evicted(e) => (e.request, e.outcome),
                Event::LeaseEnded(e) => {
                    let twice = self.ends.insert(e.request, (step.seq, e.end));
                    assert_eq!(twice, None, "request {} ended twice", e.request);
                    continue;
                }
                _ => continue,
            };
            let twice = self.outcomes.insert(request, (step.seq, outcome));
            assert_eq!(twice, None, "request {request} has two outcomes");
        }
    }

    fn find(&self, answer: &Heard) {
        match answer {
            Heard::Decision { status, outcome, sequence, request } => {
                let decided = self
                    .outcomes
                    .iter()
                    .find(|(id, (seq, _))| seq == sequence && self.callers[id] == *request);
                let (_, (_, logged)) = decided.unwrap_or_else(|| panic!("not in the log: {answer:?}"));
                assert_eq!(logged.word(), outcome, "{answer:?}");
                assert_eq!(*logged == Outcome::Dispatched, *status == 200, "{answer:?}");
            }
            Heard::Completed { id } => {
                let id: ExternalId = id.parse().unwrap();
                let end = self.ends.get(&id.request).unwrap_or_else(|| panic!("not in the log: {answer:?}"));
                assert_eq!(end.1, LeaseEnd::Completed);
            }
        }
    }
}
