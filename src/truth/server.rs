//! One server: its queue, its running sequences, its KV blocks, and the step under way.
//!
//! The order within a step is that of vLLM's scheduler: running sequences first, in the order they came; where KV
//! runs out the last of them is preempted (its KV is dropped and computed again later); then waiting ones. Ranks stand
//! for its scheduling by priority; where all are equal they change nothing.

use super::Spec;
use crate::rng::Rng;
use std::collections::VecDeque;
use std::fmt;
use weir_kernel::Micros;

/// A request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The caller's number for it, unique while it is in the server.
    pub id: u64,
    /// Prompt tokens, at least 1.
    pub prompt: u32,
    /// Tokens it will generate, at least 1.
    pub output: u32,
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The server is still loading.
    #[error("the server is not ready before {ready_at} µs")]
    Cold {
        /// When it will be.
        ready_at: u64,
    },
    /// Prompt and output do not fit.
    #[error("prompt and output are {tokens} tokens; at most {longest} fit, and each must be at least 1")]
    TooLong {
        /// Both together.
        tokens: u64,
        /// What fits.
        longest: u32,
    },
}

/// Something that happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// When.
    pub at: Micros,
    /// To which.
    pub id: u64,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Its n-th token came out (the first is 1).
    Token(u32),
    /// The token just reported was its last; it holds nothing any more.
    Finished,
    /// It lost its KV and waits again.
    Preempted,
}

/// What the server's metrics show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Jobs in the queue.
    pub waiting: u32,
    /// Jobs that hold KV.
    pub running: u32,
    /// KV blocks in use.
    pub kv_used: u32,
    /// KV blocks there are.
    pub kv_total: u32,
}

impl Gauges {
    /// Share of the KV cache in use, 0 to 1.
    pub fn kv_share(&self) -> f64 {
        f64::from(self.kv_used) / f64::from(self.kv_total.max(1))
    }

    /// The same in ten-thousandths, rounded down.
    pub fn kv_per_myriad(&self) -> u32 {
        (u64::from(self.kv_used) * 10_000 / u64::from(self.kv_total.max(1))) as u32
    }
}

impl fmt::Display for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waiting {}, running {}, kv {:.3}", self.waiting, self.running, self.kv_share())
    }
}

/// What the server has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Jobs taken.
    pub submitted: u64,
    /// Jobs that came to their end.
    pub finished: u64,
    /// Jobs given up by their callers.
    pub aborted: u64,
    /// Times that a job lost its KV.
    pub preempted: u64,
    /// Prompt tokens computed, those computed again included.
    pub prefilled: u64,
    /// Tokens whose KV was dropped by a preemption.
    pub dropped: u64,
    /// Prompt tokens computed and tokens generated of jobs that were given up.
    pub abandoned: u64,
    /// Tokens generated.
    pub generated: u64,
    /// Steps done.
    pub steps: u64,
}

/// One sequence within the server.
#[derive(Clone, Debug)]
struct Seq {
    job: Job,
    rank: i32,
    generated: u32,
    computed: u32,
    blocks: u32,
    scheduled: u32,
}

impl Seq {
    /// Tokens whose KV is still to be computed: many in prefill, one in decode.
    const fn remaining(&self) -> u32 {
        self.job.prompt + self.generated - self.computed
    }

    /// Blocks it lacks to compute `tokens` more.
    const fn lacks(&self, tokens: u32) -> u32 {
        (self.computed + tokens).div_ceil(Spec::BLOCK).saturating_sub(self.blocks)
    }

    /// Decoding: all but the token generated last is in KV.
    const fn decodes(&self) -> bool {
        self.generated > 0 && self.remaining() == 1
    }
}

/// A simulated model server.
#[derive(Clone, Debug)]
pub struct Server {
    spec: Spec,
    ready_at: Micros,
    waiting: VecDeque<Seq>,
    running: Vec<Seq>,
    free: u32,
    step_ends: Option<Micros>,
    stalled_until: Micros,
    next_stall: Micros,
    rng: Rng,
    totals: Totals,
}

impl Server {
    /// A server that begins to load at `at`; the seed decides when it stalls.
    pub fn new(spec: Spec, at: Micros, seed: u64) -> Self {
        let mut server = Server {
            ready_at: at + spec.cold_start,
            free: spec.kv_blocks,
            spec,
            waiting: VecDeque::new(),
            running: Vec::new(),
            step_ends: None,
            stalled_until: Micros::ZERO,
            next_stall: Micros::MAX,
            rng: Rng::new(seed),
            totals: Totals::default(),
        };
        server.draw_stall(at);
        server
    }

    /// Its numbers.
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// When it has loaded.
    pub const fn ready_at(&self) -> Micros {
        self.ready_at
    }

    /// What it has done so far.
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// What its metrics show now.
    pub fn gauges(&self) -> Gauges {
        Gauges {
            waiting: self.waiting.len() as u32,
            running: self.running.len() as u32,
            kv_used: self.spec.kv_blocks - self.free,
            kv_total: self.spec.kv_blocks,
        }
    }

    /// When the step under way ends, if one is: nothing happens by itself before.
    pub const fn next_event(&self) -> Option<Micros> {
        self.step_ends
    }

    /// Takes a job at `at`, up to which the server must have been advanced.
    ///
    /// # Errors
    /// The server is not ready, or the job can never fit.
    pub fn submit(&mut self, at: Micros, job: Job) -> Result<(), Refusal> {
        self.submit_ranked(at, job, 0)
    }

    /// The same for an engine that schedules by priority (vLLM: `--scheduling-policy priority`). Lower ranks are taken
    /// from the queue first, equal ones as they came; where KV runs out the highest rank is preempted, the last of
    /// equal ones. Nobody is preempted to let a lower rank in.
    ///
    /// # Errors
    /// As [`Server::submit`].
    pub fn submit_ranked(&mut self, at: Micros, job: Job, rank: i32) -> Result<(), Refusal> {
        if at < self.ready_at {
            return Err(Refusal::Cold { ready_at: self.ready_at.0 });
        }
        let tokens = u64::from(job.prompt) + u64::from(job.output);
        let longest = self.spec.longest();
        if tokens > u64::from(longest) || job.prompt == 0 || job.output == 0 {
            return Err(Refusal::TooLong { tokens, longest });
        }
        self.totals.submitted += 1;
        let place = self.waiting.partition_point(|seq| seq.rank <= rank);
        self.waiting.insert(place, Seq { job, rank, generated: 0, computed: 0, blocks: 0, scheduled: 0 });
        if self.step_ends.is_none() {
            self.begin_step(at, &mut |_| {});
        }
        Ok(())
    }

    /// Gives a job up; what it held is free at once. False where there is no such job.
    pub fn abort(&mut self, id: u64) -> bool {
        if let Some(i) = self.running.iter().position(|seq| seq.job.id == id) {
            let seq = self.running.remove(i);
            self.free += seq.blocks;
            self.totals.abandoned += u64::from(seq.computed.min(seq.job.prompt)) + u64::from(seq.generated);
        } else if let Some(i) = self.waiting.iter().position(|seq| seq.job.id == id) {
            self.waiting.remove(i);
        } else {
            return false;
        }
        self.totals.aborted += 1;
        true
    }

    /// Holds everything up from `at` for this long; the step under way ends later by as much.
    pub fn stall(&mut self, at: Micros, lasting: Micros) {
        self.stalled_until = self.stalled_until.max(at) + lasting;
        if let Some(ends) = &mut self.step_ends {
            *ends = *ends + lasting;
        }
    }

    /// Lets time pass until `to`, inclusive, and tells what happened, in order.
    pub fn advance(&mut self, to: Micros, tell: &mut impl FnMut(Progress)) {
        while let Some(ends) = self.step_ends.filter(|ends| *ends <= to) {
            self.end_step(ends, tell);
            self.begin_step(ends, tell);
        }
    }

    fn end_step(&mut self, at: Micros, tell: &mut impl FnMut(Progress)) {
        self.step_ends = None;
        self.totals.steps += 1;
        let (totals, mut freed) = (&mut self.totals, 0);
        self.running.retain_mut(|seq| {
            if seq.scheduled == 0 {
                return true;
            }
            if !seq.decodes() {
                totals.prefilled += u64::from(seq.scheduled);
            }
            seq.computed += seq.scheduled;
            seq.scheduled = 0;
            if seq.remaining() > 0 {
                return true;
            }
            seq.generated += 1;
            totals.generated += 1;
            tell(Progress { at, id: seq.job.id, what: What::Token(seq.generated) });
            if seq.generated < seq.job.output {
                return true;
            }
            totals.finished += 1;
            freed += seq.blocks;
            tell(Progress { at, id: seq.job.id, what: What::Finished });
            false
        });
        self.free += freed;
    }

    fn begin_step(&mut self, at: Micros, tell: &mut impl FnMut(Progress)) {
        let left = self.schedule_running(at, tell);
        if let Some(budget) = left {
            self.schedule_waiting(budget);
        }
        let (mut prefill, mut decode, mut context) = (0, 0, 0);
        for seq in self.running.iter().filter(|seq| seq.scheduled > 0) {
            if seq.decodes() {
                decode += 1;
                context += u64::from(seq.computed);
            } else {
                prefill += u64::from(seq.scheduled);
            }
        }
        if prefill + decode == 0 {
            return;
        }
        let mut starts = at.max(self.stalled_until);
        if starts >= self.next_stall {
            starts = starts + self.spec.stall_for;
            self.draw_stall(starts);
        }
        self.step_ends = Some(starts + self.spec.step_time(prefill, decode, context));
    }

    /// Gives running sequences their tokens; what is left of the budget, or nothing where KV ran out.
    fn schedule_running(&mut self, at: Micros, tell: &mut impl FnMut(Progress)) -> Option<u32> {
        let (mut budget, mut short, mut i) = (self.spec.token_budget.max(1), false, 0);
        while budget > 0 && i < self.running.len() {
            let tokens = self.running[i].remaining().min(budget);
            let lacks = self.running[i].lacks(tokens);
            if lacks > self.free {
                short = true;
                let (victim, given) = self.preempt(at, tell);
                if victim < i {
                    // It had its tokens in this step already.
                    budget += given;
                    i -= 1;
                }
                continue;
            }
            let seq = &mut self.running[i];
            seq.blocks += lacks;
            self.free -= lacks;
            seq.scheduled = tokens;
            budget -= tokens;
            i += 1;
        }
        (!short).then_some(budget)
    }

    /// Preempts the highest rank, the last of equal ones; where it stood, and the tokens it had in this step.
    fn preempt(&mut self, at: Micros, tell: &mut impl FnMut(Progress)) -> (usize, u32) {
        let last = (0..self.running.len()).max_by_key(|i| (self.running[*i].rank, *i));
        let Some(victim) = last else { return (usize::MAX, 0) };
        let mut seq = self.running.remove(victim);
        let given = seq.scheduled;
        self.free += seq.blocks;
        self.totals.preempted += 1;
        self.totals.dropped += u64::from(seq.computed);
        (seq.blocks, seq.computed, seq.scheduled) = (0, 0, 0);
        tell(Progress { at, id: seq.job.id, what: What::Preempted });
        let place = self.waiting.partition_point(|other| other.rank < seq.rank);
        self.waiting.insert(place, seq);
        (victim, given)
    }

    fn schedule_waiting(&mut self, mut budget: u32) {
        while budget > 0 && (self.running.len() as u32) < self.spec.max_num_seqs.max(1) {
            let Some(tokens) = self.waiting.front().map(|seq| seq.remaining().min(budget)) else { return };
            let Some(mut seq) = self.waiting.pop_front_if(|seq| seq.lacks(tokens) <= self.free) else {
                return;
            };
            let lacks = seq.lacks(tokens);
            seq.blocks += lacks;
            self.free -= lacks;
            seq.scheduled = tokens;
            budget -= tokens;
            self.running.push(seq);
        }
    }

    /// The next stall comes half to one and a half of the mean from now.
    fn draw_stall(&mut self, from: Micros) {
        let mean = self.spec.stall_every.0;
        self.next_stall = if mean == 0 {
            Micros::MAX
        } else {
            from + Micros(mean / 2 + self.rng.below(mean.saturating_add(1)))
        };
    }

    /// What must always hold; the first breach in words.
    #[cfg(test)]
    pub(super) fn check(&self) -> Result<(), String> {
        let held: u32 = self.running.iter().map(|seq| seq.blocks).sum();
        if held + self.free != self.spec.kv_blocks {
            return Err(format!("{held} blocks held + {} free != {}", self.free, self.spec.kv_blocks));
        }
        if self.running.len() as u32 > self.spec.max_num_seqs {
            return Err(format!("{} sequences run", self.running.len()));
        }
        if !self.waiting.iter().is_sorted_by_key(|seq| seq.rank) {
            return Err("the queue is not in order of rank".to_owned());
        }
        if self.waiting.iter().any(|seq| seq.blocks + seq.computed + seq.scheduled > 0) {
            return Err("a waiting sequence holds something".to_owned());
        }
        for seq in &self.running {
            if (seq.computed + seq.scheduled).div_ceil(Spec::BLOCK) > seq.blocks {
                return Err(format!("{seq:?} computes more than its blocks hold"));
            }
            if seq.computed + seq.scheduled > seq.job.prompt + seq.generated {
                return Err(format!("{seq:?} computes more than there is"));
            }
        }
        let inside = (self.waiting.len() + self.running.len()) as u64;
        let t = &self.totals;
        if t.submitted != inside + t.finished + t.aborted {
            return Err(format!("{t:?} with {inside} inside"));
        }
        if self.step_ends.is_none() && inside > 0 {
            return Err(format!("{inside} inside and no step under way"));
        }
        Ok(())
    }
}
