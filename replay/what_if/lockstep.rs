//! The log and its candidates, step by step beside each other.

use super::ahead::{Ahead, Held};
use super::facts::{self, Facts, Keep, Stage};
use super::logged::{Baseline, Logged};
use super::look::{Services, idle, servers};
use super::options::{Options, PatienceRule};
use super::rounds::{self, Apart};
use super::series::Series;
use super::tally::{Counts, Tallies};
use super::world::{Sight, World};
use crate::decode::Batch;
use crate::model::{Draw, Drift, Pool, PoolModel, Work};
use crate::settings::{Candidate, CandidateError};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use weir_kernel::{
    AdminAction, Cancelled, Ended, Event, Input, Micros, Policy, PolicyChange, RequestId, State, Step,
    Termination,
};
use weir_log::SegmentError;
use weir_log::reader::Bound;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The pool.
    pub pool: &'a str,
    /// The settings to try.
    pub candidate: &'a Candidate,
    /// From here on.
    pub from: Bound,
    /// Up to here.
    pub to: Bound,
    /// How.
    pub options: Options,
    /// Runs with other draws, for intervals.
    pub draws: u32,
    /// List requests whose fate changes.
    pub list: bool,
    /// Keep how both went over time.
    pub series: bool,
}

/// What came out.
#[derive(Debug)]
pub struct Answer {
    /// As logged.
    pub logged: Tallies,
    /// The candidate, and then the same with other draws.
    pub worlds: Vec<World>,
    /// First and last step of the range; zeros = none.
    pub range: (u64, u64),
    /// Their times.
    pub times: (Micros, Micros),
    /// Steps of the range.
    pub steps: u64,
    /// Arrivals in the range.
    pub arrivals: u64,
    /// Requests that the range is about: those that waited when it began, and those that came in it.
    pub requests: u64,
    /// How it was asked.
    pub options: Options,
    /// The candidate's settings at the end.
    pub policy: Policy,
    /// The logged ones.
    pub logged_policy: Policy,
    /// The log could not be read on.
    pub damaged: Option<SegmentError>,
    /// The logged settings themselves, decided again.
    pub baseline: Baseline,
    /// The log and the candidate over time, where that was asked for.
    pub series: (Series, Series),
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("shares", &self.shares)
            .field("first", &self.first)
            .finish_non_exhaustive()
    }
}

struct Lockstep<'a, I> {
    question: &'a Question<'a>,
    model: &'a PoolModel,
    ahead: Ahead<I>,
    logged: Logged,
    counts: Counts,
    facts: Facts,
    pool: Pool,
    requested: Micros,
    worlds: Vec<World>,
    answer: Answer,
    before: Micros,
    /// Room for the requests that a step is about.
    touched: Vec<u64>,
}

/// Runs the candidates beside the log, whose steps come after `state` and with what a [`super::Look`] made of them.
///
/// # Errors
/// Settings that the service would refuse.
pub fn run<I: Iterator<Item = Result<Batch<Services>, SegmentError>>>(
    question: &Question<'_>,
    model: &PoolModel,
    state: State,
    steps: I,
    mut progress: impl FnMut(u64),
) -> Result<Answer, CandidateError> {
    let answer = Answer {
        logged: Tallies::default(),
        worlds: Vec::new(),
        range: (0, 0),
        times: (Micros::ZERO, Micros::ZERO),
        steps: 0,
        arrivals: 0,
        requests: 0,
        options: question.options,
        policy: state.policy().clone(),
        logged_policy: state.policy().clone(),
        damaged: None,
        baseline: Baseline::default(),
        series: (Series::default(), Series::default()),
    };
    let mut run = Lockstep {
        question,
        model,
        ahead: Ahead::new(steps),
        pool: idle(model, &state),
        logged: Logged::new(state),
        counts: Counts::default(),
        facts: Facts::default(),
        requested: Micros::ZERO,
        worlds: Vec::new(),
        answer,
        before: Micros::ZERO,
        touched: Vec::new(),
    };
    let mut done = 0_u64;
    while let Some(ahead) = run.ahead.step(&mut run.facts) {
        if question.to.excludes_after(ahead.seq, ahead.at) {
            break;
        }
        run.step(ahead)?;
        done += 1;
        if done.is_multiple_of(4_096) {
            progress(4_096);
        }
    }
    if run.answer.steps > 0 {
        facts::count_waiting(&run.facts, &mut run.counts);
    }
    run.answer.logged = run.counts.into();
    run.answer.damaged = run.ahead.failed();
    run.answer.baseline = run.logged.baseline().clone();
    run.answer.logged_policy = run.logged.state().policy().clone();
    for world in &mut run.worlds {
        world.finish(&run.facts);
    }
    run.answer.policy = run
        .worlds
        .first()
        .map_or_else(|| run.logged.state().policy().clone(), |w| w.state().policy().clone());
    run.answer.worlds = run.worlds;
    Ok(run.answer)
}

/// A change to these settings, as a step of a log has it.
fn change(policy: Policy) -> PolicyChange {
    let digest = Sha256::digest(policy.to_canonical_json().as_bytes()).into();
    PolicyChange { policy: Box::new(policy), digest }
}

impl<I: Iterator<Item = Result<Batch<Services>, SegmentError>>> Lockstep<'_, I> {
    fn sight<'s>(&'s self, step: Option<&'s Step>) -> Sight<'s> {
        Sight {
            logged: self.logged.state(),
            facts: &self.facts,
            pool: &self.pool,
            model: self.model,
            options: self.question.options,
            requested: self.requested,
            step,
        }
    }

    fn step(&mut self, held: Held) -> Result<(), CandidateError> {
        let step = &*held;
        let within = !self.question.from.excludes_before(step.seq, step.at);
        if within && self.answer.steps == 0 {
            self.begin(step)?;
        }
        let mut worlds = std::mem::take(&mut self.worlds);
        for world in &mut worlds {
            world.run_coupled(&self.sight(None), step.at);
        }
        self.pool.advance(step.at, &mut |_| {});
        for world in &mut worlds {
            world.run_parted(&self.sight(None), step.at);
            if world.is_coupled() {
                world.shares.lease_exact += self.logged.state().in_flight() * step.at.since(self.before).0;
            }
        }
        let touched = self.fold(step, within);
        let policy = self.policy(step, &worlds)?;
        for world in &mut worlds {
            let sight = self.sight(Some(step));
            let taken = take(world, &sight, step, policy.as_ref(), &touched);
            world.moved(&sight, &touched, taken);
            if self.question.options.patience == PatienceRule::KaplanMeier {
                for id in &touched {
                    if let Some(fact) = self.facts.get(id).filter(|fact| fact.course.stage != Stage::Queued) {
                        world.beyond(&sight, step.at, *id, fact);
                    }
                }
            }
        }
        self.apply(step);
        for world in &mut worlds {
            world.couple(&self.sight(None));
        }
        self.forget(&mut worlds, &touched);
        if within && self.question.series {
            self.answer.series.0.note(step.at, self.logged.state(), false);
            if let Some(world) = worlds.first() {
                self.answer.series.1.note(step.at, world.state(), !world.is_coupled());
            }
        }
        self.worlds = worlds;
        self.before = step.at;
        self.touched = touched;
        self.logged.keep(held);
        Ok(())
    }

    /// The range begins: candidates start from the logged state, with their own settings.
    fn begin(&mut self, step: &Step) -> Result<(), CandidateError> {
        self.answer.range.0 = step.seq;
        self.answer.times.0 = step.at;
        self.answer.requests = facts::waiting(&self.facts).count() as u64;
        let first = self.logged.state().policy().clone();
        let candidate = match (&step.input, self.logged.state().seq()) {
            // Before the first settings there is nothing to change.
            (Input::Started(_), 0) => first.clone(),
            _ => self.question.candidate.beside(&first, self.question.pool)?,
        };
        for n in 0..=self.question.draws {
            let seed = self.question.options.seed.wrapping_add(u64::from(n));
            let drift =
                if n == 0 { 1.0 } else { 1.0 + self.model.quality.drift * Draw::new(seed, 3).normal() };
            let list = self.question.list && n == 0;
            let mut world = World::new(
                self.logged.state().clone(),
                &self.facts,
                seed,
                Drift(drift.clamp(0.5, 2.0)),
                list,
            );
            if candidate != first {
                let sight = self.sight(None);
                world.feed(
                    &sight,
                    self.logged.state().now(),
                    &Input::PolicyChanged(change(candidate.clone())),
                    None,
                );
            }
            if self.question.options.detached {
                world.detach(&self.sight(None));
            }
            self.worlds.push(world);
        }
        Ok(())
    }

    /// The settings that candidates get where the log has other ones.
    fn policy(&self, step: &Step, worlds: &[World]) -> Result<Option<PolicyChange>, CandidateError> {
        let Input::PolicyChanged(logged) = &step.input else { return Ok(None) };
        if worlds.is_empty() {
            return Ok(None);
        }
        let policy = self.question.candidate.beside(&logged.policy, self.question.pool)?;
        Ok(Some(if policy == *logged.policy { logged.clone() } else { change(policy) }))
    }

    fn fold(&mut self, step: &Step, within: bool) -> Vec<u64> {
        if within {
            self.answer.steps += 1;
            (self.answer.range.1, self.answer.times.1) = (step.seq, step.at);
            self.answer.arrivals += u64::from(matches!(step.input, Input::Arrived(_)));
            self.answer.requests += facts::came(&step.input, &step.events);
        }
        self.logged.take(step, within);
        let keep = Keep { caller_ids: self.question.list, arrivals: self.question.options.retry.is_some() };
        let counts = within.then_some(&mut self.counts);
        let mut touched = std::mem::take(&mut self.touched);
        facts::take(&mut self.facts, counts, step, keep, &mut touched);
        match &step.input {
            Input::Observed(observation) => self.requested = observation.requested_at,
            Input::Arrived(_) => {
                if let Some(fact) = self.facts.get_mut(&step.seq) {
                    fact.known = self.ahead.claim(RequestId(step.seq));
                }
            }
            _ => {}
        }
        touched
    }

    /// The model's pool hears of the logged course.
    fn apply(&mut self, step: &Step) {
        servers(&mut self.pool, step);
        for event in &step.events {
            match event {
                Event::Dispatched(e) => {
                    let prompt = self.facts.get(&e.request.0).map_or(1, |fact| fact.prompt);
                    self.pool.submit(step.at, e.request.0, e.endpoint, Work::open(prompt));
                }
                Event::LeaseEnded(e) => {
                    self.pool.remove(step.at, e.request.0);
                }
                _ => {}
            }
        }
    }

    /// What is through everywhere is of no interest any more.
    fn forget(&mut self, worlds: &mut [World], touched: &[u64]) {
        let count = worlds.len();
        let mut over: Vec<u64> = Vec::new();
        if count == 0 {
            over.extend_from_slice(touched);
        }
        for world in worlds {
            for id in world.settled.drain(..) {
                if let Some(fact) = self.facts.get_mut(&id) {
                    fact.settled += 1;
                    if fact.settled == count {
                        over.push(id);
                    }
                }
            }
        }
        for id in over {
            if self.facts.get(&id).is_some_and(|fact| fact.course.stage == Stage::Gone) {
                self.facts.remove(&id);
            }
        }
    }
}

/// The candidate takes a logged step's input, as far as that is not its own affair: did it?
fn take(
    world: &mut World,
    sight: &Sight<'_>,
    step: &Step,
    policy: Option<&PolicyChange>,
    touched: &[u64],
) -> bool {
    let arrived = matches!(step.input, Input::Arrived(_)).then_some(step.seq);
    let Some(input) = translate(world, sight, step, policy) else { return false };
    world.feed_beside(sight, step.at, &input, arrived, touched);
    true
}

fn translate<'s>(
    world: &mut World,
    sight: &Sight<'_>,
    step: &'s Step,
    policy: Option<&PolicyChange>,
) -> Option<Cow<'s, Input>> {
    let coupled = world.is_coupled();
    let own = |request: RequestId| world.own(request);
    let stage = |request: RequestId| world.requests.get(&request.0).map(|mine| mine.course.stage);
    let alive =
        |request: RequestId| coupled || matches!(stage(request), Some(Stage::Queued | Stage::Running { .. }));
    Some(Cow::Owned(match &step.input {
        Input::TimePassed => {
            world.next_deadline().filter(|due| *due <= step.at)?;
            Input::TimePassed
        }
        Input::PolicyChanged(logged) => Input::PolicyChanged(policy.unwrap_or(logged).clone()),
        Input::Observed(observation) => {
            let apart = world.parted.as_ref().filter(|_| !sight.options.open_loop).map(|parted| Apart {
                own: &parted.pool,
                logged: sight.pool,
                detached: sight.options.detached,
            });
            let round = rounds::round(observation, sight.logged, world.state(), apart.as_ref());
            if let Some(parted) = &mut world.parted {
                servers(&mut parted.pool, step);
            }
            Input::Observed(round)
        }
        Input::Ended(ended) => {
            let observed = world.state().policy().observe;
            let gone = ended.termination == Termination::ClientDisconnect;
            let as_logged = coupled || observed || (gone && alive(ended.request));
            if !as_logged {
                return None;
            }
            Input::Ended(Ended { request: own(ended.request), ..ended.clone() })
        }
        Input::Cancelled(cancelled) => {
            let patient = sight.options.patience == PatienceRule::Infinite
                && !coupled
                && stage(cancelled.request) == Some(Stage::Queued);
            if patient || !alive(cancelled.request) {
                return None;
            }
            Input::Cancelled(Cancelled { request: own(cancelled.request), cause: cancelled.cause })
        }
        Input::FirstByte { request } if coupled => Input::FirstByte { request: own(*request) },
        Input::FirstByte { .. } => return None,
        Input::Renewed { request } if alive(*request) => Input::Renewed { request: own(*request) },
        Input::Watched { request, watching } if alive(*request) => {
            Input::Watched { request: own(*request), watching: *watching }
        }
        Input::Revoke { request, by, why } if alive(*request) => {
            Input::Revoke { request: own(*request), by: by.clone(), why: why.clone() }
        }
        Input::Undeliverable { request } if alive(*request) => {
            Input::Undeliverable { request: own(*request) }
        }
        Input::Renewed { .. }
        | Input::Watched { .. }
        | Input::Revoke { .. }
        | Input::Undeliverable { .. } => {
            return None;
        }
        Input::Admin(order) => {
            let mut order = order.clone();
            if let AdminAction::Purge { request } = &mut order.action {
                *request = own(*request);
            }
            Input::Admin(order)
        }
        Input::Started(_)
        | Input::Arrived(_)
        | Input::ObjectivesChanged(_)
        | Input::Stopping { .. }
        | Input::Stopped
        | Input::LogResumed { .. }
        | Input::ArrivedMany(_) => return Some(Cow::Borrowed(&step.input)),
    }))
}
