//! What may be asked of a state: for answers, gauges and tests. Nothing here changes it.

use crate::state::Counters;
use crate::{
    BandBounds, BandOrigin, BandSettings, Face, FlowId, Hold, Idempotency, KeyAnswer, Micros, Policy, Ratio,
    Regime, RequestId, RevocationEnd, RevocationOrder, Role, Slot, State, Whereabouts,
};

/// A band as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandView {
    /// Its priority.
    pub priority: i32,
    /// Why it exists.
    pub origin: BandOrigin,
    /// Its settings.
    pub settings: BandSettings,
    /// Queued requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows that exist.
    pub flows: u64,
    /// Its ceiling now.
    pub ceiling: Ratio,
    /// Its bounds.
    pub bounds: BandBounds,
    /// Its order is turned just now: newest first.
    pub newest_first: bool,
}

/// An endpoint as last observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointView<'a> {
    /// Its place.
    pub slot: Slot,
    /// Its name.
    pub name: &'a str,
    /// What it does.
    pub role: Role,
    /// Waiting, running, KV share in ten-thousandths; none = never sampled.
    pub sample: Option<(u32, u32, u32)>,
    /// Its metrics are too old (or it was never sampled).
    pub stale: bool,
    /// Our leases on it.
    pub leases: u64,
}

/// A queued request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedView<'a> {
    /// Its flow's name.
    pub flow: &'a str,
    /// Its band.
    pub priority: i32,
    /// When it was queued.
    pub enqueued_at: Micros,
    /// Its size.
    pub bytes: u64,
    /// The caller's deadline.
    pub deadline: Option<Micros>,
    /// How it came in.
    pub face: Face,
    /// When a budget ends it if the regime stays as it is.
    pub due: Option<Micros>,
}

/// A running request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Its priority.
    pub priority: i32,
    /// Where it runs.
    pub at: Whereabouts,
    /// When it was admitted.
    pub dispatched_at: Micros,
    /// How it came in.
    pub face: Face,
    /// When it lapses unless renewed.
    pub lapses_at: Option<Micros>,
    /// Its holder could be told to end it just now.
    pub can_be_told: bool,
    /// Its last revocation.
    pub revocation: Option<RevocationView>,
}

/// The revocation of a lease that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevocationView {
    /// Its number.
    pub number: u64,
    /// Who ordered it.
    pub order: RevocationOrder,
    /// When it was issued.
    pub issued_at: Micros,
    /// When it times out.
    pub due: Micros,
    /// How it ended, if it has.
    pub end: Option<RevocationEnd>,
}

/// What has become of all revocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RevocationCounts {
    /// Issued so far.
    pub issued: u64,
    /// Ended, by [`RevocationEnd`] in its disk order.
    pub ends: [u64; RevocationEnd::ALL.len()],
    /// Streams that ended after their revocation had timed out.
    pub late: u64,
    /// Releases that samples have shown.
    pub reclaimed: u64,
    /// Not ended.
    pub outstanding: u64,
    /// Ended, and perhaps still in the gauge.
    pub cooling: u64,
}

/// The pause in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseView<'a> {
    /// Since when.
    pub since: Micros,
    /// Who paused it.
    pub by: &'a str,
    /// Why.
    pub why: &'a str,
}

impl State {
    /// The last step.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Its time.
    pub fn now(&self) -> Micros {
        self.now
    }

    /// The regime in force.
    pub fn regime(&self) -> Regime {
        self.clocks.regime
    }

    /// Since when.
    pub fn regime_since(&self) -> Micros {
        self.clocks.since
    }

    /// The settings in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The objectives in force: name and priority.
    pub fn objectives(&self) -> impl Iterator<Item = (&str, i32)> {
        self.objectives.iter().map(|(name, priority)| (name.as_str(), *priority))
    }

    /// Queued requests.
    pub fn queued(&self) -> u64 {
        self.queued.len() as u64
    }

    /// Their bytes.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Leases.
    pub fn in_flight(&self) -> u64 {
        self.leases.len() as u64
    }

    /// What has come in and how it ended.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What holds queued work back now.
    pub fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// New requests are refused because the service is stopping.
    pub fn is_draining(&self) -> bool {
        self.draining_until.is_some() || self.stopped
    }

    /// The pause in force, if an operator paused the pool.
    pub fn paused(&self) -> Option<PauseView<'_>> {
        self.paused.as_ref().map(|pause| PauseView { since: pause.since, by: &pause.by, why: &pause.why })
    }

    /// Queued requests that a purge has still to remove.
    pub fn purging(&self) -> u64 {
        self.purging.len() as u64
    }

    /// Since when new requests are refused until the service stops: when what is queued then ends.
    pub fn draining_until(&self) -> Option<Micros> {
        self.draining_until
    }

    /// The pool has been looked at since the last start.
    pub fn is_seen(&self) -> bool {
        self.endpoints.seen
    }

    /// Endpoints of the pool.
    pub fn endpoint_count(&self) -> u16 {
        self.endpoints.len()
    }

    /// Endpoints without fresh metrics.
    pub fn stale_endpoints(&self) -> u16 {
        self.endpoints.len() - self.endpoints.fresh
    }

    /// Does a restart still have to end what could not survive it? Over with [`crate::Event::RecoveryEnded`], and at once
    /// where there is nothing to end.
    pub const fn is_recovering(&self) -> bool {
        self.recovering
    }

    /// The settings of a band; none if it is not there.
    pub fn band_settings(&self, priority: i32) -> Option<&BandSettings> {
        self.bands.get(&priority).map(|band| &band.settings)
    }

    /// Bands, highest first.
    pub fn bands(&self) -> impl Iterator<Item = BandView> + '_ {
        let (_, saturation) = self.saturation();
        self.bands.iter().rev().map(move |(priority, band)| BandView {
            priority: *priority,
            origin: band.origin,
            settings: band.settings.clone(),
            requests: band.requests,
            bytes: band.bytes,
            flows: band.flows.len() as u64,
            ceiling: crate::ceilings::ceiling(&self.policy.usage_limit, saturation, *priority, &self.ranked)
                .at_tick(self.tick),
            bounds: band.bounds,
            newest_first: band.is_newest_first(),
        })
    }

    /// Endpoints, by slot.
    pub fn endpoints(&self) -> impl Iterator<Item = EndpointView<'_>> {
        self.endpoints.table.iter().map(|(slot, endpoint)| EndpointView {
            slot: *slot,
            name: &endpoint.name,
            role: endpoint.role,
            sample: endpoint.sample.map(|s| (s.waiting, s.running, s.kv)),
            stale: !endpoint.is_fresh(),
            leases: endpoint.leases.len() as u64,
        })
    }

    /// The name of an endpoint of the pool.
    pub fn endpoint_name(&self, slot: Slot) -> Option<&str> {
        self.endpoints.table.get(&slot).map(|endpoint| &*endpoint.name)
    }

    /// The name of a flow.
    pub fn flow_name(&self, flow: FlowId) -> Option<&str> {
        self.flows.get(&flow).map(|flow| &*flow.name)
    }

    /// Is there a flow of this name in this band?
    pub fn has_flow(&self, name: &str, priority: i32) -> bool {
        self.bands.get(&priority).is_some_and(|band| band.flows.contains_key(name))
    }

    /// Flows: name, priority, queued requests.
    pub fn flows(&self) -> impl Iterator<Item = (&str, i32, u64)> {
        self.flows.values().map(|flow| (&*flow.name, flow.priority, flow.queued))
    }

    /// A queued request.
    pub fn queued_request(&self, id: RequestId) -> Option<QueuedView<'_>> {
        let queued = self.queued.get(&id)?;
        let budgets = self.classes.get(queued.class()).map(|class| class.budgets).unwrap_or_default();
        Some(QueuedView {
            flow: self.flow_name(queued.flow).unwrap_or_default(),
            priority: queued.priority,
            enqueued_at: queued.enqueued_at,
            bytes: queued.bytes,
            deadline: queued.deadline,
            face: queued.face,
            due: self.clocks.due(queued.marks, budgets),
        })
    }

    /// Queued requests by number.
    pub fn queued_requests(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.queued.keys().copied()
    }

    /// A running request.
    pub fn lease(&self, id: RequestId) -> Option<LeaseView> {
        let lease = self.leases.get(&id)?;
        let lapses = self.lapsing.contains(&(lease.heard_at, id)) && !self.policy.lease_timeout.is_zero();
        Some(LeaseView {
            priority: lease.priority,
            at: lease.at,
            dispatched_at: lease.dispatched_at,
            face: lease.face,
            lapses_at: lapses.then(|| lease.heard_at + self.policy.lease_timeout),
            can_be_told: self.can_be_told(id, lease),
            revocation: lease.revocation.as_deref().map(|revocation| RevocationView {
                number: revocation.number,
                order: revocation.order,
                issued_at: revocation.issued_at,
                due: revocation.due,
                end: revocation.end,
            }),
        })
    }

    /// What has become of all revocations.
    pub fn revocations(&self) -> RevocationCounts {
        let all = &self.revocations;
        RevocationCounts {
            issued: all.issued,
            ends: all.ends,
            late: all.late,
            reclaimed: all.reclaimed,
            outstanding: all.outstanding.len() as u64,
            cooling: all.cooling.range((self.now, u64::MAX)..).count() as u64,
        }
    }

    /// By how much the gauge is expected to fall once every revocation has had its effect.
    pub fn pending_reclaim(&self) -> Ratio {
        crate::revoke::pending(self)
    }

    /// Leases whose revocation is outstanding.
    pub fn revoked(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.revocations.outstanding.iter().map(|(_, id)| *id)
    }

    /// Running requests by number.
    pub fn leases(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.leases.keys().copied()
    }

    /// What became of the request that first came with this key: its number, and its answer once decided.
    pub fn key_answer(&self, key: &Idempotency) -> Option<(RequestId, Option<KeyAnswer>)> {
        self.keys
            .get(&key.key)
            .filter(|entry| entry.body == key.body)
            .map(|entry| (entry.request, entry.answer))
    }

    /// Idempotency keys remembered.
    pub fn remembered_keys(&self) -> usize {
        self.keys.len()
    }

    /// Attained service of a fairness id, decayed to now, in micro-tokens; `None` if it has no account.
    pub fn attained_service(&self, name: &str, half_life: Micros) -> Option<u128> {
        let program = self.programs.get(name)?;
        Some(crate::service::read(program.service, self.now, self.service_epoch, half_life))
    }
}
