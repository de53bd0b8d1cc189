//! What came out, counted: outcomes, reasons, waits, ends of leases; for everything, and by band, flow and objective.

use std::collections::BTreeMap;
use weir_kernel::{LeaseEnd, Micros, Outcome, Reason};

/// Flows and objectives that are told apart; later ones share one row.
const TOLD_APART: usize = 512;

/// Waits in classes of a 128th of their power of two: a quantile is right to one percent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    classes: BTreeMap<u32, u64>,
    count: u64,
}

const PARTS: u32 = 7;

impl Waits {
    fn add(&mut self, wait: Micros) {
        let us = wait.0.max(1 << PARTS);
        let power = us.ilog2();
        let part = (us >> (power - PARTS)) as u32 & ((1 << PARTS) - 1);
        *self.classes.entry((power << PARTS) | part).or_default() += 1;
        self.count += 1;
    }

    fn take(&mut self, other: &Waits) {
        for (class, n) in &other.classes {
            *self.classes.entry(*class).or_default() += n;
        }
        self.count += other.count;
    }

    /// A quantile (nearest rank); none without waits.
    pub fn quantile(&self, q: f64) -> Option<Micros> {
        let rank = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (class, n) in &self.classes {
            seen += n;
            if seen >= rank {
                let (power, part) = (class >> PARTS, u64::from(class & ((1 << PARTS) - 1)));
                let low = ((1 << PARTS) + part) << (power - PARTS);
                // Waits of less than the smallest class are as good as none.
                return Some(Micros(if low <= 1 << PARTS { 0 } else { low }));
            }
        }
        None
    }

    /// The lower ends of the classes and how many are in each, for a picture.
    pub fn classes(&self) -> impl Iterator<Item = (Micros, u64)> + '_ {
        self.classes.iter().map(|(class, n)| {
            let (power, part) = (class >> PARTS, u64::from(class & ((1 << PARTS) - 1)));
            (Micros(((1 << PARTS) + part) << (power - PARTS)), *n)
        })
    }
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that arrived, or waited when the range began: those with an outcome, and those that still wait.
    pub arrivals: u64,
    /// Those that still wait where the range ends.
    pub waiting: u64,
    /// By [`Outcome`], in its disk order.
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Refusals and sheds by reason.
    pub reasons: BTreeMap<Reason, u64>,
    /// Of those that were admitted.
    pub waits: Waits,
    /// By [`LeaseEnd`], in its disk order.
    pub ends: [u64; LeaseEnd::ALL.len()],
    /// Tokens made for requests that completed, where known.
    pub tokens: u64,
}

impl Tally {
    /// Counts what another row has as well.
    fn take(&mut self, other: &Tally) {
        self.arrivals += other.arrivals;
        self.waiting += other.waiting;
        self.outcomes.iter_mut().zip(other.outcomes).for_each(|(sum, n)| *sum += n);
        for (reason, n) in &other.reasons {
            *self.reasons.entry(*reason).or_default() += n;
        }
        self.waits.take(&other.waits);
        self.ends.iter_mut().zip(other.ends).for_each(|(sum, n)| *sum += n);
        self.tokens += other.tokens;
    }

    /// Requests that left the queue, or were never in it.
    pub fn decided(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Those that were not admitted.
    pub fn shed(&self) -> u64 {
        self.decided() - self.outcomes[Outcome::Dispatched.index()]
    }

    /// The share of those.
    pub fn shed_rate(&self) -> f64 {
        self.shed() as f64 / self.decided().max(1) as f64
    }

    /// Requests whose answer was whole.
    pub fn completed(&self) -> u64 {
        self.ends[LeaseEnd::Completed as usize]
    }

    /// Leases that were taken back.
    pub fn evictions(&self) -> u64 {
        self.ends[LeaseEnd::Revoked as usize]
    }
}

/// To which rows a request belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its band, once that is known, and its fairness id.
    pub flow: (i32, String),
    /// Its objective.
    pub objective: String,
}

impl Group {
    /// Its band, once that is known.
    pub const fn band(&self) -> i32 {
        self.flow.0
    }
}

/// The row of what is not told apart any more.
const OTHERS: &str = "(others)";

/// Counts in a row; one that is there already is found without a copy of its key.
fn in_row<K: Ord + Clone>(
    rows: &mut BTreeMap<K, Tally>,
    key: &K,
    others: impl FnOnce() -> K,
    f: impl FnOnce(&mut Tally),
) {
    if let Some(tally) = rows.get_mut(key) {
        return f(tally);
    }
    let full = rows.len() >= TOLD_APART;
    f(rows.entry(if full { others() } else { key.clone() }).or_default());
}

/// All rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Everything.
    pub all: Tally,
    /// By priority.
    pub bands: BTreeMap<i32, Tally>,
    /// By priority and fairness id.
    pub flows: BTreeMap<(i32, String), Tally>,
    /// By objective; empty = none named.
    pub objectives: BTreeMap<String, Tally>,
}

/// What is counted while a run goes on: the rows of which the others are sums.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    flows: BTreeMap<(i32, String), Tally>,
    objectives: BTreeMap<String, Tally>,
}

impl From<Counts> for Tallies {
    fn from(Counts { flows, objectives }: Counts) -> Tallies {
        let (mut all, mut bands) = (Tally::default(), BTreeMap::<i32, Tally>::new());
        for ((band, _), tally) in &flows {
            all.take(tally);
            bands.entry(*band).or_default().take(tally);
        }
        Tallies { all, bands, flows, objectives }
    }
}

impl Counts {
    fn each(&mut self, group: &Group, mut f: impl FnMut(&mut Tally)) {
        in_row(&mut self.flows, &group.flow, || (group.band(), OTHERS.to_owned()), &mut f);
        in_row(&mut self.objectives, &group.objective, || OTHERS.to_owned(), &mut f);
    }

    /// So many requests left the queue so (or never came into it).
    pub fn outcome(
        &mut self,
        group: &Group,
        outcome: Outcome,
        reason: Option<Reason>,
        wait: Micros,
        count: u64,
    ) {
        self.each(group, |tally| {
            tally.arrivals += count;
            tally.outcomes[outcome.index()] += count;
            match reason {
                Some(reason) => *tally.reasons.entry(reason).or_default() += count,
                None => tally.waits.add(wait),
            }
        });
    }

    /// The range ends, and a request still waits.
    pub fn waiting(&mut self, group: &Group) {
        self.each(group, |tally| {
            tally.arrivals += 1;
            tally.waiting += 1;
        });
    }

    /// A lease ended.
    pub fn end(&mut self, group: &Group, end: LeaseEnd, tokens: u32) {
        self.each(group, |tally| {
            tally.ends[end as usize] += 1;
            if end == LeaseEnd::Completed {
                tally.tokens += u64::from(tokens);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_percent() {
        let mut waits = Waits::default();
        (1..=1_000).for_each(|ms| waits.add(Micros::from_millis(ms)));
        for (q, want) in [(0.5, 500_000.0), (0.95, 950_000.0), (0.99, 990_000.0)] {
            let got = waits.quantile(q).unwrap().0 as f64;
            assert!((got / want - 1.0).abs() < 0.01, "{q}: {got}");
        }
        assert_eq!(Waits::default().quantile(0.5), None);
        let mut none = Waits::default();
        none.add(Micros::ZERO);
        assert_eq!(none.quantile(0.99), Some(Micros::ZERO));
    }

    #[test]
    fn many_flows_share_a_row() {
        let mut counts = Counts::default();
        for n in 0..2_000 {
            let group = Group { flow: (n % 2, format!("flow-{n}")), objective: String::new() };
            counts.outcome(&group, Outcome::Dispatched, None, Micros(5), 1);
            counts.end(&group, LeaseEnd::Completed, 3);
        }
        let all = Tallies::from(counts);
        assert!(all.flows.len() <= TOLD_APART + 2);
        assert_eq!(all.flows.values().map(Tally::decided).sum::<u64>(), 2_000);
        assert_eq!(all.all, all.objectives[""], "everything is of one objective");
        assert_eq!(
            all.bands.values().map(|band| (band.decided(), band.tokens)).collect::<Vec<_>>(),
            [(1_000, 3_000); 2]
        );
        assert_eq!(all.all.shed_rate(), 0.0);
    }
}
