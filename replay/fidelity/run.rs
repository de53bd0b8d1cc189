//! Runs the matrix: logs of the bases, predictions from them, and the candidates themselves.

use super::Args;
use super::driver::{self, Truth};
use super::matrix::{Base, Row, matrix};
use super::plan::{self, Planned, TraceError};
use super::score::{Figures, intervals};
use crate::model::{Collector, PoolModel, fit};
use crate::settings::{Candidate, CandidateError};
use crate::what_if::{self, Counts, Facts, Options, PatienceRule, Question, Shares, Tallies};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_kernel::{Micros, Policy, State, Step};
use weir_log::reader::{Bound, Logs};
use weir_log::seal::Sealer;
use weir_log::{Frame, FrameError, SegmentError};

/// Why it could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum FidelityError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Settings.
    #[error(transparent)]
    Settings(#[from] CandidateError),
    /// The log that was made.
    #[error(transparent)]
    Log(#[from] SegmentError),
    /// The log that was made.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A directory for it.
    #[error("a directory for the logs: {0}")]
    Dir(#[from] std::io::Error),
    /// Nothing to fit.
    #[error("the base {0} served no request: nothing can be fitted")]
    Unfitted(&'static str),
    /// No such row.
    #[error("no row has {0:?} in its name")]
    NoRow(String),
}

/// What came out of a row.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The row.
    pub name: &'static str,
    /// The base against itself.
    pub same: bool,
    /// The base, actually run.
    pub base: Figures,
    /// The candidate, actually run.
    pub actual: Figures,
    /// The same with other stalls.
    pub noise: Figures,
    /// From the base's log.
    pub predicted: Figures,
    /// By the naive baseline.
    pub open_loop: Figures,
    /// 90 % intervals of the prediction.
    pub intervals: [(f64, f64); 3],
    /// What is exact and what not.
    pub shares: Shares,
    /// Counts, decisions and waits of the prediction are those of the run, without exception.
    pub equal: bool,
    /// How long all of it took.
    pub took: Duration,
}

/// A base that was run: its log and what was fitted to it.
struct Ready {
    logs: Logs,
    model: PoolModel,
    policy: Policy,
    tallies: Tallies,
    _dir: Dir,
}

/// A directory that goes away with the value, unless it is to be kept.
struct Dir {
    path: std::path::PathBuf,
    keep: bool,
}

impl Drop for Dir {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

const POOL: &str = "truth";

/// Runs what is asked for.
pub fn run(args: &Args) -> Result<Vec<Measured>, FidelityError> {
    let (bases, mut rows) = matrix();
    let longest = bases.iter().map(|base| base.truth.server.longest()).min().unwrap_or(1);
    let mut plan = plan::read(&args.trace, longest)?;
    if let Some(minutes) = args.minutes {
        plan.retain(|planned| planned.at < Micros::from_secs(minutes.saturating_mul(60)));
    }
    if let Some(text) = &args.row {
        rows.retain(|row| row.name.contains(text.as_str()));
        if rows.is_empty() {
            return Err(FidelityError::NoRow(text.clone()));
        }
    }
    measure(&bases, &rows, &plan, args.draws, args.keep.as_deref())
}

/// Runs these rows; logs of the bases are kept where that is asked for.
pub fn measure(
    bases: &[Base],
    rows: &[Row],
    plan: &[Planned],
    draws: u32,
    keep: Option<&Path>,
) -> Result<Vec<Measured>, FidelityError> {
    let needed: Vec<usize> = (0..bases.len()).filter(|n| rows.iter().any(|row| row.base == *n)).collect();
    let ready = side_by_side(&needed, |n| prepare(&bases[*n], plan, keep).map(|ready| (*n, ready)))?;
    side_by_side(rows, |row| {
        let at = ready.iter().find(|(n, _)| *n == row.base);
        let (_, ready) = at.ok_or(FidelityError::Unfitted(row.name))?;
        compare(row, &bases[row.base], ready, plan, draws)
    })
}

/// Does all of them, on all cores; answers come in the order of the questions.
fn side_by_side<Q: Sync, A: Send>(
    all: &[Q],
    f: impl Fn(&Q) -> Result<A, FidelityError> + Sync,
) -> Result<Vec<A>, FidelityError> {
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(all.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((n, question)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, all.get(n)?)))
                {
                    let answer = f(question);
                    if let Ok(mut answers) = answers.lock() {
                        answers.push((n, answer));
                    }
                }
            });
        }
    });
    let mut answers = answers.into_inner().unwrap_or_default();
    answers.sort_by_key(|(n, _)| *n);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn settings(words: &[String], over: &Policy) -> Result<Policy, CandidateError> {
    Candidate::default().with(words)?.resolve(over, POOL)
}

/// Runs the base, seals its log, and fits a model to that.
fn prepare(base: &Base, plan: &[Planned], keep: Option<&Path>) -> Result<Ready, FidelityError> {
    let policy = settings(&base.settings, &Policy::default())?;
    let mut steps = Vec::new();
    driver::run(&base.truth, plan, &policy, |step| steps.push(step));
    let tallies = tally(&steps);
    let number = std::process::id();
    let kept = keep.map(|dir| dir.join(base.name));
    let own = std::env::temp_dir().join(format!("weir-replay-fidelity-{number}-{}", base.name));
    let dir = Dir { path: kept.clone().unwrap_or(own), keep: kept.is_some() };
    std::fs::create_dir_all(&dir.path)?;
    seal(&dir.path, &steps)?;
    drop(steps);
    let logs = Logs::of_dir(&dir.path, None)?;
    let mut seen = Collector::default();
    for step in logs.reader(POOL, Bound::Open, Bound::Open).steps() {
        seen.take(&step?);
    }
    let model = fit(&seen).ok_or(FidelityError::Unfitted(base.name))?;
    Ok(Ready { logs, model, policy, tallies, _dir: dir })
}

fn seal(dir: &Path, steps: &[Step]) -> Result<(), FidelityError> {
    let pool: Arc<str> = Arc::from(POOL);
    let (mut frames, mut previous) = (Vec::new(), [0; 32]);
    for batch in steps.chunks(64) {
        let at = batch.first().map_or(Micros::ZERO, |step| step.at);
        let frame = Frame::encode(&pool, previous, at, batch)?;
        previous = frame.hash;
        frames.push(frame);
    }
    Sealer::new(dir, [5; 16]).seal(
        POOL,
        Micros(1),
        frames.into_iter().map(Ok::<Frame, weir_log::LogError>),
    )?;
    Ok(())
}

/// What happened in a run.
fn tally(steps: &[Step]) -> Tallies {
    let (mut counts, mut facts) = (Counts::default(), Facts::default());
    let mut touched = Vec::new();
    for step in steps {
        what_if::take(&mut facts, Some(&mut counts), step, what_if::Keep::default(), &mut touched);
        for id in touched.drain(..) {
            if facts.get(&id).is_some_and(what_if::Fact::is_gone) {
                facts.remove(&id);
            }
        }
    }
    what_if::count_waiting(&facts, &mut counts);
    counts.into()
}

fn actual(truth: &Truth, plan: &[Planned], policy: &Policy) -> Tallies {
    let mut steps = Vec::new();
    driver::run(truth, plan, policy, |step| steps.push(step));
    tally(&steps)
}

fn compare(
    row: &Row,
    base: &Base,
    ready: &Ready,
    plan: &[Planned],
    draws: u32,
) -> Result<Measured, FidelityError> {
    let began = Instant::now();
    let candidate = Candidate::default().with(&row.candidate)?;
    let policy = candidate.resolve(&ready.policy, POOL)?;
    let same = row.candidate.is_empty();
    let then = if same { ready.tallies.clone() } else { actual(&base.truth, plan, &policy) };
    let other = Truth { seed: base.truth.seed + 1_000, ..base.truth.clone() };
    let noise = Figures::of(&actual(&other, plan, &policy).all);
    let predict = |open_loop: bool, draws: u32| -> Result<what_if::Answer, FidelityError> {
        let options =
            Options { open_loop, patience: PatienceRule::Observed, retry: None, seed: 1, detached: false };
        let question = Question {
            pool: POOL,
            candidate: &candidate,
            from: Bound::Open,
            to: Bound::Open,
            options,
            draws,
            list: false,
            series: false,
        };
        let reader = ready.logs.reader(POOL, Bound::Open, Bound::Open);
        let steps = reader.map(|frame| {
            frame.and_then(|frame| frame.steps().map_err(|e| weir_log::LogError::from(e).into()))
        });
        let seen = what_if::Look::new(&ready.model, &State::new()).over(steps);
        let mut answer = what_if::run(&question, &ready.model, State::new(), seen, |_| {})?;
        match answer.damaged.take() {
            Some(error) => Err(error.into()),
            None => Ok(answer),
        }
    };
    // Equal settings leave nothing to draw.
    let closed = predict(false, if same { 0 } else { draws })?;
    let open = predict(true, 0)?;
    let of = |world: &what_if::World| Figures::of(&world.tallies.all);
    let (first, others) = closed.worlds.split_first().ok_or(FidelityError::Unfitted(row.name))?;
    let predicted = of(first);
    Ok(Measured {
        name: row.name,
        same,
        base: Figures::of(&ready.tallies.all),
        actual: Figures::of(&then.all),
        noise,
        predicted,
        open_loop: open.worlds.first().map(of).unwrap_or_default(),
        intervals: intervals(&predicted, &others.iter().map(of).collect::<Vec<_>>()),
        shares: first.shares,
        equal: first.tallies == then,
        took: began.elapsed(),
    })
}
