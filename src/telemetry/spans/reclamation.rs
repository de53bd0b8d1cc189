//! Reclamation decisions: a span each, from the decision until every victim has ended and, where that can be seen, the
//! endpoints show it.

use super::request::Open;
use super::{empty, link};
use crate::context::Context;
use crate::names;
use crate::sampler::Sampler;
use crate::span::{Attribute, Link, Span, SpanEvent, Value, attribute};
use std::collections::{BTreeMap, BTreeSet};
use weir_kernel::{
    Micros, Reclaimed, ReclamationDecided, RevocationEnd, RevocationEnded, RevocationIssued, RevocationOrder,
};

/// Decisions that are kept at most. The kernel makes no new one while one is outstanding or cooling.
const OPEN_MAX: usize = 64;

/// Those that are not over.
#[derive(Debug, Default)]
pub struct Reclamations {
    open: BTreeMap<u64, Reclamation>,
    /// Which decision a revocation belongs to.
    of: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Reclamation {
    context: Context,
    decided_at: Micros,
    decided: ReclamationDecided,
    links: Vec<Link>,
    events: Vec<SpanEvent>,
    /// Revocations issued so far.
    issued: usize,
    outstanding: BTreeSet<u64>,
    /// Confirmed, and no sample shows it yet.
    unseen: BTreeSet<u64>,
    cooling_until: Micros,
    last: Micros,
}

impl Reclamations {
    /// A decision was made.
    pub fn decided(
        &mut self,
        at: Micros,
        decided: &ReclamationDecided,
        pool: &str,
        sampler: &Sampler,
        links: Vec<Link>,
    ) {
        if self.open.len() >= OPEN_MAX {
            self.open.pop_first();
        }
        let reclamation = Reclamation {
            context: Context::of_pool("reclamation", pool, decided.number, at, sampler),
            decided_at: at,
            decided: decided.clone(),
            links,
            events: Vec::new(),
            issued: 0,
            outstanding: BTreeSet::new(),
            unseen: BTreeSet::new(),
            cooling_until: Micros::ZERO,
            last: at,
        };
        self.open.insert(decided.number, reclamation);
    }

    /// A lease is ordered to end.
    pub fn issued(&mut self, at: Micros, issued: &RevocationIssued, victim: Option<&mut Open>) {
        let about = || {
            vec![
                attribute(names::REVOCATION, issued.number),
                Attribute(names::REVOCATION_ORDER, Value::Word(issued.order.word())),
                attribute(names::REQUEST, issued.request.0),
                attribute(names::PRIORITY, issued.priority),
                attribute(names::AGE, issued.age),
                attribute(names::CREDIT, issued.debit),
                attribute(names::REVOCATION_DUE, issued.due.since(at)),
            ]
        };
        let decision = match issued.order {
            RevocationOrder::Operator => None,
            RevocationOrder::Reclamation { decision, .. } => Some(decision),
        };
        let mut open = decision.and_then(|decision| self.open.get_mut(&decision));
        if let Some(victim) = victim {
            victim.note(at, names::REVOKED, about);
            if let Some(reclamation) = open.as_deref_mut() {
                victim.link(link(&reclamation.context, reclamation.context.admission, "decision"));
                reclamation.links.push(link(&victim.context, victim.context.lease(), "victim"));
            }
        }
        if let (Some(reclamation), Some(decision)) = (open, decision) {
            reclamation.say(at, names::REVOKED, about());
            reclamation.issued += 1;
            reclamation.outstanding.insert(issued.number);
            self.of.insert(issued.number, decision);
        }
    }

    /// A revocation ended.
    pub fn ended(&mut self, at: Micros, ended: &RevocationEnded, victim: Option<&mut Open>) {
        let about = || {
            vec![
                attribute(names::REVOCATION, ended.number),
                attribute(names::REQUEST, ended.request.0),
                Attribute(names::REVOCATION_END, Value::Word(ended.end.word())),
                attribute(names::REVOCATION_TOOK, ended.took),
            ]
        };
        if let Some(victim) = victim {
            victim.note(at, names::REVOCATION_ENDED, about);
        }
        if let Some(reclamation) = self.of.get(&ended.number).and_then(|of| self.open.get_mut(of)) {
            reclamation.say(at, names::REVOCATION_ENDED, about());
            reclamation.outstanding.remove(&ended.number);
            if ended.end == RevocationEnd::Confirmed {
                reclamation.unseen.insert(ended.number);
            }
            reclamation.cooling_until =
                reclamation.cooling_until.max(ended.cooling_until.unwrap_or_default());
        }
    }

    /// A sample shows that a victim is gone.
    pub fn reclaimed(&mut self, at: Micros, reclaimed: &Reclaimed) {
        if let Some(reclamation) = self.of.get(&reclaimed.number).and_then(|of| self.open.get_mut(of)) {
            reclamation.unseen.remove(&reclaimed.number);
            reclamation.say(
                at,
                names::RECLAIMED,
                vec![
                    attribute(names::REVOCATION, reclaimed.number),
                    attribute(names::REQUEST, reclaimed.request.0),
                    attribute(names::REVOCATION_TOOK, reclaimed.took),
                    attribute(names::REVOCATION_AFTER, reclaimed.after),
                ],
            );
        }
    }

    /// Gives the spans of those that are over now.
    pub fn close(&mut self, now: Micros, pool: &str, out: &mut Vec<Span>) {
        if self.open.is_empty() {
            self.of.clear();
            return;
        }
        let over: Vec<u64> =
            self.open.iter().filter(|(_, open)| open.is_over(now)).map(|(number, _)| *number).collect();
        for number in over {
            if let Some(reclamation) = self.open.remove(&number) {
                self.of.retain(|_, of| *of != number);
                out.extend(reclamation.span(pool));
            }
        }
    }
}

impl Reclamation {
    fn say(&mut self, at: Micros, name: &'static str, attributes: Vec<Attribute>) {
        self.last = self.last.max(at);
        self.events.push(SpanEvent { name, at, attributes });
    }

    fn is_over(&self, now: Micros) -> bool {
        self.issued >= self.decided.victims.len()
            && self.outstanding.is_empty()
            && (self.unseen.is_empty() || now >= self.cooling_until)
    }

    fn span(self, pool: &str) -> Option<Span> {
        if !self.context.sampled {
            return None;
        }
        let decided = &self.decided;
        let mut span = empty(&self.context, self.context.admission, names::RECLAMATION);
        (span.start, span.end) = (self.decided_at, self.last);
        span.attributes = vec![
            attribute(names::POOL, pool),
            attribute(names::DECISION, decided.number),
            attribute(names::DEMAND, decided.demand),
            attribute(names::DEPTH, decided.depth),
            attribute(names::SATURATION_RAW, decided.raw),
            attribute(names::SATURATION, decided.effective),
            attribute(names::SATURATION_FRESH, decided.saturation),
            attribute(names::ENDPOINTS, decided.endpoints),
            attribute(names::ENDPOINTS_STALE, decided.stale),
            attribute(names::CEILING, decided.ceiling),
            attribute(names::TARGET, decided.target),
            attribute(names::PENDING, decided.pending),
            attribute(names::IN_FLIGHT, decided.in_flight),
            attribute(names::CREDIT, decided.credit),
            attribute(names::WANTED, decided.wanted),
            attribute(names::CAP, decided.cap),
            attribute(names::EVICTABLE, decided.evictable),
            attribute(names::VICTIMS, decided.victims.len() as u64),
        ];
        span.events = self.events;
        span.links = self.links;
        Some(span)
    }
}
