//! What the fit needs of a log, gathered in one pass: stretches of services, the sensor's rhythm, token counts, patience.
//!
//! Bounded by live state: of a long log a few stretches are kept, drawn evenly over all of it.

use super::{Draw, Patience, place, prompt_class};
use crate::numbers::Table;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_kernel::{
    Arrival, EndpointChange, Event, Input, LeaseEnd, Micros, Observation, Outcome, RequestId, RevocationEnd,
    Slot, Step,
};

/// Services in one stretch.
pub const STRETCH: usize = 500;
/// Stretches that are kept.
const STRETCHES: usize = 8;
/// Samples that are kept of a stretch.
const SAMPLES: usize = 400;
/// Token counts that are kept of a class.
const COUNTS: usize = 64;

/// One service as logged.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// When it began.
    pub at: Micros,
    /// Where; none = nobody said.
    pub slot: Option<Slot>,
    /// Prompt tokens (by the size where they are not known).
    pub prompt: u32,
    /// Tokens made, where known.
    pub tokens: Option<u32>,
    /// When its first token came, where known.
    pub first: Option<Micros>,
    /// When it ended; the end of time if it has not.
    pub end: Micros,
    /// It came to its own end.
    pub natural: bool,
}

/// Services that began one after another, and what the sensor showed meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    /// In order of their beginning.
    pub services: Vec<Service>,
    /// Time, server, waiting, running, KV share in ten-thousandths.
    pub samples: Vec<(Micros, Slot, u32, u32, u32)>,
    open: usize,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    arrived: Micros,
    prompt: u32,
    priority: i32,
    /// Stretch number and place in it, once it runs.
    running: Option<(u64, usize)>,
}

/// Gathers.
#[derive(Debug)]
pub struct Collector {
    live: Table<RequestId, Live>,
    /// Stretches that still fill or have services that run, by number.
    open: VecDeque<(u64, Stretch)>,
    closed: u64,
    kept: Vec<Stretch>,
    samples: BTreeMap<Slot, (u32, u32, u32)>,
    last_requested: Micros,
    intervals: BTreeMap<u64, u64>,
    lags: BTreeMap<u64, u64>,
    confirms: Vec<u64>,
    draw: Draw,
    /// Steps seen.
    pub steps: u64,
    /// The most that one server ran while others waited there.
    pub most_running: Option<u32>,
    /// Most that one server ever ran.
    pub peak_running: u32,
    /// Token counts by class, and how many there were.
    pub tokens: BTreeMap<String, (u64, Vec<u32>)>,
    /// See [`super::PoolModel::visited`].
    pub visited: BTreeSet<u32>,
    /// Waits.
    pub patience: Patience,
}

impl Default for Collector {
    fn default() -> Self {
        Collector {
            live: Table::default(),
            open: VecDeque::new(),
            closed: 0,
            kept: Vec::new(),
            samples: BTreeMap::new(),
            last_requested: Micros::ZERO,
            intervals: BTreeMap::new(),
            lags: BTreeMap::new(),
            confirms: Vec::new(),
            draw: Draw::new(11, 0),
            steps: 0,
            most_running: None,
            peak_running: 0,
            tokens: BTreeMap::new(),
            visited: BTreeSet::new(),
            patience: Patience::default(),
        }
    }
}

/// The size of a prompt, by its bytes where nobody counted its tokens.
pub fn prompt_of(arrival: &Arrival) -> u32 {
    let guess = || u32::try_from(arrival.bytes / 4).unwrap_or(u32::MAX);
    arrival.prompt_tokens.unwrap_or_else(guess).clamp(1, 4_000_000)
}

impl Collector {
    /// Takes one step.
    pub fn take(&mut self, step: &Step) {
        self.steps += 1;
        match &step.input {
            Input::Arrived(arrival) => {
                let live = Live { arrived: step.at, prompt: prompt_of(arrival), priority: 0, running: None };
                self.live.insert(RequestId(step.seq), live);
            }
            Input::Observed(observation) => self.observed(step.at, observation),
            _ => {}
        }
        for event in &step.events {
            self.event(step, event);
        }
    }

    fn event(&mut self, step: &Step, event: &Event) {
        match event {
            Event::Enqueued(e) => {
                if let Some(live) = self.live.get_mut(&RequestId(step.seq)) {
                    live.priority = e.priority;
                }
            }
            Event::Rejected(_) | Event::Repeated { .. } => {
                self.live.remove(&RequestId(step.seq));
            }
            Event::Dispatched(e) => self.dispatched(step.at, e.request, e.endpoint),
            Event::Evicted(e) => {
                if let Some(live) = self.live.remove(&e.request) {
                    let gave_up = e.outcome == Outcome::EvictedContextCancelled && e.deadline.is_none();
                    self.patience.note(step.at.since(live.arrived), gave_up);
                }
            }
            Event::FirstByteNoted { request } => {
                let running = self.live.get(request).and_then(|live| live.running);
                if let Some(service) = running.and_then(|place| self.service(place)) {
                    service.first = Some(step.at);
                }
            }
            Event::LeaseEnded(e) => self.ended(step, e.request, e.end),
            Event::RevocationEnded(e) if e.end == RevocationEnd::Confirmed && self.confirms.len() < 1_000 => {
                self.confirms.push(e.took.0);
            }
            Event::StartNoted { .. } => {
                self.samples.clear();
            }
            _ => {}
        }
    }

    fn dispatched(&mut self, at: Micros, request: RequestId, slot: Option<Slot>) {
        let Some(live) = self.live.get_mut(&request) else { return };
        self.patience.note(at.since(live.arrived), false);
        if self.open.back().is_none_or(|(_, stretch)| stretch.services.len() >= STRETCH) {
            let number = self.closed + self.open.len() as u64;
            self.open.push_back((number, Stretch::default()));
        }
        if let Some((number, stretch)) = self.open.back_mut() {
            live.running = Some((*number, stretch.services.len()));
            stretch.open += 1;
            stretch.services.push(Service {
                at,
                slot,
                prompt: live.prompt,
                tokens: None,
                first: None,
                end: Micros::MAX,
                natural: false,
            });
        }
        // What never ends must not hold a stretch open for ever.
        while self.open.len() > 4 {
            self.close();
        }
    }

    fn service(&mut self, (number, place): (u64, usize)) -> Option<&mut Service> {
        let at = self.open.iter().position(|(n, _)| *n == number)?;
        self.open[at].1.services.get_mut(place)
    }

    fn ended(&mut self, step: &Step, request: RequestId, end: LeaseEnd) {
        let Some(live) = self.live.remove(&request) else { return };
        let Some(place) = live.running else { return };
        let usage = match &step.input {
            Input::Ended(ended) if ended.request == request => ended.usage,
            _ => None,
        };
        let natural = matches!(&step.input, Input::Ended(_)) && end == LeaseEnd::Completed;
        let (at, tokens) = (step.at, usage.map(|usage| usage.completion.max(1)));
        if let Some(service) = self.service(place) {
            (service.end, service.tokens, service.natural) = (at, tokens, natural);
        }
        if let Some((_, stretch)) = self.open.iter_mut().find(|(n, _)| *n == place.0) {
            stretch.open -= 1;
        }
        if let Some(tokens) = tokens.filter(|_| natural) {
            let key = format!("{}/{}", live.priority, prompt_class(live.prompt));
            let (seen, kept) = self.tokens.entry(key).or_default();
            *seen += 1;
            if kept.len() < COUNTS {
                kept.push(tokens);
            } else {
                let place = self.draw.below(*seen);
                if let Some(old) = kept.get_mut(place as usize) {
                    *old = tokens;
                }
            }
        }
        while self.open.front().is_some_and(|(_, s)| s.services.len() >= STRETCH && s.open == 0) {
            self.close();
        }
    }

    /// The oldest stretch is whole: it is kept, or takes another's place, or goes.
    fn close(&mut self) {
        let Some((_, stretch)) = self.open.pop_front() else { return };
        self.closed += 1;
        if self.kept.len() < STRETCHES {
            self.kept.push(stretch);
        } else if let Some(old) = self.kept.get_mut(self.draw.below(self.closed) as usize) {
            *old = stretch;
        }
    }

    fn observed(&mut self, at: Micros, observation: &Observation) {
        let requested = observation.requested_at;
        if self.last_requested > Micros::ZERO {
            let gap = requested.since(self.last_requested);
            if gap > Micros::ZERO {
                *self.intervals.entry(gap.0.div_ceil(1_000)).or_default() += 1;
            }
        }
        self.last_requested = requested;
        *self.lags.entry(at.since(requested).0 / 100).or_default() += 1;
        for change in &observation.changes {
            match change {
                EndpointChange::Sampled { slot, waiting, running, kv } => {
                    let now = self.samples.entry(*slot).or_default();
                    now.0 = now.0.saturating_add_signed(*waiting);
                    now.1 = now.1.saturating_add_signed(*running);
                    now.2 = now.2.saturating_add_signed(*kv);
                    let (waiting, running, kv) = *now;
                    self.visited.insert(place(running, kv));
                    self.peak_running = self.peak_running.max(running);
                    if waiting > 0 {
                        self.most_running = self.most_running.max(Some(running));
                    }
                    if let Some((_, stretch)) =
                        self.open.back_mut().filter(|(_, s)| s.samples.len() < SAMPLES)
                        && self.steps.is_multiple_of(3)
                    {
                        stretch.samples.push((requested, *slot, waiting, running, kv));
                    }
                }
                EndpointChange::Joined { slot, .. } | EndpointChange::Left { slot } => {
                    self.samples.remove(slot);
                }
                EndpointChange::Stale { .. } => {}
            }
        }
    }

    /// The stretches that were kept, those that still run included.
    pub fn stretches(&self) -> Vec<&Stretch> {
        let open = self.open.iter().map(|(_, stretch)| stretch);
        self.kept.iter().chain(open).filter(|stretch| stretch.services.len() >= 10).collect()
    }

    /// The usual gap between rounds (the smallest that is common) and the usual lag.
    pub fn rhythm(&self) -> Option<(Micros, Micros)> {
        let all: u64 = self.intervals.values().sum();
        let common = |(_, n): &(&u64, &u64)| **n * 20 >= all;
        let interval = self.intervals.iter().find(common)?.0;
        let most = self.lags.iter().max_by_key(|(_, n)| **n)?.0;
        Some((Micros(interval * 1_000), Micros(most * 100)))
    }

    /// The median of how long revoked leases took to end.
    pub fn confirm(&self) -> Option<Micros> {
        let mut all = self.confirms.clone();
        all.sort_unstable();
        all.get(all.len() / 2).map(|took| Micros(*took))
    }
}
