//! Revocations as part of a snapshot, there and back.
//!
//! Not here: what the records mean (`revoke.rs`), and their form on disk (`revocation.rs`).

use crate::revoke::{Release, Revocation};
use crate::{Event, RestatedCooling, RestatedRelease, RestatedRevocation, RestatedRevocations, State};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

impl State {
    /// Its part of a snapshot; nothing where there never was a revocation and nobody waits.
    pub(crate) fn restate_revocations(&self) -> Vec<Event> {
        let all = &self.revocations;
        let of_leases = self.leases.iter().filter_map(|(id, lease)| {
            let revocation = lease.revocation.as_deref()?;
            Some(Event::RestatedRevocation(Box::new(RestatedRevocation {
                number: revocation.number,
                request: *id,
                order: revocation.order,
                issued_at: revocation.issued_at,
                debit: revocation.debit,
                due: revocation.due,
                beyond: revocation.beyond,
                end: revocation.end,
            })))
        });
        let mut out: Vec<Event> = of_leases.collect();
        if all.issued == 0 && all.watched.is_empty() {
            return out;
        }
        let mut numbers = vec![all.issued, all.late, all.reclaimed];
        numbers.extend(all.ends);
        let cooling = all.cooling.iter();
        let releases = all.releases.iter();
        out.push(Event::RestatedRevocations(Box::new(RestatedRevocations {
            numbers,
            cooling: cooling
                .map(|((until, number), debit)| RestatedCooling {
                    until: *until,
                    number: *number,
                    debit: *debit,
                })
                .collect(),
            releases: releases
                .map(|r| RestatedRelease {
                    number: r.number,
                    request: r.request,
                    slot: r.slot,
                    issued_at: r.issued_at,
                    confirmed_at: r.confirmed_at,
                    beyond: r.beyond,
                })
                .collect(),
            watched: all.watched.iter().copied().collect(),
        })));
        out
    }

    pub(crate) fn read_revocation(&mut self, from: &RestatedRevocation) {
        let Some(lease) = self.leases.get_mut(&from.request) else { return };
        if from.end.is_none() {
            self.revocations.outstanding.insert((from.due, from.request));
        }
        lease.revocation = Some(Box::new(Revocation {
            number: from.number,
            order: from.order,
            issued_at: from.issued_at,
            debit: from.debit,
            due: from.due,
            beyond: from.beyond,
            end: from.end,
        }));
    }

    pub(crate) fn read_revocations(&mut self, from: &RestatedRevocations) {
        let number = |at: usize| from.numbers.get(at).copied().unwrap_or(0);
        let all = &mut self.revocations;
        (all.issued, all.late, all.reclaimed) = (number(0), number(1), number(2));
        all.ends = core::array::from_fn(|at| number(3 + at));
        all.cooling = from.cooling.iter().map(|c| ((c.until, c.number), c.debit)).collect();
        all.watched = from.watched.iter().copied().collect();
        all.releases = from
            .releases
            .iter()
            .map(|r| Release {
                number: r.number,
                request: r.request,
                slot: r.slot,
                issued_at: r.issued_at,
                confirmed_at: r.confirmed_at,
                beyond: r.beyond,
            })
            .collect();
    }
}
