//! What happened to the whole pool while requests waited: once per pool, not once per request.

use crate::names;
use crate::span::{Attribute, SpanEvent, Value, attribute};
use std::collections::VecDeque;
use weir_kernel::{Enqueued, Event, Hold, Micros, Regime, RequestId, Step};

/// Moments that are kept at most; beyond it the oldest go.
const KEPT_MAX: usize = 4_096;
/// Events of one span.
const EVENTS_MAX: usize = 64;

/// One of them.
#[derive(Clone, Debug)]
pub struct Moment {
    seq: u64,
    at: Micros,
    what: Event,
}

impl Moment {
    /// Of an event of this step.
    pub fn of(step: &Step, event: &Event) -> Self {
        Moment { seq: step.seq, at: step.at, what: event.clone() }
    }

    /// As events of a request that waits with these terms.
    fn tell(&self, terms: &Enqueued, to: &mut Vec<SpanEvent>) {
        let mut event = |name, attributes| to.push(SpanEvent { name, at: self.at, attributes });
        match &self.what {
            Event::RegimeChanged { from, to, endpoints, fresh } => {
                event(
                    names::REGIME_CHANGED,
                    vec![
                        Attribute(names::REGIME_FROM, Value::Word(from.word())),
                        Attribute(names::REGIME, Value::Word(to.word())),
                        attribute(names::ENDPOINTS, *endpoints),
                        attribute(names::ENDPOINTS_FRESH, *fresh),
                    ],
                );
                // Only leaving `NoEndpoints` starts the saturation budget afresh.
                if *from == Regime::NoEndpoints && !terms.saturation_budget.is_zero() {
                    let budget = attribute(names::BUDGET_SATURATION, terms.saturation_budget);
                    event(names::BUDGET_RECHARGED, vec![budget]);
                }
            }
            Event::ClassRebudgeted { priority, header_class, saturation_budget, no_endpoint_budget }
                if *priority == terms.priority && *header_class == terms.header_class =>
            {
                event(
                    names::BUDGET_CHANGED,
                    vec![
                        attribute(names::BUDGET_SATURATION, *saturation_budget),
                        attribute(names::BUDGET_NO_ENDPOINT, *no_endpoint_budget),
                    ],
                );
            }
            Event::Held { by } => event(names::HELD, hold(*by)),
            Event::HoldLifted => event(names::HOLD_LIFTED, Vec::new()),
            _ => {}
        }
    }
}

/// What holds queued work back.
pub fn hold(by: Hold) -> Vec<Attribute> {
    let word = |word| Attribute(names::HELD_BY, Value::Word(word));
    match by {
        Hold::Regime(regime) => {
            vec![word("regime"), Attribute(names::REGIME, Value::Word(regime.word()))]
        }
        Hold::Recovery => vec![word("recovery")],
        Hold::Paused => vec![word("paused")],
        Hold::Band { priority, saturation, ceiling, stale, endpoints } => vec![
            word("band"),
            attribute(names::HELD_PRIORITY, priority),
            attribute(names::SATURATION, saturation),
            attribute(names::CEILING, ceiling),
            attribute(names::ENDPOINTS_STALE, stale),
            attribute(names::ENDPOINTS, endpoints),
        ],
    }
}

/// Those of a pool that a waiting request may have seen.
#[derive(Clone, Debug, Default)]
pub struct Moments(VecDeque<Moment>);

impl Moments {
    /// One more.
    pub fn push(&mut self, moment: Moment) {
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(moment);
    }

    /// Nobody who came before this one waits any more; `None`: nobody waits.
    pub fn keep_from(&mut self, oldest: Option<RequestId>) {
        match oldest {
            None => self.0.clear(),
            Some(oldest) => {
                while self.0.front().is_some_and(|moment| moment.seq < oldest.0) {
                    self.0.pop_front();
                }
            }
        }
    }

    /// What a request with these terms saw that came with step `from`, from that step on up to now; and how many more than a span
    /// holds.
    pub fn since(&self, from: u64, terms: &Enqueued) -> (Vec<SpanEvent>, u32) {
        let mut events = Vec::new();
        let first = self.0.partition_point(|moment| moment.seq < from);
        for moment in self.0.range(first..) {
            moment.tell(terms, &mut events);
        }
        let dropped = events.len().saturating_sub(EVENTS_MAX);
        // The last ones tell how it ended.
        events.drain(..dropped);
        (events, u32::try_from(dropped).unwrap_or(u32::MAX))
    }
}
