//! A map by request number for requests that come in rising numbers and mostly leave in that order.
//!
//! A deque in number order with gaps where somebody left from the middle. The gaps at the ends go at once, the others as
//! soon as they outnumber what is there: so coming and leaving cost O(1) on average, and finding one O(log n).

use crate::RequestId;
use alloc::collections::VecDeque;

/// Gaps that are borne whatever there is besides.
const GAPS: usize = 32;

#[derive(Clone, Debug)]
pub(crate) struct Line<V> {
    places: VecDeque<(RequestId, Option<V>)>,
    live: usize,
}

impl<V> Default for Line<V> {
    fn default() -> Self {
        Line { places: VecDeque::new(), live: 0 }
    }
}

impl<V> Line<V> {
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The place of a number, or where it would be.
    fn find(&self, id: RequestId) -> Result<usize, usize> {
        match (self.places.front(), self.places.back()) {
            (Some((first, _)), _) if *first == id => Ok(0),
            (_, Some((last, _))) if *last < id => Err(self.places.len()),
            _ => self.places.binary_search_by_key(&id, |(id, _)| *id),
        }
    }

    pub(crate) fn get(&self, id: &RequestId) -> Option<&V> {
        let place = self.find(*id).ok()?;
        self.places.get(place)?.1.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: &RequestId) -> Option<&mut V> {
        let place = self.find(*id).ok()?;
        self.places.get_mut(place)?.1.as_mut()
    }

    pub(crate) fn contains_key(&self, id: &RequestId) -> bool {
        self.get(id).is_some()
    }

    /// Cheap for a number above all that are there; else what comes after it has to move.
    pub(crate) fn insert(&mut self, id: RequestId, value: V) -> Option<V> {
        let before = match self.find(id) {
            Ok(place) => self.places.get_mut(place).and_then(|(_, old)| old.replace(value)),
            Err(place) if place == self.places.len() => {
                self.places.push_back((id, Some(value)));
                None
            }
            Err(place) => {
                self.places.insert(place, (id, Some(value)));
                None
            }
        };
        self.live += usize::from(before.is_none());
        before
    }

    pub(crate) fn remove(&mut self, id: &RequestId) -> Option<V> {
        let place = self.find(*id).ok()?;
        let value = self.places.get_mut(place)?.1.take()?;
        self.live -= 1;
        while self.places.front().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_front();
        }
        while self.places.back().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_back();
        }
        if self.places.len() > 2 * self.live + GAPS {
            self.places.retain(|(_, value)| value.is_some());
        }
        Some(value)
    }

    /// In number order, as everything below.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&RequestId, &V)> {
        self.places.iter().filter_map(|(id, value)| Some((id, value.as_ref()?)))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &RequestId> {
        self.iter().map(|(id, _)| id)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The lowest number.
    pub(crate) fn first_key_value(&self) -> Option<(&RequestId, &V)> {
        // No gap stands at either end.
        self.places.front().and_then(|(id, value)| Some((id, value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    /// The same as a tree, whatever comes and leaves; and never many more places than needed.
    #[test]
    fn it_is_a_map_in_number_order() {
        let (mut line, mut tree) = (Line::default(), BTreeMap::new());
        let (mut next, mut seed) = (0_u64, 1_u64);
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..20_000_u64 {
            let pick = |tree: &BTreeMap<RequestId, u64>, n: u64| tree.keys().nth(n as usize).copied();
            match random(10) {
                0..4 => {
                    next += 1 + random(3);
                    assert_eq!(line.insert(RequestId(next), round), tree.insert(RequestId(next), round));
                }
                4 => {
                    let id = RequestId(random(next + 2));
                    assert_eq!(line.insert(id, round), tree.insert(id, round));
                }
                5..7 => {
                    let id = tree.keys().next().copied().unwrap_or_default();
                    assert_eq!(line.remove(&id), tree.remove(&id));
                }
                _ => {
                    let some = random(tree.len() as u64 + 1);
                    let id = pick(&tree, some).unwrap_or(RequestId(random(next + 2)));
                    assert_eq!(line.get_mut(&id), tree.get_mut(&id));
                    assert_eq!(line.remove(&id), tree.remove(&id));
                    assert_eq!(line.get(&id), None);
                }
            }
            assert_eq!((line.len(), line.is_empty()), (tree.len(), tree.is_empty()));
            assert_eq!(line.first_key_value(), tree.first_key_value());
            assert!(line.places.len() <= 2 * line.len() + GAPS);
            if round % 97 == 0 {
                assert_eq!(line.iter().collect::<Vec<_>>(), tree.iter().collect::<Vec<_>>());
            }
        }
    }
}
