//! What will happen in a candidate's run that no log says: ends, revoked streams, callers that give up or come again.

use super::facts::{Fact, Keep, Stage};
use super::rounds::{self, Apart};
use super::world::{Sight, World};
use crate::model::{Draw, Happened, PoolModel};
use std::collections::BTreeMap;
use weir_kernel::{Arrival, Cancelled, Cause, Input, Micros, RequestId, Termination};

/// How long the stream of a revoked lease takes to end, where the log has shown none.
const CONFIRM: Micros = Micros::from_millis(20);
/// Numbers of requests that come again: above those of any log.
const AGAIN: u64 = 1 << 62;

/// Something that is due.
#[derive(Clone, Debug)]
pub enum Due {
    /// A service ends (where no model runs it).
    End(u64),
    /// The stream of a revoked lease ends.
    Confirm(u64),
    /// A caller gives up.
    GiveUp(u64),
    /// A shed request comes again.
    Again(Box<Arrival>),
}

/// All of it, in order of time.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    due: BTreeMap<(Micros, u64), Due>,
    number: u64,
    /// When the next round of samples is asked for.
    pub next_round: Micros,
}

impl Pending {
    /// One more.
    pub fn add(&mut self, at: Micros, due: Due) {
        self.number += 1;
        self.due.insert((at, self.number), due);
    }

    /// A request comes again.
    pub fn again(&mut self, at: Micros, arrival: &Arrival) {
        let arrival = Arrival { received_at: at, deadline: None, idempotency: None, ..arrival.clone() };
        self.add(at, Due::Again(Box::new(arrival)));
    }

    /// Nothing is due but rounds of samples and the ends that the log has as well.
    pub fn is_idle(&self) -> bool {
        !self.due.values().any(|due| matches!(due, Due::Confirm(_) | Due::Again(_)))
    }

    fn next(&self) -> Option<Micros> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }
}

/// How long the stream of a revoked lease takes to end.
pub fn confirm(model: &PoolModel) -> Micros {
    model.confirm.unwrap_or(CONFIRM)
}

/// What comes next.
enum Next {
    Deadline,
    Pool,
    Due,
    Round,
}

impl World {
    /// While the runs are equal: what the candidate decides before the log does, up to `to`.
    pub fn run_coupled(&mut self, sight: &Sight<'_>, to: Micros) {
        let mut idle = 0;
        while self.is_coupled() && idle < 64 {
            let before = self.next_deadline();
            let Some(due) = before.map(|due| due.max(self.state.now())).filter(|due| *due < to) else {
                return;
            };
            // Asked last, since it is seldom of interest.
            if sight.logged.next_deadline().is_some_and(|logged| logged <= due) {
                return;
            }
            self.feed(sight, due, &Input::TimePassed, None);
            idle = if self.next_deadline() == before { idle + 1 } else { 0 };
        }
    }

    /// While they are apart: everything up to `to`.
    pub fn run_parted(&mut self, sight: &Sight<'_>, to: Micros) {
        let mut idle = 0;
        while idle < 10_000 {
            if self.is_coupled() {
                return;
            }
            let before = self.next_deadline();
            let Some(parted) = &self.parted else { return };
            let rounds = !sight.options.open_loop;
            let round = rounds.then(|| parted.pending.next_round + sight.model.sensor.lag);
            let pool = parted.pool.next().filter(|_| rounds);
            // A deadline at `to` is met by the step that the log has there.
            let deadline = before.map(|at| at.max(self.state.now())).filter(|at| *at < to);
            let all = [
                (pool, Next::Pool),
                (parted.pending.next(), Next::Due),
                (round.filter(|at| *at < to), Next::Round),
                (deadline, Next::Deadline),
            ];
            let first =
                all.into_iter().filter_map(|(at, what)| at.map(|at| (at, what))).min_by_key(|(at, _)| *at);
            let Some((at, what)) = first.filter(|(at, _)| *at <= to) else { break };
            let at = at.max(self.state.now());
            let mut stuck = false;
            match what {
                Next::Deadline => {
                    self.feed(sight, at, &Input::TimePassed, None);
                    stuck = self.next_deadline() == before;
                }
                Next::Pool => self.run_pool(sight, at),
                Next::Due => self.run_due(sight, at),
                Next::Round => self.run_round(sight, at),
            }
            idle = if stuck { idle + 1 } else { 0 };
        }
        if let Some(parted) = &mut self.parted {
            parted.pool.advance(to, &mut |_| {});
        }
    }

    fn run_pool(&mut self, sight: &Sight<'_>, at: Micros) {
        let mut happened: Vec<Happened> = Vec::new();
        if let Some(parted) = &mut self.parted {
            parted.pool.advance(at, &mut |h| happened.push(h));
        }
        for Happened { at, id, done } in happened {
            if done {
                self.end(sight, at, id, Termination::Natural);
            } else if sight.model.first_bytes
                && let Some(own) = self.requests.get(&id).map(|mine| mine.own)
            {
                self.feed(sight, at, &Input::FirstByte { request: own }, None);
            }
        }
    }

    fn run_due(&mut self, sight: &Sight<'_>, at: Micros) {
        let Some((_, due)) = self.parted.as_mut().and_then(|parted| parted.pending.due.pop_first()) else {
            return;
        };
        match due {
            Due::End(id) => self.end(sight, at, id, Termination::Natural),
            Due::Confirm(id) => self.end(sight, at, id, Termination::Evicted),
            Due::GiveUp(id) => {
                if let Some(mine) = self.requests.get(&id).filter(|mine| mine.course.stage == Stage::Queued) {
                    let cancelled = Cancelled { request: mine.own, cause: Cause::ClientDisconnect };
                    self.feed(sight, at, &Input::Cancelled(cancelled), None);
                }
            }
            Due::Again(arrival) => {
                let id = AGAIN + self.state.seq();
                self.extra.insert(id, Fact::new(at, &arrival, Keep::default()));
                self.feed(sight, at, &Input::Arrived(*arrival), Some(id));
            }
        }
    }

    fn run_round(&mut self, sight: &Sight<'_>, at: Micros) {
        let interval = sight.model.sensor.interval;
        let Some(parted) = &mut self.parted else { return };
        let requested = parted.pending.next_round;
        parted.pending.next_round = requested + interval;
        let mut unknown = 0;
        let mut modelled = 0;
        for (_, gauge) in parted.pool.gauges() {
            let time = u64::from(gauge.running + gauge.waiting) * interval.0;
            *(if sight.model.has_seen(gauge.running, gauge.kv) { &mut modelled } else { &mut unknown }) +=
                time;
        }
        self.shares.lease_modelled += modelled;
        self.shares.lease_unknown += unknown;
        // The log has this round itself.
        if sight.requested + Micros(interval.0 / 2) >= requested {
            return;
        }
        let apart = Apart { own: &parted.pool, logged: sight.pool, detached: sight.options.detached };
        if let Some(observation) = rounds::silent(requested, sight.logged, &self.state, &apart) {
            self.feed(sight, at, &Input::Observed(observation), None);
        }
    }

    /// The log says how a request left the queue that the candidate still holds: beyond that, nothing is known of its
    /// caller's patience, and it is drawn.
    pub fn beyond(&mut self, sight: &Sight<'_>, at: Micros, id: u64, fact: &Fact) {
        let Some(parted) = &mut self.parted else { return };
        let queued = self.requests.get(&id).is_some_and(|mine| mine.course.stage == Stage::Queued);
        if !queued {
            return;
        }
        let waited = at.since(fact.arrived);
        let mut draw = Draw::new(self.seed.wrapping_add(77), id);
        if let Some(patience) = sight.model.patience.draw(waited, &mut draw) {
            parted.pending.add((fact.arrived + patience).max(at), Due::GiveUp(id));
        }
    }

    /// The candidate's own number of a logged request.
    pub(super) fn own(&self, request: RequestId) -> RequestId {
        self.requests.get(&request.0).map_or(request, |mine| mine.own)
    }
}
