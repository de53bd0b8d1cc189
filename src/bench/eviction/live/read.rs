//! From a log and the servers' reports to figures; every step is derived again on the way.

use super::world::Report;
use super::{Failure, sorted};
use std::collections::BTreeMap;
use std::path::Path;
use weir_kernel::{Event, Input, Micros, RequestId, RevocationEnd, RevocationOrder, State, Step, step};
use weir_log::reader::{Bound, Logs};

/// What one front's log and servers say; spans in milliseconds, sorted.
#[derive(Debug, Default)]
pub struct Seen {
    /// Steps that were derived again.
    pub steps: u64,
    /// Revocations.
    pub issued: u64,
    /// From the order to the end of the stream.
    pub confirmed: Vec<f64>,
    /// Confirmed ones whose request had reached its server.
    pub reached: u64,
    /// From the order to slot and KV free, by the server's report, of those confirmed.
    pub freed: Vec<f64>,
    /// From the order to the samples that show it.
    pub reclaimed: Vec<f64>,
    /// By decision.
    pub reliefs: Vec<Relief>,
    /// What requests of high priority waited.
    pub waits: Vec<f64>,
}

/// What a decision brought, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Relief {
    /// Until a request of the demand band was admitted, or the next decision was made.
    pub took: f64,
    /// What the last of its confirmations took, and the grace.
    pub bound: f64,
}

/// Reads a log from its start.
pub fn read(data: &Path, report: &Report) -> Result<Seen, Failure> {
    let logs = Logs::open(data)?;
    let mut reading = Reading::default();
    let mut state = State::new();
    for logged in logs.reader("default", Bound::Open, Bound::Open).steps() {
        let logged = logged?;
        if step(&mut state, logged.at, logged.input.clone()) != logged {
            return Err(format!("step {} was derived otherwise than logged", logged.seq).into());
        }
        reading.take(&logged, state.policy().eviction.confirmation_grace);
    }
    Ok(reading.done(report))
}

struct Order {
    request: RequestId,
    decision: Option<u64>,
    at: Micros,
    end: Option<(RevocationEnd, Micros)>,
}

struct Decision {
    at: Micros,
    demand: i32,
    grace: Micros,
    relieved: Option<Micros>,
}

#[derive(Default)]
struct Reading {
    callers: BTreeMap<RequestId, (String, i32)>,
    orders: BTreeMap<u64, Order>,
    decisions: BTreeMap<u64, Decision>,
    last: Option<u64>,
    seen: Seen,
}

impl Reading {
    fn take(&mut self, logged: &Step, grace: Micros) {
        self.seen.steps += 1;
        for event in &logged.events {
            match event {
                Event::Enqueued(e) => {
                    if let Input::Arrived(arrival) = &logged.input {
                        let caller = (arrival.caller_id.clone(), e.priority);
                        self.callers.insert(RequestId(logged.seq), caller);
                    }
                }
                Event::Dispatched(e) => {
                    let priority = self.callers.get(&e.request).map_or(0, |(_, priority)| *priority);
                    if priority > 0 {
                        self.seen.waits.push(ms(e.waited));
                        self.relieve(logged.at, priority);
                    }
                }
                Event::ReclamationDecided(e) => {
                    self.relieve(logged.at, i32::MAX);
                    let (at, demand) = (logged.at, e.demand);
                    self.decisions.insert(e.number, Decision { at, demand, grace, relieved: None });
                    self.last = Some(e.number);
                }
                Event::RevocationIssued(e) => {
                    let decision = match e.order {
                        RevocationOrder::Reclamation { decision, .. } => Some(decision),
                        RevocationOrder::Operator => None,
                    };
                    let order = Order { request: e.request, decision, at: logged.at, end: None };
                    self.orders.insert(e.number, order);
                }
                Event::RevocationEnded(e) => {
                    if let Some(order) = self.orders.get_mut(&e.number) {
                        order.end = Some((e.end, e.took));
                    }
                }
                Event::Reclaimed(e) => self.seen.reclaimed.push(ms(e.took)),
                _other => {}
            }
        }
    }

    /// The last decision has brought room for this priority, or is over.
    fn relieve(&mut self, at: Micros, priority: i32) {
        let last = self.last.and_then(|number| self.decisions.get_mut(&number));
        if let Some(decision) = last.filter(|last| last.relieved.is_none() && priority >= last.demand) {
            decision.relieved = Some(at);
        }
    }

    fn done(mut self, report: &Report) -> Seen {
        self.seen.issued = self.orders.len() as u64;
        let mut slowest: BTreeMap<u64, Micros> = BTreeMap::new();
        for order in self.orders.values() {
            let Some((end, took)) = order.end else { continue };
            if let Some(decision) = order.decision {
                let slowest = slowest.entry(decision).or_default();
                *slowest = took.max(*slowest);
            }
            if end != RevocationEnd::Confirmed {
                continue;
            }
            self.seen.confirmed.push(ms(took));
            let Some((caller, _)) = self.callers.get(&order.request) else { continue };
            self.seen.reached += u64::from(report.taken.contains(caller));
            if let Some(at) = report.freed.get(caller) {
                self.seen.freed.push((*at as f64 - order.at.0 as f64) / 1e3);
            }
        }
        for (number, decision) in &self.decisions {
            if let (Some(relieved), Some(slowest)) = (decision.relieved, slowest.get(number)) {
                let took = ms(relieved.since(decision.at));
                self.seen.reliefs.push(Relief { took, bound: ms(*slowest + decision.grace) });
            }
        }
        let seen = &mut self.seen;
        for spans in [&mut seen.confirmed, &mut seen.freed, &mut seen.reclaimed, &mut seen.waits] {
            *spans = sorted(spans.drain(..));
        }
        self.seen
    }
}

fn ms(span: Micros) -> f64 {
    span.0 as f64 / 1e3
}
