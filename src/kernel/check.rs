//! Every invariant of DESIGN.md that a state can be asked for, by a full count. For tests and `verify`.

use crate::queues::{Band, Ready};
use crate::waits::Waits;
use crate::{BandOrigin, Face, Hold, Outcome, Regime, State, dispatch};
use alloc::format;
use alloc::string::String;
use core::fmt;

/// A broken invariant: its number in DESIGN.md and the figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// 1 to 9 as in DESIGN.md, 0 for an index that is out of step.
    pub invariant: u8,
    /// What was found.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.found)
    }
}

impl core::error::Error for Violation {}

fn equal(invariant: u8, what: &str, left: u64, right: u64) -> Result<(), Violation> {
    if left == right {
        return Ok(());
    }
    Err(Violation { invariant, found: format!("{what}: {left} is not {right}") })
}

fn holds(invariant: u8, what: &str, ok: bool) -> Result<(), Violation> {
    if ok { Ok(()) } else { Err(Violation { invariant, found: String::from(what) }) }
}

impl State {
    /// Checks every invariant. O(everything).
    ///
    /// # Errors
    /// The first one that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_conservation()?;
        self.check_occupancy()?;
        self.check_order()?;
        self.check_regime()?;
        self.check_expiry()?;
        self.check_indexes()?;
        self.check_gauge()?;
        self.check_leases()?;
        self.check_revocations()
    }

    /// 1: arrivals = queued + queue outcomes other than `Dispatched` + in flight + lease ends.
    fn check_conservation(&self) -> Result<(), Violation> {
        let counters = &self.counters;
        let outcomes: u64 = counters.outcomes.iter().sum();
        let dispatched = counters.outcomes[Outcome::Dispatched.index()];
        let ends: u64 = counters.lease_ends.iter().sum();
        let (queued, running) = (self.queued.len() as u64, self.leases.len() as u64);
        equal(1, "arrivals", counters.arrivals, queued + outcomes - dispatched + running + ends)?;
        equal(2, "dispatched and leases", dispatched, running + ends)
    }

    /// 3: occupancy equals the sum over queued requests.
    fn check_occupancy(&self) -> Result<(), Violation> {
        let mut bytes = 0;
        for (priority, band) in &self.bands {
            let mine = || self.queued.values().filter(|q| q.priority == *priority);
            let sum: u64 = mine().map(|q| q.bytes).sum();
            equal(3, &format!("requests of band {priority}"), band.requests, mine().count() as u64)?;
            equal(3, &format!("bytes of band {priority}"), band.bytes, sum)?;
            let ready = mine().filter(|q| q.is_ready()).count() as u64;
            equal(0, &format!("ready requests of band {priority}"), band.ready_requests, ready)?;
            equal(
                0,
                &format!("band {priority} active"),
                u64::from(self.active.contains(priority)),
                u64::from(ready > 0),
            )?;
            self.check_line(*priority)?;
            self.check_memory(*priority, band)?;
            bytes += sum;
        }
        equal(3, "bytes of all bands", self.queued_bytes, bytes)?;
        for (id, flow) in &self.flows {
            let count = self.queued.values().filter(|q| q.flow == *id).count() as u64;
            equal(3, &format!("requests of flow {}", flow.name), flow.queued, count)?;
            equal(
                0,
                &format!("flow {} idle", flow.name),
                u64::from(flow.idle_since.is_some()),
                u64::from(count == 0),
            )?;
        }
        Ok(())
    }

    fn check_line(&self, priority: i32) -> Result<(), Violation> {
        let Some(band) = self.bands.get(&priority) else { return Ok(()) };
        let lines = || band.flows.values().filter_map(|id| self.flows.get(id));
        let waiting = lines().filter(|flow| !flow.line.is_empty()).count() as u64;
        let in_flows: u64 = lines().map(|flow| flow.line.len() as u64).sum();
        let what = format!("line of band {priority}");
        match &band.ready {
            Ready::Strict(line) => equal(0, &what, line.len() as u64, band.ready_requests),
            Ready::Turns { flows, .. } => {
                equal(0, &what, in_flows, band.ready_requests)?;
                equal(0, &what, flows.len() as u64, waiting)
            }
            Ready::Service { by_service, by_wait, keys } => {
                equal(0, &what, in_flows, band.ready_requests)?;
                equal(0, &what, by_service.len() as u64, waiting)?;
                equal(0, &what, by_wait.len() as u64, waiting)?;
                equal(0, &what, keys.len() as u64, waiting)
            }
        }
    }

    /// What a band's line remembers is what its settings ask for, and is of those that can be dispatched.
    fn check_memory(&self, priority: i32, band: &Band) -> Result<(), Violation> {
        let wanted = Waits::wanted(&band.settings, &band.bounds).is_some();
        let what = |what: &str| format!("{what} of band {priority}");
        holds(0, &what("memory"), band.waits.is_some() == wanted)?;
        let bounded = self.bounded.contains(&priority);
        holds(0, &what("starvation bound"), bounded != band.bounds.starvation.is_zero())?;
        let Some(line) = &band.waits else { return Ok(()) };
        let ready = self.queued.iter().filter(|(_, q)| q.priority == priority && q.is_ready());
        holds(0, &what("ages"), ready.map(|(id, _)| id).eq(line.ages.iter()))?;
        holds(0, &what("backlog"), line.backlog_since.is_some() != line.ages.is_empty())
    }

    /// 4: what is held is held by the highest band with queued work, or by the regime.
    fn check_order(&self) -> Result<(), Violation> {
        if self.has_backlog() || self.next_deadline().is_some_and(|due| due <= self.now) {
            return Ok(());
        }
        // A band that is not blocked keeps nobody beyond its starvation bound.
        let (_, effective) = self.saturation();
        let dispatches = self.policy.flow_control && self.paused.is_none() && !dispatch::is_paced(self);
        let kept = self.bound_deadline(effective).is_some_and(|due| due <= self.now);
        holds(4, "kept beyond a starvation bound", !(dispatches && kept))?;
        match self.hold {
            Some(Hold::Regime(regime)) => {
                holds(4, "held by a regime that is not in force", regime == self.clocks.regime)?;
                holds(4, "held by a regime that serves", regime != Regime::HasEndpoints)
            }
            Some(Hold::Band { priority, .. }) => holds(
                4,
                "held by a band that is not the highest with work",
                self.active.last() == Some(&priority),
            ),
            Some(Hold::Paused) => holds(4, "held by a pause that is not in force", self.paused.is_some()),
            Some(Hold::Recovery) | None => Ok(()),
        }
    }

    /// 5: the regime is the one that the view calls for, unless what the old one ended has still to be ended.
    fn check_regime(&self) -> Result<(), Violation> {
        let settled = self.clocks.regime == self.regime_now() || crate::expiry::is_due(self);
        holds(5, "the regime is not the one that the view calls for", settled)
    }

    /// 5: what is due at this instant has been ended, or the next step is due at once.
    fn check_expiry(&self) -> Result<(), Violation> {
        let next = self.next_deadline();
        for (id, queued) in self.queued.iter() {
            let Some(class) = self.classes.get(queued.class()) else {
                return Err(Violation { invariant: 5, found: format!("request {id} is in no class") });
            };
            let due = self.clocks.due(queued.marks, class.budgets);
            if let Some(due) = due.into_iter().chain(queued.deadline).min() {
                holds(
                    5,
                    &format!("request {id} is due at {} but the next step is not", due.0),
                    next.is_some_and(|next| next <= due.max(self.now)),
                )?;
            }
        }
        Ok(())
    }

    fn check_indexes(&self) -> Result<(), Violation> {
        let queued = self.queued.len() as u64;
        equal(0, "requests in classes", self.classes.len() as u64, queued)?;
        let count =
            |f: &dyn Fn(&crate::queues::Queued) -> bool| self.queued.values().filter(|q| f(q)).count() as u64;
        equal(0, "deadlines", self.deadlines.len() as u64, count(&|q| q.deadline.is_some()))?;
        equal(0, "tickets", self.tickets.len() as u64, count(&|q| q.face == Face::Ticket))?;
        equal(0, "resumable", self.resumable.len() as u64, count(&|q| q.resumable_until.is_some()))?;
        equal(0, "doomed", self.doomed_queued.len() as u64, count(&|q| q.doomed))?;
        let purged = self.purging.iter().filter(|id| self.queued.contains_key(id)).count() as u64;
        equal(0, "purged", self.purging.len() as u64, purged)?;
        holds(4, "work waits in a paused pool, and nothing says so", !self.is_held_in_vain())?;
        let idle = self.flows.values().filter(|f| f.idle_since.is_some()).count() as u64;
        equal(0, "idle flows", self.idle_flows.len() as u64, idle)?;
        let collectable = self.bands.values().filter(|b| b.is_collectable()).count() as u64;
        equal(0, "idle bands", self.idle_bands.len() as u64, collectable)?;
        let named = self.bands.values().filter(|b| b.origin != BandOrigin::Provisioned).count() as u64;
        equal(0, "ranked bands", self.ranked.len() as u64, named)?;
        let flows: u64 = self.bands.values().map(|b| b.flows.len() as u64).sum();
        equal(0, "flows in bands", flows, self.flows.len() as u64)?;
        let idle = self.programs.values().filter(|p| p.idle_since.is_some()).count() as u64;
        equal(0, "idle programs", self.idle_programs.len() as u64, idle)?;
        holds(3, "held although nothing can be dispatched", self.hold.is_none() || !self.active.is_empty())
    }

    fn is_held_in_vain(&self) -> bool {
        self.paused.is_some() && !self.active.is_empty() && self.hold != Some(Hold::Paused)
    }

    /// The kept gauge is the one computed afresh.
    fn check_gauge(&self) -> Result<(), Violation> {
        let Some(kept) = self.kept() else { return Ok(()) };
        let (kept_one, afresh) = (kept.effective(), self.gauge(self.policy.in_flight_credit).effective);
        let same = kept_one == afresh;
        holds(0, &format!("kept gauge: {kept_one} is not {afresh}"), same)?;
        let (kept_one, afresh) = (kept.choose(&self.policy.detector), self.choose_afresh());
        holds(0, &format!("kept choice: {kept_one:?} is not {afresh:?}"), kept_one == afresh)
    }

    /// 2: a revocation ends once.
    fn check_revocations(&self) -> Result<(), Violation> {
        let all = &self.revocations;
        let open = |l: &crate::leases::Lease| l.revocation.as_ref().is_some_and(|r| r.end.is_none());
        let outstanding = self.leases.values().filter(|lease| open(lease)).count() as u64;
        let ended: u64 = all.ends.iter().sum();
        equal(2, "revocations issued", all.issued, ended + outstanding)?;
        equal(0, "outstanding revocations", all.outstanding.len() as u64, outstanding)?;
        for (due, id) in &all.outstanding {
            let mine = self.leases.get(id).and_then(|lease| lease.revocation.as_ref());
            let same = mine.is_some_and(|revocation| revocation.due == *due);
            holds(0, &format!("revocation of {id} is indexed at {}", due.0), same)?;
        }
        let polled = |face| matches!(face, Face::Held | Face::Ticket);
        let known = |id| {
            self.leases
                .get(id)
                .map(|l| l.face)
                .or_else(|| self.queued.get(id).map(|q| q.face))
                .is_some_and(polled)
        };
        holds(0, "somebody waits on what is not there", all.watched.iter().all(known))?;
        let index = &self.reclamation.victims;
        holds(0, "the index of victims", *index == self.victims_afresh())?;
        // 6: whoever can be revoked for others is sheddable.
        holds(6, "a victim that is not sheddable", index.iter().all(|(priority, ..)| *priority < 0))
    }

    fn check_leases(&self) -> Result<(), Violation> {
        let on_endpoints: u64 = self.endpoints.table.values().map(|e| e.leases.len() as u64).sum();
        let gone = self.leases.values().filter(|l| l.at == crate::Whereabouts::Gone).count() as u64;
        let placed = on_endpoints + self.endpoints.elsewhere.len() as u64 + gone;
        equal(0, "placed leases", placed, self.leases.len() as u64)?;
        let orphans = self.leases.values().filter(|l| l.orphan).count() as u64;
        equal(0, "orphans", self.orphans.len() as u64, orphans)?;
        let fresh = self.endpoints.table.values().filter(|e| e.is_fresh()).count() as u64;
        equal(0, "fresh endpoints", u64::from(self.endpoints.fresh), fresh)
    }
}
