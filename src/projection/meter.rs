//! Fills the buckets: settles what stood in the queue and in the gauge over time, and closes a bucket at its end.
//!
//! A bucket is written once, when it is over. Time between a stop and the next start counts nowhere.

use crate::bucket::{Bucket, COARSE, CellKey, FINE, Level};
use crate::row::Row;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_kernel::{Hold, LeaseEnd, Micros, Regime};

/// A gap longer than this counts as not looked at.
const GAP_MAX: Micros = Micros::from_secs(3_600);

/// A quantity, and since when it has had this value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Now {
    value: u64,
    since: Micros,
}

impl Now {
    fn settle(&mut self, level: &mut Level, at: Micros) {
        level.add(self.value, at.since(self.since).0);
        self.since = at;
    }

    fn set(&mut self, level: &mut Level, at: Micros, value: u64) {
        self.settle(level, at);
        self.value = value;
        level.touch(value);
    }
}

/// Requests and bytes of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Depth {
    requests: Now,
    bytes: Now,
}

/// The buckets that time is in, and what stands now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// The current ten seconds.
    pub fine: Bucket,
    /// The current ten minutes, without the current ten seconds.
    pub coarse: Bucket,
    at: Micros,
    queue: Depth,
    bands: BTreeMap<i32, Depth>,
    flows: BTreeMap<(i32, String), Depth>,
    raw: Now,
    in_flight: Now,
    endpoints: Now,
    fresh: Now,
    seen: bool,
    regime: Regime,
    regime_since: Micros,
    held: Option<(i32, Micros)>,
}

/// Buckets that are over.
#[derive(Clone, Debug, Default)]
pub struct Full {
    /// Ten seconds each.
    pub fine: Vec<Bucket>,
    /// Ten minutes each.
    pub coarse: Vec<Bucket>,
}

const fn aligned(at: Micros, width: Micros) -> Micros {
    Micros(at.0 - at.0 % width.0)
}

impl Meter {
    /// Requests that wait in bands above this one.
    pub fn above(&self, priority: i32) -> u64 {
        self.bands.range(priority.saturating_add(1)..).map(|(_, depth)| depth.requests.value).sum()
    }

    /// Requests that wait in this band.
    pub fn waiting(&self, priority: i32) -> u64 {
        self.bands.get(&priority).map_or(0, |depth| depth.requests.value)
    }

    /// Requests and bytes that wait in all bands.
    pub const fn standing(&self) -> (u64, u64) {
        (self.queue.requests.value, self.queue.bytes.value)
    }

    /// Requests and bytes that wait in this band.
    pub fn standing_in(&self, priority: i32) -> (u64, u64) {
        self.bands.get(&priority).map_or((0, 0), |depth| (depth.requests.value, depth.bytes.value))
    }

    /// A step is about to be taken in: buckets that end before it are closed.
    pub fn advance(&mut self, seq: u64, at: Micros, full: &mut Full) {
        if self.fine.width == Micros::ZERO {
            self.begin(at);
        }
        if at.since(self.at) > GAP_MAX {
            self.rest(at, full);
        }
        while at.since(self.fine.start) >= FINE {
            let end = self.fine.start + FINE;
            self.settle(end);
            self.close(end, full);
        }
        self.at = at;
        if self.fine.first_seq == 0 {
            self.fine.first_seq = seq;
        }
        self.fine.last_seq = seq;
    }

    /// Nobody looked between the last step and `at`.
    pub fn rest(&mut self, at: Micros, full: &mut Full) {
        if self.fine.width == Micros::ZERO {
            self.begin(at);
        }
        let last = self.at;
        self.settle(last);
        if at.since(self.fine.start) >= FINE {
            self.close(aligned(at, FINE), full);
        }
        self.each(|now, _| now.since = at);
        self.regime_since = at;
        self.held = self.held.map(|(priority, _)| (priority, at));
        self.at = at;
    }

    fn begin(&mut self, at: Micros) {
        self.fine = Bucket::new(aligned(at, FINE), FINE);
        self.coarse = Bucket::new(aligned(at, COARSE), COARSE);
        self.at = at;
        self.each(|now, _| now.since = at);
        self.regime_since = at;
    }

    /// The current bucket is over; the next one begins at `next`.
    fn close(&mut self, next: Micros, full: &mut Full) {
        let over = std::mem::replace(&mut self.fine, Bucket::new(next, FINE));
        self.coarse.merge(&over);
        if over.last_seq > 0 {
            full.fine.push(over);
        }
        if next.since(self.coarse.start) >= COARSE {
            let over = std::mem::replace(&mut self.coarse, Bucket::new(aligned(next, COARSE), COARSE));
            if over.last_seq > 0 {
                full.coarse.push(over);
            }
        }
        self.bands.retain(|_, depth| depth.requests.value > 0);
        self.flows.retain(|_, depth| depth.requests.value > 0);
    }

    /// Every quantity, with where it is added up.
    fn each(&mut self, mut with: impl FnMut(&mut Now, &mut Level)) {
        let fine = &mut self.fine;
        with(&mut self.queue.requests, &mut fine.queue.requests);
        with(&mut self.queue.bytes, &mut fine.queue.bytes);
        for (priority, depth) in &mut self.bands {
            let standing = fine.bands.entry(*priority).or_default();
            with(&mut depth.requests, &mut standing.requests);
            with(&mut depth.bytes, &mut standing.bytes);
        }
        for (key, depth) in &mut self.flows {
            let standing = fine.flow(key.clone());
            with(&mut depth.requests, &mut standing.requests);
            with(&mut depth.bytes, &mut standing.bytes);
        }
        with(&mut self.in_flight, &mut fine.in_flight);
        if self.seen {
            with(&mut self.raw, &mut fine.raw);
            with(&mut self.endpoints, &mut fine.endpoints);
            with(&mut self.fresh, &mut fine.fresh);
        }
    }

    fn settle(&mut self, at: Micros) {
        self.each(|now, level| now.settle(level, at));
        self.fine.regimes[self.regime as usize] += at.since(self.regime_since).0;
        self.regime_since = at;
        if let Some((priority, since)) = &mut self.held {
            *self.fine.held.entry(*priority).or_default() += at.since(*since).0;
            *since = at;
        }
    }

    /// A request joins (`sign` 1) or leaves (-1) its queue.
    pub fn queue(&mut self, priority: i32, flow: &str, bytes: u64, sign: i64) {
        let at = self.at;
        let fine = &mut self.fine;
        let step = |depth: &mut Depth, standing: &mut crate::bucket::Standing| {
            let requests = depth.requests.value.saturating_add_signed(sign);
            let held = depth
                .bytes
                .value
                .saturating_add_signed(sign.saturating_mul(bytes.min(i64::MAX as u64) as i64));
            depth.requests.set(&mut standing.requests, at, requests);
            depth.bytes.set(&mut standing.bytes, at, held);
        };
        let fresh = Depth { requests: Now { value: 0, since: at }, bytes: Now { value: 0, since: at } };
        step(&mut self.queue, &mut fine.queue);
        step(self.bands.entry(priority).or_insert(fresh), fine.bands.entry(priority).or_default());
        let key = (priority, flow.to_owned());
        let standing = fine.flow(key.clone());
        step(self.flows.entry(key).or_insert(fresh), standing);
    }

    /// So many leases now.
    pub fn in_flight(&mut self, leases: u64) {
        if leases != self.in_flight.value {
            self.in_flight.set(&mut self.fine.in_flight, self.at, leases);
        }
    }

    /// The gauge and the view behind it.
    pub fn gauge(&mut self, raw: i64, endpoints: u16, fresh: u16) {
        let at = self.at;
        if !self.seen {
            self.seen = true;
            for now in [&mut self.raw, &mut self.endpoints, &mut self.fresh] {
                now.since = at;
            }
        }
        self.raw.set(&mut self.fine.raw, at, u64::try_from(raw).unwrap_or(0));
        self.endpoints.set(&mut self.fine.endpoints, at, endpoints.into());
        self.fresh.set(&mut self.fine.fresh, at, fresh.into());
    }

    /// The regime from here on.
    pub fn regime(&mut self, regime: Regime) {
        self.fine.regimes[self.regime as usize] += self.at.since(self.regime_since).0;
        (self.regime, self.regime_since) = (regime, self.at);
    }

    /// What holds queued work from here on.
    pub fn hold(&mut self, hold: Option<Hold>) {
        let band = match hold {
            Some(Hold::Band { priority, .. }) => Some(priority),
            _ => None,
        };
        if band == self.held.map(|(priority, _)| priority) {
            return;
        }
        if let Some((priority, since)) = self.held.take() {
            *self.fine.held.entry(priority).or_default() += self.at.since(since).0;
        }
        if let Some(Hold::Band { priority, saturation, .. }) = hold {
            self.held = Some((priority, self.at));
            self.fine.effective.touch(u64::try_from(saturation.0).unwrap_or(0));
        }
    }

    /// A request left the queue, or was never in it.
    pub fn outcome(&mut self, row: &Row) {
        let Some(end) = &row.end else { return };
        if let Some(effective) = end.effective {
            self.fine.effective.touch(u64::try_from(effective.0).unwrap_or(0));
        }
        let key = CellKey {
            priority: row.priority,
            flow: row.flow.clone(),
            objective: row.objective.clone().unwrap_or_default(),
            outcome: end.outcome,
            reason: end.reason,
            regime: end.regime,
        };
        self.fine.count(key, 1, row.bytes, end.waited);
    }

    /// A lease ended.
    pub fn lease_end(&mut self, priority: i32, end: LeaseEnd) {
        *self.fine.lease_ends.entry((priority, end)).or_default() += 1;
    }

    /// The current spans as they would be if they were closed now.
    pub fn current(&self) -> (Bucket, Bucket) {
        let mut copy = self.clone();
        copy.settle(copy.at);
        let mut coarse = copy.coarse;
        coarse.merge(&copy.fine);
        (copy.fine, coarse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 1_764_460_800_000_000;

    fn at(millis: u64) -> Micros {
        Micros(BASE + millis * 1_000)
    }

    #[test]
    fn what_stands_is_added_up_over_time_across_buckets() {
        let (mut meter, mut full) = (Meter::default(), Full::default());
        meter.advance(1, at(0), &mut full);
        meter.queue(0, "a", 100, 1);
        meter.advance(2, at(5_000), &mut full);
        meter.queue(0, "b", 50, 1);
        meter.advance(3, at(15_000), &mut full);
        meter.queue(0, "a", 100, -1);
        assert_eq!(full.fine.len(), 1);
        let first = &full.fine[0].queue.requests;
        assert_eq!((first.area, first.span, first.max, first.last), (15_000_000, 10_000_000, 2, 2));
        assert_eq!(full.fine[0].bands[&0].bytes.area, 5_000_000 * 100 + 5_000_000 * 150);
        let (fine, coarse) = meter.current();
        assert_eq!((fine.queue.requests.area, fine.queue.requests.last), (10_000_000, 1));
        assert_eq!(coarse.queue.requests.area, 25_000_000);
        assert_eq!(coarse.flows[&(0, "b".to_owned())].requests.area, 10_000_000);
        assert_eq!((meter.waiting(0), meter.above(-5), meter.above(0)), (1, 1, 0));
    }

    #[test]
    fn time_between_a_stop_and_the_next_start_counts_nowhere() {
        let (mut meter, mut full) = (Meter::default(), Full::default());
        meter.advance(1, at(0), &mut full);
        meter.regime(Regime::HasEndpoints);
        meter.queue(0, "a", 1, 1);
        meter.advance(2, at(2_000), &mut full);
        meter.rest(at(902_000), &mut full);
        meter.advance(3, at(902_000), &mut full);
        meter.advance(4, at(903_000), &mut full);
        let (fine, coarse) = meter.current();
        assert_eq!(fine.regimes[Regime::HasEndpoints as usize], 1_000_000);
        assert_eq!((fine.queue.requests.area, coarse.queue.requests.span), (1_000_000, 1_000_000));
        assert_eq!(full.coarse.len(), 1);
        assert_eq!(full.coarse[0].queue.requests.span, 2_000_000);
    }
}
