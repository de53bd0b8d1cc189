//! Notes: every event but the routine ones of requests and samples, kept with its step, so that a look for the few that
//! matter in an hour need not read all of that hour's log.
//!
//! Not here: what an event says (`weir-log` describes it), and events of the routine kinds, which the log alone has.

use crate::db::{Kind, Writes, encode};
use crate::error::{ProjectionError, Spot};
use crate::pool::PoolProjection;
use crate::work::Work;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use weir_kernel::{Event, Micros, Step};
use weir_log::describe::{event_kind, event_kinds, input_kind, input_kinds, same_kind};

/// Notes of a full chunk; those of one step are never cut apart.
const NOTES: usize = 256;

/// Kinds that come with every request or sample: where one of them is looked for, the log has it soon.
const ROUTINE: [&str; 16] = [
    "FlowOpened",
    "FlowClosed",
    "Enqueued",
    "Repeated",
    "Dispatched",
    "LeaseEnded",
    "RenewalNoted",
    "FirstByteNoted",
    "Viewed",
    "GaugeMoved",
    "TurnTaken",
    "ServiceCharged",
    "ServiceRescaled",
    "ProgramForgotten",
    "CeilingTicked",
    "KeyForgotten",
];

/// A set of kinds of events, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinds(u128);

static BITS: LazyLock<HashMap<&'static str, Kinds>> = LazyLock::new(|| {
    // A number beyond the last bit shares it: then more is read than need be, and nothing is missed.
    let bit = |(number, kind): (usize, &&'static str)| (*kind, Kinds(1 << number.min(127)));
    event_kinds().iter().enumerate().map(bit).collect()
});
static ROUTINE_BITS: LazyLock<Kinds> = LazyLock::new(|| {
    ROUTINE.iter().filter_map(|kind| BITS.get(kind)).fold(Kinds(0), |all, one| Kinds(all.0 | one.0))
});

impl Kinds {
    /// That of an event.
    pub fn of(event: &Event) -> Kinds {
        BITS.get(event_kind(event)).copied().unwrap_or_default()
    }

    /// Those of these names (case, dashes and underscores do not count).
    pub fn named(names: &[String]) -> Kinds {
        let wanted = |kind: &str| names.iter().any(|name| same_kind(kind, name));
        BITS.iter().filter(|(kind, _)| wanted(kind)).fold(Kinds(0), |all, (_, one)| Kinds(all.0 | one.0))
    }

    /// Is there a note of every event of these kinds?
    pub fn are_noted(self) -> bool {
        self.0 != 0 && self.0 & ROUTINE_BITS.0 == 0
    }

    fn meet(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }
}

/// An event, its step, and the kind of that step's input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The step.
    pub spot: Spot,
    input: u8,
    /// The event.
    pub event: Event,
}

impl Note {
    /// The kind of the input that it came of.
    pub fn input(&self) -> &'static str {
        input_kinds().get(usize::from(self.input)).copied().unwrap_or("Unknown")
    }
}

/// What a chunk of notes holds, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteZone {
    /// The step of its first note.
    pub first: Spot,
    /// The step of its last note.
    pub last: Spot,
    kinds: Kinds,
}

/// Is it of a kind in [`ROUTINE`]? Asked of every event, so it looks up no name.
const fn is_routine(event: &Event) -> bool {
    matches!(
        event,
        Event::FlowOpened { .. }
            | Event::FlowClosed { .. }
            | Event::Enqueued(_)
            | Event::Repeated { .. }
            | Event::Dispatched(_)
            | Event::LeaseEnded(_)
            | Event::RenewalNoted { .. }
            | Event::FirstByteNoted { .. }
            | Event::Viewed
            | Event::GaugeMoved { .. }
            | Event::TurnTaken { .. }
            | Event::ServiceCharged { .. }
            | Event::ServiceRescaled { .. }
            | Event::ProgramForgotten { .. }
            | Event::CeilingTicked { .. }
            | Event::KeyForgotten { .. }
    )
}

/// Takes note of what is not routine in a step.
pub fn take(step: &Step, into: &mut Vec<Note>) {
    let mut events = step.events.iter().filter(|event| !is_routine(event)).peekable();
    if events.peek().is_none() {
        return;
    }
    let input = input_kinds().iter().position(|kind| *kind == input_kind(&step.input));
    let input = input.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX);
    let spot = Spot { seq: step.seq, at: step.at };
    into.extend(events.map(|event| Note { spot, input, event: event.clone() }));
}

/// Stores full chunks of notes; gives what they hold.
pub fn put(writes: &mut Writes, pool: &str, notes: &mut Vec<Note>) -> Vec<NoteZone> {
    let mut zones = Vec::new();
    let mut rest = &notes[..];
    while let Some(last) = rest.get(NOTES - 1).map(|note| note.spot) {
        let end = rest[NOTES..].iter().position(|note| note.spot != last);
        let (chunk, behind) = rest.split_at(end.map_or(rest.len(), |more| NOTES + more));
        rest = behind;
        let first = chunk.first().map(|note| note.spot).unwrap_or_default();
        let kinds = chunk.iter().fold(0, |all, note| all | Kinds::of(&note.event).0);
        let zone = NoteZone { first, last, kinds: Kinds(kinds) };
        writes.put(pool, Kind::Notes, first.seq, &encode(&chunk));
        writes.put(pool, Kind::NoteZone, first.seq, &encode(&zone));
        zones.push(zone);
    }
    let done = notes.len() - rest.len();
    notes.drain(..done);
    zones
}

impl PoolProjection {
    /// The notes of these kinds from sequence `from` and time `since` on and before the time `until`, in order, until
    /// `take` has enough and says false. Gives the last step that is in them.
    ///
    /// # Errors
    /// The database cannot be read; the time is over; what `take` says.
    pub fn notes(
        &self,
        kinds: Kinds,
        (from, since, until): (u64, Micros, Micros),
        work: &Work,
        mut take: impl FnMut(&Note) -> Result<bool, ProjectionError>,
    ) -> Result<Spot, ProjectionError> {
        let within = |note: &Note| note.spot.seq >= from && note.spot.at >= since && note.spot.at < until;
        let (zones, unwritten, at) = {
            let inner = self.read();
            let skip = inner.note_zones.partition_point(|zone| zone.last.seq < from || zone.last.at < since);
            let zones = inner.note_zones[skip..].iter().take_while(|zone| zone.first.at < until);
            let zones: Vec<Arc<NoteZone>> = zones.filter(|zone| zone.kinds.meet(kinds)).cloned().collect();
            let unwritten = inner.folder.seen.notes.iter();
            let unwritten: Vec<Note> = unwritten
                .filter(|note| within(note) && kinds.meet(Kinds::of(&note.event)))
                .cloned()
                .collect();
            (zones, unwritten, inner.folder.seen.at)
        };
        for zone in zones {
            work.check()?;
            // None: retention has removed it meanwhile.
            let chunk: Option<Vec<Note>> = self.db.get(self.name(), Kind::Notes, zone.first.seq)?;
            for note in chunk.iter().flatten() {
                if within(note) && kinds.meet(Kinds::of(&note.event)) && !take(note)? {
                    return Ok(at);
                }
            }
        }
        for note in &unwritten {
            if !take(note)? {
                break;
            }
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_routine_kind_is_one_that_there_is_and_the_rest_is_noted() {
        for kind in ROUTINE {
            assert!(event_kinds().contains(&kind), "{kind}");
            assert!(!Kinds::named(&[kind.to_owned()]).are_noted(), "{kind}");
        }
        let named = |names: &[&str]| Kinds::named(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(named(&["held", "REGIME_CHANGED", "Evicted"]).are_noted());
        assert!(!named(&["held", "Dispatched"]).are_noted() && !named(&[]).are_noted());
        assert!(event_kinds().len() <= 128, "a bit for each kind");
    }
}
