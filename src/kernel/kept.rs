//! The gauge kept between steps, so that a change of one endpoint costs one endpoint and not the whole pool.
//!
//! A cache and nothing else: it is in no snapshot and no digest, folding never builds one, and `check` holds it to
//! what is computed afresh.

use crate::endpoints::Endpoint;
use crate::saturation::{self, EndpointLoad, Gauge, Term};
use crate::{Detector, Fine, Micros, Ratio, Slot, State};
use alloc::vec::Vec;

/// The gauge over all endpoints, with what each of them adds to it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// In slot order.
    entries: Vec<Entry>,
    gauge: Gauge,
    effective: Ratio,
    /// The last instant before something leaves a window by itself.
    until: Micros,
    /// Endpoints that have changed since.
    dirty: Vec<Slot>,
}

#[derive(Clone, Debug)]
struct Entry {
    slot: Slot,
    load: EndpointLoad,
    term: Term,
    score: Fine,
    room: bool,
}

impl Kept {
    /// The effective gauge.
    pub(crate) fn effective(&self) -> Ratio {
        self.effective
    }

    /// As [`State::choose_endpoint`].
    pub(crate) fn choose(&self, detector: &Detector) -> Option<Slot> {
        let all = matches!(detector, Detector::Utilization { .. }) && !self.entries.iter().any(|e| e.room);
        let best = |decoding: bool| {
            self.entries
                .iter()
                .filter(|e| (all || e.room) && (!decoding || e.load.role.decodes()))
                .min_by_key(|e| (!e.load.fresh, e.score, e.load.requests, e.slot))
                .map(|e| e.slot)
        };
        best(true).or_else(|| best(false))
    }

    /// An endpoint has changed. False if so many have that a fresh start is cheaper.
    pub(crate) fn touch(&mut self, slot: Slot) -> bool {
        if self.dirty.last() != Some(&slot) {
            self.dirty.push(slot);
        }
        self.dirty.len() <= self.entries.len()
    }
}

impl State {
    /// Does the gauge follow from what changes with each dispatch and end?
    fn keeps_gauge(&self) -> bool {
        match self.policy.detector {
            Detector::Utilization { .. } => self.policy.in_flight_credit,
            Detector::Concurrency { .. } => true,
            Detector::Pushed => false,
        }
    }

    /// The kept gauge, where it holds now.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        self.endpoints.kept.as_deref().filter(|kept| kept.dirty.is_empty() && self.now <= kept.until)
    }

    /// Brings the kept gauge up to date.
    pub(crate) fn keep_gauge(&mut self) {
        if self.kept().is_some() {
            return;
        }
        let kept = self.endpoints.kept.take();
        if !self.keeps_gauge() {
            return;
        }
        self.endpoints.kept = match kept {
            Some(mut kept) if self.now <= kept.until => {
                self.refresh(&mut kept);
                Some(kept)
            }
            _ => Some(self.kept_afresh().into()),
        };
    }

    fn kept_afresh(&self) -> Kept {
        let mut gauge = Gauge::new(&self.policy.detector);
        let (mut entries, mut until) = (Vec::with_capacity(self.endpoints.table.len()), Micros::MAX);
        for (index, (slot, endpoint)) in self.endpoints.table.iter().enumerate() {
            let entry = self.entry(index, *slot, endpoint);
            gauge.add(entry.load.role, entry.term);
            until = until.min(self.unchanged_until(endpoint));
            entries.push(entry);
        }
        let effective = gauge.read().effective;
        Kept { entries, gauge, effective, until, dirty: Vec::new() }
    }

    fn refresh(&self, kept: &mut Kept) {
        while let Some(slot) = kept.dirty.pop() {
            let index = kept.entries.binary_search_by_key(&slot, |entry| entry.slot);
            let (Ok(index), Some(endpoint)) = (index, self.endpoints.table.get(&slot)) else { continue };
            let entry = self.entry(index, slot, endpoint);
            let old = core::mem::replace(&mut kept.entries[index], entry);
            kept.gauge.remove(old.load.role, old.term);
            let entry = &kept.entries[index];
            kept.gauge.add(entry.load.role, entry.term);
            kept.until = kept.until.min(self.unchanged_until(endpoint));
        }
        kept.effective = kept.gauge.read().effective;
    }

    fn entry(&self, index: usize, slot: Slot, endpoint: &Endpoint) -> Entry {
        let (detector, credit) = (&self.policy.detector, self.policy.in_flight_credit);
        let load = self.load(index, endpoint);
        let term = saturation::term(detector, &load, credit);
        let score = saturation::score(detector, term);
        Entry { slot, load, term, score, room: saturation::has_room(detector, &load) }
    }
}
