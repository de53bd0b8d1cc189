//! What a model server is taken to do, in the fitted model: batches of token steps whose times follow five fitted numbers.
//!
//! In each step every generating request makes one token, and what is left of the token budget fills prompts, first come
//! first served. A request's *work* is how much of both it needs. Not here: where the numbers come from (`fit`), prefix
//! caches, preemption.

use super::Speeds;
use std::collections::VecDeque;
use weir_kernel::Micros;

/// What a request needs from the server, in the model's own units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Prompt tokens to be filled.
    pub prompt: u32,
    /// Tokens to be made; `u32::MAX` = until somebody ends it.
    pub tokens: u32,
    /// How long after the step that made the last of them it ends, in µs.
    pub tail: u32,
}

impl Work {
    /// Until somebody ends it.
    pub const fn open(prompt: u32) -> Work {
        Work { prompt, tokens: u32::MAX, tail: 0 }
    }
}

/// What happened in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// When.
    pub at: Micros,
    /// To which request.
    pub id: u64,
    /// Its work is done; else its first token came.
    pub done: bool,
}

/// What the server's metrics would show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Requests that have got no token yet.
    pub waiting: u32,
    /// The others.
    pub running: u32,
    /// KV share in ten-thousandths.
    pub kv: u32,
    /// The same in tokens.
    pub held: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seq {
    id: u64,
    work: Work,
    filled: u32,
    /// Prompt tokens that the step under way fills.
    filling: u32,
    made: u32,
}

impl Seq {
    fn is_done(&self) -> bool {
        self.filled >= self.work.prompt && self.made >= self.work.tokens
    }
}

/// One server.
#[derive(Clone, Debug)]
pub struct Engine {
    /// Prompts to be filled, first come first served.
    prompts: VecDeque<Seq>,
    /// Requests that make a token in each step; the number of those that began before the step under way.
    making: Vec<Seq>,
    in_step: usize,
    /// Done, and gone at that time.
    leaving: Vec<(Micros, Seq)>,
    began: Micros,
    ends: Option<Micros>,
    /// When something happens next by itself.
    next: Option<Micros>,
    /// Tokens held in KV.
    held: u64,
    seen: VecDeque<(Micros, Gauge)>,
}

/// Past gauges that are kept: at least a second of steps.
const SEEN: usize = 160;

impl Engine {
    /// An idle one.
    pub fn new() -> Engine {
        Engine {
            prompts: VecDeque::new(),
            making: Vec::new(),
            in_step: 0,
            leaving: Vec::new(),
            began: Micros::ZERO,
            ends: None,
            next: None,
            held: 0,
            seen: VecDeque::new(),
        }
    }

    /// Requests within.
    pub fn len(&self) -> usize {
        self.prompts.len() + self.making.len() + self.leaving.len()
    }

    /// When something happens next by itself.
    pub const fn next(&self) -> Option<Micros> {
        self.next
    }

    fn soonest(&self) -> Option<Micros> {
        let leaves = self.leaving.iter().map(|(at, _)| *at).min();
        match (self.ends, leaves) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes a request; the server must have been advanced to `at`.
    pub fn submit(&mut self, at: Micros, id: u64, work: Work, speeds: &Speeds) {
        let seq = Seq { id, work, filled: 0, filling: 0, made: 0 };
        if seq.is_done() {
            self.leaving.push((at + Micros(u64::from(work.tail)), seq));
        } else {
            self.prompts.push_back(seq);
            if self.ends.is_none() {
                self.begin(at, speeds);
            }
        }
        self.note(at, speeds);
    }

    /// Another opinion on what a request needs.
    pub fn set_work(&mut self, id: u64, work: Work) {
        if let Some(seq) = self.making.iter_mut().chain(&mut self.prompts).find(|seq| seq.id == id) {
            seq.work = work;
        }
    }

    /// Ends a request at `at`: the work that it has got.
    pub fn remove(&mut self, at: Micros, id: u64, speeds: &Speeds) -> Option<Work> {
        let seq = if let Some(place) = self.making.iter().position(|seq| seq.id == id) {
            if place < self.in_step {
                self.in_step -= 1;
            }
            self.making.remove(place)
        } else if let Some(place) = self.prompts.iter().position(|seq| seq.id == id) {
            self.prompts.remove(place)?
        } else {
            let place = self.leaving.iter().position(|(_, seq)| seq.id == id)?;
            self.leaving.remove(place).1
        };
        self.held -= u64::from(seq.filled + seq.filling + seq.made);
        self.note(at, speeds);
        let tail = if self.ends.is_some() { at.since(self.began).0 } else { 0 };
        Some(Work { prompt: seq.filled, tokens: seq.made, tail: u32::try_from(tail).unwrap_or(u32::MAX) })
    }

    /// Lets time pass until `to`, inclusive.
    pub fn advance(&mut self, to: Micros, speeds: &Speeds, tell: &mut impl FnMut(Happened)) {
        while let Some(at) = self.next().filter(|at| *at <= to) {
            if self.ends == Some(at) {
                self.end(at, tell);
                self.begin(at, speeds);
            }
            let mut gone = 0;
            self.leaving.retain(|(leaves, seq)| {
                if *leaves > at {
                    return true;
                }
                gone += u64::from(seq.filled + seq.made);
                tell(Happened { at, id: seq.id, done: true });
                false
            });
            self.held -= gone;
            self.note(at, speeds);
        }
    }

    fn end(&mut self, at: Micros, tell: &mut impl FnMut(Happened)) {
        self.ends = None;
        for seq in self.making.iter_mut().take(self.in_step) {
            seq.made += 1;
        }
        self.held += self.in_step as u64;
        let mut n = 0;
        while n < self.prompts.len() {
            let seq = &mut self.prompts[n];
            if seq.filling == 0 {
                break;
            }
            seq.filled += seq.filling;
            seq.filling = 0;
            if seq.filled < seq.work.prompt {
                n += 1;
            } else if let Some(mut seq) = self.prompts.remove(n) {
                if seq.work.tokens > 0 {
                    seq.made = 1;
                    self.held += 1;
                    tell(Happened { at, id: seq.id, done: false });
                }
                self.making.push(seq);
            }
        }
        let leaving = &mut self.leaving;
        self.making.retain(|seq| {
            let done = seq.is_done();
            if done {
                leaving.push((at + Micros(u64::from(seq.work.tail)), seq.clone()));
            }
            !done
        });
    }

    fn begin(&mut self, at: Micros, speeds: &Speeds) {
        self.in_step = self.making.len();
        let mut budget = speeds.budget.saturating_sub(self.in_step as u32);
        let (mut filled, mut slots) = (0, (speeds.max_requests as usize).saturating_sub(self.in_step));
        for seq in &mut self.prompts {
            let room = speeds.kv_tokens.saturating_sub(self.held);
            let tokens = (seq.work.prompt - seq.filled).min(budget);
            if tokens == 0 || slots == 0 || (seq.filled == 0 && u64::from(tokens) > room) {
                break;
            }
            seq.filling = tokens;
            budget -= tokens;
            slots -= 1;
            filled += tokens;
            self.held += u64::from(tokens);
        }
        if filled == 0 && self.in_step == 0 {
            return;
        }
        let context: u64 = self.making.iter().map(|seq| u64::from(seq.filled + seq.made)).sum();
        let took = speeds.step(f64::from(filled), self.in_step as f64, context as f64);
        self.began = at;
        self.ends = Some(at + Micros((took as u64).max(1)));
    }

    /// What its metrics would show now.
    pub fn gauge(&self, speeds: &Speeds) -> Gauge {
        let waiting = self.prompts.iter().rev().take_while(|seq| seq.filled + seq.filling == 0).count();
        let share = self.held as f64 / (speeds.kv_tokens.max(1)) as f64;
        Gauge {
            waiting: waiting as u32,
            running: (self.len() - waiting) as u32,
            kv: (share * 10_000.0).min(10_000.0) as u32,
            held: self.held,
        }
    }

    /// Something has changed.
    fn note(&mut self, at: Micros, speeds: &Speeds) {
        self.next = self.soonest();
        let gauge = self.gauge(speeds);
        if self.seen.len() == SEEN {
            self.seen.pop_front();
        }
        self.seen.push_back((at, gauge));
    }

    /// What its metrics would have shown at `at`.
    pub fn gauge_at(&self, at: Micros) -> Gauge {
        let seen = self.seen.iter().rev().find(|(since, _)| *since <= at).or(self.seen.front());
        seen.map_or_else(Gauge::default, |(_, gauge)| *gauge)
    }

    /// Do both have the same work left?
    pub fn is_as(&self, other: &Engine) -> bool {
        let same =
            |a: &Seq, b: &Seq| (a.id, a.filled, a.filling, a.made) == (b.id, b.filled, b.filling, b.made);
        self.ends == other.ends
            && self.prompts.len() == other.prompts.len()
            && self.making.len() == other.making.len()
            && self.prompts.iter().zip(&other.prompts).all(|(a, b)| same(a, b))
            && self.making.iter().zip(&other.making).all(|(a, b)| same(a, b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speeds() -> Speeds {
        Speeds {
            base: 10_000.0,
            prompt_token: 100.0,
            request: 0.0,
            context_token: 0.0,
            budget: 1_000,
            max_requests: 100,
            kv_tokens: 100_000,
        }
    }

    fn run(engine: &mut Engine, to: u64) -> Vec<(u64, u64, bool)> {
        let mut all = Vec::new();
        engine.advance(Micros(to), &speeds(), &mut |h| all.push((h.at.0, h.id, h.done)));
        all
    }

    #[test]
    fn prompts_are_filled_in_turn_and_tokens_come_one_a_step() {
        let mut engine = Engine::new();
        let work = |prompt, tokens| Work { prompt, tokens, tail: 0 };
        engine.submit(Micros(0), 1, work(1_500, 3), &speeds());
        engine.submit(Micros(5), 2, work(100, 1), &speeds());
        assert_eq!(engine.gauge(&speeds()), Gauge { waiting: 1, running: 1, kv: 100, held: 1_000 });
        // 1,000 tokens take 110 ms; then 500 of the first and 100 of the second: 70 ms; then two steps of 10 ms.
        let want = [(180_000, 1, false), (180_000, 2, false), (180_000, 2, true), (200_000, 1, true)];
        assert_eq!(run(&mut engine, 1_000_000), want);
        assert_eq!((engine.len(), engine.held, engine.next()), (0, 0, None));
    }

    #[test]
    fn the_work_of_a_request_that_is_ended_leads_to_the_same_end_again() {
        let mut engine = Engine::new();
        engine.submit(Micros(0), 1, Work::open(1_500), &speeds());
        engine.submit(Micros(40_000), 2, Work::open(700), &speeds());
        run(&mut engine, 204_321);
        let work = engine.remove(Micros(204_321), 1, &speeds()).unwrap();
        let mut again = Engine::new();
        again.submit(Micros(0), 1, work, &speeds());
        again.submit(Micros(40_000), 2, Work::open(700), &speeds());
        assert!(run(&mut again, 300_000).contains(&(204_321, 1, true)), "{work:?}");
        let early = engine.remove(Micros(204_400), 2, &speeds()).unwrap();
        assert!(early.prompt <= 700 && early.tokens <= 2);
        assert_eq!(engine.held, 0);
    }

    #[test]
    fn past_gauges_are_remembered() {
        let mut engine = Engine::new();
        engine.submit(Micros(1_000), 1, Work { prompt: 10, tokens: 1, tail: 0 }, &speeds());
        run(&mut engine, 50_000);
        assert_eq!(engine.gauge_at(Micros(1_500)).running, 1);
        assert_eq!(engine.gauge_at(Micros(40_000)), Gauge::default());
    }
}
