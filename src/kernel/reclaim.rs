//! Reclamation: sheddable leases are taken back for blocked demand of a higher priority (seed-system.md section 8;
//! contract.md rows 12, 23, 24 and 28).
//!
//! Stop and wait: decide, revoke, wait until every victim's stream has ended and the gauge can show it, look again. Not
//! here: how a revocation is told and ends (`revoke.rs`), and how many a decision takes (`sizing.rs`).

use crate::ceilings;
use crate::demand::{self, Measure};
use crate::leases::Lease;
use crate::revoke;
use crate::saturation::{self, EndpointLoad, Gauge};
use crate::sizing::{self, Needed, Question};
use crate::turn::Turn;
use crate::{
    Detector, Event, Hold, Micros, Ratio, ReclamationDecided, Regime, RequestId, RevocationEnd,
    RevocationOrder, Sizing, State, Victim, Whereabouts,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The order of victims: lowest priority first, then most recently dispatched, then most recently arrived.
pub type VictimKey = (i32, Reverse<Micros>, Reverse<RequestId>);

/// A lease's place among victims, smallest first.
pub const fn victim_key(priority: i32, dispatched_at: Micros, request: RequestId) -> VictimKey {
    (priority, Reverse(dispatched_at), Reverse(request))
}

/// A decision whose victims can still turn out to be out of reach.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) number: u64,
    pub(crate) demand: i32,
    /// Victims that were tried in it.
    pub(crate) tried: BTreeSet<RequestId>,
}

/// What reclamation remembers, beside the revocations themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reclamation {
    /// Decisions so far; the number of the last.
    pub(crate) decided: u64,
    /// No decision before this (after a restart: until the view is back, and one grace more).
    pub(crate) shut_until: Micros,
    pub(crate) last: Option<Decision>,
    /// By how much the last decision wanted the gauge to fall.
    pub(crate) target: Ratio,
    /// What demand-aware sizing measures, once it has decided.
    pub(crate) measure: Option<Measure>,
    /// Sheddable leases that can be told and are not revoked, best victim first: an index.
    pub(crate) victims: BTreeSet<VictimKey>,
    /// Victims that could not be told, and when they may be tried again.
    pub(crate) resting: BTreeMap<RequestId, Micros>,
}

/// Decides if there is something to decide: called where nothing (more) can be dispatched.
pub(crate) fn consider(turn: &mut Turn<'_>) {
    let state = &*turn.state;
    if !state.policy.eviction.enabled || !state.policy.flow_control || state.paused.is_some() {
        return;
    }
    if state.reclamation.shut_until == Micros::MAX {
        if !state.is_settled() {
            return;
        }
        let until = state.now + state.policy.eviction.confirmation_grace;
        turn.emit(Event::ReclamationShut { until });
    }
    let state = &*turn.state;
    if turn.behind || state.has_backlog() || !state.gate_is_open() {
        return;
    }
    if let Some(demand) = state.demand() {
        decide(turn, &demand);
    }
}

/// A blocked band whose queued work is worth a revocation.
pub(crate) struct Demand {
    pub(crate) priority: i32,
    pub(crate) depth: u64,
    ceiling: Ratio,
    load: Load,
    /// The gauge that blocks it: as sampled, and with what the sensor cannot have seen.
    gauge: (Ratio, Ratio),
}

/// What the sensor shows, where it shows anything.
#[derive(Clone, Copy, Debug)]
struct Load {
    saturation: Ratio,
    leases: u64,
    stale: u16,
}

fn decide(turn: &mut Turn<'_>, demand: &Demand) {
    let state = &*turn.state;
    let most = state.policy.eviction.cap();
    let mut question = Question {
        saturation: demand.load.saturation,
        ceiling: demand.ceiling,
        pending: revoke::pending(state),
        in_flight: demand.load.leases,
    };
    let (needed, sized) = match state.policy.eviction.sizing {
        Sizing::Deficit => (sizing::needed(&question), None),
        Sizing::Demand => match demand::sized(state, demand, &mut question) {
            Some((needed, sized)) => (Some(needed), Some(sized)),
            None => (None, None),
        },
    };
    let Some(Needed { target, credit, wanted }) = needed else { return };
    let most_victims = usize::try_from(wanted.min(u64::from(most))).unwrap_or(usize::MAX);
    let victims: Vec<Victim> = state
        .eligible(demand.priority)
        .take(most_victims)
        .filter_map(|id| {
            let lease = state.leases.get(&id)?;
            let age = state.now.since(lease.dispatched_at);
            Some(Victim { request: id, priority: lease.priority, age })
        })
        .collect();
    if victims.is_empty() {
        return;
    }
    let number = state.reclamation.decided + 1;
    let event = ReclamationDecided {
        number,
        demand: demand.priority,
        depth: demand.depth,
        raw: demand.gauge.0,
        effective: demand.gauge.1,
        saturation: demand.load.saturation,
        stale: demand.load.stale,
        endpoints: state.endpoints.len(),
        ceiling: demand.ceiling,
        target,
        pending: question.pending,
        in_flight: question.in_flight,
        credit,
        wanted,
        cap: most,
        evictable: state.reclamation.victims.len() as u64,
        victims: victims.clone(),
    };
    if let Some(sized) = sized {
        turn.emit(Event::DemandSized(Box::new(sized)));
    }
    turn.emit(Event::ReclamationDecided(Box::new(event)));
    for victim in victims {
        let order = RevocationOrder::Reclamation { decision: number, demand: demand.priority };
        revoke::issue(turn, victim.request, order, credit);
    }
}

/// A victim of this decision was out of reach: the decision takes its next one, each at most once (contract.md row 24).
pub(crate) fn take_next(turn: &mut Turn<'_>, decision: u64, debit: Ratio) {
    let state = &*turn.state;
    let Some(last) = state.reclamation.last.as_ref().filter(|last| last.number == decision) else { return };
    let demand = last.demand;
    let still = state.policy.eviction.enabled
        && matches!(state.hold, Some(Hold::Band { .. }))
        && state.active.contains(&demand);
    if !still {
        return;
    }
    let next = state.eligible(demand).find(|id| !last.tried.contains(id));
    if let Some(id) = next {
        revoke::issue(turn, id, RevocationOrder::Reclamation { decision, demand }, debit);
    }
}

impl State {
    /// May a decision be made: nothing outstanding, nothing cooling, and after a restart the view is back?
    pub fn gate_is_open(&self) -> bool {
        let all = &self.revocations;
        all.outstanding.is_empty()
            && all.cooling.last_key_value().is_none_or(|((until, _), _)| *until <= self.now)
            && self.reclamation.shut_until <= self.now
    }

    /// After a restart: the pool has been seen, and no lease of the last run is in doubt.
    fn is_settled(&self) -> bool {
        self.clocks.regime == Regime::HasEndpoints && !self.recovering && self.orphans.is_empty()
    }

    /// The highest band that is blocked with queued work and could be served, if its priority is above the best victim's.
    fn demand(&self) -> Option<Demand> {
        if self.clocks.regime != Regime::HasEndpoints {
            return None;
        }
        let (best, ..) = *self.reclamation.victims.first()?;
        let gauge = self.saturation();
        let ceiling = |priority: i32| {
            ceilings::ceiling(&self.policy.usage_limit, gauge.1, priority, &self.ranked).at_tick(self.tick)
        };
        let mut bands = self.active.iter().rev().map(|priority| (*priority, ceiling(*priority)));
        if bands.clone().next().is_none_or(|(_, top)| gauge.1 < top) {
            return None;
        }
        let wanted = |(priority, ceiling): &(i32, Ratio)| {
            *ceiling > Ratio::ZERO && gauge.1 >= *ceiling && *priority > best
        };
        let (priority, ceiling) = bands.find(wanted)?;
        // Nobody who is not blocked may be passed over for a band that does not come next.
        let load = self.shown_load(gauge, ceiling).filter(|load| load.saturation >= ceiling)?;
        let depth = self.bands.get(&priority).map_or(0, |band| band.ready_requests);
        Some(Demand { priority, depth, ceiling, load, gauge })
    }

    /// What the sensor shows of the pool, whose gauge reads so (as sampled, and with the charge for what no sample has shown);
    /// nothing where it shows nothing (contract.md row 28).
    ///
    /// Where that charge alone brings the gauge up to the ceiling, it counts only on endpoints that have requests waiting:
    /// elsewhere what was sent may well run at once, which the next sample tells before anybody is taken back in vain.
    fn shown_load(&self, (raw, effective): (Ratio, Ratio), ceiling: Ratio) -> Option<Load> {
        let placed: usize = self.endpoints.table.values().map(|endpoint| endpoint.leases.len()).sum();
        let all = (placed + self.endpoints.elsewhere.len()) as u64;
        let (count, fresh) = (self.endpoints.len(), self.endpoints.fresh);
        match &self.policy.detector {
            Detector::Utilization { .. } if fresh == 0 => None,
            Detector::Utilization { .. } if fresh < count => {
                let (raw, ..) = self.gauge_of_fresh(|_| false);
                let (saturation, leases) = match raw >= ceiling {
                    true => self.gauge_of_fresh(|_| true),
                    false => self.gauge_of_fresh(waits),
                };
                Some(Load { saturation, leases, stale: count - fresh })
            }
            Detector::Utilization { .. } if raw < ceiling => {
                let (saturation, _) = self.gauge_of_fresh(waits);
                Some(Load { saturation, leases: all, stale: 0 })
            }
            Detector::Pushed if self.endpoints.pushed.is_none() || count == 0 => None,
            Detector::Utilization { .. } | Detector::Concurrency { .. } | Detector::Pushed => {
                (count > 0).then_some(Load { saturation: effective, leases: all, stale: 0 })
            }
        }
    }

    /// The gauge of the fresh endpoints, with the charge for what their samples cannot show where `charged` says so, and the
    /// leases on them.
    fn gauge_of_fresh(&self, charged: impl Fn(&EndpointLoad) -> bool) -> (Ratio, u64) {
        let detector = &self.policy.detector;
        let mut gauge = Gauge::new(detector);
        let mut leases = 0;
        for (index, endpoint) in self.endpoints.table.values().enumerate().filter(|(_, e)| e.is_fresh()) {
            let load = self.load(index, endpoint);
            let credit = self.policy.in_flight_credit && charged(&load);
            gauge.add(load.role, saturation::term(detector, &load, credit));
            leases += load.requests;
        }
        (gauge.read().effective, leases)
    }

    /// Victims for demand of this priority, best first.
    fn eligible(&self, demand: i32) -> impl Iterator<Item = RequestId> + '_ {
        let rests = |id: &RequestId| self.reclamation.resting.get(id).is_some_and(|until| *until > self.now);
        let shown = |lease: &Lease| match lease.at {
            Whereabouts::Unknown => true,
            Whereabouts::At(slot) => {
                let fresh = self.endpoints.table.get(&slot).is_some_and(|endpoint| endpoint.is_fresh());
                fresh || !self.policy.detector.reads_metrics()
            }
            Whereabouts::Gone => false,
        };
        let below = self.reclamation.victims.iter().take_while(move |(priority, ..)| *priority < demand);
        below
            .map(|(_, _, Reverse(id))| *id)
            .filter(move |id| self.leases.get(id).is_some_and(|lease| shown(lease)) && !rests(id))
    }

    /// Decisions so far.
    pub fn reclamations(&self) -> u64 {
        self.reclamation.decided
    }

    /// Sheddable leases that could be revoked now.
    pub fn evictable(&self) -> u64 {
        self.reclamation.victims.len() as u64
    }

    /// The same, best victim first.
    pub fn victims(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.reclamation.victims.iter().map(|(_, _, Reverse(id))| *id)
    }

    /// By how much the last decision wanted the gauge to fall.
    pub fn reclaim_target(&self) -> Ratio {
        self.reclamation.target
    }

    /// When a decision can become due although nothing comes in.
    pub(crate) fn reclaim_deadline(&self) -> Option<Micros> {
        let waits = self.policy.eviction.enabled
            && self.revocations.outstanding.is_empty()
            && matches!(self.hold, Some(Hold::Band { .. }))
            && !self.reclamation.victims.is_empty();
        if !waits {
            return None;
        }
        let cooled = self.revocations.cooling.last_key_value().map_or(Micros::ZERO, |((until, _), _)| *until);
        let opens = cooled.max(self.reclamation.shut_until);
        let rested = self.reclamation.resting.values().copied().filter(|until| *until > self.now).min();
        let waits = rested.into_iter().chain(self.shown_deadline()).min();
        let next = if opens > self.now { Some(opens) } else { waits };
        next.filter(|at| *at < Micros::MAX)
    }

    /// The lease's place among the victims, if it has one.
    fn victim_key(&self, id: RequestId, lease: &Lease) -> Option<VictimKey> {
        let revoked = lease.revocation.as_ref().is_some_and(|r| r.end != Some(RevocationEnd::Undeliverable));
        let sheddable = lease.priority < 0 && !revoked && self.can_be_told(id, lease);
        sheddable.then_some(victim_key(lease.priority, lease.dispatched_at, id))
    }

    /// Brings the index of victims in line with a lease that changed.
    pub(crate) fn index_victim(&mut self, id: RequestId) {
        let Some(lease) = self.leases.get(&id) else { return };
        if lease.priority >= 0 {
            return;
        }
        match self.victim_key(id, lease) {
            Some(key) => self.reclamation.victims.insert(key),
            None => {
                let key = victim_key(lease.priority, lease.dispatched_at, id);
                self.reclamation.victims.remove(&key)
            }
        };
    }

    /// The index of victims, counted afresh.
    pub(crate) fn victims_afresh(&self) -> BTreeSet<VictimKey> {
        self.leases.iter().filter_map(|(id, lease)| self.victim_key(*id, lease)).collect()
    }
}

/// Has this endpoint more than it can run?
fn waits(load: &EndpointLoad) -> bool {
    load.sample.is_some_and(|sample| sample.waiting > 0)
}

pub(crate) fn apply_decided(state: &mut State, e: &ReclamationDecided) {
    state.reclamation.decided = e.number;
    state.reclamation.target = e.target;
    let tried = e.victims.iter().map(|victim| victim.request).collect();
    state.reclamation.last = Some(Decision { number: e.number, demand: e.demand, tried });
}

/// A revocation was issued: if by the decision at hand, its victim has been tried.
pub(crate) fn apply_issued(state: &mut State, id: RequestId, order: RevocationOrder) {
    if let RevocationOrder::Reclamation { decision, .. } = order
        && let Some(last) = state.reclamation.last.as_mut().filter(|last| last.number == decision)
    {
        last.tried.insert(id);
    }
    state.index_victim(id);
}

/// A victim could not be told: it is left alone for as long as a confirmation may take.
pub(crate) fn apply_unreachable(state: &mut State, id: RequestId, until: Micros) {
    let now = state.now;
    let resting = &mut state.reclamation.resting;
    resting.retain(|_, until| *until > now);
    resting.insert(id, until);
    state.index_victim(id);
}

/// The lease is gone (called while it is still in the table's place of its key).
pub(crate) fn remove_lease(state: &mut State, id: RequestId, lease: &Lease) {
    if lease.priority < 0 {
        state.reclamation.victims.remove(&victim_key(lease.priority, lease.dispatched_at, id));
        state.reclamation.resting.remove(&id);
    }
}

/// A run begins: whoever cannot be told any more is no victim.
pub(crate) fn apply_start(state: &mut State) {
    state.reclamation.resting.clear();
    state.reclamation.last = None;
    state.reclamation.victims = state.victims_afresh();
}
