//! The groups of a report: by band, flow, objective and so on, the largest ones by themselves and the others together.

use crate::values;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_kernel::{Micros, Outcome, Reason, Regime};
use weir_projection::{Cell, CellKey, OTHER, Standing};

/// Groups of one report at the most.
const GROUPS_MAX: usize = 200;
/// Groups among which the largest are found at the most,
const LOOK_MAX: usize = 5_000;
/// and figures, of groups and buckets, that are held for it.
const HELD_MAX: u64 = 400_000;

/// What a report is grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Bands.
    Band,
    /// Flows.
    Flow,
    /// Objectives.
    Objective,
    /// Reasons.
    Reason,
    /// Outcomes.
    Outcome,
    /// Regimes.
    Regime,
    /// All in one.
    Nothing,
}

/// What reports of outcomes and waits are grouped by.
pub const GROUPS: [By; 7] =
    [By::Band, By::Flow, By::Objective, By::Reason, By::Outcome, By::Regime, By::Nothing];

/// What a series is about: one of these is set, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    band: Option<i32>,
    flow: Option<String>,
    objective: Option<String>,
    reason: Option<Option<Reason>>,
    outcome: Option<Outcome>,
    regime: Option<Regime>,
}

impl Group {
    /// The group in which what a key stands for is counted.
    pub fn of(by: By, key: &CellKey) -> Group {
        let none = Group::default();
        match by {
            By::Band => Group { band: Some(key.priority), ..none },
            By::Flow => Group { flow: Some(key.flow.clone()), ..none },
            By::Objective => Group { objective: Some(key.objective.clone()), ..none },
            By::Reason => Group { reason: Some(key.reason), ..none },
            By::Outcome => Group { outcome: Some(key.outcome), ..none },
            By::Regime => Group { regime: Some(key.regime), ..none },
            By::Nothing => none,
        }
    }

    /// A band, or a flow in it.
    pub fn of_queue(band: i32, flow: Option<&str>) -> Group {
        Group { band: Some(band), flow: flow.map(str::to_owned), ..Group::default() }
    }

    /// As an answer.
    pub fn value(&self) -> Value {
        let text = match self {
            Group { flow: Some(flow), band: Some(band), .. } => format!("flow {flow} in band {band}"),
            Group { band: Some(band), .. } => format!("band {band}"),
            Group { flow: Some(flow), .. } => format!("flow {flow}"),
            Group { objective: Some(name), .. } if name.is_empty() => "no objective".to_owned(),
            Group { objective: Some(name), .. } => format!("objective {name}"),
            Group { reason: Some(reason), .. } => reason.map_or("admitted", Reason::word).to_owned(),
            Group { outcome: Some(outcome), .. } => outcome.word().to_owned(),
            Group { regime: Some(regime), .. } => regime.word().to_owned(),
            _ => "all".to_owned(),
        };
        json!({
            "text": text,
            "band": self.band,
            "flow": self.flow,
            "objective": self.objective,
            "reason": self.reason.flatten().map(values::reason),
            "outcome": self.outcome.map(values::outcome),
            "regime": self.regime.map(values::regime),
        })
    }
}

/// What is added up in a report.
pub trait Sum: Default {
    /// By this the largest groups are found.
    fn size(&self) -> u64;
    /// Takes another in.
    fn add(&mut self, other: &Self);
}

impl Sum for Cell {
    fn size(&self) -> u64 {
        self.count
    }

    fn add(&mut self, other: &Self) {
        self.merge(other);
    }
}

impl Sum for Standing {
    fn size(&self) -> u64 {
        self.requests.area
    }

    fn add(&mut self, other: &Self) {
        self.merge(other);
    }
}

/// The series of a report, by group and bucket.
pub struct Series<T> {
    /// The groups.
    pub groups: BTreeMap<Group, BTreeMap<Micros, T>>,
    look: usize,
    /// Some groups share one for want of room, which need not be the smallest.
    pub is_full: bool,
}

impl<T: Sum> Series<T> {
    /// For so many buckets.
    pub fn new(buckets: u64) -> Self {
        let look = usize::try_from(HELD_MAX / buckets.max(1)).unwrap_or(LOOK_MAX);
        Series { groups: BTreeMap::new(), look: look.clamp(GROUPS_MAX, LOOK_MAX), is_full: false }
    }

    fn other() -> Group {
        Group { flow: Some(OTHER.to_owned()), ..Group::default() }
    }

    /// Adds to a group.
    pub fn add(&mut self, group: Group, point: Micros, what: &T) {
        let full = self.groups.len() >= self.look && !self.groups.contains_key(&group);
        self.is_full |= full;
        let group = if full { Self::other() } else { group };
        self.groups.entry(group).or_default().entry(point).or_default().add(what);
    }

    /// Leaves the largest groups by themselves, and the others together.
    pub fn largest(mut self) -> Self {
        if self.groups.len() <= GROUPS_MAX {
            return self;
        }
        let size = |points: &BTreeMap<Micros, T>| points.values().map(T::size).sum::<u64>();
        let mut sizes: Vec<(u64, Group)> =
            self.groups.iter().map(|(group, points)| (size(points), group.clone())).collect();
        sizes.sort_by(|a, b| b.cmp(a));
        for (_, group) in sizes.into_iter().skip(GROUPS_MAX).filter(|(_, group)| *group != Self::other()) {
            for (point, sum) in self.groups.remove(&group).into_iter().flatten() {
                self.groups.entry(Self::other()).or_default().entry(point).or_default().add(&sum);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_stand_by_themselves_whenever_they_come() {
        let mut series = Series::new(1);
        let group = |n: u64| Group { flow: Some(format!("tenant-{n:04}")), ..Group::default() };
        for n in 0..3_000 {
            // The last ones are the largest.
            series.add(group(n), Micros(0), &Cell { count: n, ..Cell::default() });
        }
        assert!(!series.is_full);
        let series = series.largest();
        assert_eq!(series.groups.len(), GROUPS_MAX + 1);
        let count = |group: &Group| series.groups.get(group).map(|points| points[&Micros(0)].count);
        assert_eq!(
            (count(&group(2_999)), count(&group(2_800)), count(&group(2_799))),
            (Some(2_999), Some(2_800), None)
        );
        assert_eq!(count(&Series::<Cell>::other()), Some((0..2_800).sum()));
        let mut narrow = Series::new(2_000);
        (0..3_000).for_each(|n| narrow.add(group(n), Micros(0), &Cell { count: 1, ..Cell::default() }));
        assert!(narrow.is_full && narrow.groups.len() <= GROUPS_MAX + 1);
    }
}
