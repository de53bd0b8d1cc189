//! Who goes next, and why: order between bands and inside a flow, the turning of orders, starvation bounds and hopeless
//! arrivals, by a naive reading. How long a band's oldest request has waited past its target is counted up step by step.

use super::{Broken, Waiting};
use std::collections::BTreeMap;
use weir_kernel::*;

type All = BTreeMap<RequestId, Waiting>;

/// What is known of a band from its events.
#[derive(Clone, Debug)]
struct Own {
    settings: BandSettings,
    bounds: BandBounds,
    /// For so long its oldest request, whoever it was, has waited past the target.
    standing: u64,
    newest_first: bool,
    /// When its requests were dispatched.
    dispatched: Vec<Micros>,
}

impl Own {
    fn turns(&self) -> Option<(u64, u64)> {
        match self.settings.ordering {
            Ordering::NewestFirstWhenStanding { target, window } => Some((target.0, window.0)),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Lines {
    bands: BTreeMap<i32, Own>,
    /// Said to have reached its bound, and to be dispatched next.
    reached: Option<RequestId>,
}

fn oldest(all: &All, priority: i32) -> Option<(RequestId, &Waiting)> {
    all.iter().find(|(_, w)| w.priority == priority && w.absent.is_none()).map(|(id, w)| (*id, w))
}

impl Lines {
    /// Time passes while the pool can serve; the meters of the requests are as before.
    pub fn charge(&mut self, ran: u64, all: &All) {
        for (priority, own) in &mut self.bands {
            if let (Some((target, _)), Some((_, w))) = (own.turns(), oldest(all, *priority)) {
                own.standing += ran.min((w.busy + ran).saturating_sub(target));
            }
        }
    }

    /// A spell is over where nobody has waited past the target.
    pub fn settle(&mut self, all: &All) {
        for (priority, own) in &mut self.bands {
            if let Some((target, _)) = own.turns()
                && oldest(all, *priority).is_none_or(|(_, w)| w.busy < target)
            {
                own.standing = 0;
            }
        }
    }

    pub fn event(&mut self, step: &Step, event: &Event, all: &All) -> Result<(), Broken> {
        if self.reached.is_some() && !matches!(event, Event::Dispatched(_)) {
            return Err("a bound was reached and nobody was dispatched".into());
        }
        match event {
            Event::BandOpened { priority, settings, .. } => {
                let own = Own {
                    settings: (**settings).clone(),
                    bounds: BandBounds::default(),
                    standing: 0,
                    newest_first: false,
                    dispatched: Vec::new(),
                };
                self.bands.insert(*priority, own);
            }
            Event::BandChanged { priority, settings, .. } => {
                let own = self.bands.get_mut(priority).ok_or("a change of no band")?;
                if own.settings.ordering != settings.ordering {
                    (own.standing, own.newest_first) = (0, false);
                }
                own.settings = (**settings).clone();
            }
            Event::BandClosed { priority } => {
                self.bands.remove(priority);
            }
            Event::BandBounded { priority, bounds } => {
                self.bands.get_mut(priority).ok_or("bounds of no band")?.bounds = *bounds;
            }
            Event::OrderTurned(e) => {
                let own = self.bands.get_mut(&e.priority).ok_or("an order of no band")?;
                let (target, window) = own.turns().ok_or("an order that never turns")?;
                let (id, w) = oldest(all, e.priority).ok_or("an order of nobody")?;
                let past = w.busy >= target;
                let right = e.newest_first != own.newest_first
                    && e.newest_first == (past && own.standing >= window)
                    && (e.oldest, e.waited.0) == (id, w.busy)
                    && e.standing.0 == if past { own.standing } else { 0 };
                own.newest_first = e.newest_first;
                return ok(right, &format!("{e:?}: {} has waited {}, {own:?}", id, w.busy));
            }
            Event::BoundReached(e) => {
                let w = all.get(&e.request).ok_or("who reached a bound?")?;
                let bound = self.bands.get(&e.priority).map_or(Micros::ZERO, |own| own.bounds.starvation);
                let right = bound == e.bound && w.priority == e.priority && w.busy == e.waited.0;
                self.reached = Some(e.request);
                return ok(right && e.waited >= bound && bound.0 > 0, &format!("{e:?} after {}", w.busy));
            }
            Event::FoundHopeless(e) => return self.hopeless(step, e, all),
            _ => {}
        }
        Ok(())
    }

    /// The arithmetic of a prediction from its own figures, and the figures from the log.
    fn hopeless(&self, step: &Step, e: &Hopeless, all: &All) -> Result<(), Broken> {
        let own = self.bands.get(&e.priority).ok_or("hopeless in no band")?;
        let Input::Arrived(arrival) = &step.input else { return Err("who is hopeless?".into()) };
        let product = u128::from(e.ahead) * u128::from(e.window.0);
        let from = step.at.since(e.window);
        let drained = own.dispatched.iter().filter(|at| **at >= from).count() as u64;
        let queued = all.values().filter(|w| w.priority == e.priority).count() as u64;
        let refused = step.events.iter().any(|event| {
            matches!(event, Event::Rejected(r) if r.reason == Reason::Saturated && r.limit.is_none() && r.outcome == Outcome::RejectedCapacity)
        });
        let right = own.bounds.reject_hopeless
            && e.predicted > e.left
            && product / u128::from(e.drained) == u128::from(e.predicted.0)
            && e.drained == drained
            && (1..=queued).contains(&e.ahead)
            && !own.newest_first
            && arrival.deadline.is_none_or(|deadline| e.left <= deadline.since(step.at));
        ok(right && refused, &format!("{e:?}: {drained} drained, {queued} queued"))
    }

    /// May this one be the next?
    pub fn may_go(
        &mut self,
        at: Micros,
        (id, w): (RequestId, &Waiting),
        others: &All,
        policy: &Policy,
    ) -> Result<(), Broken> {
        let by_bound = self.reached.take().is_some_and(|reached| reached == id);
        // Where all ceilings are the same, nobody else who reached a bound is held back.
        let one_ceiling = policy.flow_control && matches!(policy.usage_limit, UsageLimit::Static { .. });
        let bound = |priority| self.bands.get(&priority).map_or(0, |own| own.bounds.starvation.0);
        let over =
            |o: &Waiting| Some(bound(o.priority)).filter(|b| *b > 0 && o.busy >= *b).map(|b| o.busy - b);
        let mine = if by_bound { over(w) } else { None };
        let ready = || others.iter().filter(|(_, o)| o.absent.is_none());
        let sooner = |(other, o): (&RequestId, &Waiting)| {
            over(o).is_some_and(|theirs| mine.is_none_or(|mine| (mine, id) < (theirs, id.min(*other))))
        };
        if one_ceiling && ready().any(sooner) {
            return Err(format!("{id} passed one that reached its bound before"));
        }
        let own = self.bands.get_mut(&w.priority).ok_or("dispatched from no band")?;
        own.dispatched.push(at);
        if by_bound {
            let older = ready().any(|(other, o)| o.priority == w.priority && *other < id);
            return ok(!older, &format!("{id} reached its bound after an older one of its band"));
        }
        if let Some((_, above)) = ready().find(|(_, o)| o.priority > w.priority) {
            return Err(format!("{id} passed a request of band {}", above.priority));
        }
        if let Some((target, window)) = own.turns() {
            let mut band = ready().filter(|(_, o)| o.priority == w.priority);
            let busy = band.next().filter(|(other, _)| **other < id).map_or(w.busy, |(_, o)| o.busy);
            let turned = busy >= target && (own.newest_first || own.standing >= window);
            ok(own.newest_first == turned, &format!("{id} in a band that should have turned: {own:?}"))?;
        }
        let passed = |(other, o): (&RequestId, &Waiting)| {
            let theirs_first = (o.order, *other) < (w.order, id);
            o.flow == w.flow && theirs_first != own.newest_first
        };
        ok(!ready().any(passed), &format!("{id} passed another of its flow"))
    }

    /// The kernel's own word.
    pub fn compare(&self, state: &State) -> Result<(), Broken> {
        for band in state.bands() {
            let own = self.bands.get(&band.priority).ok_or("a band that nobody opened")?;
            let same = own.newest_first == band.newest_first && own.bounds == band.bounds;
            let wanted = state.policy().bounds_for(band.priority) == band.bounds;
            ok(same && wanted, &format!("{band:?} is {own:?} by the log"))?;
        }
        Ok(())
    }
}

fn ok(holds: bool, what: &str) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}
