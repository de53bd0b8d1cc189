//! Revocations: the order to end a lease early, and its one end (confirmed, timed out or undeliverable).
//!
//! A lease counts until its stream has ended, revoked or not (contract.md row 12). Not here: who is revoked for whom,
//! and the bodies of the events (`revocation.rs`).

use crate::endpoints::Totals;
use crate::leases::Lease;
use crate::turn::Turn;
use crate::{
    Event, Face, Ignored, LeaseEnd, Micros, Ratio, Reclaimed, RequestId, RevocationEnd, RevocationEnded,
    RevocationIssued, RevocationOrder, Slot, State, Whereabouts, demand, reclaim,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Confirmed revocations whose release is looked for in the samples; beyond it the oldest is given up.
const RELEASES_MAX: usize = 256;
/// How long a release is looked for. Where others use the same engine it may never show.
const RELEASE_PATIENCE: Micros = Micros::from_secs(30);

/// The revocation of a lease that still runs.
#[derive(Clone, Debug)]
pub(crate) struct Revocation {
    pub(crate) number: u64,
    pub(crate) order: RevocationOrder,
    pub(crate) issued_at: Micros,
    pub(crate) debit: Ratio,
    pub(crate) due: Micros,
    /// What the lease's place showed beyond our own leases when it was issued; absent where nobody could tell.
    pub(crate) beyond: Option<i64>,
    /// It has ended otherwise than by its confirmation, and the lease runs on.
    pub(crate) end: Option<RevocationEnd>,
}

/// A confirmed revocation whose release no sample has shown yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    pub(crate) number: u64,
    pub(crate) request: RequestId,
    pub(crate) slot: Option<Slot>,
    pub(crate) issued_at: Micros,
    pub(crate) confirmed_at: Micros,
    pub(crate) beyond: i64,
}

/// All revocations of a pool, beside what each lease holds of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Revocations {
    /// So many were issued; the number of the last.
    pub(crate) issued: u64,
    /// By [`RevocationEnd`], in its disk order.
    pub(crate) ends: [u64; RevocationEnd::ALL.len()],
    /// Ends of streams that came after their time-out.
    pub(crate) late: u64,
    /// Releases that the samples have shown.
    pub(crate) reclaimed: u64,
    /// Not ended yet, by when they time out.
    pub(crate) outstanding: BTreeSet<(Micros, RequestId)>,
    /// Ended, and perhaps still in the gauge: by until when and number, with their debits.
    pub(crate) cooling: BTreeMap<(Micros, u64), Ratio>,
    pub(crate) releases: VecDeque<Release>,
    /// Requests whose holders wait on them just now.
    pub(crate) watched: BTreeSet<RequestId>,
}

impl Revocations {
    fn prune(&mut self, now: Micros) {
        while self.cooling.first_key_value().is_some_and(|((until, _), _)| *until <= now) {
            self.cooling.pop_first();
        }
    }
}

/// An operator's order. One that cannot be told ends at once as undeliverable.
pub(crate) fn ordered(turn: &mut Turn<'_>, id: RequestId) {
    let state = &*turn.state;
    let Some(lease) = state.leases.get(&id) else {
        let queued = state.queued.contains_key(&id);
        let what = if queued { Ignored::NotRunning } else { Ignored::UnknownRequest };
        return turn.emit(Event::Ignored { what });
    };
    if lease.revocation.as_ref().is_some_and(|revocation| revocation.end.is_none()) {
        return turn.emit(Event::Ignored { what: Ignored::AlreadyRevoked });
    }
    let told = state.can_be_told(id, lease);
    issue(turn, id, RevocationOrder::Operator, turn.state.footprint().unwrap_or(Ratio::ZERO));
    if !told {
        close(turn, id, RevocationEnd::Undeliverable);
    }
}

/// Issues the revocation of a lease that has none outstanding.
pub(crate) fn issue(turn: &mut Turn<'_>, id: RequestId, order: RevocationOrder, debit: Ratio) {
    let state = &*turn.state;
    let Some(lease) = state.leases.get(&id) else { return };
    turn.emit(Event::RevocationIssued(RevocationIssued {
        number: state.revocations.issued + 1,
        request: id,
        order,
        priority: lease.priority,
        age: state.now.since(lease.dispatched_at),
        debit,
        due: state.now + state.policy.eviction.confirmation_timeout,
    }));
}

/// Ends an outstanding revocation; otherwise nothing.
fn close(turn: &mut Turn<'_>, id: RequestId, end: RevocationEnd) -> bool {
    let state = &*turn.state;
    let open = state.leases.get(&id).and_then(|lease| lease.revocation.as_deref());
    let Some(revocation) = open.filter(|revocation| revocation.end.is_none()) else { return false };
    let cooling_until = match end {
        RevocationEnd::Confirmed | RevocationEnd::TimedOut => {
            Some(state.now + state.policy.eviction.confirmation_grace)
        }
        RevocationEnd::Undeliverable => None,
    };
    turn.emit(Event::RevocationEnded(RevocationEnded {
        number: revocation.number,
        request: id,
        end,
        took: state.now.since(revocation.issued_at),
        cooling_until,
    }));
    true
}

/// The lease is about to end like this: ends its revocation, and says how the lease's end counts then.
pub(crate) fn settle(turn: &mut Turn<'_>, id: RequestId, end: LeaseEnd) -> LeaseEnd {
    let Some(revocation) = turn.state.leases.get(&id).and_then(|lease| lease.revocation.as_deref()) else {
        return end;
    };
    match (revocation.end, end) {
        (None, LeaseEnd::Completed) => {
            close(turn, id, RevocationEnd::Confirmed);
            LeaseEnd::Revoked
        }
        (None, _) => {
            close(turn, id, RevocationEnd::TimedOut);
            end
        }
        (Some(RevocationEnd::TimedOut), LeaseEnd::Completed) => {
            let (number, late) = (revocation.number, turn.now().since(revocation.due));
            turn.emit(Event::ConfirmedLate { number, request: id, late });
            LeaseEnd::Revoked
        }
        (Some(_), _) => end,
    }
}

/// No confirmation came in time.
pub(crate) fn timed_out(turn: &mut Turn<'_>, id: RequestId) {
    turn.decided += 1;
    close(turn, id, RevocationEnd::TimedOut);
}

/// The lease's face could not tell its holder.
pub(crate) fn undeliverable(turn: &mut Turn<'_>, id: RequestId) {
    let known = turn.state.leases.get(&id);
    let order = known.and_then(|lease| lease.revocation.as_deref()).map(|own| (own.order, own.debit));
    if !close(turn, id, RevocationEnd::Undeliverable) {
        let known = turn.state.leases.contains_key(&id);
        let what = if known { Ignored::NoChange } else { Ignored::UnknownRequest };
        return turn.emit(Event::Ignored { what });
    }
    if let Some((RevocationOrder::Reclamation { decision, .. }, debit)) = order {
        reclaim::take_next(turn, decision, debit);
    }
}

/// A holder waits on its lease or ticket, or does no longer.
pub(crate) fn watched(turn: &mut Turn<'_>, id: RequestId, watching: bool) {
    let state = &*turn.state;
    let polled = |face: Face| matches!(face, Face::Held | Face::Ticket);
    let known = state.leases.get(&id).map(|lease| lease.face);
    match known.or_else(|| state.queued.get(&id).map(|queued| queued.face)) {
        None => turn.emit(Event::Ignored { what: Ignored::UnknownRequest }),
        Some(face) if !polled(face) || state.revocations.watched.contains(&id) == watching => {
            turn.emit(Event::Ignored { what: Ignored::NoChange });
        }
        Some(_) => turn.emit(Event::WatchNoted { request: id, watching }),
    }
}

/// A round of samples has come: which releases does it show? What did not change is not in the round, but was seen.
pub(crate) fn note_releases(turn: &mut Turn<'_>, requested_at: Micros) {
    let state = &*turn.state;
    let requested_at = requested_at.min(state.now);
    let seen = |release: &Release| {
        let (shown, ours) = state.load_at(release.slot, Some(requested_at))?;
        let is_seen = requested_at >= release.confirmed_at && shown <= ours.saturating_add(release.beyond);
        is_seen.then(|| Reclaimed {
            number: release.number,
            request: release.request,
            after: requested_at.since(release.confirmed_at),
            took: requested_at.since(release.issued_at),
        })
    };
    let seen: Vec<Reclaimed> = state.revocations.releases.iter().filter_map(seen).collect();
    for reclaimed in seen {
        turn.emit(Event::Reclaimed(reclaimed));
    }
}

impl State {
    /// Can the holder of this lease be told to end it? (contract.md, *Leases*)
    pub(crate) fn can_be_told(&self, id: RequestId, lease: &Lease) -> bool {
        let survived = lease.heard_at > lease.dispatched_at;
        !lease.doomed
            && match lease.face {
                Face::Stream | Face::Proxy | Face::ExtProcClosed => true,
                // Its stream outlived us, but it is not open with us any more.
                Face::ExtProcOpen => !survived,
                Face::Held | Face::Ticket => self.revocations.watched.contains(&id),
                Face::Untracked => false,
            }
    }

    /// What one lease takes of the gauge on average, rounded up.
    pub(crate) fn footprint(&self) -> Option<Ratio> {
        let (_, saturation) = self.saturation();
        let leases = i64::try_from(self.leases.len()).ok().filter(|leases| *leases > 0)?;
        (saturation > Ratio::ZERO).then(|| Ratio((saturation.0 - 1) / leases + 1))
    }

    /// Requests that the samples of a place show, and our own leases there at an instant (by default when each sample
    /// was asked for); `None` unless all of them are fresh.
    pub(crate) fn load_at(&self, slot: Option<Slot>, at: Option<Micros>) -> Option<(i64, i64)> {
        let table = &self.endpoints.table;
        let places: Vec<_> = match slot {
            Some(slot) => table.get(&slot).into_iter().collect(),
            None => table.values().collect(),
        };
        let (mut shown, mut ours) = (0_i64, 0_i64);
        for endpoint in &places {
            let sample = endpoint.sample.filter(|_| endpoint.is_fresh())?;
            shown += i64::from(sample.waiting) + i64::from(sample.running);
            let since = endpoint.ledger.since(at.unwrap_or(endpoint.requested_at));
            ours += leases_then(endpoint.leases.len(), since);
        }
        let oldest = places.iter().map(|endpoint| endpoint.requested_at).min()?;
        if slot.is_none() {
            let since = self.endpoints.elsewhere_ledger.since(at.unwrap_or(oldest));
            ours += leases_then(self.endpoints.elsewhere.len(), since);
        }
        Some((shown, ours))
    }
}

fn leases_then(now: usize, since: Totals) -> i64 {
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    now.saturating_add(signed(since.ended)).saturating_sub(signed(since.dispatched - since.untracked))
}

fn place(lease: &Lease) -> Option<Option<Slot>> {
    match lease.at {
        Whereabouts::Unknown => Some(None),
        Whereabouts::At(slot) => Some(Some(slot)),
        Whereabouts::Gone => None,
    }
}

pub(crate) fn apply_issued(state: &mut State, e: &RevocationIssued) {
    let now = state.now;
    let beyond = state.leases.get(&e.request).and_then(|lease| {
        let (shown, ours) = state.load_at(place(lease)?, None)?;
        Some(shown - ours)
    });
    state.revocations.prune(now);
    let Some(lease) = state.leases.get_mut(&e.request) else { return };
    state.revocations.issued = e.number;
    state.revocations.outstanding.insert((e.due, e.request));
    lease.revocation = Some(Box::new(Revocation {
        number: e.number,
        order: e.order,
        issued_at: now,
        debit: e.debit,
        due: e.due,
        beyond,
        end: None,
    }));
    reclaim::apply_issued(state, e.request, e.order);
}

pub(crate) fn apply_ended(state: &mut State, e: &RevocationEnded) {
    let now = state.now;
    let all = &mut state.revocations;
    all.prune(now);
    let Some(lease) = state.leases.get_mut(&e.request) else { return };
    let slot = place(lease);
    let Some(revocation) = lease.revocation.as_deref_mut() else { return };
    all.outstanding.remove(&(revocation.due, e.request));
    all.ends[e.end as usize] += 1;
    revocation.end = Some(e.end);
    let patience = revocation.due.since(revocation.issued_at);
    if let Some(until) = e.cooling_until
        && until > now
    {
        all.cooling.insert((until, e.number), revocation.debit);
    }
    if let (RevocationEnd::Confirmed, Some(slot), Some(beyond)) = (e.end, slot, revocation.beyond) {
        if all.releases.len() >= RELEASES_MAX {
            all.releases.pop_front();
        }
        all.releases.push_back(Release {
            number: e.number,
            request: e.request,
            slot,
            issued_at: revocation.issued_at,
            confirmed_at: now,
            beyond,
        });
    }
    match e.end {
        RevocationEnd::Confirmed => demand::apply_confirmed(state, e.took),
        RevocationEnd::TimedOut => {}
        RevocationEnd::Undeliverable => reclaim::apply_unreachable(state, e.request, now + patience),
    }
}

pub(crate) fn apply_reclaimed(state: &mut State, number: u64) {
    state.revocations.reclaimed += 1;
    state.revocations.releases.retain(|release| release.number != number);
}

pub(crate) fn apply_watched(state: &mut State, id: RequestId, watching: bool) {
    if watching {
        state.revocations.watched.insert(id);
        state.reclamation.resting.remove(&id);
    } else {
        state.revocations.watched.remove(&id);
    }
    state.index_victim(id);
}

/// A round of samples was taken over: what has not shown for so long is looked for no longer.
pub(crate) fn apply_viewed(state: &mut State) {
    let now = state.now;
    state.revocations.releases.retain(|release| release.confirmed_at + RELEASE_PATIENCE > now);
}

/// An endpoint left, and its place may be given to another.
pub(crate) fn apply_left(state: &mut State, slot: Slot) {
    state.revocations.releases.retain(|release| release.slot != Some(slot));
}

/// The lease is gone from every index.
pub(crate) fn remove_lease(state: &mut State, id: RequestId, lease: &Lease) {
    state.revocations.watched.remove(&id);
    if let Some(revocation) = &lease.revocation {
        state.revocations.outstanding.remove(&(revocation.due, id));
    }
}

/// A run begins `down` after the last one ended: whoever waited is gone, nothing of the old samples counts, and the
/// time between counts against no revocation.
pub(crate) fn apply_start(state: &mut State, down: Micros) {
    state.revocations.watched.clear();
    state.revocations.releases.clear();
    for (due, id) in core::mem::take(&mut state.revocations.outstanding) {
        if let Some(revocation) = state.leases.get_mut(&id).and_then(|lease| lease.revocation.as_deref_mut())
        {
            revocation.due = due + down;
            revocation.beyond = None;
            state.revocations.outstanding.insert((revocation.due, id));
        }
    }
}

/// The gauge would fall by this much if every revocation that is under way or cooling had its effect.
pub(crate) fn pending(state: &State) -> Ratio {
    let all = &state.revocations;
    let open = all.outstanding.iter().filter_map(|(_, id)| state.leases.get(id)?.revocation.as_deref());
    let open = open.map(|revocation| revocation.debit);
    let cooling = all.cooling.range((state.now, u64::MAX)..).map(|(_, debit)| *debit);
    open.chain(cooling).fold(Ratio::ZERO, |sum, debit| Ratio(sum.0.saturating_add(debit.0)))
}
