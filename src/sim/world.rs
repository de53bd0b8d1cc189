//! A pool in virtual time: arrivals through a gate into truth servers, seen only by scrapes that come late.
//!
//! Nothing waits: an hour takes as long as it takes to compute. The gate is what is tried out: Weir's kernel, or
//! a simpler rule beside it. Not here: HTTP, a log on disk, a clock.

use super::truth::{Gauges, Job, Server, Spec, Totals, What};
use crate::load::Planned;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_kernel::Micros;

/// From the order to take a request back until the engine has let go of it.
const CUT_TAKES: Micros = Micros::from_millis(10);

/// What decides which request goes when, and where.
pub trait Gate {
    /// Request `n` (index in the plan) has arrived.
    fn arrive(&mut self, at: Micros, n: usize, request: &Planned);
    /// A round of samples, one per endpoint, that were asked for at `requested_at`.
    fn observe(&mut self, at: Micros, requested_at: Micros, samples: &[Gauges]);
    /// Request `n` has ended.
    fn end(&mut self, at: Micros, n: usize, request: &Planned);
    /// When it wants to be asked again at the latest.
    fn deadline(&self) -> Option<Micros>;
    /// The deadline has come.
    fn pass(&mut self, at: Micros);
    /// Takes what was admitted since the last call: request and endpoint.
    fn admitted(&mut self, into: &mut Vec<(usize, usize)>);
    /// The rank that an engine scheduling by priority is told; lower goes first.
    fn rank(&self, _request: &Planned) -> i32 {
        0
    }
    /// Takes what was ordered back since the last call.
    fn revoked(&mut self, _into: &mut Vec<usize>) {}
    /// Takes what was refused or ended in the queue since the last call.
    fn turned_away(&mut self, _into: &mut Vec<usize>) {}
    /// Request `n` was ordered back and has ended.
    fn cut(&mut self, at: Micros, n: usize, request: &Planned) {
        self.end(at, n, request);
    }
}

/// The pool and its sensor.
#[derive(Clone, Debug)]
pub struct WorldSpec {
    /// Each server.
    pub server: Spec,
    /// How many.
    pub endpoints: usize,
    /// From one scrape to the next.
    pub scrape_every: Micros,
    /// From asking for a sample to having it.
    pub scrape_lag: Micros,
    /// The end; what has not ended by then is left.
    pub until: Micros,
    /// Decides stalls.
    pub seed: u64,
}

/// What became of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// When it was admitted.
    pub admitted: Option<Micros>,
    /// When its first token came.
    pub first_token: Option<Micros>,
    /// When its last token came.
    pub ended: Option<Micros>,
    /// When it was ended because it was ordered back.
    pub cut: Option<Micros>,
    /// When it was refused, or ended in the queue.
    pub refused: Option<Micros>,
}

/// What a run showed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// By index in the plan.
    pub courses: Vec<Course>,
    /// The servers' totals, summed up.
    pub totals: Totals,
    /// The largest value, at a scrape, of mean over endpoints of max(waiting / 5, kv / 0.8).
    pub worst_saturation: f64,
    /// Requests waiting in the engines, mean over scrapes.
    pub engine_queue_mean: f64,
    /// The same, largest.
    pub engine_queue_max: u32,
    /// Rounds of samples.
    pub rounds: u64,
}

/// Events at one instant come in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Server(usize),
    Sample,
    Scrape,
    Arrival(usize),
    Cut(usize),
}

struct World<'a, G> {
    spec: &'a WorldSpec,
    plan: &'a [Planned],
    gate: &'a mut G,
    servers: Vec<Server>,
    due: BinaryHeap<Reverse<(Micros, Due)>>,
    asked: (Micros, Vec<Gauges>),
    seen: Outcome,
    queue_sum: u64,
    /// By request: where it was sent.
    placed: Vec<usize>,
}

/// Runs the plan through the gate; the plan must be in order of time.
pub fn run<G: Gate>(spec: &WorldSpec, plan: &[Planned], gate: &mut G) -> Outcome {
    let server = |i| Server::new(spec.server.clone(), Micros::ZERO, spec.seed.wrapping_add(i as u64));
    let mut world = World {
        spec,
        plan,
        gate,
        servers: (0..spec.endpoints).map(server).collect(),
        due: BinaryHeap::new(),
        asked: (Micros::ZERO, Vec::new()),
        seen: Outcome { courses: vec![Course::default(); plan.len()], ..Outcome::default() },
        queue_sum: 0,
        placed: vec![0; plan.len()],
    };
    world.due.push(Reverse((Micros::ZERO, Due::Scrape)));
    if let Some(first) = plan.first() {
        world.due.push(Reverse((first.at, Due::Arrival(0))));
    }
    world.run();
    let mut seen = world.seen;
    for server in &world.servers {
        let t = server.totals();
        seen.totals.submitted += t.submitted;
        seen.totals.finished += t.finished;
        seen.totals.preempted += t.preempted;
        seen.totals.prefilled += t.prefilled;
        seen.totals.dropped += t.dropped;
        seen.totals.aborted += t.aborted;
        seen.totals.abandoned += t.abandoned;
        seen.totals.generated += t.generated;
        seen.totals.steps += t.steps;
    }
    seen.engine_queue_mean = world.queue_sum as f64 / seen.rounds.max(1) as f64;
    seen
}

impl<G: Gate> World<'_, G> {
    fn run(&mut self) {
        let (mut admitted, mut others, mut now) = (Vec::new(), Vec::new(), Micros::ZERO);
        loop {
            let event = self.due.peek().map(|Reverse((at, _))| *at);
            // A deadline may lie in the past: then it is due at once.
            let (at, timer) = match (self.gate.deadline().map(|at| at.max(now)), event) {
                (Some(deadline), Some(at)) if deadline < at => (deadline, true),
                (_, Some(at)) => (at, false),
                (Some(deadline), None) => (deadline, true),
                (None, None) => return,
            };
            if at > self.spec.until {
                return;
            }
            now = at;
            if timer {
                self.gate.pass(at);
            } else if let Some(Reverse((at, due))) = self.due.pop() {
                self.happen(at, due);
            }
            self.gate.admitted(&mut admitted);
            for (n, endpoint) in admitted.drain(..) {
                self.submit(at, n, endpoint);
            }
            self.gate.turned_away(&mut others);
            for n in others.drain(..) {
                self.seen.courses[n].refused = Some(at);
            }
            self.gate.revoked(&mut others);
            for n in others.drain(..) {
                self.due.push(Reverse((at + CUT_TAKES, Due::Cut(n))));
            }
        }
    }

    fn happen(&mut self, at: Micros, due: Due) {
        match due {
            Due::Arrival(n) => {
                self.gate.arrive(at, n, &self.plan[n]);
                if let Some(next) = self.plan.get(n + 1) {
                    self.due.push(Reverse((next.at.max(at), Due::Arrival(n + 1))));
                }
            }
            Due::Scrape => self.scrape(at),
            Due::Sample => {
                let (requested_at, samples) = std::mem::take(&mut self.asked);
                self.gate.observe(at, requested_at, &samples);
            }
            Due::Server(i) => self.advance(at, i),
            Due::Cut(n) => {
                let server = self.servers.get_mut(self.placed[n]);
                if server.is_some_and(|server| server.abort(n as u64)) {
                    self.seen.courses[n].cut = Some(at);
                    self.gate.cut(at, n, &self.plan[n]);
                }
            }
        }
    }

    fn scrape(&mut self, at: Micros) {
        let samples: Vec<Gauges> = self.servers.iter().map(Server::gauges).collect();
        let saturation: f64 =
            samples.iter().map(|g| (f64::from(g.waiting) / 5.0).max(g.kv_share() / 0.8)).sum();
        let saturation = saturation / samples.len().max(1) as f64;
        let waiting: u32 = samples.iter().map(|g| g.waiting).sum();
        self.seen.worst_saturation = self.seen.worst_saturation.max(saturation);
        self.seen.engine_queue_max = self.seen.engine_queue_max.max(waiting);
        self.queue_sum += u64::from(waiting);
        self.seen.rounds += 1;
        self.asked = (at, samples);
        // A sample that takes longer than a round would overtake the next one.
        let lag = self.spec.scrape_lag.min(self.spec.scrape_every);
        self.due.push(Reverse((at + lag, Due::Sample)));
        self.due.push(Reverse((at + self.spec.scrape_every, Due::Scrape)));
    }

    fn submit(&mut self, at: Micros, n: usize, endpoint: usize) {
        let Planned { prompt, output, .. } = self.plan[n];
        let Some(server) = self.servers.get_mut(endpoint) else { return };
        let idle = server.next_event().is_none();
        self.seen.courses[n].admitted = Some(at);
        self.placed[n] = endpoint;
        let rank = self.gate.rank(&self.plan[n]);
        if server.submit_ranked(at, Job { id: n as u64, prompt, output }, rank).is_err() {
            // It can never fit: for the gate it has ended.
            self.gate.end(at, n, &self.plan[n]);
            return;
        }
        if let Some(next) = server.next_event().filter(|_| idle) {
            self.due.push(Reverse((next, Due::Server(endpoint))));
        }
    }

    fn advance(&mut self, at: Micros, i: usize) {
        let World { servers, gate, seen, plan, due, .. } = self;
        servers[i].advance(at, &mut |progress| {
            let n = progress.id as usize;
            match progress.what {
                What::Token(1) => seen.courses[n].first_token = Some(progress.at),
                What::Finished => {
                    seen.courses[n].ended = Some(progress.at);
                    gate.end(at, n, &plan[n]);
                }
                What::Token(_) | What::Preempted => {}
            }
        });
        if let Some(next) = servers[i].next_event() {
            due.push(Reverse((next, Due::Server(i))));
        }
    }
}

/// Admits everything at once, to the endpoint that has been given least: what a pool can do at most.
#[derive(Debug)]
pub struct PushAll {
    given: Vec<u64>,
    placed: Vec<usize>,
    admitted: Vec<(usize, usize)>,
}

impl PushAll {
    /// For a pool of this size and a plan of this length.
    pub fn new(endpoints: usize, requests: usize) -> Self {
        PushAll { given: vec![0; endpoints], placed: vec![0; requests], admitted: Vec::new() }
    }

    /// Admits request `n` with a prompt of this many tokens.
    pub fn place(&mut self, n: usize, prompt: u32) {
        let least = (0..self.given.len()).min_by_key(|i| (self.given[*i], *i)).unwrap_or(0);
        self.given[least] += u64::from(prompt);
        self.placed[n] = least;
        self.admitted.push((n, least));
    }
}

impl Gate for PushAll {
    fn arrive(&mut self, _at: Micros, n: usize, request: &Planned) {
        self.place(n, request.prompt);
    }

    fn observe(&mut self, _at: Micros, _requested_at: Micros, _samples: &[Gauges]) {}

    fn end(&mut self, _at: Micros, n: usize, request: &Planned) {
        self.given[self.placed[n]] -= u64::from(request.prompt);
    }

    fn deadline(&self) -> Option<Micros> {
        None
    }

    fn pass(&mut self, _at: Micros) {}

    fn admitted(&mut self, into: &mut Vec<(usize, usize)>) {
        into.append(&mut self.admitted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Classes, from_rate};
    use std::time::Duration;

    #[test]
    fn the_same_seed_gives_the_same_world_and_everything_pushed_is_served() {
        let spec = WorldSpec {
            server: Spec {
                stall_every: Micros::from_secs(3),
                stall_for: Micros::from_millis(200),
                ..Spec::default()
            },
            endpoints: 3,
            scrape_every: Micros::from_millis(50),
            scrape_lag: Micros::from_millis(5),
            until: Micros::from_secs(600),
            seed: 5,
        };
        let classes = Classes::parse(&[], 1).unwrap();
        let plan = from_rate(20.0, Duration::from_secs(20), (1_500, 20), &classes, 9);
        let once = || run(&spec, &plan, &mut PushAll::new(3, plan.len()));
        let (once, again) = (once(), once());
        assert_eq!((&once.courses, once.totals), (&again.courses, again.totals));
        assert_eq!(once.totals.finished, plan.len() as u64);
        assert_eq!(once.totals.generated, 20 * plan.len() as u64);
        assert!(once.worst_saturation > 1.0, "20/s of 1,500 tokens are more than 3 servers take at once");
        for course in &once.courses {
            assert!(course.admitted <= course.first_token && course.first_token <= course.ended);
        }
    }
}
