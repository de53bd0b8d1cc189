//! Verifies one pool: decides each step again, folds the logged one beside it, compares both.

use super::Wanted;
use super::compare::{Difference, difference};
use crate::decode::Batches;
use crate::progress::Progress;
use crate::start::start;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_kernel::{Input, KERNEL_BEHAVIOUR, State, Step, fold, step};
use weir_log::reader::{Bound, Logs};
use weir_log::{Head, SegmentError};

/// Threads that decode. Deciding again is about as much work as decoding.
const DECODERS: usize = 2;
/// Differences of other behaviours that are told one by one.
const TOLD: usize = 20;

/// What came out.
#[derive(Debug)]
pub enum Verdict {
    /// Every step that could be derived is as logged, and the digests are equal.
    Verified,
    /// A step differs.
    Differs(Box<Difference>),
    /// The digest of the derived state is another one than that of the folded state, or of a snapshot.
    Digest {
        /// After this sequence.
        seq: u64,
        /// Compared with what.
        with: &'static str,
    },
    /// An invariant does not hold.
    Violation {
        /// After this sequence.
        seq: u64,
        /// Which, in words.
        what: String,
    },
    /// The log cannot be read (on).
    Unreadable(SegmentError),
    /// The log has no step in the range that was asked for.
    Empty,
}

/// What was found of one pool.
#[derive(Debug)]
pub struct PoolReport {
    /// The pool.
    pub pool: String,
    /// What came out.
    pub verdict: Verdict,
    /// The snapshot that it started from; none = from the beginning of the log.
    pub from_snapshot: Option<u64>,
    /// First and last sequence that are kept and not compared, since no state before them is: the log was trimmed, or has
    /// lost what they rest on.
    pub without_state: Option<(u64, u64)>,
    /// First and last sequence compared; zeros = none.
    pub compared: (u64, u64),
    /// Steps compared.
    pub steps: u64,
    /// Steps only folded, because they come before the range.
    pub before: u64,
    /// Steps only folded, by the behaviour that decided them.
    pub foreign: BTreeMap<u32, u64>,
    /// What this version would decide otherwise (with `--across`): all of them, and the first ones in full.
    pub across: (u64, Vec<Difference>),
    /// Snapshots whose digest was compared.
    pub snapshots: u64,
    /// Digest of the state at the end.
    pub digest: [u8; 32],
    /// How long it took.
    pub took: Duration,
}

struct Walk {
    wanted: Wanted,
    /// By deciding.
    derived: State,
    /// By applying the logged decisions.
    folded: State,
    /// The range has begun: until then only `folded` moves.
    begun: bool,
    behaviour: u32,
    digests: BTreeMap<u64, [u8; 32]>,
    report: PoolReport,
}

/// Verifies a pool within the range.
pub fn verify(logs: &Logs, pool: &str, wanted: Wanted) -> PoolReport {
    let began = Instant::now();
    let mut walk = Walk {
        wanted,
        derived: State::new(),
        folded: State::new(),
        begun: false,
        behaviour: KERNEL_BEHAVIOUR,
        digests: BTreeMap::new(),
        report: PoolReport {
            pool: pool.to_owned(),
            verdict: Verdict::Verified,
            from_snapshot: None,
            without_state: None,
            compared: (0, 0),
            steps: 0,
            before: 0,
            foreign: BTreeMap::new(),
            across: (0, Vec::new()),
            snapshots: 0,
            digest: [0; 32],
            took: Duration::ZERO,
        },
    };
    if let Err(verdict) = walk.run(logs, pool) {
        walk.report.verdict = verdict;
    }
    walk.report.took = began.elapsed();
    walk.report
}

impl Walk {
    fn run(&mut self, logs: &Logs, pool: &str) -> Result<(), Verdict> {
        let start = self.start(logs, pool).map_err(Verdict::Unreadable)?;
        let end = logs.head(pool).map_err(Verdict::Unreadable)?.map_or(0, |head| head.seq);
        let last = if let Bound::Seq(last) = self.wanted.to { last.min(end) } else { end };
        let progress = Progress::new(pool, Some(last.saturating_sub(start.seq)));
        let reader = logs.reader(pool, Bound::Seq(start.seq + 1), self.wanted.to).after(start);
        let ended = std::thread::scope(|scope| {
            for batch in Batches::start(scope, reader, DECODERS) {
                let batch = batch.map_err(Verdict::Unreadable)?;
                let steps = batch.len() as u64;
                for logged in batch.into_steps() {
                    if self.wanted.to.excludes_after(logged.seq, logged.at) {
                        return Ok(());
                    }
                    self.step(logged)?;
                }
                progress.add(steps);
            }
            Ok(())
        });
        ended?;
        self.finish()
    }

    fn start(&mut self, logs: &Logs, pool: &str) -> Result<Head, SegmentError> {
        let start = start(logs, pool, self.wanted.from)?;
        (self.folded, self.digests) = (start.state, start.digests);
        let from = start.head.seq;
        self.report.from_snapshot = (from > 0).then_some(from);
        let kept = start.first > 1
            && start.first <= from
            && !self.wanted.from.excludes_before(start.first, start.head.at);
        self.report.without_state = kept.then_some((start.first, from));
        Ok(start.head)
    }

    fn step(&mut self, logged: Step) -> Result<(), Verdict> {
        if let Input::Started(started) = &logged.input {
            self.behaviour = started.kernel_behaviour;
        }
        let seq = logged.seq;
        if !self.begun && !self.wanted.from.excludes_before(seq, logged.at) {
            self.begun = true;
            self.derived = self.folded.clone();
        }
        let own = self.behaviour == KERNEL_BEHAVIOUR;
        if self.begun && (own || self.wanted.across) {
            self.decide(logged, own)?;
        } else {
            fold(&mut self.folded, &logged);
            if self.begun {
                fold(&mut self.derived, &logged);
                *self.report.foreign.entry(self.behaviour).or_default() += 1;
            } else {
                self.report.before += 1;
            }
        }
        self.check_snapshot(seq)
    }

    fn decide(&mut self, logged: Step, own: bool) -> Result<(), Verdict> {
        let Step { seq, at, input, events } = logged;
        let derived = step(&mut self.derived, at, input);
        if derived.seq == seq && derived.at == at && derived.events == events {
            fold(&mut self.folded, &derived);
        } else {
            let logged = Step { seq, at, input: derived.input.clone(), events };
            let found = difference(&logged, &derived, &self.folded);
            if own {
                return Err(Verdict::Differs(Box::new(found)));
            }
            self.report.across.0 += 1;
            if self.report.across.1.len() < TOLD {
                self.report.across.1.push(found);
            }
            // What was decided otherwise must not colour what follows.
            fold(&mut self.folded, &logged);
            self.derived = self.folded.clone();
        }
        if own {
            self.report.steps += 1;
        } else {
            *self.report.foreign.entry(self.behaviour).or_default() += 1;
        }
        if self.report.compared.0 == 0 {
            self.report.compared.0 = seq;
        }
        self.report.compared.1 = seq;
        Ok(())
    }

    fn check_snapshot(&mut self, seq: u64) -> Result<(), Verdict> {
        let Some(wanted) = self.digests.remove(&seq) else { return Ok(()) };
        self.report.snapshots += 1;
        if self.folded.digest() == wanted {
            Ok(())
        } else {
            Err(Verdict::Digest { seq, with: "the snapshot" })
        }
    }

    fn finish(&mut self) -> Result<(), Verdict> {
        let whole = self.wanted.from == Bound::Seq(1) && self.wanted.to == Bound::Open;
        if !self.begun && !whole {
            return Err(Verdict::Empty);
        }
        let seq = self.folded.seq();
        self.report.digest = self.folded.digest();
        if self.begun && self.derived.digest() != self.report.digest {
            return Err(Verdict::Digest { seq, with: "the fold of the logged decisions" });
        }
        self.folded.check().map_err(|what| Verdict::Violation { seq, what: what.to_string() })
    }
}
