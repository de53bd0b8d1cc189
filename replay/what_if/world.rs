//! One candidate run: a kernel under other settings beside the log, exactly as long as both agree, by the model where not.

use super::facts::{Course, Fact, Facts, Stage, count, subject};
use super::found::{Changed, Divergence, Shares};
use super::options::Options;
use super::pending::{Due, Pending};
use super::tally::{Counts, Group, Tallies};
use crate::model::{Draw, Drift, Pool, PoolModel, Work};
use crate::numbers::{Numbers, Table};
use weir_kernel::{
    Ended, Event, Input, Micros, RequestId, Slot, State, Step, Termination, Usage, decide_within,
};
use weir_log::describe::{event_text, input_kind, input_text};

/// What a run of a candidate can look at.
pub struct Sight<'a> {
    /// The logged state: before the step at hand while time passes, after it when it is taken.
    pub logged: &'a State,
    /// The logged requests.
    pub facts: &'a Facts,
    /// The model's pool under the logged course.
    pub pool: &'a Pool,
    /// The model.
    pub model: &'a PoolModel,
    /// The options.
    pub options: Options,
    /// When samples were last asked for.
    pub requested: Micros,
    /// The logged step at hand, where one is.
    pub step: Option<&'a Step>,
}

/// What a run decided: a step whose input is somebody else's.
pub(super) struct Done<'a> {
    seq: u64,
    at: Micros,
    input: &'a Input,
    events: Vec<Event>,
}

impl<'a> Done<'a> {
    /// Nothing, now.
    fn nothing(at: Micros) -> Done<'a> {
        Done { seq: 0, at, input: &Input::TimePassed, events: Vec::new() }
    }
}

/// A request in the candidate's run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mine {
    pub(super) own: RequestId,
    pub(super) course: Course,
    /// It was there while the runs were apart.
    pub(super) touched: bool,
}

/// While the runs are apart.
pub(super) struct Parted {
    /// The model's pool under the candidate's course.
    pub(super) pool: Pool,
    pub(super) pending: Pending,
    /// What model and log know of a running request's tokens.
    pub(super) tokens: Table<u64, u32>,
}

/// One run.
pub struct World {
    pub(super) state: State,
    /// When it decides next by itself, as long as nothing comes in; unknown = not asked for since.
    deadline: Option<Option<Micros>>,
    pub(super) requests: Table<u64, Mine>,
    pub(super) by_own: Table<RequestId, u64>,
    /// Boxed: it is taken out and put back with every event that the model hears of.
    pub(super) parted: Option<Box<Parted>>,
    differing: Numbers<u64>,
    drift: Drift,
    pub(super) seed: u64,
    counts: Counts,
    /// What came out, once it is finished.
    pub tallies: Tallies,
    /// What can be said of it.
    pub shares: Shares,
    /// Where it first parted from the log.
    pub first: Option<Divergence>,
    /// How often it parted.
    pub parted_times: u64,
    /// Requests whose fate changed, if they are wanted.
    pub changed: Option<Vec<Changed>>,
    /// Those that are through in both runs.
    pub(super) settled: Vec<u64>,
    pub(super) retries: u64,
    /// Requests that came again.
    pub(super) extra: Facts,
    /// Requests that the range is about in this run: those that waited when it began, and those that came.
    pub asked: u64,
    /// Room for what an input was about: the request, and which of its events.
    about: Vec<(u64, usize)>,
    /// Room for what is decided.
    room: Vec<Event>,
}

/// Changed requests that are listed at most.
const CHANGED_MAX: usize = 100_000;

impl World {
    /// A run that begins as the log does at this point.
    pub fn new(state: State, facts: &Facts, seed: u64, drift: Drift, list: bool) -> World {
        let mine = |(id, fact): (&u64, &Fact)| {
            (*id, Mine { own: RequestId(*id), course: fact.course, touched: false })
        };
        World {
            state,
            deadline: None,
            requests: facts.iter().map(mine).collect(),
            by_own: facts.keys().map(|id| (RequestId(*id), *id)).collect(),
            parted: None,
            differing: Numbers::default(),
            drift,
            seed,
            counts: Counts::default(),
            tallies: Tallies::default(),
            shares: Shares::default(),
            first: None,
            parted_times: 0,
            changed: list.then(Vec::new),
            settled: Vec::new(),
            retries: 0,
            extra: Facts::default(),
            asked: super::facts::waiting(facts).count() as u64,
            about: Vec::new(),
            room: Vec::new(),
        }
    }

    /// Both runs are equal now.
    pub fn is_coupled(&self) -> bool {
        self.parted.is_none()
    }

    /// Its kernel.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// When it decides next by itself, as long as nothing comes in.
    pub(super) fn next_deadline(&mut self) -> Option<Micros> {
        *self.deadline.get_or_insert_with(|| self.state.next_deadline())
    }

    /// Takes an input at `at`; `id` is the number of a request that arrives with it.
    pub(super) fn feed(&mut self, sight: &Sight<'_>, at: Micros, input: &Input, id: Option<u64>) {
        self.feed_beside(sight, at, input, id, &[]);
    }

    /// The same where the log has moved requests in the same step.
    pub(super) fn feed_beside(
        &mut self,
        sight: &Sight<'_>,
        at: Micros,
        input: &Input,
        id: Option<u64>,
        moved: &[u64],
    ) {
        if let (Some(id), Input::Arrived(_)) = (id, input) {
            let own = RequestId(self.state.seq() + 1);
            let touched = self.parted.is_some();
            self.requests.insert(id, Mine { own, course: Course::NEW, touched });
            self.by_own.insert(own, id);
        }
        self.deadline = None;
        let events = decide_within(&mut self.state, at, input, std::mem::take(&mut self.room));
        self.asked += super::facts::came(input, &events);
        let done = Done { seq: self.state.seq(), at: self.state.now(), input, events };
        let mut about = std::mem::take(&mut self.about);
        for (place, event) in done.events.iter().enumerate() {
            self.together(&done, event);
            let Some(own) = subject(done.seq, event) else { continue };
            let Some(id) = self.by_own.get(&own).copied() else { continue };
            let Some(mine) = self.requests.get_mut(&id) else { continue };
            mine.course.take(done.at, event);
            let course = mine.course;
            self.count(sight, id, &course, event);
            about.push((id, place));
        }
        for id in about.iter().map(|(id, _)| id).chain(moved) {
            self.compare(sight, *id);
        }
        if self.parted.is_none() && !self.differing.is_empty() {
            self.part(sight, &done);
        }
        if self.parted.is_some() {
            for (id, place) in &about {
                self.model(sight, done.at, *id, &done.events[*place]);
            }
        }
        for (id, _) in about.drain(..) {
            self.settle(sight, id);
        }
        (self.about, self.room) = (about, done.events);
    }

    /// Counts an event about a request in the rows that it belongs to here.
    fn count(&mut self, sight: &Sight<'_>, id: u64, course: &Course, event: &Event) {
        let band = match event {
            Event::Enqueued(e) => Some(e.priority),
            Event::Rejected(e) => Some(e.priority),
            _ => None,
        };
        if let (Some(band), Some(extra)) = (band, self.extra.get_mut(&id)) {
            extra.group.flow.0 = band;
        }
        let Some(fact) = sight.facts.get(&id).or_else(|| self.extra.get(&id)) else { return };
        let tokens = match event {
            Event::LeaseEnded(_) => {
                self.tokens(id).or_else(|| Some(fact.known?.usage?.completion)).unwrap_or(0)
            }
            _ => 0,
        };
        match band.filter(|band| *band != fact.group.band()) {
            None => count(&mut self.counts, &fact.group, course, event, tokens),
            Some(band) => {
                let mut group = fact.group.clone();
                group.flow.0 = band;
                count(&mut self.counts, &group, course, event, tokens);
            }
        }
    }

    /// What model and log know of a running request's tokens, while the runs are apart.
    fn tokens(&self, id: u64) -> Option<u32> {
        self.parted.as_ref()?.tokens.get(&id).copied()
    }

    /// Arrivals that are refused together.
    fn together(&mut self, done: &Done<'_>, event: &Event) {
        let (Event::RejectedMany(e), Input::ArrivedMany(many)) = (event, done.input) else { return };
        let group = Group { flow: (many.priority, "(refused together)".to_owned()), ..Group::default() };
        self.counts.outcome(&group, e.outcome, Some(e.reason), Micros::ZERO, many.count);
        match self.parted {
            None => self.shares.exact += many.count,
            Some(_) => self.shares.shifted += many.count,
        }
    }

    /// Notes whether a request is elsewhere than in the log.
    pub(super) fn compare(&mut self, sight: &Sight<'_>, id: u64) {
        let gone = (Stage::Gone, false);
        let mine = self.requests.get(&id).map_or(gone, |mine| mine.course.standing());
        let logged = sight.facts.get(&id).map_or(gone, |fact| fact.course.standing());
        if mine == logged || (mine.0, logged.0) == (Stage::Gone, Stage::Gone) {
            self.differing.remove(&id);
        } else {
            self.differing.insert(id);
        }
    }

    /// The log has moved these; `compared`: in the step that the candidate took with it.
    pub fn moved(&mut self, sight: &Sight<'_>, ids: &[u64], compared: bool) {
        if !compared {
            ids.iter().for_each(|id| self.compare(sight, *id));
            if self.parted.is_none() && !self.differing.is_empty() {
                self.part(sight, &Done::nothing(self.state.now()));
            }
        }
        for id in ids {
            self.know(sight, *id);
            self.settle(sight, *id);
        }
    }

    /// The candidate goes its own way from the start.
    pub fn detach(&mut self, sight: &Sight<'_>) {
        self.part(sight, &Done::nothing(self.state.now()));
    }

    /// The runs part: from here on the model says what the log cannot.
    fn part(&mut self, sight: &Sight<'_>, done: &Done<'_>) {
        self.parted_times += 1;
        if self.first.is_none() {
            let texts = |events: &[Event]| events.iter().map(event_text).collect::<Vec<_>>();
            let input = sight.step.map_or(done.input, |step| &step.input);
            self.first = Some(Divergence {
                seq: sight.step.map_or(sight.logged.seq(), |step| step.seq),
                at: done.at,
                input: format!("{} {}", input_kind(input), input_text(input)).trim_end().to_owned(),
                logged: sight.step.map(|step| texts(&step.events)).unwrap_or_default(),
                candidate: texts(&done.events),
            });
        }
        self.requests.values_mut().for_each(|mine| mine.touched = true);
        let mut pool = sight.pool.clone();
        pool.drift(self.drift);
        pool.advance(done.at, &mut |_| {});
        let mut parted = Parted { pool, pending: Pending::default(), tokens: Table::default() };
        // Those that this very step admits are given to the model as its events are taken.
        let before: Vec<(u64, Micros)> = self
            .requests
            .iter()
            .filter_map(|(id, mine)| match mine.course.stage {
                Stage::Running { since, .. } if !admits(done, mine.own) => Some((*id, since)),
                _ => None,
            })
            .collect();
        for (id, since) in before {
            let (work, ran) = self.work(sight, &mut parted, id);
            if parted.pool.has(id) && !sight.options.open_loop {
                parted.pool.set_work(id, work);
            } else {
                parted.pending.add((since + ran).max(done.at), Due::End(id));
            }
        }
        let confirm = super::pending::confirm(sight.model);
        for own in self.state.revoked() {
            if let Some(id) = self.by_own.get(&own) {
                parted.pending.add(done.at + confirm, Due::Confirm(*id));
            }
        }
        let sensor = sight.model.sensor;
        let passed = (done.at - sight.requested - sensor.lag).0 / sensor.interval.0.max(1);
        parted.pending.next_round = sight.requested + Micros((passed + 1) * sensor.interval.0);
        self.parted = Some(Box::new(parted));
    }

    /// What a request needs, and how long that took or would take alone.
    fn work(&self, sight: &Sight<'_>, parted: &mut Parted, id: u64) -> (Work, Micros) {
        let fact = sight.facts.get(&id).or_else(|| self.extra.get(&id));
        let prompt = fact.map_or(1, |fact| fact.prompt);
        let known = fact.and_then(Fact::whole);
        let nominal = known.and_then(|known| known.usage).filter(|_| sight.options.detached);
        if let (Some(known), None) = (known, nominal) {
            let tokens = known.usage.map_or(known.work.tokens, |usage| usage.completion);
            parted.tokens.insert(id, tokens);
            return (known.work, known.ran);
        }
        let priority = fact.map_or(0, |fact| fact.group.band());
        let drawn = || sight.model.draw_tokens(priority, prompt, &mut Draw::new(self.seed, id));
        let tokens = nominal.map_or_else(drawn, |usage| usage.completion.max(1));
        parted.tokens.insert(id, tokens);
        let speeds = &sight.model.speeds;
        let alone =
            speeds.step(f64::from(prompt), 0.0, 0.0) + f64::from(tokens - 1) * speeds.step(0.0, 1.0, 0.0);
        (Work { prompt, tokens, tail: 0 }, Micros(alone as u64))
    }

    /// A logged service has come to its end meanwhile: what it needed is known now.
    fn know(&mut self, sight: &Sight<'_>, id: u64) {
        let Some(mut parted) = self.parted.take() else { return };
        let running =
            self.requests.get(&id).is_some_and(|mine| matches!(mine.course.stage, Stage::Running { .. }));
        if running && parted.pool.has(id) && sight.facts.get(&id).and_then(Fact::whole).is_some() {
            let (work, _) = self.work(sight, &mut parted, id);
            parted.pool.set_work(id, work);
        }
        self.parted = Some(parted);
    }

    /// The model hears of what the candidate did.
    fn model(&mut self, sight: &Sight<'_>, at: Micros, id: u64, event: &Event) {
        let Some(mut parted) = self.parted.take() else { return };
        match event {
            Event::Dispatched(e) => self.begin(sight, &mut parted, at, id, e.endpoint),
            Event::LeaseEnded(_) => {
                parted.pool.remove(at, id);
                parted.tokens.remove(&id);
            }
            Event::RevocationIssued(_) => {
                parted.pending.add(at + super::pending::confirm(sight.model), Due::Confirm(id));
            }
            Event::Rejected(_) | Event::Evicted(_) => self.come_again(sight, &mut parted, at, id),
            _ => {}
        }
        self.parted = Some(parted);
    }

    fn begin(&mut self, sight: &Sight<'_>, parted: &mut Parted, at: Micros, id: u64, slot: Option<Slot>) {
        let (work, ran) = self.work(sight, parted, id);
        let observed = sight.facts.get(&id).and_then(Fact::whole).is_some();
        self.shares.unobserved += u64::from(!observed);
        if sight.options.open_loop || !parted.pool.submit(at, id, slot, work) {
            parted.pending.add(at + ran, Due::End(id));
        }
    }

    fn come_again(&mut self, sight: &Sight<'_>, parted: &mut Parted, at: Micros, id: u64) {
        let (Some(after), Some(fact)) = (sight.options.retry, sight.facts.get(&id)) else { return };
        let shed_there = fact.course.fate.is_some_and(|fate| fate.reason.is_some());
        if let Some(arrival) = fact.arrival.as_ref().filter(|_| !shed_there) {
            parted.pending.again(at + after, arrival);
            self.retries += 1;
        }
    }

    /// The lease of a request ends as its stream does.
    pub(super) fn end(&mut self, sight: &Sight<'_>, at: Micros, id: u64, termination: Termination) {
        let Some(mine) = self.requests.get(&id).copied() else { return };
        if !matches!(mine.course.stage, Stage::Running { .. }) {
            return;
        }
        let fact = sight.facts.get(&id).or_else(|| self.extra.get(&id));
        let prompt = fact.map_or(0, |fact| fact.prompt);
        let usage = match (fact.and_then(Fact::whole), self.tokens(id)) {
            (Some(known), _) => known.usage,
            (None, Some(completion)) if sight.model.usage => Some(Usage { prompt, completion }),
            _ => None,
        };
        let natural = termination == Termination::Natural;
        let ended = Ended { request: mine.own, termination, usage: usage.filter(|_| natural) };
        self.feed(sight, at, &Input::Ended(ended), None);
    }

    /// A request that is through in both runs is told apart and forgotten.
    pub(super) fn settle(&mut self, sight: &Sight<'_>, id: u64) {
        let Some(mine) = self.requests.get(&id).filter(|mine| mine.course.stage == Stage::Gone).copied()
        else {
            return;
        };
        if self.extra.remove(&id).is_some() {
            self.requests.remove(&id);
            self.by_own.remove(&mine.own);
            self.differing.remove(&id);
            return;
        }
        let Some(fact) = sight.facts.get(&id).filter(|fact| fact.course.stage == Stage::Gone) else { return };
        self.requests.remove(&id);
        self.by_own.remove(&mine.own);
        self.differing.remove(&id);
        self.settled.push(id);
        self.judge(id, fact, &mine);
    }

    fn judge(&mut self, id: u64, fact: &Fact, mine: &Mine) {
        if fact.course.fate.is_none() && mine.course.fate.is_none() {
            return;
        }
        if !mine.touched {
            self.shares.exact += 1;
        } else if fact.course.ends_as(&mine.course) {
            self.shares.shifted += 1;
        } else {
            self.shares.flipped += 1;
            if let Some(changed) = self.changed.as_mut().filter(|list| list.len() < CHANGED_MAX) {
                changed.push(Changed {
                    id,
                    caller_id: fact.caller_id.clone(),
                    group: fact.group.clone(),
                    logged: fact.course,
                    candidate: mine.course,
                });
            }
        }
    }

    /// The range ends, with those that are still there.
    pub fn finish(&mut self, facts: &Facts) {
        let left: Vec<(u64, Mine)> = self.requests.drain().collect();
        for (id, mine) in left {
            let fact = facts.get(&id);
            if let Some(fact) = fact.or_else(|| self.extra.get(&id)).filter(|_| mine.course.is_queued()) {
                self.counts.waiting(&fact.group);
            }
            if let Some(fact) = fact {
                self.judge(id, fact, &mine);
            }
        }
        self.tallies = std::mem::take(&mut self.counts).into();
    }

    /// The runs are equal again if nothing is elsewhere and all has the same work left.
    pub fn couple(&mut self, sight: &Sight<'_>) {
        let Some(parted) = self.parted.as_ref().filter(|_| !sight.options.detached) else { return };
        let equal = self.differing.is_empty()
            && parted.pending.is_idle()
            && (sight.options.open_loop || parted.pool.is_as(sight.pool));
        if equal {
            self.parted = None;
        }
    }
}

fn admits(done: &Done<'_>, own: RequestId) -> bool {
    done.events.iter().any(|event| matches!(event, Event::Dispatched(e) if e.request == own))
}
