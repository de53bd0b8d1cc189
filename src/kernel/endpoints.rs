//! The pool's endpoints as last observed, and the ledger of what the sensor cannot have seen yet.
//!
//! Not here: what saturation follows from it (`saturation.rs`).

use crate::kept::Kept;
use crate::saturation::Sample;
use crate::{EndpointChange, Micros, Observation, Pushed, Ratio, RequestId, Role, Slot};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;

/// Entries of a ledger; older ones are merged into the oldest.
const LEDGER_ENTRIES: usize = 1_024;
/// How long the largest running count is remembered as slack (contract.md, *In-flight credit*), in seconds.
const SLACK_SECONDS: u64 = 10;

#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    pub(crate) sample: Option<Sample>,
    pub(crate) requested_at: Micros,
    /// Its metrics are too old; meaningless while it was never sampled.
    pub(crate) stale_since: Option<Micros>,
    pub(crate) leases: BTreeSet<RequestId>,
    /// Tokens of those leases.
    pub(crate) tokens: u64,
    pub(crate) ledger: Ledger,
    /// Largest running count by second, since a sample with waiting requests; at most 11 entries.
    pub(crate) peaks: VecDeque<(u64, u32)>,
}

impl Endpoint {
    pub(crate) fn is_fresh(&self) -> bool {
        self.sample.is_some() && self.stale_since.is_none()
    }

    /// Sequences that the engine ran without queueing within the last 10 s, beyond those it runs now.
    pub(crate) fn slack(&self) -> u64 {
        let Some(sample) = self.sample else { return 0 };
        if sample.waiting > 0 {
            return 0;
        }
        let peak = self.peaks.iter().map(|(_, running)| *running).max().unwrap_or(0);
        u64::from(peak.saturating_sub(sample.running))
    }

    fn note_peak(&mut self, sample: Sample, at: Micros) {
        if sample.waiting > 0 {
            self.peaks.clear();
            return;
        }
        let second = at.0 / 1_000_000;
        while self.peaks.front().is_some_and(|(old, _)| old + SLACK_SECONDS < second) {
            self.peaks.pop_front();
        }
        match self.peaks.back_mut() {
            Some((last, running)) if *last == second => *running = (*running).max(sample.running),
            _ => self.peaks.push_back((second, sample.running)),
        }
    }
}

/// Dispatches and lease ends by time, as running totals, so that any window is one search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// Totals before the first entry.
    base: Totals,
    entries: VecDeque<(Micros, Totals)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) dispatched: u64,
    /// Of those, on faces that cannot see ends.
    pub(crate) untracked: u64,
    pub(crate) ended: u64,
}

impl Ledger {
    fn totals(&self) -> Totals {
        self.entries.back().map_or(self.base, |(_, totals)| *totals)
    }

    pub(crate) fn add(&mut self, at: Micros, more: Totals) {
        let now = self.totals();
        let sum = Totals {
            dispatched: now.dispatched.wrapping_add(more.dispatched),
            untracked: now.untracked.wrapping_add(more.untracked),
            ended: now.ended.wrapping_add(more.ended),
        };
        match self.entries.back_mut() {
            Some((last, totals)) if *last == at => *totals = sum,
            _ => self.entries.push_back((at, sum)),
        }
        if self.entries.len() > LEDGER_ENTRIES {
            // Its counts go to the entry after it: a window may see them as later than they were, never lose them.
            self.entries.pop_front();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, totals)) = self.entries.pop_front() {
            self.base = totals;
        }
    }

    /// What happened at or after `from`.
    pub(crate) fn since(&self, from: Micros) -> Totals {
        let index = self.first_index(from);
        let before = match index.checked_sub(1).and_then(|before| self.entries.get(before)) {
            Some((_, totals)) => *totals,
            None => self.base,
        };
        let now = self.totals();
        Totals {
            dispatched: now.dispatched.wrapping_sub(before.dispatched),
            untracked: now.untracked.wrapping_sub(before.untracked),
            ended: now.ended.wrapping_sub(before.ended),
        }
    }

    /// Drops what is older than any window that can still be asked for.
    pub(crate) fn prune(&mut self, before: Micros) {
        while self.entries.front().is_some_and(|(at, _)| *at < before) {
            self.forget_first();
        }
        if self.entries.is_empty() {
            self.base = Totals::default();
        }
    }

    /// The oldest entry at or after `from`: the instant from which the window's content can change by itself.
    pub(crate) fn first_at_or_after(&self, from: Micros) -> Option<Micros> {
        self.entries.get(self.first_index(from)).map(|(at, _)| *at)
    }

    /// Each sample prunes what is before it, so that the first entry is mostly the one.
    fn first_index(&self, from: Micros) -> usize {
        match self.entries.front() {
            Some((at, _)) if *at < from => self.entries.partition_point(|(at, _)| *at < from),
            _ => 0,
        }
    }

    /// Differences between entries, for snapshots: (time, dispatched, untracked, ended).
    pub(crate) fn restate(&self) -> impl Iterator<Item = [u64; 4]> + '_ {
        let mut before = self.base;
        self.entries.iter().map(move |(at, totals)| {
            let row = [
                at.0,
                totals.dispatched.wrapping_sub(before.dispatched),
                totals.untracked.wrapping_sub(before.untracked),
                totals.ended.wrapping_sub(before.ended),
            ];
            before = *totals;
            row
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Endpoints {
    pub(crate) table: BTreeMap<Slot, Endpoint>,
    pub(crate) fresh: u16,
    /// Leases whose endpoint is not known, their tokens and their ledger.
    pub(crate) elsewhere: BTreeSet<RequestId>,
    pub(crate) elsewhere_tokens: u64,
    pub(crate) elsewhere_ledger: Ledger,
    pub(crate) pushed: Option<(Ratio, Ratio)>,
    /// The pool was looked at since the last start.
    pub(crate) seen: bool,
    /// Rounds in a row with fresh samples while the regime is `NoFreshMetrics`.
    pub(crate) fresh_rounds: u32,
    /// The step of the last observation.
    pub(crate) observed: u64,
    /// The raw gauge as last viewed.
    pub(crate) raw: Ratio,
    /// The effective gauge between steps: a cache.
    pub(crate) kept: Option<Box<Kept>>,
}

impl Endpoints {
    pub(crate) fn len(&self) -> u16 {
        u16::try_from(self.table.len()).unwrap_or(u16::MAX)
    }

    /// One endpoint has changed, or what all of them share.
    pub(crate) fn touch(&mut self, slot: Option<Slot>) {
        let holds = match (slot, &mut self.kept) {
            (Some(slot), Some(kept)) => kept.touch(slot),
            _ => false,
        };
        if !holds {
            self.kept = None;
        }
    }

    pub(crate) fn all_stale(&self) -> bool {
        !self.table.is_empty() && self.fresh == 0
    }

    /// Since when no endpoint is fresh: `None` if one is, or if none was ever sampled (blind at once).
    pub(crate) fn blind_since(&self) -> Option<Micros> {
        self.table.values().filter(|e| e.sample.is_some()).filter_map(|e| e.stale_since).max()
    }

    /// Takes over one round. Slots of endpoints that left keep no leases: the caller moves them.
    pub(crate) fn observe(&mut self, observation: &Observation, now: Micros) {
        self.kept = None;
        for change in &observation.changes {
            match change {
                EndpointChange::Joined { slot, name, role } => {
                    self.table.entry(*slot).or_insert_with(|| Endpoint {
                        name: Arc::from(name.as_str()),
                        role: *role,
                        sample: None,
                        requested_at: Micros::ZERO,
                        stale_since: None,
                        leases: BTreeSet::new(),
                        tokens: 0,
                        ledger: Ledger::default(),
                        peaks: VecDeque::new(),
                    });
                }
                EndpointChange::Left { slot } => {
                    self.table.remove(slot);
                }
                EndpointChange::Sampled { slot, waiting, running, kv } => {
                    if let Some(endpoint) = self.table.get_mut(slot) {
                        let old = endpoint.sample.unwrap_or_default();
                        let sample = Sample {
                            waiting: old.waiting.saturating_add_signed(*waiting),
                            running: old.running.saturating_add_signed(*running),
                            kv: old.kv.saturating_add_signed(*kv),
                        };
                        endpoint.sample = Some(sample);
                        endpoint.stale_since = None;
                        endpoint.requested_at = observation.requested_at.min(now);
                        endpoint.note_peak(sample, endpoint.requested_at);
                        endpoint.ledger.prune(endpoint.requested_at);
                    }
                }
                EndpointChange::Stale { slot } => {
                    if let Some(endpoint) = self.table.get_mut(slot)
                        && endpoint.sample.is_some()
                    {
                        endpoint.stale_since.get_or_insert(now);
                    }
                }
            }
        }
        match observation.pushed {
            Pushed::Keep => {}
            Pushed::Clear => self.pushed = None,
            Pushed::Pool(figure) => self.pushed = Some((figure, figure)),
            Pushed::Stages { prefill, decode } => self.pushed = Some((prefill, decode)),
        }
        self.fresh = u16::try_from(self.table.values().filter(|e| e.is_fresh()).count()).unwrap_or(u16::MAX);
        if let Some(oldest) = self.table.values().filter(|e| e.is_fresh()).map(|e| e.requested_at).min() {
            self.elsewhere_ledger.prune(oldest.min(now));
        }
        self.seen = true;
    }

    /// After a restart nothing of the old view counts: samples start from nothing, the pool is unseen.
    pub(crate) fn forget_view(&mut self) {
        self.kept = None;
        for endpoint in self.table.values_mut() {
            endpoint.sample = None;
            endpoint.stale_since = None;
            endpoint.requested_at = Micros::ZERO;
            endpoint.ledger = Ledger::default();
            endpoint.peaks.clear();
        }
        self.elsewhere_ledger = Ledger::default();
        self.fresh = 0;
        self.fresh_rounds = 0;
        self.seen = false;
        self.pushed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_counts_any_window_from_its_running_totals() {
        let mut ledger = Ledger::default();
        let one = Totals { dispatched: 1, ..Totals::default() };
        let end = Totals { ended: 1, ..Totals::default() };
        for at in [10, 10, 20, 30] {
            ledger.add(Micros(at), one);
        }
        ledger.add(Micros(30), end);
        for (from, dispatched, ended) in [(0, 4, 1), (10, 4, 1), (11, 2, 1), (30, 1, 1), (31, 0, 0)] {
            let window = ledger.since(Micros(from));
            assert_eq!((window.dispatched, window.ended), (dispatched, ended), "from {from}");
        }
        ledger.prune(Micros(20));
        assert_eq!(ledger.since(Micros(20)).dispatched, 2);
        assert_eq!(ledger.first_at_or_after(Micros(21)), Some(Micros(30)));
    }

    #[test]
    fn a_ledger_stays_bounded_and_keeps_recent_windows() {
        let mut ledger = Ledger::default();
        for at in 0..10_000 {
            ledger.add(Micros(at), Totals { dispatched: 1, ..Totals::default() });
        }
        assert!(ledger.entries.len() <= LEDGER_ENTRIES);
        assert_eq!(ledger.since(Micros(9_500)).dispatched, 500);
        assert_eq!(ledger.since(Micros::ZERO).dispatched, 10_000, "what is merged is not lost");
    }
}
