//! A span of time of one pool: what came, how it ended and how long it waited, what stood in the queue, the gauge.
//!
//! Not here: what fills it (`meter.rs`).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_kernel::{LeaseEnd, Micros, Outcome, Reason, Regime};

/// Ten seconds: the finest span.
pub const FINE: Micros = Micros::from_secs(10);
/// Ten minutes.
pub const COARSE: Micros = Micros::from_secs(600);
/// Series of one bucket; beyond it flows share [`OTHER`], and beyond twice as many objectives do.
pub const SERIES_MAX: usize = 2_048;
/// The name that is shared then. Figures of the whole stay exact.
pub const OTHER: &str = "(other)";

/// What outcomes are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CellKey {
    /// Band.
    pub priority: i32,
    /// Flow; [`OTHER`] for those that were refused together.
    pub flow: String,
    /// Objective, empty where none was named.
    pub objective: String,
    /// Outcome.
    pub outcome: Outcome,
    /// Reason.
    pub reason: Option<Reason>,
    /// The regime that decided.
    pub regime: Regime,
}

/// Requests that ended alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their waits.
    pub waits: Waits,
}

impl Cell {
    /// Takes in others that ended alike.
    pub fn merge(&mut self, other: &Cell) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.waits.merge(&other.waits);
    }
}

/// Waits in microseconds: exact sum and ends, and counts by size (eight steps an octave, so a quantile is at most an eighth high).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Added up.
    pub sum: u64,
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
    /// How many.
    pub count: u64,
    /// By step: see [`Waits::step`].
    steps: BTreeMap<u16, u64>,
}

impl Waits {
    /// The step of a wait: 0 for 0, else 1 + 8 × log2, rounded down, with eight linear steps an octave.
    fn step(micros: u64) -> u16 {
        let Some(octave) = micros.checked_ilog2() else { return 0 };
        let within = if octave >= 3 { (micros >> (octave - 3)) & 7 } else { (micros << (3 - octave)) & 7 };
        (1 + octave * 8) as u16 + within as u16
    }

    /// The largest wait of a step.
    fn top(step: u16) -> u64 {
        let Some(step) = u32::from(step).checked_sub(1) else { return 0 };
        let (octave, within) = (step / 8, u128::from(step % 8));
        let top = ((9 + within) << octave).div_ceil(8).saturating_sub(1);
        u64::try_from(top).unwrap_or(u64::MAX)
    }

    /// Takes one in.
    pub fn add(&mut self, micros: u64, times: u64) {
        self.min = if self.count == 0 { micros } else { self.min.min(micros) };
        self.max = self.max.max(micros);
        self.count += times;
        self.sum = self.sum.saturating_add(micros.saturating_mul(times));
        *self.steps.entry(Waits::step(micros)).or_default() += times;
    }

    /// Takes others in.
    pub fn merge(&mut self, other: &Waits) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        for (step, count) in &other.steps {
            *self.steps.entry(*step).or_default() += count;
        }
    }

    /// The wait that `q` (0 to 1) of them do not exceed, at most an eighth too high; none if there are none.
    pub fn quantile(&self, q: f64) -> Option<Micros> {
        if self.count == 0 {
            return None;
        }
        let wanted = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (step, count) in &self.steps {
            seen += count;
            if seen >= wanted {
                return Some(Micros(Waits::top(*step).clamp(self.min, self.max)));
            }
        }
        Some(Micros(self.max))
    }

    /// The mean; none if there are none.
    pub fn mean(&self) -> Option<Micros> {
        self.sum.checked_div(self.count).map(Micros)
    }
}

/// A quantity over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Added up over time, in units × microseconds.
    pub area: u64,
    /// For how long it was known, in microseconds.
    pub span: u64,
    /// The largest.
    pub max: u64,
    /// The smallest.
    pub min: u64,
    /// The last.
    pub last: u64,
}

impl Level {
    /// It was this for so long.
    pub fn add(&mut self, value: u64, span: u64) {
        self.touch(value);
        self.area = self.area.saturating_add(value.saturating_mul(span));
        self.span += span;
    }

    /// It was this for an instant.
    pub fn touch(&mut self, value: u64) {
        let first = self.span == 0 && self.max == 0 && self.min == 0 && self.last == 0;
        self.min = if first { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.last = value;
    }

    /// Followed by another span.
    pub fn merge(&mut self, later: &Level) {
        if *self == Level::default() {
            *self = *later;
            return;
        }
        self.area = self.area.saturating_add(later.area);
        self.span += later.span;
        self.max = self.max.max(later.max);
        self.min = self.min.min(later.min);
        self.last = later.last;
    }

    /// Beside another one over the same time; the ends of the sum are not known, so they are bounds.
    pub fn beside(&mut self, other: &Level) {
        self.area = self.area.saturating_add(other.area);
        self.span = self.span.max(other.span);
        self.max = self.max.saturating_add(other.max);
        self.min = self.min.saturating_add(other.min);
        self.last = self.last.saturating_add(other.last);
    }

    /// Its mean; none if it was never known.
    pub fn mean(&self) -> Option<f64> {
        (self.span > 0).then(|| self.area as f64 / self.span as f64)
    }
}

/// What stood in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Requests.
    pub requests: Level,
    /// Bytes.
    pub bytes: Level,
}

/// A bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// When it begins.
    pub start: Micros,
    /// How long it is.
    pub width: Micros,
    /// The first step in it (0 = none).
    pub first_seq: u64,
    /// The last step in it.
    pub last_seq: u64,
    /// Arrivals.
    pub arrivals: u64,
    /// Arrivals by band and flow are in the cells; these were refused together, without names.
    pub unnamed: u64,
    /// Refused outside the kernel while the log could not be written.
    pub refused_outside: u64,
    /// Outcomes.
    pub cells: BTreeMap<CellKey, Cell>,
    /// Lease ends by band.
    pub lease_ends: BTreeMap<(i32, LeaseEnd), u64>,
    /// The whole queue.
    pub queue: Standing,
    /// Queues by band.
    pub bands: BTreeMap<i32, Standing>,
    /// Queues by flow.
    pub flows: BTreeMap<(i32, String), Standing>,
    /// The raw gauge in millionths (below zero counts as zero).
    pub raw: Level,
    /// The effective gauge in millionths, at dispatches and when a band became blocked.
    pub effective: Level,
    /// Leases.
    pub in_flight: Level,
    /// Endpoints.
    pub endpoints: Level,
    /// Endpoints with fresh metrics.
    pub fresh: Level,
    /// Microseconds in each regime, by its number on disk.
    pub regimes: [u64; 4],
    /// Microseconds that bands were held at their ceiling, by priority.
    pub held: BTreeMap<i32, u64>,
    /// Reclamation decisions.
    pub reclamations: u64,
    /// Revocations issued.
    pub revocations: u64,
    /// Some flows share [`OTHER`] here for want of room; some objectives do.
    pub lumped: [bool; 2],
}

impl Bucket {
    /// An empty one.
    pub fn new(start: Micros, width: Micros) -> Bucket {
        Bucket { start, width, ..Bucket::default() }
    }

    /// Counts requests that ended alike.
    pub fn count(&mut self, key: CellKey, count: u64, bytes: u64, waited: Micros) {
        let cell = self.cell(key);
        cell.count += count;
        cell.bytes = cell.bytes.saturating_add(bytes);
        cell.waits.add(waited.0, count);
    }

    fn cell(&mut self, mut key: CellKey) -> &mut Cell {
        if self.cells.len() >= SERIES_MAX && !self.cells.contains_key(&key) {
            self.lumped[0] = true;
            OTHER.clone_into(&mut key.flow);
            if self.cells.len() >= 2 * SERIES_MAX && !self.cells.contains_key(&key) {
                self.lumped[1] = true;
                OTHER.clone_into(&mut key.objective);
            }
        }
        self.cells.entry(key).or_default()
    }

    /// What stands in the queue of a flow.
    pub fn flow(&mut self, mut key: (i32, String)) -> &mut Standing {
        if self.flows.len() >= SERIES_MAX && !self.flows.contains_key(&key) {
            self.lumped[0] = true;
            OTHER.clone_into(&mut key.1);
        }
        self.flows.entry(key).or_default()
    }

    /// Takes in the bucket that follows.
    pub fn merge(&mut self, later: &Bucket) {
        for (mine, later) in self.lumped.iter_mut().zip(later.lumped) {
            *mine |= later;
        }
        self.merge_levels(later);
        self.arrivals += later.arrivals;
        self.unnamed += later.unnamed;
        for (key, cell) in &later.cells {
            self.cell(key.clone()).merge(cell);
        }
        for (key, count) in &later.lease_ends {
            *self.lease_ends.entry(*key).or_default() += count;
        }
        self.queue.merge(&later.queue);
        for (priority, standing) in &later.bands {
            self.bands.entry(*priority).or_default().merge(standing);
        }
        for (key, standing) in &later.flows {
            self.flow(key.clone()).merge(standing);
        }
    }

    /// Takes in of the bucket that follows what it says of the gauge, the endpoints, regimes and reclamations; neither
    /// requests nor queues.
    pub fn merge_levels(&mut self, later: &Bucket) {
        if self.first_seq == 0 {
            self.first_seq = later.first_seq;
        }
        self.last_seq = self.last_seq.max(later.last_seq);
        self.refused_outside += later.refused_outside;
        self.raw.merge(&later.raw);
        self.effective.merge(&later.effective);
        self.in_flight.merge(&later.in_flight);
        self.endpoints.merge(&later.endpoints);
        self.fresh.merge(&later.fresh);
        for (mine, span) in self.regimes.iter_mut().zip(later.regimes) {
            *mine += span;
        }
        for (priority, span) in &later.held {
            *self.held.entry(*priority).or_default() += span;
        }
        self.reclamations += later.reclamations;
        self.revocations += later.revocations;
    }
}

impl Standing {
    /// Followed by another span.
    pub fn merge(&mut self, later: &Standing) {
        self.requests.merge(&later.requests);
        self.bytes.merge(&later.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_never_low_and_at_most_an_eighth_high() {
        let mut waits = Waits::default();
        for micros in 0..10_000_u64 {
            waits.add(micros * 17, 1);
        }
        for (q, exact) in
            [(0.0, 0), (0.5, 4_999 * 17), (0.95, 9_499 * 17), (0.99, 9_899 * 17), (1.0, 9_999 * 17)]
        {
            let found = waits.quantile(q).unwrap().0;
            assert!(found >= exact && found <= exact + exact / 8 + 1, "{q}: {found}, exactly {exact}");
        }
        assert_eq!(waits.mean(), Some(Micros(9_999 * 17 / 2)));
        assert_eq!(Waits::default().quantile(0.5), None);
        for micros in [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 1_000, 65_535, u64::MAX] {
            assert!(Waits::top(Waits::step(micros)) >= micros, "{micros}");
        }
    }

    #[test]
    fn more_flows_than_there_is_room_for_share_a_name_and_objectives_keep_theirs() {
        let mut bucket = Bucket::new(Micros(0), FINE);
        let key = |n: usize| CellKey {
            priority: 0,
            flow: format!("tenant-{n}"),
            objective: format!("objective-{}", n % 3),
            outcome: Outcome::EvictedTTL,
            reason: Some(Reason::TtlExpired),
            regime: Regime::HasEndpoints,
        };
        (0..SERIES_MAX).for_each(|n| bucket.count(key(n), 1, 10, Micros(5)));
        assert_eq!((bucket.cells.len(), bucket.lumped), (SERIES_MAX, [false, false]));
        (SERIES_MAX..9_000).for_each(|n| bucket.count(key(n), 1, 10, Micros(5)));
        assert_eq!((bucket.cells.len(), bucket.lumped), (SERIES_MAX + 3, [true, false]));
        let of = |wanted: &dyn Fn(&CellKey) -> bool| {
            bucket.cells.iter().filter(|(key, _)| wanted(key)).map(|(_, cell)| cell.count).sum::<u64>()
        };
        assert_eq!((of(&|_| true), of(&|key| key.objective == "objective-1")), (9_000, 3_000));
        assert_eq!(of(&|key| key.flow == OTHER), 9_000 - SERIES_MAX as u64);
        let mut all = Bucket::new(Micros(0), COARSE);
        all.merge(&bucket);
        all.merge(&bucket);
        assert_eq!(all.cells.values().map(|cell| cell.waits.count).sum::<u64>(), 18_000);
        assert_eq!(all.lumped, [true, false]);
        // As many objectives as flows: they share a name as well, in the end.
        let own = |n: usize| CellKey { objective: format!("objective-{n}"), ..key(n) };
        (0..3 * SERIES_MAX).for_each(|n| all.count(own(n + 10_000), 1, 10, Micros(5)));
        assert_eq!(all.lumped, [true, true]);
        assert!(all.cells.len() <= 2 * SERIES_MAX + 1, "{}", all.cells.len());
        (0..2 * SERIES_MAX).for_each(|n| all.flow((0, format!("tenant-{n}"))).requests.touch(1));
        assert_eq!(all.flows.len(), SERIES_MAX + 1);
    }
}
