//! Snapshots: the state as a list of events whose fold from empty is the state, and its digest over that list.
//!
//! The state itself has no disk format. Indexes are not restated: they follow from what is.

use crate::clocks::{Budgets, Clocks, Marks};
use crate::endpoints::{Endpoint, Ledger, Totals};
use crate::leases::{self, Lease};
use crate::queues::{Band, Queued, Ready};
use crate::saturation::Sample;
use crate::state::{Counters, Paused, Program};
use crate::{
    Event, Input, LeaseEnd, Micros, Outcome, Ratio, RequestId, RestatedBand, RestatedCore, RestatedEndpoint,
    RestatedFlow, RestatedKey, RestatedLease, RestatedPause, RestatedProgram, RestatedQueued, State, arrival,
    bands, turn,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use sha2::{Digest, Sha256};

/// A list of events that is no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestateError {
    /// It does not begin with `RestatedCore`.
    NoCore,
    /// The event at this position is not a `Restated…` one.
    NotRestated(usize),
}

impl fmt::Display for RestateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestateError::NoCore => write!(f, "a snapshot must begin with RestatedCore"),
            RestateError::NotRestated(at) => write!(f, "event {at} of the snapshot is not a Restated… event"),
        }
    }
}

impl core::error::Error for RestateError {}

impl State {
    /// The state as events.
    pub fn restate(&self) -> Vec<Event> {
        let mut out = vec![Event::RestatedCore(Box::new(self.restate_core()))];
        out.push(Event::RestatedPolicy { policy: Box::new((*self.policy).clone()) });
        for (name, priority) in &self.objectives {
            out.push(Event::RestatedObjective { name: name.clone(), priority: *priority });
        }
        out.extend(self.bands.iter().map(|(priority, band)| restate_band(*priority, band)));
        out.extend(self.flows.iter().map(|(id, flow)| {
            Event::RestatedFlow(Box::new(RestatedFlow {
                flow: *id,
                name: String::from(&*flow.name),
                priority: flow.priority,
                idle_since: flow.idle_since,
            }))
        }));
        out.extend(self.programs.iter().map(|(name, program)| {
            Event::RestatedProgram(Box::new(RestatedProgram {
                name: String::from(&**name),
                service: program.service,
                active: program.active,
                idle_since: program.idle_since,
            }))
        }));
        out.extend(self.endpoints.table.iter().map(|(slot, endpoint)| {
            Event::RestatedEndpoint(Box::new(RestatedEndpoint {
                slot: *slot,
                name: String::from(&*endpoint.name),
                role: endpoint.role,
                sample: endpoint.sample.map(|s| (s.waiting, s.running, s.kv)),
                requested_at: endpoint.requested_at,
                stale_since: endpoint.stale_since,
                numbers: restate_credit(endpoint),
            }))
        }));
        out.extend(self.queued.iter().map(|(id, queued)| self.restate_queued(*id, queued)));
        out.extend(self.leases.iter().map(|(id, lease)| restate_lease(*id, lease)));
        out.extend(self.restate_revocations());
        out.extend(self.keys.iter().map(|(key, entry)| {
            Event::RestatedKey(Box::new(RestatedKey { key, request: entry.request, answer: entry.answer }))
        }));
        if let Some(pause) = &self.paused {
            let Paused { since, by, why } = (**pause).clone();
            out.push(Event::RestatedPause(Box::new(RestatedPause { since, by, why })));
        }
        out.extend(self.purging.iter().map(|request| Event::RestatedPurge { request: *request }));
        out.extend(self.restate_lines());
        out
    }

    /// SHA-256 over the encoded snapshot: equal states have equal digests.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for event in self.restate() {
            // These types always encode; an error would show as a digest that differs.
            let bytes =
                bincode::serde::encode_to_vec(&event, bincode::config::standard()).unwrap_or_default();
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(&bytes);
        }
        hash.finalize().into()
    }

    /// The state that a snapshot restates.
    ///
    /// # Errors
    /// A list that [`State::restate`] did not make.
    pub fn from_restated(events: &[Event]) -> Result<State, RestateError> {
        if !matches!(events.first(), Some(Event::RestatedCore(_))) {
            return Err(RestateError::NoCore);
        }
        let mut state = State::new();
        for (at, event) in events.iter().enumerate() {
            if !is_restated(event) {
                return Err(RestateError::NotRestated(at));
            }
            turn::apply(&mut state, &Input::TimePassed, event);
        }
        Ok(state)
    }

    fn restate_core(&self) -> RestatedCore {
        let clocks = &self.clocks;
        let endpoints = &self.endpoints;
        let mut counters =
            vec![self.counters.arrivals, self.counters.repeated, self.counters.refused_outside];
        counters.extend(self.counters.outcomes);
        counters.extend(self.counters.lease_ends);
        let mut numbers = vec![
            self.before.0,
            u64::from(self.next_flow),
            self.tick,
            self.last_dispatch.0,
            self.service_epoch.0,
            u64::from(self.recovering),
            u64::from(self.stopped),
            self.draining_until.map_or(0, |until| until.0.saturating_add(1)),
            u64::from(endpoints.seen),
            u64::from(endpoints.fresh_rounds),
            endpoints.observed,
            endpoints.raw.0.cast_unsigned(),
        ];
        numbers.extend(endpoints.elsewhere_ledger.restate().flatten());
        RestatedCore {
            seq: self.seq,
            now: self.now,
            regime: clocks.regime,
            clocks: [clocks.since, clocks.saturation, clocks.no_endpoint, clocks.whole],
            fresh_from: clocks.fresh_from,
            fresh_at: clocks.fresh_at,
            counters,
            numbers,
            hold: self.hold,
            pushed: endpoints.pushed,
        }
    }

    fn restate_queued(&self, id: RequestId, queued: &Queued) -> Event {
        let budgets = self.classes.get(queued.class()).map(|class| class.budgets).unwrap_or_default();
        Event::RestatedQueued(Box::new(RestatedQueued {
            request: id,
            flow: queued.flow,
            order: queued.order,
            enqueued_at: queued.enqueued_at,
            marks: [queued.marks.saturation, queued.marks.no_endpoint, queued.marks.whole],
            bytes: queued.bytes,
            prompt_tokens: queued.prompt_tokens,
            header_class: queued.header_class,
            deadline: queued.deadline,
            face: queued.face,
            choose_endpoint: queued.choose_endpoint,
            key: queued.key,
            resumable_until: queued.resumable_until,
            heard_at: queued.heard_at,
            budgets: [budgets.saturation, budgets.no_endpoint],
            doomed: queued.doomed,
            program: queued.program.as_ref().map(|name| String::from(&**name)),
        }))
    }
}

fn restate_band(priority: i32, band: &Band) -> Event {
    let last = match &band.ready {
        Ready::Turns { last, .. } => *last,
        Ready::Strict(_) | Ready::Service { .. } => None,
    };
    Event::RestatedBand(Box::new(RestatedBand {
        priority,
        origin: band.origin,
        settings: band.settings.clone(),
        last,
        idle_since: band.idle_since,
        refusals: band.refusals,
        active_since: band.active_since,
        drained: band.drained.iter().copied().collect(),
    }))
}

fn restate_lease(id: RequestId, lease: &Lease) -> Event {
    Event::RestatedLease(Box::new(RestatedLease {
        request: id,
        priority: lease.priority,
        at: lease.at,
        dispatched_at: lease.dispatched_at,
        heard_at: lease.heard_at,
        prompt_tokens: lease.prompt_tokens,
        output_estimate: lease.output_estimate,
        program: lease.program.as_ref().map(|name| String::from(&**name)),
        first_byte: lease.first_byte,
        face: lease.face,
        orphan: lease.orphan,
        doomed: lease.doomed,
        key: lease.key,
    }))
}

/// The number of peaks, (second, running) of each, then (time, dispatched, untracked, ended) of each ledger entry.
fn restate_credit(endpoint: &Endpoint) -> Vec<u64> {
    let mut numbers = vec![endpoint.peaks.len() as u64];
    numbers.extend(endpoint.peaks.iter().flat_map(|(second, running)| [*second, u64::from(*running)]));
    numbers.extend(endpoint.ledger.restate().flatten());
    numbers
}

fn read_ledger(numbers: &[u64]) -> Ledger {
    let mut ledger = Ledger::default();
    for row in numbers.chunks_exact(4) {
        if let [at, dispatched, untracked, ended] = *row {
            ledger.add(Micros(at), Totals { dispatched, untracked, ended });
        }
    }
    ledger
}

fn is_restated(event: &Event) -> bool {
    matches!(
        event,
        Event::RestatedCore(_)
            | Event::RestatedPolicy { .. }
            | Event::RestatedObjective { .. }
            | Event::RestatedBand(_)
            | Event::RestatedFlow(_)
            | Event::RestatedEndpoint(_)
            | Event::RestatedQueued(_)
            | Event::RestatedLease(_)
            | Event::RestatedKey(_)
            | Event::RestatedProgram(_)
            | Event::RestatedPause(_)
            | Event::RestatedPurge { .. }
            | Event::RestatedRevocation(_)
            | Event::RestatedRevocations(_)
            | Event::RestatedReclamation(_)
            | Event::RestatedLine(_)
    )
}

/// Applies one `Restated…` event.
pub(crate) fn apply(state: &mut State, event: &Event) {
    match event {
        Event::RestatedCore(core) => read_core(state, core),
        Event::RestatedPolicy { policy } => {
            state.policy = Arc::new((**policy).clone());
            state.endpoints.touch(None);
        }
        Event::RestatedObjective { name, priority } => {
            state.objectives.insert(name.clone(), *priority);
        }
        Event::RestatedBand(band) => read_band(state, band),
        Event::RestatedFlow(flow) => {
            let next = state.next_flow;
            arrival::add_flow(state, flow.flow, Arc::from(flow.name.as_str()), flow.priority);
            state.next_flow = next;
            if let (Some(since), Some(entry)) = (flow.idle_since, state.flows.get_mut(&flow.flow)) {
                entry.idle_since = Some(since);
                state.idle_flows.insert((since, flow.flow));
            }
        }
        Event::RestatedProgram(program) => read_program(state, program),
        Event::RestatedEndpoint(endpoint) => read_endpoint(state, endpoint),
        Event::RestatedQueued(queued) => read_queued(state, queued),
        Event::RestatedLease(lease) => read_lease(state, lease),
        Event::RestatedKey(key) => state.keys.remember(key.key, key.request, key.answer),
        Event::RestatedPause(pause) => {
            let RestatedPause { since, by, why } = (**pause).clone();
            state.paused = Some(Box::new(Paused { since, by, why }));
        }
        Event::RestatedPurge { request } => {
            state.purging.insert(*request);
        }
        Event::RestatedRevocation(revocation) => state.read_revocation(revocation),
        Event::RestatedRevocations(all) => state.read_revocations(all),
        Event::RestatedReclamation(all) => state.read_reclamation(all),
        Event::RestatedLine(line) => state.read_line(line),
        _other => {}
    }
}

fn read_core(state: &mut State, core: &RestatedCore) {
    let number = |at: usize| core.numbers.get(at).copied().unwrap_or(0);
    let [since, saturation, no_endpoint, whole] = core.clocks;
    state.seq = core.seq;
    state.now = core.now;
    state.before = Micros(number(0));
    state.clocks = Clocks {
        regime: core.regime,
        since,
        saturation,
        no_endpoint,
        whole,
        fresh_from: core.fresh_from,
        fresh_at: core.fresh_at,
    };
    state.counters = read_counters(&core.counters);
    state.hold = core.hold;
    state.next_flow = u32::try_from(number(1)).unwrap_or(u32::MAX);
    state.tick = number(2);
    state.last_dispatch = Micros(number(3));
    state.service_epoch = Micros(number(4));
    state.recovering = number(5) != 0;
    state.stopped = number(6) != 0;
    state.draining_until = number(7).checked_sub(1).map(Micros);
    let endpoints = &mut state.endpoints;
    endpoints.seen = number(8) != 0;
    endpoints.fresh_rounds = u32::try_from(number(9)).unwrap_or(u32::MAX);
    endpoints.observed = number(10);
    endpoints.raw = Ratio(number(11).cast_signed());
    endpoints.pushed = core.pushed;
    endpoints.elsewhere_ledger = read_ledger(core.numbers.get(12..).unwrap_or_default());
}

fn read_counters(numbers: &[u64]) -> Counters {
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
    Counters {
        arrivals: number(0),
        repeated: number(1),
        refused_outside: number(2),
        outcomes: core::array::from_fn(|at| number(3 + at)),
        lease_ends: core::array::from_fn(|at: usize| number(3 + Outcome::ALL.len() + at)),
    }
}

const _: () = assert!(LeaseEnd::ALL.len() == 4, "the counters of a snapshot are in disk order");

fn read_band(state: &mut State, band: &RestatedBand) {
    let mut entry = Band::new(band.origin, band.settings.clone(), Micros::ZERO);
    entry.idle_since = band.idle_since;
    entry.refusals = band.refusals;
    entry.active_since = band.active_since;
    entry.drained = band.drained.iter().copied().collect();
    if let Ready::Turns { last, .. } = &mut entry.ready {
        *last = band.last;
    }
    bands::insert_band(state, band.priority, entry);
}

fn read_program(state: &mut State, program: &RestatedProgram) {
    let name: Arc<str> = Arc::from(program.name.as_str());
    if let Some(since) = program.idle_since {
        state.idle_programs.insert((since, Arc::clone(&name)));
    }
    let entry = Program { service: program.service, active: program.active, idle_since: program.idle_since };
    state.programs.insert(name, entry);
}

fn read_endpoint(state: &mut State, endpoint: &RestatedEndpoint) {
    let peaks = endpoint.numbers.first().copied().unwrap_or(0);
    let rows = endpoint.numbers.get(1..).unwrap_or_default();
    let (peaks, ledger) =
        rows.split_at(rows.len().min(usize::try_from(peaks).unwrap_or(0).saturating_mul(2)));
    let peaks: VecDeque<(u64, u32)> =
        peaks.chunks_exact(2).map(|row| (row[0], u32::try_from(row[1]).unwrap_or(u32::MAX))).collect();
    let entry = Endpoint {
        name: Arc::from(endpoint.name.as_str()),
        role: endpoint.role,
        sample: endpoint.sample.map(|(waiting, running, kv)| Sample { waiting, running, kv }),
        requested_at: endpoint.requested_at,
        stale_since: endpoint.stale_since,
        leases: BTreeSet::new(),
        tokens: 0,
        ledger: read_ledger(ledger),
        peaks,
    };
    let fresh = u16::from(entry.is_fresh());
    state.endpoints.fresh = state.endpoints.fresh.saturating_add(fresh);
    state.endpoints.table.insert(endpoint.slot, entry);
    state.endpoints.touch(None);
}

fn read_queued(state: &mut State, queued: &RestatedQueued) {
    let priority = state.flows.get(&queued.flow).map_or(0, |flow| flow.priority);
    let [saturation, no_endpoint, whole] = queued.marks;
    let entry = Queued {
        flow: queued.flow,
        priority,
        order: queued.order,
        enqueued_at: queued.enqueued_at,
        marks: Marks { saturation, no_endpoint, whole },
        bytes: queued.bytes,
        prompt_tokens: queued.prompt_tokens,
        header_class: queued.header_class,
        deadline: queued.deadline,
        face: queued.face,
        choose_endpoint: queued.choose_endpoint,
        key: queued.key,
        resumable_until: queued.resumable_until,
        heard_at: queued.heard_at,
        doomed: queued.doomed,
        program: queued.program.as_ref().map(|name| Arc::from(name.as_str())),
    };
    let [saturation, no_endpoint] = queued.budgets;
    arrival::insert_queued(state, queued.request, entry, Budgets { saturation, no_endpoint });
}

fn read_lease(state: &mut State, lease: &RestatedLease) {
    let entry = Lease {
        priority: lease.priority,
        at: lease.at,
        dispatched_at: lease.dispatched_at,
        heard_at: lease.heard_at,
        prompt_tokens: lease.prompt_tokens,
        output_estimate: lease.output_estimate,
        program: lease.program.as_ref().map(|name| Arc::from(name.as_str())),
        first_byte: lease.first_byte,
        face: lease.face,
        orphan: lease.orphan,
        doomed: lease.doomed,
        key: lease.key,
        revocation: None,
    };
    leases::insert_lease(state, lease.request, entry);
}
