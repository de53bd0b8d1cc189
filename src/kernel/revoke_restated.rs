//! Revocations as part of a snapshot, there and back.
//!
//! Not here: what the records mean (`revoke.rs`), and their form on disk (`revocation.rs`).

use crate::demand::Measure;
use crate::reclaim::Decision;
use crate::revoke::{Release, Revocation};
use crate::{
    Event, Micros, Ratio, RestatedCooling, RestatedReclamation, RestatedRelease, RestatedRevocation,
    RestatedRevocations, State,
};
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
        out.extend(self.restate_reclamation());
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

    fn restate_reclamation(&self) -> Option<Event> {
        let all = &self.reclamation;
        let untouched = all.decided == 0 && all.shut_until == Micros::ZERO && all.resting.is_empty();
        (!untouched).then(|| {
            let last = all.last.as_ref();
            let mut numbers = vec![all.decided, all.shut_until.0, all.target.0.cast_unsigned()];
            numbers.extend(all.measure.iter().flat_map(|m| [m.at.0, m.ended, m.untracked, m.took.0]));
            Event::RestatedReclamation(Box::new(RestatedReclamation {
                numbers,
                last: last.map(|last| (last.number, last.demand, last.tried.iter().copied().collect())),
                resting: all.resting.iter().map(|(id, until)| (*id, *until)).collect(),
            }))
        })
    }

    pub(crate) fn read_reclamation(&mut self, from: &RestatedReclamation) {
        let number = |at: usize| from.numbers.get(at).copied().unwrap_or(0);
        let all = &mut self.reclamation;
        all.decided = number(0);
        all.shut_until = Micros(number(1));
        all.target = Ratio(number(2).cast_signed());
        all.measure = (from.numbers.len() > 3).then(|| Measure {
            at: Micros(number(3)),
            ended: number(4),
            untracked: number(5),
            took: Micros(number(6)),
        });
        all.last = from.last.as_ref().map(|(number, demand, tried)| Decision {
            number: *number,
            demand: *demand,
            tried: tried.iter().copied().collect(),
        });
        all.resting = from.resting.iter().copied().collect();
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
        self.index_victim(from.request);
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
        for request in &from.watched {
            self.index_victim(*request);
        }
    }
}
