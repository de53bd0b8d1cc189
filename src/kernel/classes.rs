//! Who is due next: a FIFO per distinct pair of budgets, and the heads of those FIFOs by their instant.
//!
//! All requests of a class have the same budgets, and each of the three bounds is monotone in the enqueue, so the head
//! is due first. A change of regime recomputes one instant per class, never one per request.

use crate::clocks::{Budgets, Clocks, Marks};
use crate::line::Line;
use crate::{Micros, RequestId};
use alloc::collections::{BTreeMap, BTreeSet};

/// So many distinct caller-given budgets are kept apart exactly. Beyond it they are rounded down onto a grid of eight
/// steps to each doubling, which has 512 places: 1,024 classes at most, and no budget loses more than an eighth.
pub(crate) const EXACT_HEADER_CLASSES: usize = 512;
const GRID_STEPS: u64 = 8;

/// A band and, where the caller shortened the budget, to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassKey {
    pub(crate) priority: i32,
    pub(crate) header: Option<Micros>,
}

#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) budgets: Budgets,
    /// Enqueue order is number order.
    pub(crate) fifo: Line<Marks>,
    due: Option<Micros>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    map: BTreeMap<ClassKey, Class>,
    due: BTreeSet<(Micros, ClassKey)>,
    /// Live caller-given budgets, with the number of classes (bands) that use them.
    headers: BTreeMap<Micros, u32>,
}

impl Classes {
    /// The class that a caller's budget counts as: itself, while fewer than 512 are live; else the longer of the
    /// next smaller live one and the next smaller one of the grid. Never longer than asked.
    pub(crate) fn header_class(&self, ttl: Micros) -> Micros {
        if self.headers.len() < EXACT_HEADER_CLASSES || self.headers.contains_key(&ttl) {
            return ttl;
        }
        let octave = 1_u64 << (63 - ttl.0.max(1).leading_zeros());
        let grid = Micros(ttl.0 - ttl.0 % (octave / GRID_STEPS).max(1));
        self.headers.range(..=ttl).next_back().map_or(grid, |(live, _)| grid.max(*live))
    }

    pub(crate) fn push(
        &mut self,
        key: ClassKey,
        budgets: Budgets,
        id: RequestId,
        marks: Marks,
        clocks: &Clocks,
    ) {
        let headers = &mut self.headers;
        let class = self.map.entry(key).or_insert_with(|| {
            if let Some(header) = key.header {
                *headers.entry(header).or_insert(0) += 1;
            }
            Class { budgets, fifo: Line::default(), due: None }
        });
        class.budgets = budgets;
        class.fifo.insert(id, marks);
        if class.fifo.len() == 1 || class.due.is_none() {
            Self::index(&mut self.due, key, class, clocks);
        }
    }

    pub(crate) fn remove(&mut self, key: ClassKey, id: RequestId, clocks: &Clocks) {
        let Some(class) = self.map.get_mut(&key) else { return };
        let was_head = class.fifo.first_key_value().is_some_and(|(head, _)| *head == id);
        if class.fifo.remove(&id).is_none() {
            return;
        }
        if class.fifo.is_empty() {
            if let Some(due) = class.due {
                self.due.remove(&(due, key));
            }
            self.map.remove(&key);
            if let Some(header) = key.header
                && let Some(count) = self.headers.get_mut(&header)
            {
                *count -= 1;
                if *count == 0 {
                    self.headers.remove(&header);
                }
            }
        } else if was_head {
            Self::index(&mut self.due, key, class, clocks);
        }
    }

    pub(crate) fn rebudget(&mut self, key: ClassKey, budgets: Budgets, clocks: &Clocks) {
        if let Some(class) = self.map.get_mut(&key) {
            class.budgets = budgets;
            Self::index(&mut self.due, key, class, clocks);
        }
    }

    /// The regime changed: every head is due at another instant.
    pub(crate) fn reindex(&mut self, clocks: &Clocks) {
        self.due.clear();
        for (key, class) in &mut self.map {
            class.due = None;
            Self::index(&mut self.due, *key, class, clocks);
        }
    }

    fn index(due: &mut BTreeSet<(Micros, ClassKey)>, key: ClassKey, class: &mut Class, clocks: &Clocks) {
        if let Some(old) = class.due {
            due.remove(&(old, key));
        }
        class.due = class.fifo.first_key_value().and_then(|(_, marks)| clocks.due(*marks, class.budgets));
        if let Some(new) = class.due {
            due.insert((new, key));
        }
    }

    /// When the first request is due.
    pub(crate) fn next_due(&self) -> Option<Micros> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The request that is due first, and when.
    pub(crate) fn first_due(&self) -> Option<(Micros, RequestId, &Class)> {
        let (due, key) = self.due.first()?;
        let class = self.map.get(key)?;
        let (head, _) = class.fifo.first_key_value()?;
        Some((*due, *head, class))
    }

    pub(crate) fn get(&self, key: ClassKey) -> Option<&Class> {
        self.map.get(&key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ClassKey, &Class)> {
        self.map.iter()
    }

    /// Requests in all FIFOs (for checks).
    pub(crate) fn len(&self) -> usize {
        self.map.values().map(|class| class.fifo.len()).sum()
    }
}
