//! The state of one pool: what all logged events so far add up to.
//!
//! It has no disk format: a snapshot is a list of events (`restate.rs`). It changes only in `apply`.

use crate::classes::Classes;
use crate::clocks::Clocks;
use crate::endpoints::Endpoints;
use crate::keys::Keys;
use crate::leases::Lease;
use crate::line::Line;
use crate::queues::{Band, Flow, Queued};
use crate::reclaim::Reclamation;
use crate::revoke::Revocations;
use crate::{FlowId, Hold, LeaseEnd, Micros, Outcome, Policy, RequestId};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// One pool. Built by [`crate::step`] or [`crate::fold`], from empty or from a snapshot.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) seq: u64,
    pub(crate) now: Micros,
    /// The time of the step before the current one.
    pub(crate) before: Micros,
    pub(crate) policy: Arc<Policy>,
    pub(crate) objectives: BTreeMap<String, i32>,
    pub(crate) clocks: Clocks,
    pub(crate) hold: Option<Hold>,

    pub(crate) bands: BTreeMap<i32, Band>,
    /// Configured and desired bands, highest first: what rank-based ceilings rank.
    pub(crate) ranked: Vec<i32>,
    /// Bands with requests that can be dispatched.
    pub(crate) active: BTreeSet<i32>,
    /// Bands with a starvation bound.
    pub(crate) bounded: BTreeSet<i32>,
    pub(crate) idle_bands: BTreeSet<(Micros, i32)>,
    pub(crate) flows: BTreeMap<FlowId, Flow>,
    pub(crate) next_flow: u32,
    pub(crate) idle_flows: BTreeSet<(Micros, FlowId)>,

    pub(crate) queued: Line<Box<Queued>>,
    pub(crate) queued_bytes: u64,
    pub(crate) classes: Classes,
    pub(crate) deadlines: BTreeSet<(Micros, RequestId)>,
    /// Queued tickets by when their holder was last heard of.
    pub(crate) tickets: BTreeSet<(Micros, RequestId)>,
    /// Queued requests whose callers may come back, by until when.
    pub(crate) resumable: BTreeSet<(Micros, RequestId)>,
    /// Queued requests and leases that recovery has still to end.
    pub(crate) doomed_queued: BTreeSet<RequestId>,
    pub(crate) doomed_leases: BTreeSet<RequestId>,
    pub(crate) recovering: bool,

    pub(crate) leases: BTreeMap<RequestId, Box<Lease>>,
    /// Leases that lapse, by when their holder was last heard of.
    pub(crate) lapsing: BTreeSet<(Micros, RequestId)>,
    pub(crate) orphans: BTreeSet<RequestId>,
    pub(crate) revocations: Revocations,
    pub(crate) reclamation: Reclamation,

    pub(crate) endpoints: Endpoints,
    pub(crate) keys: Keys,
    pub(crate) programs: BTreeMap<Arc<str>, Program>,
    pub(crate) idle_programs: BTreeSet<(Micros, Arc<str>)>,
    pub(crate) service_epoch: Micros,

    pub(crate) tick: u64,
    pub(crate) last_dispatch: Micros,
    pub(crate) draining_until: Option<Micros>,
    pub(crate) stopped: bool,
    pub(crate) paused: Option<Box<Paused>>,
    /// Queued requests that a purge has still to remove.
    pub(crate) purging: BTreeSet<RequestId>,
    pub(crate) counters: Counters,
}

/// A pause, and whose.
#[derive(Clone, Debug)]
pub(crate) struct Paused {
    pub(crate) since: Micros,
    pub(crate) by: String,
    pub(crate) why: String,
}

/// A fairness id as least-attained-service fairness sees it, over all bands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) service: u128,
    /// Queued and running requests.
    pub(crate) active: u64,
    pub(crate) idle_since: Option<Micros>,
}

/// What has come in and how it ended: conservation is checked against these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Arrivals, repeated ones not counted.
    pub arrivals: u64,
    /// Arrivals that shared an earlier one's fate.
    pub repeated: u64,
    /// Arrivals refused outside the kernel while the log could not be written; in none of the other counters.
    pub refused_outside: u64,
    /// By [`Outcome`], in its disk order.
    pub outcomes: [u64; Outcome::ALL.len()],
    /// By [`LeaseEnd`], in its disk order.
    pub lease_ends: [u64; LeaseEnd::ALL.len()],
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}

impl State {
    /// An empty pool that nothing is known of: sequence 0, regime `Unknown`, default settings.
    pub fn new() -> State {
        State {
            seq: 0,
            now: Micros::ZERO,
            before: Micros::ZERO,
            policy: Arc::new(Policy::default()),
            objectives: BTreeMap::new(),
            clocks: Clocks::default(),
            hold: None,
            bands: BTreeMap::new(),
            ranked: Vec::new(),
            active: BTreeSet::new(),
            bounded: BTreeSet::new(),
            idle_bands: BTreeSet::new(),
            flows: BTreeMap::new(),
            next_flow: 0,
            idle_flows: BTreeSet::new(),
            queued: Line::default(),
            queued_bytes: 0,
            classes: Classes::default(),
            deadlines: BTreeSet::new(),
            tickets: BTreeSet::new(),
            resumable: BTreeSet::new(),
            doomed_queued: BTreeSet::new(),
            doomed_leases: BTreeSet::new(),
            recovering: false,
            leases: BTreeMap::new(),
            lapsing: BTreeSet::new(),
            orphans: BTreeSet::new(),
            revocations: Revocations::default(),
            reclamation: Reclamation::default(),
            endpoints: Endpoints::default(),
            keys: Keys::default(),
            programs: BTreeMap::new(),
            idle_programs: BTreeSet::new(),
            service_epoch: Micros::ZERO,
            tick: 0,
            last_dispatch: Micros::ZERO,
            draining_until: None,
            stopped: false,
            paused: None,
            purging: BTreeSet::new(),
            counters: Counters::default(),
        }
    }

    /// Takes note that a step begins: the one change that is no event, since each step says it in its head.
    pub(crate) fn begin(&mut self, seq: u64, at: Micros) {
        self.before = self.now;
        self.seq = seq;
        self.now = at.max(self.now);
    }

    /// Work is due at once, because a step decides a bounded number of requests.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.doomed_queued.is_empty()
            || !self.doomed_leases.is_empty()
            || !self.purging.is_empty()
            || (self.recovering && self.seq > 0)
    }

    /// When the next step must come at the latest, if nothing else comes before; at or before `now` means at once.
    pub fn next_deadline(&self) -> Option<Micros> {
        if self.has_backlog() {
            return Some(self.now);
        }
        let policy = &self.policy;
        let timer = |first: Option<&(Micros, RequestId)>, span: Micros| {
            first.filter(|_| !span.is_zero()).map(|(since, _)| *since + span)
        };
        // Asked for with every step: a plain comparison each.
        let mut soonest = self.classes.next_due();
        let mut or = |due: Option<Micros>| {
            if let Some(due) = due
                && soonest.is_none_or(|soonest| due < soonest)
            {
                soonest = Some(due);
            }
        };
        or(self.deadlines.first().map(|(due, _)| *due));
        or(timer(self.tickets.first(), policy.ticket_timeout));
        or(self.resumable.first().map(|(due, _)| *due));
        or(timer(self.lapsing.first(), policy.lease_timeout));
        or(self.revocations.outstanding.first().map(|(due, _)| *due));
        or(self.idle_flows.first().map(|(since, _)| *since + policy.flow_idle));
        or(self.idle_bands.first().map(|(since, _)| *since + policy.band_idle));
        or(self.program_deadline());
        or(self.blind_deadline());
        or(self.dispatch_deadline());
        or(self.reclaim_deadline());
        or(self.draining_until.filter(|_| self.has_drainable()));
        soonest
    }

    /// Queued requests that a drain ends: all but tickets.
    pub(crate) fn has_drainable(&self) -> bool {
        self.queued.len() > self.tickets.len()
    }
}
