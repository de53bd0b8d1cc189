//! One way into the kernel for all tables: rows of text in, decisions as text out.
//!
//! A row is `t=<time> <command> [=> <decision>, <decision>]`. Before a row the driver wakes at every deadline up to its
//! time, as the real one does; what was decided earlier than the row's time is shown with its own time (`@59s`). So
//! a decision without one happened exactly then. After every step: `State::check`, the oracle of the random worlds, and
//! a folded twin; at the end the log is derived again from its inputs.

use crate::oracle::Oracle;
use crate::words::{Parts, outcome_words, short, span};
use std::collections::BTreeMap;
use weir_kernel::*;

/// Everything starts here, so that nothing rests on time zero.
pub const EPOCH: Micros = Micros::from_secs(1_000);

/// What is compared beside the ends of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// `r1:queued`.
    Queued,
    /// `regime:NoEndpoints`.
    Regime,
    /// `held:band 10 0.7>=0.5`.
    Held,
    /// `band+50`, `band-50`, `flow-a`.
    Life,
    /// Figures in brackets.
    Why,
}

/// Runs rows under these settings.
pub fn check(policy: Policy, rows: &str) -> State {
    Script::new(policy).check(rows)
}

pub struct Script {
    state: State,
    folded: State,
    oracle: Oracle,
    log: Vec<Step>,
    now: Micros,
    names: BTreeMap<String, RequestId>,
    others: BTreeMap<&'static str, Policy>,
    show: Vec<Show>,
    said: Vec<(Micros, String)>,
    /// Where no row says otherwise: waking at deadlines.
    asleep: bool,
}

impl Script {
    pub fn new(policy: Policy) -> Script {
        let (state, folded, oracle) = (State::new(), State::new(), Oracle::new());
        let mut script = Script {
            state,
            folded,
            oracle,
            log: Vec::new(),
            now: EPOCH,
            names: BTreeMap::new(),
            others: BTreeMap::new(),
            show: Vec::new(),
            said: Vec::new(),
            asleep: false,
        };
        script.take(EPOCH, start());
        script.take(EPOCH, settings(policy));
        script.said.clear();
        script
    }

    /// Other settings, for `settings NAME`.
    pub fn other(mut self, name: &'static str, policy: Policy) -> Script {
        self.others.insert(name, policy);
        self
    }

    pub fn show(mut self, what: &[Show]) -> Script {
        self.show = what.to_vec();
        self
    }

    pub fn check(mut self, rows: &str) -> State {
        for row in rows.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#')) {
            self.row(row);
        }
        let mut again = State::new();
        for logged in &self.log {
            let derived = step(&mut again, logged.at, logged.input.clone());
            assert_eq!(&derived, logged, "derived again");
        }
        assert_eq!(again.digest(), self.state.digest(), "derived again");
        self.state
    }

    fn row(&mut self, row: &str) {
        let (left, want) = row.split_once("=>").unwrap_or((row, ""));
        let (time, command) = left.trim().split_once(' ').unwrap_or((left.trim(), "pass"));
        let time = time.strip_prefix("t=").unwrap_or_else(|| panic!("{row}: begins with t=<time>"));
        let at = EPOCH + span(time);
        if !self.asleep {
            self.sleep_until(at);
        }
        self.now = self.now.max(at);
        self.command(at, command.trim(), row);
        self.asleep = command.trim() == "oversleep";
        self.oracle.punctual = !self.asleep;
        let want: Vec<&str> = want.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        let timed = |(when, word): (Micros, String)| {
            if when == at { word } else { format!("{word}@{}", short(when.since(EPOCH))) }
        };
        let said: Vec<String> = std::mem::take(&mut self.said).into_iter().map(timed).collect();
        assert_eq!(said, want, "{row}");
    }

    fn sleep_until(&mut self, at: Micros) {
        let mut woken = 0;
        while let Some(due) = self.state.next_deadline().filter(|due| *due < at) {
            self.take(due, Input::TimePassed);
            woken += 1;
            assert!(woken < 2_000_000, "the kernel asks for steps without end at {due:?}");
        }
    }

    fn take(&mut self, at: Micros, input: Input) {
        let step = step(&mut self.state, at, input);
        fold(&mut self.folded, &step);
        let broken = self.state.check().map_err(|broken| broken.to_string());
        if let Err(broken) = broken.and_then(|()| self.oracle.take(&step, &self.state)) {
            panic!("{broken}: {step:?}");
        }
        if self.log.len() < 500 {
            assert!(self.folded.restate() == self.state.restate(), "fold is not live: {step:?}");
        }
        self.say(&step);
        self.log.push(step);
    }

    fn command(&mut self, at: Micros, command: &str, row: &str) {
        let parts = Parts::new(command);
        let request = |name: &str| *self.names.get(name).unwrap_or_else(|| panic!("{row}: who is {name}?"));
        let input = match parts.head() {
            "pass" => Input::TimePassed,
            "oversleep" => return,
            "is" => return self.is(&parts, row),
            "start" => start(),
            "restart" => {
                self.state = State::from_restated(&self.state.restate()).unwrap();
                self.folded = self.state.clone();
                start()
            }
            "settings" => settings(self.others[parts.word(1)].clone()),
            "objectives" => parts.objectives(),
            "arrive" => {
                self.names.insert(parts.word(1).to_owned(), RequestId(self.state.seq() + 1));
                Input::Arrived(parts.arrival(at))
            }
            "end" => {
                let usage = parts.usage();
                let request = request(parts.word(1));
                Input::Ended(Ended { request, termination: Termination::Natural, usage })
            }
            "cancel" => Input::Cancelled(Cancelled { request: request(parts.word(1)), cause: parts.cause() }),
            "byte" => Input::FirstByte { request: request(parts.word(1)) },
            "renew" => Input::Renewed { request: request(parts.word(1)) },
            "stop" => Input::Stopping { drain_until: at + span(parts.word(1)) },
            "stopped" => Input::Stopped,
            "pause" | "resume" | "purge" | "purge-flow" | "drain" => parts.by_hand(at, request),
            "flood" => parts.many(at),
            "revoke" => {
                let request = request(parts.word(1));
                Input::Revoke { request, by: "ops".into(), why: "test".into() }
            }
            "undeliverable" => Input::Undeliverable { request: request(parts.word(1)) },
            "watch" => Input::Watched { request: request(parts.word(1)), watching: true },
            "unwatch" => Input::Watched { request: request(parts.word(1)), watching: false },
            "refused" => Input::LogResumed { since: at, refused: parts.word(1).parse().unwrap() },
            "pool" => Input::Observed(parts.pool(&self.state, at)),
            "join" | "leave" | "sample" | "stale" | "see" => {
                Input::Observed(crate::words::observation(&self.state, command, at))
            }
            other => panic!("{row}: what is {other}?"),
        };
        self.take(at, input);
    }

    /// `is queued=3 bytes=90 in-flight=1 sat=1.2 raw=1 regime=NoEndpoints band10=2 ceiling10=0.5 flows=3 due.r1=60s`
    fn is(&self, parts: &Parts<'_>, row: &str) {
        let state = &self.state;
        for (what, want) in parts.pairs() {
            let band = |digits: &str| {
                let priority: i32 = digits.parse().unwrap();
                state.bands().find(|band| band.priority == priority)
            };
            let counted = |outcome: Outcome| state.counters().outcomes[outcome.index()];
            let got = match what {
                "queued" => state.queued().to_string(),
                "bytes" => state.queued_bytes().to_string(),
                "in-flight" => state.in_flight().to_string(),
                "sat" => state.saturation().1.to_string(),
                "raw" => state.saturation().0.to_string(),
                "regime" => state.regime().to_string(),
                "flows" => state.flows().count().to_string(),
                "bands" => state.bands().count().to_string(),
                "keys" => state.remembered_keys().to_string(),
                "outstanding" => state.revocations().outstanding.to_string(),
                "cooling" => state.revocations().cooling.to_string(),
                "evictable" => state.evictable().to_string(),
                "gate" => if state.gate_is_open() { "open" } else { "shut" }.into(),
                "target" => state.reclaim_target().to_string(),
                "pending" => state.pending_reclaim().to_string(),
                "stale" => state.stale_endpoints().to_string(),
                "arrivals" => state.counters().arrivals.to_string(),
                "refused-outside" => state.counters().refused_outside.to_string(),
                other => match other.split_once('.') {
                    Some(("band", digits)) => band(digits).map_or("none".into(), |b| b.requests.to_string()),
                    Some(("ceiling", digits)) => {
                        band(digits).map_or("none".into(), |b| b.ceiling.to_string())
                    }
                    Some(("count", word)) => {
                        let outcome = Outcome::ALL.into_iter().find(|o| o.word() == word).unwrap();
                        counted(outcome).to_string()
                    }
                    Some(("due", name)) => match state.queued_request(self.names[name]).and_then(|q| q.due) {
                        Some(due) if due == EPOCH + span(want) => want.to_owned(),
                        Some(due) => short(due.since(EPOCH)),
                        None => "never".into(),
                    },
                    _ => panic!("{row}: what is {other}?"),
                },
            };
            assert_eq!(got, want, "{row}: {what}");
        }
    }

    fn say(&mut self, step: &Step) {
        let names: BTreeMap<RequestId, &str> =
            self.names.iter().map(|(name, id)| (*id, name.as_str())).collect();
        let admitted =
            |id: RequestId| step.events.iter().any(|e| matches!(e, Event::Dispatched(d) if d.request == id));
        let mut said = Vec::new();
        for event in &step.events {
            if matches!(event, Event::Enqueued(_)) && admitted(RequestId(step.seq)) {
                continue;
            }
            said.extend(outcome_words(step, event, &names, &self.show, &self.state));
        }
        self.said.extend(said.into_iter().map(|word| (step.at, word)));
    }
}

fn start() -> Input {
    Input::Started(Started { kernel_behaviour: KERNEL_BEHAVIOUR, version: "test".into(), wall: Micros::ZERO })
}

fn settings(policy: Policy) -> Input {
    Input::PolicyChanged(PolicyChange { policy: Box::new(policy), digest: [0; 32] })
}
