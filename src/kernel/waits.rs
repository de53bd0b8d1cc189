//! What a band remembers of its line where a setting asks for it: who waits longest, since when that is too long, and
//! since when there is work at all. From that follow the turning of its order and its starvation bound.
//!
//! Waits are read from the saturation clock, as budgets are (contract.md row 3 (a)): what passes while nothing can serve
//! makes nobody old. Not here: the order by arrival itself (`queues.rs`), predictions (`hopeless.rs`).

use crate::ceilings::{self, Ceiling};
use crate::queues::{Band, Queued};
use crate::turn::Turn;
use crate::{
    BandBounds, BandSettings, BoundReached, Event, Micros, OrderTurned, Ordering, Ratio, Regime, RequestId,
    RestatedLine, State, dispatch,
};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What a band's line remembers.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    /// Requests that can be dispatched, by arrival.
    pub(crate) ages: BTreeSet<RequestId>,
    /// The reading of the saturation clock from which on the oldest has waited past the target, whoever it was.
    pub(crate) above_from: Micros,
    /// The order is turned.
    pub(crate) newest_first: bool,
    /// Since when there has been somebody in `ages`.
    pub(crate) backlog_since: Option<Micros>,
}

impl Waits {
    /// The memory of a band with these settings, if they ask for one.
    pub(crate) fn wanted(settings: &BandSettings, bounds: &BandBounds) -> Option<Box<Waits>> {
        let turns = matches!(settings.ordering, Ordering::NewestFirstWhenStanding { .. });
        (turns || *bounds != BandBounds::default()).then(|| {
            Box::new(Waits {
                ages: BTreeSet::new(),
                above_from: Micros::MAX,
                newest_first: false,
                backlog_since: None,
            })
        })
    }
}

impl Band {
    /// Its order is turned just now.
    pub(crate) fn is_newest_first(&self) -> bool {
        self.waits.as_ref().is_some_and(|waits| waits.newest_first)
    }
}

/// A request can be dispatched from now on.
pub(crate) fn note_ready(state: &mut State, priority: i32, id: RequestId) {
    let now = state.now;
    let Some(line) = memory(state, priority) else { return };
    if line.ages.is_empty() {
        line.backlog_since = Some(now);
    }
    line.ages.insert(id);
    if line.ages.first() == Some(&id) {
        settle(state, priority);
    }
}

/// A request cannot be dispatched any more; it is still among the queued ones.
pub(crate) fn note_unready(state: &mut State, priority: i32, id: RequestId) {
    let Some(line) = memory(state, priority) else { return };
    let oldest = line.ages.first() == Some(&id);
    line.ages.remove(&id);
    if line.ages.is_empty() {
        line.backlog_since = None;
    }
    if oldest {
        settle(state, priority);
    }
}

fn memory(state: &mut State, priority: i32) -> Option<&mut Waits> {
    state.bands.get_mut(&priority)?.waits.as_deref_mut()
}

/// Another request is the oldest. Where this one has waited past the target as well, the spell goes on.
fn settle(state: &mut State, priority: i32) {
    let State { bands, queued, clocks, now, .. } = state;
    let Some(band) = bands.get_mut(&priority) else { return };
    let (Ordering::NewestFirstWhenStanding { target, .. }, Some(line)) =
        (band.settings.ordering, band.waits.as_deref_mut())
    else {
        return;
    };
    let reading = clocks.read(*now).saturation;
    let Some(oldest) = line.ages.first().and_then(|id| queued.get(id)) else {
        line.above_from = Micros::MAX;
        return;
    };
    let crosses = oldest.marks.saturation.max(clocks.fresh_from) + target;
    let from = line.above_from.max(clocks.fresh_from + target);
    if from > reading || crosses > reading {
        line.above_from = crosses.max(reading);
    }
}

/// Other settings: the memory begins, ends, or begins afresh where the order is another one.
pub(crate) fn resettle(state: &mut State, priority: i32, other_order: bool) {
    let Some(band) = state.bands.get_mut(&priority) else { return };
    let wanted = Waits::wanted(&band.settings, &band.bounds);
    match (&mut band.waits, wanted) {
        (line, None) => *line = None,
        (Some(line), Some(_)) if other_order => {
            line.newest_first = false;
            line.above_from = Micros::MAX;
        }
        (Some(_), Some(_)) => return,
        (line, Some(mut fresh)) => {
            let mine = |q: &Queued| q.priority == priority && q.is_ready();
            fresh.ages = state.queued.iter().filter(|(_, q)| mine(q)).map(|(id, _)| *id).collect();
            fresh.backlog_since = (!fresh.ages.is_empty()).then_some(state.now);
            *line = Some(fresh);
        }
    }
    settle(state, priority);
}

pub(crate) fn apply_bounded(state: &mut State, priority: i32, bounds: BandBounds) {
    let Some(band) = state.bands.get_mut(&priority) else { return };
    band.bounds = bounds;
    if bounds.starvation.is_zero() {
        state.bounded.remove(&priority);
    } else {
        state.bounded.insert(priority);
    }
    resettle(state, priority, false);
}

pub(crate) fn apply_turned(state: &mut State, e: &OrderTurned) {
    if let Some(line) = memory(state, e.priority) {
        line.newest_first = e.newest_first;
    }
}

/// A pause is over: nothing was drained in it, and that says nothing about the pool.
pub(crate) fn apply_resumed(state: &mut State) {
    let now = state.now;
    for line in state.bands.values_mut().filter_map(|band| band.waits.as_deref_mut()) {
        if let Some(since) = &mut line.backlog_since {
            *since = now;
        }
    }
}

/// Brings the order of a band in line with how long its oldest request has waited.
pub(crate) fn turn_order(turn: &mut Turn<'_>, priority: i32) {
    if let Some(turned) = turn.state.order_turned(priority) {
        turn.emit(Event::OrderTurned(turned));
    }
}

/// The request that a starvation bound puts before all others: of those whose band is not blocked the one that reached
/// its bound first. With the ceiling of its band.
pub(crate) fn starved(turn: &mut Turn<'_>, effective: Ratio) -> Option<(BoundReached, Ratio)> {
    if turn.state.bounded.is_empty() {
        return None;
    }
    let mut reached: Vec<(Micros, BoundReached)> =
        turn.state.oldest_bounded().filter(|(_, reached)| reached.waited >= reached.bound).collect();
    reached.sort_unstable_by_key(|(due, reached)| (*due, reached.request));
    for (_, reached) in reached {
        let state = &*turn.state;
        let limit = &state.policy.usage_limit;
        let ceiling = match ceilings::ceiling(limit, effective, reached.priority, &state.ranked) {
            Ceiling::Open(ceiling) => ceiling,
            Ceiling::Gated { period } => dispatch::gated(turn, period),
        };
        if effective < ceiling {
            return Some((reached, ceiling));
        }
    }
    None
}

impl State {
    /// How long a request has waited while the pool could serve.
    fn served_wait(&self, queued: &Queued) -> Micros {
        let from = queued.marks.saturation.max(self.clocks.fresh_from);
        self.clocks.read(self.now).saturation.since(from)
    }

    fn order_turned(&self, priority: i32) -> Option<OrderTurned> {
        let band = self.bands.get(&priority)?;
        let Ordering::NewestFirstWhenStanding { target, window } = band.settings.ordering else {
            return None;
        };
        let line = band.waits.as_deref()?;
        let oldest = *line.ages.first()?;
        let waited = self.served_wait(self.queued.get(&oldest)?);
        let from = line.above_from.max(self.clocks.fresh_from + target);
        let past = waited >= target;
        let standing = self.clocks.read(self.now).saturation.since(from);
        let newest_first = past && (line.newest_first || standing >= window);
        let standing = if past { standing } else { Micros::ZERO };
        (newest_first != line.newest_first).then_some(OrderTurned {
            priority,
            newest_first,
            oldest,
            waited,
            standing,
        })
    }

    /// The oldest request of each band with a starvation bound: when it reaches it, on the saturation clock, and as if it
    /// had.
    fn oldest_bounded(&self) -> impl Iterator<Item = (Micros, BoundReached)> + '_ {
        self.bounded.iter().filter_map(|priority| {
            let band = self.bands.get(priority)?;
            let request = *band.waits.as_ref()?.ages.first()?;
            let queued = self.queued.get(&request)?;
            let bound = band.bounds.starvation;
            let due = queued.marks.saturation.max(self.clocks.fresh_from) + bound;
            let waited = self.served_wait(queued);
            Some((due, BoundReached { request, priority: *priority, waited, bound }))
        })
    }

    /// When a request reaches its band's starvation bound although its band is not blocked: a higher one is.
    pub(crate) fn bound_deadline(&self, effective: Ratio) -> Option<Micros> {
        if self.clocks.regime != Regime::HasEndpoints {
            return None;
        }
        let open = |priority: i32| match ceilings::ceiling(
            &self.policy.usage_limit,
            effective,
            priority,
            &self.ranked,
        ) {
            Ceiling::Open(ceiling) => effective < ceiling,
            Ceiling::Gated { .. } => false,
        };
        self.oldest_bounded()
            .filter(|(_, reached)| open(reached.priority))
            .map(|(due, _)| self.clocks.since + due.since(self.clocks.saturation))
            .min()
    }

    /// Its part of a snapshot; nothing where no band asks for it.
    pub(crate) fn restate_lines(&self) -> impl Iterator<Item = Event> + '_ {
        self.bands.iter().filter_map(|(priority, band)| {
            let line = band.waits.as_deref()?;
            Some(Event::RestatedLine(Box::new(RestatedLine {
                priority: *priority,
                bounds: band.bounds,
                above_from: line.above_from,
                newest_first: line.newest_first,
                backlog_since: line.backlog_since,
            })))
        })
    }

    pub(crate) fn read_line(&mut self, restated: &RestatedLine) {
        apply_bounded(self, restated.priority, restated.bounds);
        if let Some(line) = memory(self, restated.priority) {
            line.above_from = restated.above_from;
            line.newest_first = restated.newest_first;
            line.backlog_since = restated.backlog_since;
        }
    }
}
