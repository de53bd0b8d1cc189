//! The pool's saturation from the state: the view, plus what the sensor cannot have seen yet.
//!
//! Not here: the formulas (`saturation.rs`).

use crate::endpoints::{Endpoint, Totals};
use crate::kept::Kept;
use crate::saturation::{self, EndpointLoad, Gauge, StageSaturation};
use crate::{Detector, Fine, Micros, Ratio, RequestId, Role, Slot, State};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Beyond the staleness threshold, how much older the sample of a fresh endpoint can be: it is fresh by receipt, and
/// this covers the way there. A fresh endpoint whose last *logged* sample is older was sampled since, unchanged.
const REQUEST_ALLOWANCE: Micros = Micros::from_millis(50);

impl State {
    /// The raw and the effective gauge now: as sampled, and with the in-flight credit (the same where none applies).
    pub fn saturation(&self) -> (Ratio, Ratio) {
        match self.policy.detector {
            // The raw gauge moves only with the view, and is kept with it.
            Detector::Utilization { .. } if self.policy.in_flight_credit => {
                let kept = self.kept().map(Kept::effective);
                (self.endpoints.raw, kept.unwrap_or_else(|| self.gauge(true).effective))
            }
            Detector::Utilization { .. } => (self.endpoints.raw, self.endpoints.raw),
            Detector::Concurrency { .. } | Detector::Pushed => {
                let kept = self.kept().map(Kept::effective);
                let gauge = kept.unwrap_or_else(|| self.gauge(false).effective);
                (gauge, gauge)
            }
        }
    }

    /// The gauge that decides, by stage: prefill and decode, each if it has endpoints.
    pub fn stage_saturation(&self) -> (Option<Ratio>, Option<Ratio>) {
        let stages = self.gauge(self.policy.in_flight_credit);
        (stages.prefill, stages.decode)
    }

    /// The raw gauge now.
    pub(crate) fn raw_saturation(&self) -> Ratio {
        match self.policy.detector {
            Detector::Utilization { .. } => self.endpoints.raw,
            Detector::Concurrency { .. } | Detector::Pushed => self.gauge(false).effective,
        }
    }

    /// No endpoint has fresh metrics, and the detector needs them.
    pub(crate) fn is_blind(&self) -> bool {
        self.policy.detector.reads_metrics() && self.endpoints.all_stale()
    }

    /// The gauge by stage.
    pub(crate) fn gauge(&self, credit: bool) -> StageSaturation {
        if let Detector::Pushed = self.policy.detector {
            return self.pushed();
        }
        let mut gauge = Gauge::new(&self.policy.detector);
        for load in self.loads() {
            gauge.add(load.role, saturation::term(&self.policy.detector, &load, credit));
        }
        gauge.read()
    }

    /// A figure that somebody else computed counts for the stages that have endpoints; for the whole if neither has.
    fn pushed(&self) -> StageSaturation {
        let Some((prefill, decode)) = self.endpoints.pushed.filter(|_| self.endpoints.len() > 0) else {
            return StageSaturation { prefill: None, decode: None, effective: Ratio::ONE };
        };
        let serves = |stage: fn(Role) -> bool| self.endpoints.table.values().any(|e| stage(e.role));
        let (prefills, decodes) = (serves(Role::prefills), serves(Role::decodes));
        let (in_prefill, in_decode) = (prefills.then_some(prefill), decodes.then_some(decode));
        let effective = in_prefill.max(in_decode).unwrap_or(prefill.max(decode));
        StageSaturation { prefill: in_prefill, decode: in_decode, effective }
    }

    /// How far back dispatches may be unseen by the sample of a fresh endpoint.
    fn horizon(&self) -> Micros {
        match &self.policy.detector {
            Detector::Utilization { staleness, .. } => *staleness + REQUEST_ALLOWANCE,
            Detector::Concurrency { .. } | Detector::Pushed => Micros::ZERO,
        }
    }

    fn window(&self, endpoint: &Endpoint) -> Micros {
        endpoint.requested_at.max(self.now.since(self.horizon()))
    }

    /// What the detector sees of each endpoint, in slot order.
    pub(crate) fn loads(&self) -> impl Iterator<Item = EndpointLoad> + '_ {
        self.endpoints.table.values().enumerate().map(|(index, endpoint)| self.load(index, endpoint))
    }

    /// What the detector sees of the endpoint that is at `index` in slot order.
    pub(crate) fn load(&self, index: usize, endpoint: &Endpoint) -> EndpointLoad {
        let count = self.endpoints.table.len().max(1) as u64;
        let elsewhere = self.endpoints.elsewhere.len() as u64;
        let share = |total: u64| total / count + u64::from((index as u64) < total % count);
        let (unseen, ended) = if self.policy.detector.reads_metrics() {
            self.unseen(endpoint, count, elsewhere)
        } else {
            (Fine::ZERO, Fine::ZERO)
        };
        EndpointLoad {
            role: endpoint.role,
            sample: endpoint.sample,
            fresh: endpoint.is_fresh(),
            unseen,
            ended,
            slack: endpoint.slack(),
            requests: endpoint.leases.len() as u64 + share(elsewhere),
            tokens: endpoint.tokens.saturating_add(share(self.endpoints.elsewhere_tokens)),
        }
    }

    /// u and g of contract.md, *In-flight credit*: what was dispatched to the endpoint (or spread over all) that its
    /// sample does not show, and what has ended there since.
    fn unseen(&self, endpoint: &Endpoint, count: u64, elsewhere: u64) -> (Fine, Fine) {
        let Some(sample) = endpoint.sample else { return (Fine::ZERO, Fine::ZERO) };
        let from = self.window(endpoint);
        let own = endpoint.ledger.since(from);
        let spread = self.endpoints.elsewhere_ledger.since(from);
        let then = leases_at(endpoint.leases.len() as u64, own);
        let then_elsewhere = leases_at(elsewhere, spread);
        let shown = u64::from(sample.waiting) + u64::from(sample.running);
        let part = |own: u64, spread: u64| Fine::from_int(own) + Fine::from_fraction(spread, count);
        let hidden = (part(then, then_elsewhere) - Fine::from_int(shown)).max(Fine::ZERO);
        (hidden + part(own.dispatched, spread.dispatched), part(own.ended, spread.ended))
    }

    /// When the gauge falls by itself because a dispatch leaves every window, while work is held by a ceiling.
    pub(crate) fn credit_deadline(&self) -> Option<Micros> {
        let horizon = self.horizon();
        if horizon.is_zero() || !self.policy.in_flight_credit {
            return None;
        }
        let all = self.endpoints.table.values();
        let until = all.map(|endpoint| self.unchanged_within(horizon, endpoint)).min()?;
        (until < Micros::MAX).then(|| until + Micros(1))
    }

    /// Until when no dispatch and no end leaves this endpoint's window by itself.
    pub(crate) fn unchanged_until(&self, endpoint: &Endpoint) -> Micros {
        self.unchanged_within(self.horizon(), endpoint)
    }

    fn unchanged_within(&self, horizon: Micros, endpoint: &Endpoint) -> Micros {
        if horizon.is_zero() || !endpoint.is_fresh() {
            return Micros::MAX;
        }
        let from = endpoint.requested_at.max(self.now.since(horizon));
        let own = endpoint.ledger.first_at_or_after(from);
        let spread = self.endpoints.elsewhere_ledger.first_at_or_after(from);
        own.into_iter().chain(spread).min().map_or(Micros::MAX, |first| first + horizon)
    }

    /// The least loaded endpoint that the detector's filter keeps, for the stage that generates; ties by slot.
    pub(crate) fn choose_endpoint(&self) -> Option<Slot> {
        match self.kept() {
            Some(kept) => kept.choose(&self.policy.detector),
            None => self.choose_afresh(),
        }
    }

    /// The same without the kept gauge.
    pub(crate) fn choose_afresh(&self) -> Option<Slot> {
        let loads: Vec<EndpointLoad> = self.loads().collect();
        let kept = saturation::filter(&self.policy.detector, &loads);
        let slots: Vec<Slot> = self.endpoints.table.keys().copied().collect();
        let credit = self.policy.in_flight_credit;
        let best = |decoding: bool| {
            kept.iter()
                .filter_map(|index| loads.get(*index).zip(slots.get(*index)))
                .filter(|(load, _)| !decoding || load.role.decodes())
                .min_by_key(|(load, slot)| {
                    (
                        !load.fresh,
                        saturation::endpoint_score(&self.policy.detector, load, credit),
                        load.requests,
                        **slot,
                    )
                })
                .map(|(_, slot)| *slot)
        };
        best(true).or_else(|| best(false))
    }
}

fn leases_at(now: u64, since: Totals) -> u64 {
    (now + since.ended).saturating_sub(since.dispatched - since.untracked)
}

/// Notes a dispatch or a lease end where it counts.
pub(crate) fn note(state: &mut State, slot: Option<Slot>, totals: Totals) {
    let now = state.now;
    state.endpoints.touch(slot);
    match slot {
        Some(slot) => {
            if let Some(endpoint) = state.endpoints.table.get_mut(&slot) {
                endpoint.ledger.add(now, totals);
            }
        }
        None => state.endpoints.elsewhere_ledger.add(now, totals),
    }
}

/// The set of leases (and their tokens) at a place.
fn leases_there(state: &mut State, slot: Option<Slot>) -> Option<(&mut BTreeSet<RequestId>, &mut u64)> {
    state.endpoints.touch(slot);
    match slot {
        Some(slot) => {
            state.endpoints.table.get_mut(&slot).map(|endpoint| (&mut endpoint.leases, &mut endpoint.tokens))
        }
        None => Some((&mut state.endpoints.elsewhere, &mut state.endpoints.elsewhere_tokens)),
    }
}

/// A lease comes to a place, or goes.
pub(crate) fn place_lease(state: &mut State, slot: Option<Slot>, id: RequestId, tokens: u64, there: bool) {
    let Some((set, sum)) = leases_there(state, slot) else { return };
    if there {
        if set.insert(id) {
            *sum = sum.saturating_add(tokens);
        }
    } else if set.remove(&id) {
        *sum = sum.saturating_sub(tokens);
    }
}

/// A lease holds other tokens where it is.
pub(crate) fn weigh_lease(state: &mut State, slot: Option<Slot>, id: RequestId, before: u64, after: u64) {
    let Some((set, sum)) = leases_there(state, slot) else { return };
    let held = if set.insert(id) { 0 } else { before };
    *sum = sum.saturating_sub(held).saturating_add(after);
}
