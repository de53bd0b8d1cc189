//! A second, naive reading of the rules, fed from the log alone: every queued request carries its own three meters,
//! which are moved one by one in every step. It shares no code and no idea with the kernel's clocks and indexes.
//!
//! Guards invariants 1, 2, 3 (conservation, one end each, occupancy), 4 (order between bands and inside a flow) and 5
//! (each end at its instant, to the microsecond; contract.md row 3 (a), (b), (c) and row 1).

mod by_hand;
mod demand;
mod lines;
mod orders;
mod view;

use by_hand::ByHand;
use lines::Lines;
use orders::Orders;
use std::collections::{BTreeMap, BTreeSet};
use view::Pool;
use weir_kernel::*;

/// A queued request as the rules speak of it.
#[derive(Clone, Debug)]
struct Waiting {
    priority: i32,
    flow: FlowId,
    bytes: u64,
    order: OrderKey,
    enqueued_at: Micros,
    /// The caller's wish, if it was shorter than the operator's budget when it came.
    header: Option<Micros>,
    deadline: Option<Micros>,
    face: Face,
    keyed: bool,
    /// Time in `HasEndpoints` since the later of enqueue and the last leaving of `NoEndpoints`.
    busy: u64,
    /// Time in `NoEndpoints` and `NoFreshMetrics`, over all visits.
    idle: u64,
    /// Time in any of the three.
    whole: u64,
    /// Other settings came since it was queued.
    resettled: bool,
    heard_at: Micros,
    /// Back from a restart, but its caller is not: until when it is waited for, or at once gone.
    absent: Option<Micros>,
}

#[derive(Clone, Debug)]
struct Running {
    face: Face,
    heard_at: Micros,
    outlived: bool,
}

#[derive(Clone, Debug)]
pub struct Oracle {
    at: Micros,
    regime: Regime,
    policy: Policy,
    pool: Pool,
    waiting: BTreeMap<RequestId, Waiting>,
    running: BTreeMap<RequestId, Running>,
    ended: BTreeSet<RequestId>,
    by_hand: ByHand,
    orders: Orders,
    lines: Lines,
    arrivals: u64,
    refused: u64,
    /// The last step had no room for more.
    full: bool,
    /// Does the driver come when asked? If not, ends may be late, but never early.
    pub punctual: bool,
}

/// What the rules do not allow.
type Broken = String;

impl Oracle {
    pub fn new() -> Oracle {
        Oracle {
            at: Micros::ZERO,
            regime: Regime::Unknown,
            policy: Policy::default(),
            pool: Pool::default(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            ended: BTreeSet::new(),
            by_hand: ByHand::default(),
            orders: Orders::default(),
            lines: Lines::default(),
            arrivals: 0,
            refused: 0,
            full: false,
            punctual: true,
        }
    }

    /// Both budgets of a request under the settings in force; zero = none.
    fn budgets(&self, priority: i32, header: Option<Micros>) -> (u64, u64) {
        let template = match &self.policy.negative_template {
            Some(negative) if priority < 0 => negative,
            _ => &self.policy.template,
        };
        let band = self.policy.bands.get(&priority).unwrap_or(template);
        let own = band.saturation_budget.unwrap_or(self.policy.saturation_budget).0;
        let idle = band.no_endpoint_budget.unwrap_or(self.policy.no_endpoint_budget).0;
        let busy = match header {
            Some(Micros(wish)) if own == 0 || wish < own => wish,
            _ => own,
        };
        (busy, idle)
    }

    /// By how much each bound is over (negative: still to go), for those that hold in the regime in force.
    fn over(&self, w: &Waiting) -> Vec<(BudgetKind, i128)> {
        let (busy, idle) = self.budgets(w.priority, w.header);
        let mut all = Vec::new();
        let mut bound =
            |kind, used: u64, budget: u64| all.push((kind, i128::from(used) - i128::from(budget)));
        match self.regime {
            Regime::Unknown => return all,
            Regime::HasEndpoints if busy > 0 => bound(BudgetKind::Saturation, w.busy, busy),
            Regime::NoEndpoints | Regime::NoFreshMetrics if idle > 0 => {
                bound(BudgetKind::NoEndpoint, w.idle, idle);
            }
            _ => {}
        }
        if busy > 0 && idle > 0 {
            bound(BudgetKind::Whole, w.whole, busy.saturating_add(idle));
        }
        all
    }

    fn due_by_budget(&self, w: &Waiting) -> Option<i128> {
        self.over(w).into_iter().map(|(_, over)| over).filter(|over| *over >= 0).max()
    }

    /// Takes one step of the log; `state` is where the kernel says it stands after it.
    pub fn take(&mut self, step: &Step, state: &State) -> Result<(), Broken> {
        if step.at < self.at {
            return Err(format!("time runs backwards: {} after {}", step.at.0, self.at.0));
        }
        let ran = step.at.0 - self.at.0;
        self.at = step.at;
        if matches!(step.input, Input::Started(_)) {
            self.restart();
            self.orders.restart(ran);
        } else {
            self.charge(ran);
        }
        self.lines.settle(&self.waiting);
        let full_before = std::mem::replace(&mut self.full, false);
        let mut said = 0;
        let mut decided = 0;
        for event in &step.events {
            decided += usize::from(orders::counts(step, event));
            said += usize::from(matches!(
                event,
                Event::Enqueued(_) | Event::Rejected(_) | Event::Repeated { .. } | Event::RejectedMany(_)
            ));
            self.event(step, event, full_before)?;
            self.lines.event(step, event, &self.waiting)?;
            self.lines.settle(&self.waiting);
            let late = full_before || !self.punctual || matches!(step.input, Input::Started(_));
            let ready = |w: &&Waiting, priority: i32| w.priority == priority && w.absent.is_none();
            let waiting = |priority| self.waiting.values().filter(|w| ready(w, priority)).count() as u64;
            self.orders.event(step, event, &self.policy, late, &waiting)?;
        }
        let many = matches!(&step.input, Input::ArrivedMany(many) if many.count > 0);
        if said != usize::from(many || matches!(step.input, Input::Arrived(_))) {
            return Err(format!("an arrival has one answer, this step has {said}"));
        }
        self.full = decided >= DECISIONS_PER_STEP;
        if decided > DECISIONS_PER_STEP + 1 {
            return Err(format!("{decided} decisions in one step"));
        }
        self.still_there()?;
        self.orders.compare(step.at, state, self.full)?;
        self.counted(state)?;
        self.lines.compare(state)?;
        self.compare(state)
    }

    fn restart(&mut self) {
        self.regime = Regime::Unknown;
        self.pool.forget();
        let until = self.at + self.policy.resume_window;
        for w in self.waiting.values_mut() {
            w.heard_at = self.at;
            if w.face != Face::Ticket {
                let comes_back = w.keyed && matches!(w.face, Face::Held | Face::Stream);
                w.absent = Some(if comes_back { until } else { Micros::ZERO });
            }
        }
        for running in self.running.values_mut() {
            running.heard_at = self.at;
            running.outlived = true;
        }
    }

    fn charge(&mut self, ran: u64) {
        if self.regime == Regime::HasEndpoints {
            self.lines.charge(ran, &self.waiting);
        }
        for w in self.waiting.values_mut() {
            match self.regime {
                Regime::Unknown => {}
                Regime::HasEndpoints => {
                    w.busy += ran;
                    w.whole += ran;
                }
                Regime::NoEndpoints | Regime::NoFreshMetrics => {
                    w.idle += ran;
                    w.whole += ran;
                }
            }
        }
    }

    fn event(&mut self, step: &Step, event: &Event, full_before: bool) -> Result<(), Broken> {
        match event {
            Event::PolicyAdopted => {
                let Input::PolicyChanged(change) = &step.input else { return Err("whose policy?".into()) };
                self.policy = (*change.policy).clone();
                self.waiting.values_mut().for_each(|w| w.resettled = true);
            }
            Event::RegimeChanged { from, to, .. } => {
                if *from != self.regime || from == to {
                    return Err(format!("from {from} to {to} while in {}", self.regime));
                }
                self.regime = *to;
                self.pool.enter();
                if matches!(from, Regime::NoEndpoints | Regime::Unknown) {
                    self.waiting.values_mut().for_each(|w| w.busy = 0);
                }
            }
            Event::Viewed => self.pool.view(&step.input, self.at, self.regime),
            Event::Enqueued(e) => self.enqueued(step, e)?,
            Event::Rejected(_) => {
                self.arrivals += 1;
                self.refused += 1;
            }
            Event::RejectedMany(_) => {
                let Input::ArrivedMany(many) = &step.input else { return Err("who was refused?".into()) };
                self.arrivals += many.count;
                self.refused += many.count;
            }
            Event::FlowOpened { .. } | Event::Paused | Event::Resumed | Event::PurgeBegun { .. } => {
                self.by_hand.event(step, event, self.waiting.iter().map(|(id, w)| (*id, w.flow)))?;
            }
            Event::Repeated { of, resumed: true } => {
                let Input::Arrived(arrival) = &step.input else { return Err("whose call?".into()) };
                let w = self.waiting.get_mut(of).ok_or("a request came back that is not queued")?;
                if w.absent.take().is_none() {
                    return Err(format!("{of} came back although it was never away"));
                }
                w.face = arrival.face;
                w.heard_at = step.at;
            }
            Event::RenewalNoted { request } => {
                let at = step.at;
                self.waiting.get_mut(request).into_iter().for_each(|w| w.heard_at = at);
                self.running.get_mut(request).into_iter().for_each(|r| r.heard_at = at);
            }
            Event::Dispatched(d) => self.dispatched(step, d)?,
            Event::Evicted(e) => self.evicted(step, e, full_before)?,
            Event::LeaseEnded(e) => {
                let running = self.running.remove(&e.request).ok_or(format!("{} does not run", e.request))?;
                if e.cause == Some(LeaseEndCause::Timeout) {
                    let due = running.heard_at + self.policy.lease_timeout;
                    if due > step.at {
                        return Err(format!("lease {} lapsed before {}", e.request, due.0));
                    }
                }
                if !self.ended.insert(e.request) {
                    return Err(format!("{} ended twice", e.request));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn enqueued(&mut self, step: &Step, e: &Enqueued) -> Result<(), Broken> {
        let Input::Arrived(arrival) = &step.input else { return Err("who was queued?".into()) };
        let (own, _) = self.budgets(e.priority, None);
        let header = arrival.ttl.filter(|ttl| ttl.0 > 0 && (own == 0 || ttl.0 < own));
        let (busy, idle) = self.budgets(e.priority, header);
        if (e.saturation_budget.0, e.no_endpoint_budget.0) != (busy, idle) {
            return Err(format!("budgets {busy} and {idle} were given as {e:?}"));
        }
        self.arrivals += 1;
        let waiting = Waiting {
            priority: e.priority,
            flow: e.flow,
            bytes: arrival.bytes,
            order: e.order,
            enqueued_at: step.at,
            header,
            deadline: arrival.deadline,
            face: arrival.face,
            keyed: arrival.idempotency.is_some(),
            busy: 0,
            idle: 0,
            whole: 0,
            resettled: false,
            heard_at: step.at,
            absent: None,
        };
        match self.waiting.insert(RequestId(step.seq), waiting) {
            None => Ok(()),
            Some(_) => Err("queued twice".into()),
        }
    }

    fn dispatched(&mut self, step: &Step, d: &Dispatched) -> Result<(), Broken> {
        let w = self.waiting.remove(&d.request).ok_or(format!("{} is not queued", d.request))?;
        let id = d.request;
        if self.by_hand.holds() {
            return Err(format!("{id} was dispatched in a pause or a purge"));
        }
        if self.policy.flow_control && self.regime != Regime::HasEndpoints {
            return Err(format!("{id} was dispatched in {}", self.regime));
        }
        if self.policy.flow_control && d.effective >= d.ceiling {
            return Err(format!("{id} was dispatched at {} with a ceiling of {}", d.effective, d.ceiling));
        }
        if self.due_by_budget(&w).is_some() || w.deadline.is_some_and(|deadline| deadline <= step.at) {
            return Err(format!("{id} was dispatched although it was due"));
        }
        if w.absent.is_some() {
            return Err(format!("{id} was dispatched to a caller who is away"));
        }
        self.lines.may_go(step.at, (id, &w), &self.waiting, &self.policy)?;
        if d.waited.0 != step.at.0 - w.enqueued_at.0 {
            return Err(format!("{id} waited otherwise than {}", d.waited.0));
        }
        self.running.insert(id, Running { face: w.face, heard_at: step.at, outlived: false });
        Ok(())
    }

    fn evicted(&mut self, step: &Step, e: &Evicted, full_before: bool) -> Result<(), Broken> {
        let w = self.waiting.remove(&e.request).ok_or(format!("{} is not queued", e.request))?;
        let id = e.request;
        if !self.ended.insert(id) {
            return Err(format!("{id} ended twice"));
        }
        if e.regime != self.regime || e.waited.0 != step.at.0 - w.enqueued_at.0 {
            return Err(format!("{id}: {e:?} in {}", self.regime));
        }
        let ordered = self.by_hand.purging.remove(&id);
        // Late where the step before had no room, and where the service was down.
        let may_be_late = full_before || !self.punctual || matches!(step.input, Input::Started(_));
        let exact = |due: Micros| due == step.at || (due < step.at && may_be_late);
        match (e.budget, e.cause) {
            (Some(spent), None) => self.spent(step, &w, e, spent, full_before),
            (None, Some(Cause::ClientDeadline)) => {
                let due = w.deadline.ok_or("no deadline")?;
                let ours = self.due_by_budget(&w).map(|over| i128::from(step.at.0) - over);
                let tie = ours.is_some_and(|ours| ours <= i128::from(due.0));
                if tie {
                    Err(format!("{id}: at a tie it is our budget"))
                } else {
                    ok(exact(due), id, "deadline")
                }
            }
            (None, Some(Cause::TicketAbandoned)) => {
                let due = w.heard_at + self.policy.ticket_timeout;
                ok(exact(due) || (w.resettled && due < step.at), id, "ticket")
            }
            (None, Some(Cause::Restarted)) => match w.absent {
                Some(Micros::ZERO) => Ok(()),
                Some(until) => ok(exact(until), id, "resume window"),
                None => Err(format!("{id} was never away")),
            },
            (None, Some(Cause::Purged)) if ordered => Ok(()),
            (None, Some(cause)) => {
                let asked = matches!(&step.input, Input::Cancelled(c) if c.request == id && c.cause == cause);
                ok(asked || cause != Cause::Purged, id, "nobody purged it")
            }
            other => Err(format!("{id} ended by {other:?}")),
        }
    }

    fn spent(
        &self,
        step: &Step,
        w: &Waiting,
        e: &Evicted,
        spent: SpentBudget,
        full_before: bool,
    ) -> Result<(), Broken> {
        let id = e.request;
        let bounds = self.over(w);
        let Some((_, over)) = bounds.iter().find(|(kind, _)| *kind == spent.which) else {
            return Err(format!("{id}: {:?} does not count in {}", spent.which, self.regime));
        };
        let (busy, idle) = self.budgets(w.priority, w.header);
        let size = match spent.which {
            BudgetKind::Saturation => busy,
            BudgetKind::NoEndpoint => idle,
            BudgetKind::Whole => busy.saturating_add(idle),
        };
        if size != spent.budget.0 || size == 0 {
            return Err(format!("{id}: a budget of {size} was given as {}", spent.budget.0));
        }
        if *over < 0 {
            return Err(format!("{id} ended {} us before its instant", -over));
        }
        // Late only where other settings made it due in hindsight, or where the step before had no room.
        let late = self.due_by_budget(w).unwrap_or(0);
        if late > 0 && !full_before && !w.resettled && self.punctual {
            return Err(format!("{id} ended {late} us after its instant"));
        }
        let blind = self.regime == Regime::HasEndpoints
            && matches!(self.policy.detector, Detector::Utilization { .. })
            && self.pool.fresh() == 0;
        let want = match self.regime {
            Regime::NoEndpoints => (Outcome::EvictedNoEndpoints, Reason::NoEndpoints),
            Regime::NoFreshMetrics => (Outcome::EvictedNoEndpoints, Reason::NoFreshMetrics),
            _ if blind => (Outcome::EvictedNoEndpoints, Reason::NoFreshMetrics),
            _ => (Outcome::EvictedTTL, Reason::TtlExpired),
        };
        ok((e.outcome, e.reason) == want && step.at == self.at, id, "the outcome of the regime in force")
    }

    /// Nothing that is over may still be there, unless the step had no room.
    fn still_there(&self) -> Result<(), Broken> {
        if self.full {
            return Ok(());
        }
        if let Some(id) = self.by_hand.purging.first() {
            return Err(format!("{id} is still queued after a purge"));
        }
        for (id, w) in &self.waiting {
            if let Some(over) = self.due_by_budget(w) {
                return Err(format!("{id} is still queued, {over} us after its instant"));
            }
            ok(w.deadline.is_none_or(|deadline| deadline > self.at), *id, "past its caller's deadline")?;
            let patience = self.policy.ticket_timeout;
            let patient = patience.is_zero() || w.face != Face::Ticket || w.heard_at + patience > self.at;
            ok(patient, *id, "an abandoned ticket")?;
            ok(w.absent.is_none_or(|until| until > self.at), *id, "its caller did not come back")?;
        }
        let timeout = self.policy.lease_timeout;
        for (id, running) in self.running.iter().filter(|_| !timeout.is_zero()) {
            let lapses = matches!(running.face, Face::Held | Face::Ticket)
                || (running.face == Face::ExtProcOpen && running.outlived);
            // A microsecond more: an orphan is heard of later than it was admitted.
            ok(!lapses || running.heard_at + timeout + Micros(1) > self.at, *id, "a lease that lapsed")?;
        }
        let called_for = self.pool.calls_for(self.at, self.regime, &self.policy);
        if called_for == self.regime {
            return Ok(());
        }
        Err(format!("the regime is {} where {called_for} is called for", self.regime))
    }

    /// Invariants 1 to 3, against the kernel's own figures.
    fn compare(&self, state: &State) -> Result<(), Broken> {
        let counters = state.counters();
        let counted = |from: usize| -> u64 { counters.outcomes[from..].iter().sum() };
        let all = [
            ("arrivals", counters.arrivals, self.arrivals),
            ("refused", counters.outcomes[1..4].iter().sum(), self.refused),
            ("queued", state.queued(), self.waiting.len() as u64),
            ("in flight", state.in_flight(), self.running.len() as u64),
            ("ends", counted(4) + counters.lease_ends.iter().sum::<u64>(), self.ended.len() as u64),
            ("bytes", state.queued_bytes(), self.waiting.values().map(|w| w.bytes).sum()),
        ];
        for (what, kernel, ours) in all {
            if kernel != ours {
                return Err(format!("{what}: {kernel} in the kernel, {ours} by the log"));
            }
        }
        for band in state.bands() {
            let mine = || self.waiting.values().filter(|w| w.priority == band.priority);
            let (requests, bytes) = (mine().count() as u64, mine().map(|w| w.bytes).sum::<u64>());
            if (band.requests, band.bytes) != (requests, bytes) {
                return Err(format!(
                    "band {}: {requests} requests of {bytes} bytes by the log",
                    band.priority
                ));
            }
        }
        if state.regime() == self.regime { Ok(()) } else { Err(format!("regime {}", state.regime())) }
    }
}

fn ok(holds: bool, id: RequestId, what: &str) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(format!("{id}: {what}")) }
}
