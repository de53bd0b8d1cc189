//! The endpoints of a pool: what is seen of them beside what the log was told, and the difference as changes.
//!
//! It holds levels, not edges: each round compares the whole of what is with the whole of what was logged, so a
//! change that was lost or came twice corrects itself in the next round. Pure: no IO, no clock. A sample is elided
//! within the deadband of the last logged one, and only where the pool has had no work since that was asked for: while
//! it has, an unchanged gauge says that what was dispatched is in it.

use super::text::Load;
use std::collections::{BTreeMap, BTreeSet};
use weir_kernel::{EndpointChange, Micros, Pushed, Role, Slot};

/// A KV share this near to the logged one is the same (ten-thousandths).
pub const KV_DEADBAND: u32 = 50;
/// A sample is logged at least this often, also of a pool that has nothing to do.
pub const LOGGED_EVERY: Micros = Micros::from_secs(1);
/// After an endpoint joined or became fresh again, so many samples are logged whatever they say.
const FULL_ROUNDS: u8 = 2;

/// An endpoint as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its name, unique in the pool.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Where its metrics are, if they are scraped.
    pub metrics_url: Option<String>,
}

/// An endpoint as the log knows it, at the start of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its place.
    pub slot: Slot,
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Its last logged sample.
    pub sample: Option<Load>,
    /// Is it stale by the log?
    pub stale: bool,
}

/// Too many endpoints for the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("endpoints: {found}, at most {ENDPOINTS_MAX} are allowed in a pool")]
pub struct TooMany {
    /// How many were wanted.
    pub found: usize,
}

/// Endpoints of one pool at most.
pub const ENDPOINTS_MAX: usize = 4_096;

/// What the log was told of an endpoint.
#[derive(Clone, Debug)]
struct Logged {
    name: String,
    role: Role,
    sample: Option<Load>,
    stale: bool,
    /// When a sample was last logged.
    at: Micros,
    /// When that sample was asked for.
    requested_at: Micros,
    /// Samples still to be logged whatever they say.
    full: u8,
}

/// What was seen of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its load.
    pub load: Load,
    /// When it was asked for.
    pub requested_at: Micros,
    /// When it came: its age counts from here, whatever the endpoint's own clock says.
    pub received_at: Micros,
    /// Not yet looked at by a round.
    new: bool,
}

/// What one comparison goes by.
struct Round {
    requested_at: Micros,
    now: Micros,
    staleness: Micros,
    worked_until: Micros,
}

/// Both sides.
#[derive(Debug, Default)]
pub struct Table {
    wanted: BTreeMap<String, (Spec, Option<Seen>)>,
    logged: BTreeMap<Slot, Logged>,
    pushed: Option<Pushed>,
    pushed_logged: Option<Pushed>,
    worked_until: Micros,
}

impl Table {
    /// What is left in the log (which forgets a pushed figure at each start).
    pub fn restored(known: Vec<Known>) -> Table {
        let logged = known
            .into_iter()
            .map(|known| {
                let Known { slot, name, role, sample, stale } = known;
                let (at, requested_at) = (Micros::ZERO, Micros::ZERO);
                (slot, Logged { name, role, sample, stale, at, requested_at, full: FULL_ROUNDS })
            })
            .collect();
        Table { logged, ..Table::default() }
    }

    /// What is left in the log after something was lost on the way to it.
    pub fn relearn(&mut self, known: Vec<Known>) {
        self.logged = Table::restored(known).logged;
        self.pushed_logged = None;
    }

    /// Sets the whole of the pool's endpoints. Samples of those that stay are kept. A name twice counts once.
    ///
    /// # Errors
    /// More than the table holds; nothing is changed.
    pub fn want(&mut self, specs: Vec<Spec>) -> Result<(), TooMany> {
        if specs.len() > ENDPOINTS_MAX {
            return Err(TooMany { found: specs.len() });
        }
        let mut earlier = std::mem::take(&mut self.wanted);
        for spec in specs {
            let seen = earlier
                .remove(&spec.name)
                .filter(|(old, _)| old.role == spec.role)
                .and_then(|(_, seen)| seen);
            self.wanted.insert(spec.name.clone(), (spec, seen));
        }
        Ok(())
    }

    /// The endpoints that are wanted, by name, with what was last seen of them.
    pub fn wanted(&self) -> impl Iterator<Item = (&Spec, Option<&Seen>)> {
        self.wanted.values().map(|(spec, seen)| (spec, seen.as_ref()))
    }

    /// A fresh sample came. Of an endpoint that is no longer wanted, or asked for before what is known: dropped.
    pub fn sampled(&mut self, name: &str, load: Load, requested_at: Micros, received_at: Micros) {
        if let Some((_, seen)) = self.wanted.get_mut(name)
            && seen.is_none_or(|seen| seen.requested_at <= requested_at)
        {
            *seen = Some(Seen { load, requested_at, received_at, new: true });
        }
    }

    /// The pool had requests queued or running, or let one go, until then.
    pub fn worked(&mut self, until: Micros) {
        self.worked_until = self.worked_until.max(until);
    }

    /// A saturation figure of the pusher's own (never [`Pushed::Keep`]).
    pub fn push(&mut self, figure: Pushed) {
        if figure != Pushed::Keep {
            self.pushed = Some(figure).filter(|figure| *figure != Pushed::Clear);
        }
    }

    /// The last saturation figure pushed.
    pub fn pushed(&self) -> Option<Pushed> {
        self.pushed
    }

    /// When the next endpoint becomes stale, if nothing comes: the first instant at which its age is over the limit.
    pub fn next_stale(&self, staleness: Micros) -> Option<Micros> {
        let fresh = self.logged.values().filter(|logged| !logged.stale && logged.sample.is_some());
        fresh
            .filter_map(|logged| self.wanted.get(&logged.name)?.1)
            .map(|seen| seen.received_at + staleness + Micros(1))
            .min()
    }

    /// The request time of the oldest sample that no round has looked at.
    pub fn oldest_new(&self) -> Option<Micros> {
        self.wanted
            .values()
            .filter_map(|(_, seen)| seen.filter(|seen| seen.new))
            .map(|seen| seen.requested_at)
            .min()
    }

    /// What the log has to be told: new samples asked for at `requested_at`, joins, leaves and edges as of `now`.
    pub fn changes(&self, requested_at: Micros, now: Micros, staleness: Micros) -> Vec<EndpointChange> {
        let round = Round { requested_at, now, staleness, worked_until: self.worked_until };
        let mut changes = Vec::new();
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        for (slot, logged) in &self.logged {
            let slot = *slot;
            match self.wanted.get(&logged.name) {
                Some((spec, seen)) if spec.role == logged.role => {
                    taken.insert(&logged.name);
                    changes.extend(logged.change(slot, *seen, &round));
                }
                _ => changes.push(EndpointChange::Left { slot }),
            }
        }
        let mut free = (0..=u16::MAX).map(Slot).filter(|slot| !self.logged.contains_key(slot));
        for (spec, seen) in self.wanted.values().filter(|(spec, _)| !taken.contains(spec.name.as_str())) {
            let Some(slot) = free.next() else {
                break;
            };
            changes.push(EndpointChange::Joined { slot, name: spec.name.clone(), role: spec.role });
            if let Some(seen) = seen.filter(|seen| seen.is_for(requested_at) && !seen.is_old(now, staleness))
            {
                changes.push(sample(slot, seen.load, Load::default()));
            }
        }
        changes
    }

    /// What the log has to be told of the pushed figure.
    pub fn pushed_change(&self) -> Pushed {
        match (self.pushed, self.pushed_logged) {
            (now, before) if now == before => Pushed::Keep,
            (Some(figure), _) => figure,
            (None, _) => Pushed::Clear,
        }
    }

    /// A round is over: `changes` (of [`Table::changes`] with the same arguments) are in the log's hands, and the
    /// samples that it looked at are not new any more.
    pub fn logged(&mut self, changes: &[EndpointChange], pushed: Pushed, requested_at: Micros, now: Micros) {
        for change in changes {
            match change {
                EndpointChange::Left { slot } => {
                    self.logged.remove(slot);
                }
                EndpointChange::Joined { slot, name, role } => {
                    let (name, role) = (name.clone(), *role);
                    let (sample, stale, full) = (None, false, FULL_ROUNDS);
                    let logged = Logged { name, role, sample, stale, at: now, requested_at, full };
                    self.logged.insert(*slot, logged);
                }
                EndpointChange::Stale { slot } => {
                    if let Some(logged) = self.logged.get_mut(slot) {
                        logged.stale = true;
                        logged.full = FULL_ROUNDS;
                    }
                }
                EndpointChange::Sampled { slot, waiting, running, kv } => {
                    if let Some(logged) = self.logged.get_mut(slot) {
                        let before = logged.sample.unwrap_or_default();
                        logged.sample = Some(Load {
                            waiting: before.waiting.saturating_add_signed(*waiting),
                            running: before.running.saturating_add_signed(*running),
                            kv: before.kv.saturating_add_signed(*kv),
                        });
                        logged.stale = false;
                        (logged.at, logged.requested_at) = (now, requested_at);
                        logged.full = logged.full.saturating_sub(1);
                    }
                }
            }
        }
        for (_, seen) in self.wanted.values_mut() {
            if let Some(seen) = seen.as_mut().filter(|seen| seen.is_for(requested_at)) {
                seen.new = false;
            }
        }
        if pushed != Pushed::Keep {
            self.pushed_logged = Some(pushed).filter(|figure| *figure != Pushed::Clear);
        }
    }
}

impl Seen {
    /// Does it belong to the round whose samples were asked for then (or to an earlier one)?
    fn is_for(&self, requested_at: Micros) -> bool {
        self.new && self.requested_at <= requested_at
    }

    fn is_old(&self, now: Micros, staleness: Micros) -> bool {
        now.since(self.received_at) > staleness
    }
}

impl Logged {
    fn change(&self, slot: Slot, seen: Option<Seen>, round: &Round) -> Option<EndpointChange> {
        let fresh = seen.filter(|seen| !seen.is_old(round.now, round.staleness));
        match (fresh, self.sample) {
            (Some(seen), _) if !seen.is_for(round.requested_at) => None,
            (Some(seen), Some(logged)) if self.elides(seen.load, logged, round) => None,
            (Some(seen), logged) => Some(sample(slot, seen.load, logged.unwrap_or_default())),
            (None, Some(_)) if !self.stale => Some(EndpointChange::Stale { slot }),
            (None, _) => None,
        }
    }

    fn elides(&self, load: Load, logged: Load, round: &Round) -> bool {
        self.full == 0
            && !self.stale
            && self.requested_at > round.worked_until
            && round.now.since(self.at) < LOGGED_EVERY
            && load.waiting == logged.waiting
            && load.running == logged.running
            && load.kv.abs_diff(logged.kv) <= KV_DEADBAND
    }
}

fn sample(slot: Slot, load: Load, logged: Load) -> EndpointChange {
    // Counts are at most 10^9 (see `text.rs` and the push face), so that a difference always fits.
    let delta = |now: u32, before: u32| (i64::from(now) - i64::from(before)) as i32;
    EndpointChange::Sampled {
        slot,
        waiting: delta(load.waiting, logged.waiting),
        running: delta(load.running, logged.running),
        kv: delta(load.kv, logged.kv),
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
