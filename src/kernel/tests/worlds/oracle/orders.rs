//! Revocations as the rules speak of them: each is issued to a lease that runs, each ends once, a lease that ends after
//! one ends as revoked, and nobody is told who cannot be (invariant 2; contract.md rows 11 and 13, *Leases*).

use super::demand::{by_deficit, by_demand};
use std::collections::{BTreeMap, BTreeSet};
use weir_kernel::*;

#[derive(Clone, Debug)]
struct Order {
    number: u64,
    issued_at: Micros,
    due: Micros,
    end: Option<RevocationEnd>,
}

#[derive(Clone, Debug)]
struct Holder {
    face: Face,
    priority: i32,
    dispatched_at: Option<Micros>,
    /// Admitted before the last start.
    outlived: bool,
    order: Option<Order>,
}

#[derive(Clone, Debug, Default)]
pub struct Orders {
    holders: BTreeMap<RequestId, Holder>,
    watched: BTreeSet<RequestId>,
    issued: u64,
    ends: [u64; 3],
    late: u64,
    /// Until when the gauge may still show what was revoked.
    cooling: Vec<Micros>,
    shut_until: Micros,
    decided: u64,
    /// The last decision: its number, its demand band, and who was tried in it.
    decision: (u64, i32, BTreeSet<RequestId>),
    /// Victims of this step's decision whose revocations must follow.
    announced: Vec<RequestId>,
    /// How this step's decision was sized, where it looks at the whole demand.
    sized: Option<DemandSized>,
    /// The demand that it counted: the band, how many, and until when they must be able to wait.
    pub counted: Option<(i32, u64, Micros)>,
}

type Broken = String;

impl Orders {
    /// A run begins, so long after the step before it.
    pub fn restart(&mut self, down: u64) {
        self.decision = (0, 0, BTreeSet::new());
        self.watched.clear();
        for holder in self.holders.values_mut() {
            holder.outlived |= holder.dispatched_at.is_some();
            if let Some(order) = holder.order.as_mut().filter(|order| order.end.is_none()) {
                order.due = order.due + Micros(down);
            }
        }
    }

    /// Takes an event; `late` where the driver or the step before may have had no room for what was due.
    pub fn event(
        &mut self,
        step: &Step,
        event: &Event,
        policy: &Policy,
        late: bool,
        waiting: &dyn Fn(i32) -> u64,
    ) -> Result<(), Broken> {
        match event {
            Event::StartNoted { leases, .. } => {
                let cooling = self.cooling.iter().any(|until| *until > step.at);
                let shut =
                    step.events.iter().any(|e| matches!(e, Event::ReclamationShut { until: Micros::MAX }));
                let in_doubt = *leases > 0 || cooling;
                return broken(
                    shut == (in_doubt && policy.eviction.enabled),
                    RequestId(0),
                    "the gate at a start",
                );
            }
            Event::ReclamationShut { until } => {
                let right = *until == Micros::MAX || *until == step.at + policy.eviction.confirmation_grace;
                self.shut_until = *until;
                return broken(right, RequestId(0), "until when the gate is shut");
            }
            Event::DemandSized(e) => self.sized = Some((**e).clone()),
            Event::ReclamationDecided(e) => return self.decide(step, e, policy, waiting),
            Event::Enqueued(e) => {
                let Input::Arrived(arrival) = &step.input else { return Err("who was queued?".into()) };
                let (face, priority) = (arrival.face, e.priority);
                let holder = Holder { face, priority, dispatched_at: None, outlived: false, order: None };
                self.holders.insert(RequestId(step.seq), holder);
            }
            Event::Repeated { of, resumed: true } => {
                let Input::Arrived(arrival) = &step.input else { return Err("whose call?".into()) };
                self.holders.get_mut(of).into_iter().for_each(|holder| holder.face = arrival.face);
            }
            Event::Dispatched(e) => {
                self.holders.get_mut(&e.request).ok_or("who?")?.dispatched_at = Some(step.at);
            }
            Event::Evicted(e) => {
                self.holders.remove(&e.request);
                self.watched.remove(&e.request);
            }
            Event::LeaseEnded(e) => self.lease_ended(e)?,
            Event::WatchNoted { request, watching } => {
                let holder = self.holders.get(request).ok_or("a poll of what is not there")?;
                let fresh =
                    if *watching { self.watched.insert(*request) } else { self.watched.remove(request) };
                let polled = matches!(holder.face, Face::Held | Face::Ticket);
                return broken(fresh && polled, *request, "a poll that changes nothing");
            }
            Event::RevocationIssued(e) => self.issued(step, e, policy)?,
            Event::RevocationEnded(e) => self.ended(step, e, policy, late)?,
            Event::ConfirmedLate { request, number, .. } => {
                self.late += 1;
                let order = self.holders.get(request).and_then(|holder| holder.order.as_ref());
                let same =
                    order.is_some_and(|o| o.number == *number && o.end == Some(RevocationEnd::TimedOut));
                return broken(same, *request, "late without having timed out");
            }
            _ => {}
        }
        Ok(())
    }

    fn issued(&mut self, step: &Step, e: &RevocationIssued, policy: &Policy) -> Result<(), Broken> {
        self.follows(step, e)?;
        let told = self.can_be_told(e.request);
        self.issued += 1;
        let holder = self.holders.get_mut(&e.request).ok_or("a revocation of what is not there")?;
        let since = holder.dispatched_at.ok_or("a revocation of what does not run")?;
        let due = step.at + policy.eviction.confirmation_timeout;
        let right = e.number == self.issued
            && e.priority == holder.priority
            && e.age == step.at.since(since)
            && e.due == due;
        broken(right, e.request, "figures of its revocation")?;
        let open = holder.order.as_ref().is_some_and(|order| order.end.is_none());
        broken(!open, e.request, "revoked while a revocation is outstanding")?;
        holder.order = Some(Order { number: e.number, issued_at: step.at, due, end: None });
        let refused = step.events.iter().any(|event| match event {
            Event::RevocationEnded(end) => end.number == e.number && end.end == RevocationEnd::Undeliverable,
            _ => false,
        });
        broken(told != refused, e.request, "told although it cannot be, or not although it can")
    }

    /// Invariants 6 and 7, and the arithmetic of the decision from its own figures.
    fn decide(
        &mut self,
        step: &Step,
        e: &ReclamationDecided,
        policy: &Policy,
        waiting: &dyn Fn(i32) -> u64,
    ) -> Result<(), Broken> {
        let id = RequestId(step.seq);
        broken(
            policy.eviction.enabled && policy.flow_control,
            id,
            "a decision although nothing may be taken back",
        )?;
        let open = |holder: &Holder| holder.order.as_ref().is_some_and(|order| order.end.is_none());
        broken(!self.holders.values().any(open), id, "a decision while a revocation is outstanding")?;
        broken(self.cooling.iter().all(|until| *until <= step.at), id, "a decision while one is cooling")?;
        broken(self.shut_until <= step.at, id, "a decision before the view was back")?;
        broken(e.number == self.decided + 1, id, "the number of the decision")?;
        broken(e.depth > 0 && e.depth == waiting(e.demand), id, "a decision for a band without demand")?;
        broken(
            e.ceiling > Ratio::ZERO && e.effective >= e.ceiling,
            id,
            "a decision for a band that is open",
        )?;
        // Beyond what the samples show, a charge counts at most in part, and not at all where it is all there is.
        let shown = e.saturation >= e.ceiling
            && (e.stale > 0
                || e.saturation == e.effective
                || (e.raw < e.ceiling && e.saturation < e.effective));
        broken(shown, id, "a decision on more than is shown")?;
        let sized = self.sized.take();
        self.counted = sized.as_ref().map(|sized| (e.demand, sized.demand, step.at + sized.round_trip));
        broken(sized.is_some() == (policy.eviction.sizing == Sizing::Demand), id, "sized otherwise")?;
        let right = sized.as_ref().map_or_else(|| by_deficit(e), |sized| by_demand(e, sized, policy));
        broken(e.target.0 == e.saturation.0 - e.ceiling.0 && right, id, &format!("{e:?} by {sized:?}"))?;
        let count = e.victims.len() as u64;
        broken(count > 0 && count <= e.wanted.min(u64::from(e.cap)), id, "how many victims")?;
        let mut before: Option<(i32, std::cmp::Reverse<Micros>, std::cmp::Reverse<RequestId>)> = None;
        for victim in &e.victims {
            let holder = self.holders.get(&victim.request).ok_or("a victim that is not there")?;
            let since = holder.dispatched_at.ok_or("a victim that does not run")?;
            let spared = holder.order.as_ref().is_none_or(|o| o.end == Some(RevocationEnd::Undeliverable));
            let right = holder.priority == victim.priority && step.at.since(since) == victim.age;
            broken(right && spared && self.can_be_told(victim.request), victim.request, "no victim")?;
            broken(
                victim.priority < 0 && victim.priority < e.demand,
                victim.request,
                "a victim of its own kind",
            )?;
            let key = (victim.priority, std::cmp::Reverse(since), std::cmp::Reverse(victim.request));
            broken(
                before.is_none_or(|before| before < key),
                victim.request,
                "out of order among the victims",
            )?;
            before = Some(key);
        }
        self.decided = e.number;
        self.announced = e.victims.iter().map(|victim| victim.request).collect();
        self.decision = (e.number, e.demand, BTreeSet::new());
        Ok(())
    }

    /// A revocation that reclamation issued: announced by the decision, or in place of one that could not be told.
    fn follows(&mut self, step: &Step, e: &RevocationIssued) -> Result<(), Broken> {
        let RevocationOrder::Reclamation { decision, demand } = e.order else {
            return broken(matches!(step.input, Input::Revoke { .. }), e.request, "ordered by nobody");
        };
        let (number, band, tried) = &mut self.decision;
        let announced = self.announced.first() == Some(&e.request);
        if announced {
            self.announced.remove(0);
        }
        let in_place =
            matches!(step.input, Input::Undeliverable { .. }) && e.priority < 0 && e.priority < demand;
        let same = *number == decision && *band == demand;
        broken(same && (announced || in_place), e.request, "revoked for nobody")?;
        broken(tried.insert(e.request), e.request, "tried twice in one decision")
    }

    fn can_be_told(&self, id: RequestId) -> bool {
        let Some(holder) = self.holders.get(&id) else { return false };
        match holder.face {
            Face::Held | Face::Ticket => self.watched.contains(&id),
            // Streams of faces that die with us end before anything else can happen to them.
            Face::Stream | Face::Proxy | Face::ExtProcClosed | Face::ExtProcOpen => !holder.outlived,
            Face::Untracked => false,
        }
    }

    fn ended(&mut self, step: &Step, e: &RevocationEnded, policy: &Policy, late: bool) -> Result<(), Broken> {
        let holder = self.holders.get_mut(&e.request).ok_or("the end of what is not there")?;
        let order = holder.order.as_mut().ok_or("the end of what was not ordered")?;
        broken(order.end.is_none() && order.number == e.number, e.request, "its revocation ended twice")?;
        broken(e.took == step.at.since(order.issued_at), e.request, "how long its revocation took")?;
        order.end = Some(e.end);
        self.cooling.retain(|until| *until > step.at);
        self.cooling.extend(e.cooling_until);
        self.ends[e.end as usize] += 1;
        let lease_end = step.events.iter().find_map(|event| match event {
            Event::LeaseEnded(end) if end.request == e.request => Some(end.end),
            _ => None,
        });
        let grace = Some(step.at + policy.eviction.confirmation_grace);
        let right = match e.end {
            RevocationEnd::Confirmed => {
                let in_time = step.at < order.due || late;
                lease_end == Some(LeaseEnd::Revoked) && in_time && e.cooling_until == grace
            }
            RevocationEnd::TimedOut => {
                let due = step.at == order.due || (late && step.at > order.due);
                (due || lease_end == Some(LeaseEnd::Lost)) && e.cooling_until == grace
            }
            RevocationEnd::Undeliverable => {
                let asked = matches!(step.input, Input::Undeliverable { .. } | Input::Revoke { .. });
                asked && e.cooling_until.is_none()
            }
        };
        broken(right, e.request, &format!("{e:?} with the lease's end {lease_end:?}"))
    }

    fn lease_ended(&mut self, e: &LeaseEnded) -> Result<(), Broken> {
        self.watched.remove(&e.request);
        let holder = self.holders.remove(&e.request).ok_or("who ended?")?;
        let want_revoked = match holder.order.map(|order| order.end) {
            Some(None) => return Err(format!("{} ended and its revocation did not", e.request)),
            Some(Some(RevocationEnd::Confirmed)) => true,
            Some(Some(RevocationEnd::TimedOut)) => e.end != LeaseEnd::Lost,
            Some(Some(RevocationEnd::Undeliverable)) | None => false,
        };
        broken(want_revoked == (e.end == LeaseEnd::Revoked), e.request, "the end of a revoked lease")
    }

    /// What must have ended by now, and the kernel's own figures.
    pub fn compare(&self, at: Micros, state: &State, full: bool) -> Result<(), Broken> {
        let open = |holder: &&Holder| holder.order.as_ref().is_some_and(|order| order.end.is_none());
        let mut outstanding = 0;
        for (id, holder) in self.holders.iter().filter(|(_, holder)| open(holder)) {
            outstanding += 1;
            let due = holder.order.as_ref().map_or(Micros::MAX, |order| order.due);
            broken(full || due > at, *id, "its revocation should have timed out")?;
        }
        broken(self.announced.is_empty(), RequestId(0), "victims that were announced and not revoked")?;
        let counts = state.revocations();
        let same = counts.issued == self.issued
            && counts.ends == self.ends
            && counts.late == self.late
            && counts.outstanding == outstanding
            && self.issued == outstanding + self.ends.iter().sum::<u64>();
        if same { Ok(()) } else { Err(format!("revocations: {counts:?} in the kernel, {self:?} by the log")) }
    }
}

fn broken(holds: bool, id: RequestId, what: &str) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(format!("{id}: {what}")) }
}

/// Does it take up room in its step?
pub fn counts(step: &Step, event: &Event) -> bool {
    let lost =
        |id: RequestId| step.events.iter().any(|e| matches!(e, Event::LeaseEnded(e) if e.request == id));
    match event {
        Event::LeaseEnded(e) => e.end != LeaseEnd::Untracked,
        Event::RevocationEnded(e) => e.end == RevocationEnd::TimedOut && !lost(e.request),
        Event::Dispatched(_)
        | Event::Evicted(_)
        | Event::Rejected(_)
        | Event::RejectedMany(_)
        | Event::FlowClosed { .. }
        | Event::BandClosed { .. }
        | Event::ProgramForgotten { .. } => true,
        _ => false,
    }
}
