//! Folds the steps of one pool into rows, buckets, records and episodes. Pure: no clock, no disk.
//!
//! Not here: where the results are kept (`keep.rs`), and the state of the pool itself (the kernel's own fold).

use crate::arrival::{admitted, arrived, before};
use crate::episode::{Episode, EpisodeKind, Episodes};
use crate::error::Spot;
use crate::meter::{Full, Meter};
use crate::next::{Awaited, Next, is_certain_limit, is_strict, spoils};
use crate::note::{self, Note};
use crate::record::{Decided, PolicyBegan, RegimeBegan, Revocation};
use crate::row::{End, Finish, Lease, Queue, Row};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_kernel::{
    BudgetKind, DEFAULT_FLOW, Detector, Dispatched, Event, Evicted, Hold, Input, LeaseEnded, Micros, Regime,
    Rejected, RejectedMany, State, Step, fold,
};

/// Ended revocations that wait for their release to show; the oldest make room.
const RECENT_MAX: usize = 256;

/// What the fold has not finished with: all that a checkpoint holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The last step.
    pub at: Spot,
    /// The hash of the batch that it ends.
    pub hash: [u8; 32],
    /// Where these projections begin: nothing before it is in them.
    pub begun: Spot,
    /// Rows that are in chunks; those in `pending` follow.
    pub written: u64,
    /// Requests that have ended and are in no chunk yet.
    pub pending: Vec<Row>,
    /// Notes that are in no chunk yet.
    pub notes: Vec<Note>,
    /// Requests that have not ended.
    pub open: BTreeMap<u64, Row>,
    /// Buckets and what stands.
    pub meter: Meter,
    /// Episodes that may go on.
    pub episodes: Episodes,
    /// Revocations that are not settled.
    pub revocations: BTreeMap<u64, Revocation>,
    /// Where states are kept.
    pub points: Vec<Spot>,
    /// For whose budget, if it had been longer, it is still to be seen who came next.
    pub awaited: Awaited,
    regime: Regime,
    stopped: bool,
}

/// What the fold has finished with.
#[derive(Clone, Debug, Default)]
pub struct Closed {
    /// Buckets.
    pub full: Full,
    /// Regimes.
    pub regimes: Vec<RegimeBegan>,
    /// Settings.
    pub policies: Vec<PolicyBegan>,
    /// Reclamation decisions.
    pub decided: Vec<Decided>,
    /// Revocations.
    pub revocations: Vec<Revocation>,
    /// Episodes.
    pub episodes: Vec<Episode>,
    /// Who was admitted next where a budget had ended.
    pub next: Vec<Next>,
}

/// The fold of one pool.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    /// The pool's state after the last step.
    pub state: State,
    /// Unfinished.
    pub seen: Seen,
    /// Finished, and not yet written.
    pub closed: Closed,
}

impl Folder {
    /// Begins in the middle of a log, with a state that its snapshot restates.
    pub fn from_state(state: State, hash: [u8; 32]) -> Folder {
        let at = Spot { seq: state.seq(), at: state.now() };
        let mut folder = Folder { state, ..Folder::default() };
        let seen = &mut folder.seen;
        (seen.at, seen.begun, seen.hash, seen.regime) = (at, at, hash, folder.state.regime());
        seen.meter.advance(at.seq, at.at, &mut folder.closed.full);
        seen.meter.regime(seen.regime);
        for id in folder.state.queued_requests() {
            let Some(queued) = folder.state.queued_request(id) else { continue };
            let row = Row {
                id: id.0,
                arrived_at: queued.enqueued_at,
                received_at: queued.enqueued_at,
                flow: queued.flow.to_owned(),
                priority: queued.priority,
                bytes: queued.bytes,
                deadline: queued.deadline,
                face: queued.face,
                partial: true,
                ..Row::default()
            };
            seen.meter.queue(row.priority, &row.flow, row.bytes, 1);
            seen.open.insert(id.0, row);
        }
        for id in folder.state.leases() {
            let Some(lease) = folder.state.lease(id) else { continue };
            let spot = Spot { seq: id.0, at: lease.dispatched_at };
            let row = Row {
                id: id.0,
                arrived_at: lease.dispatched_at,
                received_at: lease.dispatched_at,
                flow: DEFAULT_FLOW.to_owned(),
                priority: lease.priority,
                face: lease.face,
                partial: true,
                end: Some(admitted(spot)),
                lease: Some(Lease::default()),
                ..Row::default()
            };
            seen.open.insert(id.0, row);
        }
        seen.meter.in_flight(folder.state.in_flight());
        folder
    }

    /// Takes in the next step.
    pub fn take(&mut self, step: &Step) {
        let spot = Spot { seq: step.seq, at: step.at };
        let hold = self.state.hold();
        fold(&mut self.state, step);
        let seen = &mut self.seen;
        if matches!(step.input, Input::Started(_)) {
            seen.meter.rest(step.at, &mut self.closed.full);
            if seen.at.seq > 0 {
                seen.episodes.restart(seen.at, spot, seen.stopped, &mut self.closed.episodes);
            }
            seen.stopped = false;
        }
        if seen.begun.seq == 0 {
            seen.begun = spot;
        }
        seen.meter.advance(step.seq, step.at, &mut self.closed.full);
        seen.episodes.advance(step.at, &mut self.closed.episodes);
        match &step.input {
            Input::Arrived(_) => seen.meter.fine.arrivals += 1,
            Input::ArrivedMany(many) => {
                seen.meter.fine.arrivals += many.count;
                seen.meter.fine.unnamed += many.count;
            }
            Input::Stopped => seen.stopped = true,
            Input::PolicyChanged(change) => {
                let (digest, json) = (change.digest, change.policy.to_canonical_json());
                self.closed.policies.push(PolicyBegan { spot, digest, json });
            }
            Input::LogResumed { since, refused } if *refused > 0 => {
                let from = Spot { seq: spot.seq, at: *since };
                let episode = seen.episodes.note(EpisodeKind::LogUnavailable, from, *refused);
                episode.to = spot;
            }
            _ => {}
        }
        for event in &step.events {
            self.event(step, spot, hold, event);
        }
        if matches!(step.input, Input::Started(_)) && !self.state.is_recovering() {
            // Nothing to end, and so no event that says that all is ended.
            self.seen.episodes.cease(EpisodeKind::Restart, spot);
        }
        note::take(step, &mut self.seen.notes);
        self.seen.meter.in_flight(self.state.in_flight());
        self.gauge(step);
        self.hold(spot);
        self.seen.at = spot;
    }

    /// What holds is what the state says while something waits: no event says that the last of it has gone.
    fn hold(&mut self, spot: Spot) {
        let hold = self.state.hold().filter(|_| self.state.queued() > 0);
        self.seen.meter.hold(hold);
        if !matches!(hold, Some(Hold::Band { .. })) {
            self.seen.episodes.cease(EpisodeKind::Saturation, spot);
        }
    }

    /// Where the gauge follows our own leases, no view moves it.
    fn gauge(&mut self, step: &Step) {
        if matches!(self.state.policy().detector, Detector::Utilization { .. }) {
            return;
        }
        let moves = |event: &Event| matches!(event, Event::Dispatched(_) | Event::LeaseEnded(_));
        if step.events.iter().any(moves) {
            let (raw, _) = self.state.saturation();
            let endpoints = self.state.endpoint_count();
            self.seen.meter.gauge(raw.0, endpoints, endpoints - self.state.stale_endpoints());
        }
    }

    fn event(&mut self, step: &Step, spot: Spot, hold: Option<Hold>, event: &Event) {
        let seen = &mut self.seen;
        if spoils(event) && seen.awaited.spoil() {
            self.closed.next.push(Next { spot, admitted: None });
        }
        match event {
            Event::Enqueued(enqueued) => {
                if let Some(mut row) = arrived(step, hold, seen.regime) {
                    row.priority = enqueued.priority;
                    if let Some(name) = self.state.flow_name(enqueued.flow) {
                        name.clone_into(&mut row.flow);
                    }
                    before(&mut row, &seen.meter);
                    row.queue = Some(Queue {
                        saturation_budget: enqueued.saturation_budget,
                        no_endpoint_budget: enqueued.no_endpoint_budget,
                        budget_source: enqueued.budget_source,
                        header_class: enqueued.header_class,
                        depth: enqueued.depth,
                    });
                    seen.meter.queue(row.priority, &row.flow, row.bytes, 1);
                    seen.open.insert(row.id, row);
                }
            }
            Event::Rejected(rejected) => self.rejected(step, spot, hold, rejected),
            Event::RejectedMany(rejected) => self.rejected_many(step, spot, rejected),
            Event::Dispatched(dispatched) => self.dispatched(step, spot, hold, dispatched),
            Event::Evicted(evicted) => self.evicted(spot, evicted),
            Event::LeaseEnded(ended) => self.lease_ended(step, spot, ended),
            Event::FirstByteNoted { request } => {
                if let Some(lease) = seen.open.get_mut(&request.0).and_then(|row| row.lease.as_mut()) {
                    lease.first_byte = Some(spot);
                }
            }
            Event::Repeated { of, .. } => {
                if let Some(row) = seen.open.get_mut(&of.0) {
                    row.repeats += 1;
                }
            }
            Event::StartNoted { .. } => self.regime(spot, Regime::Unknown, (0, 0), true),
            Event::RegimeChanged { to, endpoints, fresh, .. } => {
                self.regime(spot, *to, (*endpoints, *fresh), false)
            }
            Event::GaugeMoved { endpoints, fresh, saturation } => {
                seen.meter.gauge(saturation.0, *endpoints, *fresh)
            }
            Event::Held { by } => held(seen, spot, *by),
            Event::Paused => {
                let episode = seen.episodes.begin(EpisodeKind::Paused, spot);
                if let Input::Admin(order) = &step.input {
                    episode.note = format!("by {}: {}", order.by, order.why);
                }
            }
            Event::Resumed => seen.episodes.cease(EpisodeKind::Paused, spot),
            Event::RecoveryEnded => seen.episodes.cease(EpisodeKind::Restart, spot),
            Event::RefusalsNoted { refused } => seen.meter.fine.refused_outside += refused,
            _ => self.revocation(step, spot, event),
        }
    }

    fn regime(&mut self, spot: Spot, regime: Regime, (endpoints, fresh): (u16, u16), by_start: bool) {
        let seen = &mut self.seen;
        let from = std::mem::replace(&mut seen.regime, regime);
        self.closed.regimes.push(RegimeBegan { spot, regime, from, endpoints, fresh, by_start });
        seen.meter.regime(regime);
        seen.episodes.regime(regime, spot);
    }

    fn rejected(&mut self, step: &Step, spot: Spot, hold: Option<Hold>, rejected: &Rejected) {
        let Some(mut row) = arrived(step, hold, self.seen.regime) else { return };
        row.priority = rejected.priority;
        before(&mut row, &self.seen.meter);
        row.end = Some(End {
            outcome: rejected.outcome,
            reason: Some(rejected.reason),
            regime: rejected.regime,
            cause: rejected.cause,
            limit: rejected.limit,
            certain: rejected
                .limit
                .is_some_and(|it| is_certain_limit(&it, &row, &self.state, &self.seen.meter)),
            retry_after: rejected.retry_after,
            raw: Some(rejected.saturation),
            ..admitted(spot)
        });
        self.left(row, spot);
    }

    fn rejected_many(&mut self, step: &Step, spot: Spot, rejected: &RejectedMany) {
        let Input::ArrivedMany(many) = &step.input else { return };
        let key = crate::bucket::CellKey {
            priority: many.priority,
            flow: crate::bucket::OTHER.to_owned(),
            objective: crate::bucket::OTHER.to_owned(),
            outcome: rejected.outcome,
            reason: Some(rejected.reason),
            regime: rejected.regime,
        };
        let bytes = many.bytes.saturating_mul(many.count);
        self.seen.meter.fine.count(key, many.count, bytes, Micros::ZERO);
        let who = (many.priority, crate::bucket::OTHER, rejected.reason);
        self.seen.episodes.shed_many(who, many.count, spot);
    }

    fn dispatched(&mut self, step: &Step, spot: Spot, hold: Option<Hold>, dispatched: &Dispatched) {
        let seen = &mut self.seen;
        let row = seen.open.remove(&dispatched.request.0);
        let Some(mut row) = row.or_else(|| arrived(step, hold, seen.regime)) else { return };
        if row.queue.is_some() || row.partial {
            seen.meter.queue(row.priority, &row.flow, row.bytes, -1);
        } else if let Some(lease) = self.state.lease(dispatched.request) {
            row.priority = lease.priority;
        }
        let endpoint = dispatched.endpoint.and_then(|slot| self.state.endpoint_name(slot)).map(str::to_owned);
        row.end = Some(End {
            regime: seen.regime,
            waited: dispatched.waited,
            raw: Some(dispatched.raw),
            effective: Some(dispatched.effective),
            ceiling: Some(dispatched.ceiling),
            observed: Some(dispatched.observed),
            endpoint,
            ..admitted(spot)
        });
        row.lease = Some(Lease::default());
        if seen.awaited.admitted(row.priority, row.id) {
            self.closed.next.push(Next { spot, admitted: Some((row.priority, row.id)) });
        }
        self.left(row, spot);
    }

    fn evicted(&mut self, spot: Spot, evicted: &Evicted) {
        let Some(mut row) = self.seen.open.remove(&evicted.request.0) else { return };
        self.seen.meter.queue(row.priority, &row.flow, row.bytes, -1);
        let timed = evicted.budget.is_some_and(|spent| spent.which != BudgetKind::Whole);
        let certain = timed && is_strict(&self.state, row.priority);
        if certain {
            self.seen.awaited.ended(row.priority, row.id);
        }
        row.end = Some(End {
            outcome: evicted.outcome,
            reason: Some(evicted.reason),
            regime: evicted.regime,
            waited: evicted.waited,
            budget: evicted.budget,
            cause: evicted.cause,
            held_by: evicted.held_by,
            certain,
            ..admitted(spot)
        });
        self.left(row, spot);
    }

    /// A request left the queue, or was never in it.
    fn left(&mut self, row: Row, spot: Spot) {
        self.seen.meter.outcome(&row);
        self.seen.episodes.shed(&row, spot);
        if row.is_over() {
            self.seen.pending.push(row);
        } else {
            self.seen.open.insert(row.id, row);
        }
    }

    fn lease_ended(&mut self, step: &Step, spot: Spot, ended: &LeaseEnded) {
        let Some(mut row) = self.seen.open.remove(&ended.request.0) else { return };
        self.seen.meter.lease_end(row.priority, ended.end);
        let (mut termination, mut usage) = (None, None);
        if let Input::Ended(input) = &step.input
            && input.request == ended.request
        {
            (termination, usage) = (Some(input.termination), input.usage);
        }
        let lease = row.lease.get_or_insert_default();
        lease.end =
            Some(Finish { spot, end: ended.end, ran: ended.ran, cause: ended.cause, termination, usage });
        self.seen.pending.push(row);
    }

    fn revocation(&mut self, step: &Step, spot: Spot, event: &Event) {
        let seen = &mut self.seen;
        match event {
            Event::ReclamationDecided(decision) => {
                seen.meter.fine.reclamations += 1;
                let episode = seen.episodes.note(EpisodeKind::ReclamationStorm, spot, 1);
                episode.band = episode.band.max(Some(decision.demand));
                self.closed.decided.push(Decided { spot, decision: (**decision).clone() });
            }
            Event::RevocationIssued(issued) => {
                seen.meter.fine.revocations += 1;
                if let Some(lease) = seen.open.get_mut(&issued.request.0).and_then(|row| row.lease.as_mut()) {
                    lease.revocations.push(issued.number);
                }
                let by = match &step.input {
                    Input::Revoke { by, why, .. } => Some((by.clone(), why.clone())),
                    _ => None,
                };
                let revocation = Revocation {
                    number: issued.number,
                    request: issued.request.0,
                    order: issued.order,
                    by,
                    issued: spot,
                    priority: issued.priority,
                    age: issued.age,
                    debit: issued.debit,
                    due: issued.due,
                    ended: None,
                    late: None,
                    reclaimed_at: None,
                };
                seen.revocations.insert(issued.number, revocation);
                self.settle_revocations();
            }
            Event::RevocationEnded(ended) => {
                if let Some(revocation) = seen.revocations.get_mut(&ended.number) {
                    revocation.ended = Some((ended.end, spot));
                }
            }
            Event::ConfirmedLate { number, late, .. } => {
                if let Some(revocation) = seen.revocations.get_mut(number) {
                    revocation.late = Some(*late);
                }
            }
            Event::Reclaimed(reclaimed) => {
                if let Some(revocation) = seen.revocations.get_mut(&reclaimed.number) {
                    revocation.reclaimed_at = Some(revocation.issued.at + reclaimed.took);
                }
            }
            _ => {}
        }
    }

    /// Those that nothing more is awaited of leave; beyond the limit the oldest do.
    fn settle_revocations(&mut self) {
        let now = self.seen.meter.fine.start;
        let settled = |revocation: &Revocation| {
            revocation.ended.is_some_and(|(_, spot)| now.since(spot.at) > Micros::from_secs(60))
        };
        while let Some((_, first)) = self.seen.revocations.first_key_value() {
            if !settled(first) && self.seen.revocations.len() <= RECENT_MAX {
                break;
            }
            self.closed
                .revocations
                .extend(self.seen.revocations.pop_first().map(|(_, revocation)| revocation));
        }
    }
}

fn held(seen: &mut Seen, spot: Spot, by: Hold) {
    if let Hold::Band { priority, saturation, .. } = by {
        let episode = seen.episodes.begin(EpisodeKind::Saturation, spot);
        episode.peak = episode.peak.max(saturation.0);
        episode.band = episode.band.max(Some(priority));
    }
}
