//! Bands, flows and queued requests, and the indexes from which the next one is picked.
//!
//! Not here: who decides (`arrival.rs`, `dispatch.rs`, `expiry.rs`); every change comes through `apply`.

use crate::clocks::Marks;
use crate::waits::Waits;
use crate::{
    BandBounds, BandOrigin, BandSettings, Face, Fairness, FlowId, Idempotency, Micros, OrderKey, RequestId,
    classes::ClassKey,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;

/// Dispatches are remembered by second for this long, for `Retry-After`.
pub(crate) const DRAIN_WINDOW_SECONDS: u64 = 30;

/// A place in line: the policy's key, then arrival.
pub(crate) type Place = (OrderKey, RequestId);

#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) flow: FlowId,
    pub(crate) priority: i32,
    pub(crate) order: OrderKey,
    pub(crate) enqueued_at: Micros,
    pub(crate) marks: Marks,
    pub(crate) bytes: u64,
    pub(crate) prompt_tokens: u32,
    pub(crate) header_class: Option<Micros>,
    pub(crate) deadline: Option<Micros>,
    pub(crate) face: Face,
    pub(crate) choose_endpoint: bool,
    pub(crate) key: Option<Idempotency>,
    /// Its caller is gone since a restart; it keeps its place but is not dispatchable until the caller is back.
    pub(crate) resumable_until: Option<Micros>,
    pub(crate) heard_at: Micros,
    /// It waits to be ended by recovery.
    pub(crate) doomed: bool,
    /// The program whose account it is on.
    pub(crate) program: Option<Arc<str>>,
}

impl Queued {
    pub(crate) fn class(&self) -> ClassKey {
        ClassKey { priority: self.priority, header: self.header_class }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.resumable_until.is_none() && !self.doomed
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) name: Arc<str>,
    pub(crate) priority: i32,
    /// Queued requests, ready or not.
    pub(crate) queued: u64,
    /// Ready requests in order; kept only where the band's fairness looks at flows.
    pub(crate) line: BTreeSet<Place>,
    /// When its last request left the queue, while none is queued.
    pub(crate) idle_since: Option<Micros>,
}

/// What the band's fairness policy picks from. Only flows with ready requests are in it.
#[derive(Clone, Debug)]
pub(crate) enum Ready {
    /// One line over all flows.
    Strict(BTreeSet<Place>),
    /// Flows by name.
    Turns { flows: BTreeMap<Arc<str>, FlowId>, last: Option<FlowId> },
    /// Flows by attained service and by their head, whose number is also the order of enqueue.
    Service {
        by_service: BTreeSet<(u128, FlowId)>,
        by_wait: BTreeMap<RequestId, FlowId>,
        keys: BTreeMap<FlowId, ServiceKey>,
    },
}

/// By what a flow is compared under least-attained-service fairness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceKey {
    pub(crate) service: u128,
    pub(crate) head: RequestId,
    pub(crate) since: Micros,
}

impl Ready {
    pub(crate) fn new(fairness: &Fairness) -> Ready {
        match fairness {
            Fairness::GlobalStrict => Ready::Strict(BTreeSet::new()),
            Fairness::RoundRobin => Ready::Turns { flows: BTreeMap::new(), last: None },
            Fairness::ProgramAware(_) => Ready::Service {
                by_service: BTreeSet::new(),
                by_wait: BTreeMap::new(),
                keys: BTreeMap::new(),
            },
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Band {
    pub(crate) origin: BandOrigin,
    pub(crate) settings: BandSettings,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Requests that can be dispatched.
    pub(crate) ready_requests: u64,
    /// All flows of the band, by name.
    pub(crate) flows: BTreeMap<Arc<str>, FlowId>,
    pub(crate) ready: Ready,
    /// Since when it has no flow.
    pub(crate) idle_since: Option<Micros>,
    /// Refusals since it last freed a slot.
    pub(crate) refusals: u64,
    pub(crate) active_since: Option<Micros>,
    /// Dispatches by second, oldest first.
    pub(crate) drained: VecDeque<(u64, u64)>,
    pub(crate) bounds: BandBounds,
    /// Kept where the order or the bounds ask for it.
    pub(crate) waits: Option<Box<Waits>>,
}

impl Band {
    pub(crate) fn new(origin: BandOrigin, settings: BandSettings, now: Micros) -> Band {
        Band {
            origin,
            ready: Ready::new(&settings.fairness),
            bounds: BandBounds::default(),
            waits: Waits::wanted(&settings, &BandBounds::default()),
            settings,
            requests: 0,
            bytes: 0,
            ready_requests: 0,
            flows: BTreeMap::new(),
            idle_since: Some(now),
            refusals: 0,
            active_since: None,
            drained: VecDeque::new(),
        }
    }

    pub(crate) fn is_collectable(&self) -> bool {
        self.origin == BandOrigin::Provisioned && self.flows.is_empty()
    }

    pub(crate) fn note_dispatch(&mut self, now: Micros) {
        let second = now.0 / 1_000_000;
        while self.drained.front().is_some_and(|(old, _)| old + DRAIN_WINDOW_SECONDS < second) {
            self.drained.pop_front();
        }
        match self.drained.back_mut() {
            Some((last, count)) if *last == second => *count += 1,
            _ => self.drained.push_back((second, 1)),
        }
    }

    /// `Retry-After` for the next refusal after `ahead` others that are not counted yet: ceil(k / drain rate), whole
    /// seconds, at most 30; `None` below one second or with no rate known (contract.md row 17).
    pub(crate) fn retry_after(&self, now: Micros, ahead: u64) -> Option<u8> {
        let from = now.since(Micros::from_secs(DRAIN_WINDOW_SECONDS));
        let count: u128 =
            self.drained.iter().filter(|(s, _)| *s >= from.0 / 1_000_000).map(|(_, n)| u128::from(*n)).sum();
        let start = self.active_since?.max(from);
        let window = u128::from(now.since(start).0.max(1_000_000));
        if count == 0 {
            return None;
        }
        let k = u128::from(self.refusals) + u128::from(ahead) + 1;
        let (spent, rate) = (k * window, count * 1_000_000);
        (spent >= rate).then(|| u8::try_from(spent.div_ceil(rate).min(30)).unwrap_or(30))
    }
}

/// Puts a ready request into its band's indexes.
pub(crate) fn make_ready(
    band: &mut Band,
    flow_id: FlowId,
    flow: &mut Flow,
    place: Place,
    head_service: u128,
    enqueued: &dyn Fn(RequestId) -> Micros,
) {
    band.ready_requests += 1;
    if let Ready::Strict(line) = &mut band.ready {
        line.insert(place);
        return;
    }
    flow.line.insert(place);
    if flow.line.first() == Some(&place) {
        reindex_flow(&mut band.ready, flow_id, flow, head_service, enqueued);
    }
}

/// Takes a ready request out of its band's indexes.
pub(crate) fn make_unready(
    band: &mut Band,
    flow_id: FlowId,
    flow: &mut Flow,
    place: Place,
    head_service: u128,
    enqueued: &dyn Fn(RequestId) -> Micros,
) {
    band.ready_requests = band.ready_requests.saturating_sub(1);
    if let Ready::Strict(line) = &mut band.ready {
        line.remove(&place);
        return;
    }
    let was_head = flow.line.first() == Some(&place);
    flow.line.remove(&place);
    if was_head {
        reindex_flow(&mut band.ready, flow_id, flow, head_service, enqueued);
    }
    if band.ready_requests == 0
        && let Ready::Turns { last, .. } = &mut band.ready
    {
        // Nothing left to serve: the next turn starts over (seed-system.md 10.1).
        *last = None;
    }
}

/// Brings a flow's entry in its band's index in line with its head and its program's service.
pub(crate) fn reindex_flow(
    ready: &mut Ready,
    id: FlowId,
    flow: &Flow,
    service: u128,
    enqueued: &dyn Fn(RequestId) -> Micros,
) {
    match ready {
        Ready::Strict(_) => {}
        Ready::Turns { flows, .. } => {
            if flow.line.is_empty() {
                flows.remove(&flow.name);
            } else if flow.line.len() == 1 && !flows.contains_key(&flow.name) {
                flows.insert(Arc::clone(&flow.name), id);
            }
        }
        Ready::Service { by_service, by_wait, keys } => {
            let new = flow.line.first().map(|(_, head)| ServiceKey {
                service,
                head: *head,
                since: enqueued(*head),
            });
            let old = keys.get(&id).copied();
            if new == old {
                return;
            }
            if let Some(key) = old {
                by_service.remove(&(key.service, id));
                by_wait.remove(&key.head);
            }
            match new {
                Some(key) => {
                    by_service.insert((key.service, id));
                    by_wait.insert(key.head, id);
                    keys.insert(id, key);
                }
                None => {
                    keys.remove(&id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band(drained: &[(u64, u64)], refusals: u64) -> Band {
        let mut band = Band::new(BandOrigin::Configured, BandSettings::default(), Micros::ZERO);
        band.active_since = Some(Micros::ZERO);
        band.drained = drained.iter().copied().collect();
        band.refusals = refusals;
        band
    }

    #[test]
    fn c019_retry_after_follows_the_measured_drain_rate() {
        let now = Micros::from_secs(100);
        for (drained, refusals, want) in [
            (&[(80, 12)][..], 0, Some(3)),
            (&[(80, 150)][..], 0, None),
            (&[(80, 150)][..], 9, Some(2)),
            (&[(80, 1)][..], 0, Some(30)),
            (&[(80, 1)][..], 500, Some(30)),
            (&[][..], 0, None),
            (&[(60, 500)][..], 0, None),
        ] {
            assert_eq!(band(drained, refusals).retry_after(now, 0), want, "{drained:?} after {refusals}");
        }
    }
}
