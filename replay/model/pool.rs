//! The servers of a pool under the fitted model, by slot.

use super::engine::{Engine, Gauge, Happened, Work};
use super::{Drift, Speeds};
use crate::numbers::Table;
use std::collections::BTreeMap;
use weir_kernel::{Micros, Slot};

/// The pool as the model has it.
#[derive(Clone, Debug)]
pub struct Pool {
    speeds: Speeds,
    engines: BTreeMap<Slot, Engine>,
    places: Table<u64, Slot>,
    now: Micros,
    /// When something happens next by itself: most steps of a log ask in vain.
    next: Option<Micros>,
}

impl Pool {
    /// Without servers.
    pub fn new(speeds: Speeds) -> Pool {
        Pool { speeds, engines: BTreeMap::new(), places: Table::default(), now: Micros::ZERO, next: None }
    }

    /// The same servers, faster or slower.
    pub fn drift(&mut self, drift: Drift) {
        self.speeds = self.speeds.drifted(drift);
    }

    /// A server joined; one that is there already stays.
    pub fn join(&mut self, slot: Slot) {
        self.engines.entry(slot).or_insert_with(Engine::new);
    }

    /// A server left: nothing new goes there. What runs there is ended by whoever saw the end.
    pub fn leave(&mut self, slot: Slot) {
        if self.engines.get(&slot).is_some_and(|engine| engine.len() == 0) {
            self.engines.remove(&slot);
            self.next = self.soonest();
        }
    }

    /// When something happens next by itself.
    pub fn next(&self) -> Option<Micros> {
        self.next
    }

    fn soonest(&self) -> Option<Micros> {
        self.engines.values().filter_map(Engine::next).min()
    }

    /// Lets time pass until `to`, inclusive.
    pub fn advance(&mut self, to: Micros, tell: &mut impl FnMut(Happened)) {
        self.now = self.now.max(to);
        if self.next.is_none_or(|next| to < next) {
            return;
        }
        let places = &mut self.places;
        let due = |engine: &&mut Engine| engine.next().is_some_and(|next| next <= to);
        for engine in self.engines.values_mut().filter(due) {
            engine.advance(to, &self.speeds, &mut |happened| {
                if happened.done {
                    places.remove(&happened.id);
                }
                tell(happened);
            });
        }
        self.next = self.soonest();
    }

    /// Gives a request to a server: the one that is known, else the one with the fewest requests.
    /// False where there is no server.
    pub fn submit(&mut self, at: Micros, id: u64, slot: Option<Slot>, work: Work) -> bool {
        let known = slot.filter(|slot| self.engines.contains_key(slot));
        let fewest =
            || self.engines.iter().min_by_key(|(slot, engine)| (engine.len(), **slot)).map(|(s, _)| *s);
        let Some(slot) = known.or_else(fewest) else { return false };
        if let Some(engine) = self.engines.get_mut(&slot) {
            engine.submit(at, id, work, &self.speeds);
            self.next = engine.next().into_iter().chain(self.next).min();
            self.places.insert(id, slot);
        }
        true
    }

    /// Another opinion on what a request needs.
    pub fn set_work(&mut self, id: u64, work: Work) {
        if let Some(engine) = self.places.get(&id).and_then(|slot| self.engines.get_mut(slot)) {
            engine.set_work(id, work);
        }
    }

    /// Ends a request: the work that it has got, if it was there.
    pub fn remove(&mut self, at: Micros, id: u64) -> Option<Work> {
        let slot = self.places.remove(&id)?;
        let engine = self.engines.get_mut(&slot)?;
        let before = engine.next();
        let got = engine.remove(at, id, &self.speeds);
        if engine.next() != before {
            self.next = self.soonest();
        }
        got
    }

    /// Is it there?
    pub fn has(&self, id: u64) -> bool {
        self.places.contains_key(&id)
    }

    /// What the metrics of a server would have shown at `at`, which must be recent.
    pub fn gauge_at(&self, slot: Slot, at: Micros) -> Gauge {
        self.engines.get(&slot).map_or_else(Gauge::default, |engine| engine.gauge_at(at))
    }

    /// What each server holds now.
    pub fn gauges(&self) -> impl Iterator<Item = (Slot, Gauge)> + '_ {
        self.engines.iter().map(|(slot, engine)| (*slot, engine.gauge(&self.speeds)))
    }

    /// Do both have the same work left everywhere?
    pub fn is_as(&self, other: &Pool) -> bool {
        self.engines.len() == other.engines.len()
            && self.engines.iter().zip(&other.engines).all(|((a, one), (b, two))| a == b && one.is_as(two))
    }
}
