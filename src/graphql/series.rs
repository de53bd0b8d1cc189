//! Series over time: outcomes, waits, what stood in the queue, the gauge.
//!
//! At most 2,000 buckets a report and 200 groups (`groups.rs`).

use crate::ask::{Ask, Out, wrong};
use crate::fault::Fault;
use crate::groups::{By, GROUPS, Group, Series};
use crate::values::{self, ms, time};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_kernel::{Micros, Outcome, Reason, Regime};
use weir_projection::{
    Bucket, COARSE, Cell, CellKey, FINE, Grain, Level, PoolProjection, ProjectionError, Standing, Waits,
};

/// Buckets of one report at the most.
const POINTS_MAX: u64 = 2_000;
/// Buckets if their width is left to us.
const POINTS: u64 = 120;

/// The time of a report, cut into buckets.
struct Cut {
    from: Micros,
    to: Micros,
    width: Micros,
    grain: Grain,
    /// The figures of each bucket are asked for, not only those of the whole.
    points: bool,
    /// Flows, or objectives, that share a name in the read models were met.
    shared: [std::cell::Cell<bool>; 2],
}

impl Cut {
    /// Of a report whose buckets stand at this path.
    fn of(ask: &Ask<'_>, pool: &PoolProjection, points: &[&str]) -> Result<Cut, Fault> {
        let (from, to) = ask.span(pool)?;
        let length = to.since(from);
        let width = match ask.number("bucketSeconds")? {
            Some(seconds) if seconds == 0 || !Micros::from_secs(seconds).0.is_multiple_of(FINE.0) => {
                return Err(wrong("bucketSeconds", &seconds.to_string(), "10 or a multiple of it"));
            }
            Some(seconds) => Micros::from_secs(seconds),
            None => {
                let least = length.0.div_ceil(POINTS);
                let unit = if least > COARSE.0 { COARSE.0 } else { FINE.0 };
                Micros(least.div_ceil(unit).max(1) * unit)
            }
        };
        let from = Micros(from.0 - from.0 % width.0);
        let count = to.since(from).0.div_ceil(width.0);
        if count > POINTS_MAX {
            let limit = POINTS_MAX as usize;
            let found = format!("{count} buckets");
            return Err(Fault::Limit { code: "TOO_MANY_BUCKETS", what: "the buckets", found, limit });
        }
        let to = Micros(from.0.saturating_add(count.saturating_mul(width.0)));
        let grain = if width.0.is_multiple_of(COARSE.0) { Grain::Coarse } else { Grain::Fine };
        Ok(Cut { from, to, width, grain, points: ask.wants(points), shared: Default::default() })
    }

    /// The bucket of the report in which a bucket of the read models lies: the first, where none is asked for.
    fn point(&self, start: Micros) -> Micros {
        if !self.points {
            return self.from;
        }
        Micros(self.from.0 + start.since(self.from).0 / self.width.0 * self.width.0)
    }

    /// Gives what lies in the time of the report, in order.
    fn each(
        &self,
        ask: &Ask<'_>,
        pool: &PoolProjection,
        mut take: impl FnMut(Micros, &Bucket),
    ) -> Result<(), ProjectionError> {
        let mut give = |grain, from, to| {
            pool.buckets(grain, from, to, ask.work(), |bucket| {
                // Flows that share a name in ten minutes may have their own in ten seconds.
                if grain == Grain::Coarse && self.grain == Grain::Fine && bucket.lumped != [false, false] {
                    return pool.buckets(
                        Grain::Fine,
                        bucket.start,
                        bucket.start + COARSE,
                        ask.work(),
                        |fine| {
                            take(self.point(fine.start), fine);
                            Ok(())
                        },
                    );
                }
                self.note(bucket);
                take(self.point(bucket.start), bucket);
                Ok(())
            })
        };
        // Of the whole alone, what lies between is there in larger pieces.
        let from = Micros(self.from.0.next_multiple_of(COARSE.0));
        let to = Micros(self.to.0 - self.to.0 % COARSE.0);
        if self.points || self.grain == Grain::Coarse || from >= to {
            return give(self.grain, self.from, self.to);
        }
        give(Grain::Fine, self.from, from)?;
        give(Grain::Coarse, from, to)?;
        give(Grain::Fine, to, self.to)
    }

    /// What was refused many at a time has no names in the log.
    fn note(&self, bucket: &Bucket) {
        for (shared, lumped) in self.shared.iter().zip(bucket.lumped) {
            shared.set(shared.get() || lumped || bucket.unnamed > 0);
        }
    }

    /// Are the figures of flows (if it is about those) and of objectives those of each by itself?
    fn is_exact(&self, flows: bool, objectives: bool) -> bool {
        let [of_flows, of_objectives] = &self.shared;
        !(flows && of_flows.get() || objectives && of_objectives.get())
    }

    fn buckets(&self) -> u64 {
        if self.points { self.to.since(self.from).0 / self.width.0 } else { 1 }
    }

    fn report(&self, mut body: Value) -> Value {
        if let Value::Object(fields) = &mut body {
            fields.insert("from".to_owned(), time(self.from));
            fields.insert("to".to_owned(), time(self.to));
            fields.insert("bucketSeconds".to_owned(), json!(self.width.0 / 1_000_000));
        }
        body
    }
}

/// Which cells count.
struct Which {
    outcomes: Vec<Outcome>,
    reasons: Vec<Reason>,
    regimes: Vec<Regime>,
    bands: Vec<i32>,
    flow: Option<String>,
    objective: Option<String>,
}

impl Which {
    fn of(ask: &Ask<'_>) -> Result<Option<Which>, Fault> {
        let Some(fields) = ask.object("filter")? else { return Ok(None) };
        Ok(Some(Which {
            outcomes: fields.any_of("outcome", &Outcome::ALL)?,
            reasons: fields.any_of("reason", &Reason::ALL)?,
            regimes: fields.any_of("regime", &Regime::ALL)?,
            bands: fields.priorities("band")?,
            flow: fields.text("flow")?,
            objective: fields.text("objective")?,
        }))
    }

    fn holds(&self, key: &CellKey) -> bool {
        (self.outcomes.is_empty() || self.outcomes.contains(&key.outcome))
            && (self.reasons.is_empty() || key.reason.is_some_and(|reason| self.reasons.contains(&reason)))
            && (self.regimes.is_empty() || self.regimes.contains(&key.regime))
            && (self.bands.is_empty() || self.bands.contains(&key.priority))
            && self.flow.as_ref().is_none_or(|flow| *flow == key.flow)
            && self.objective.as_ref().is_none_or(|name| *name == key.objective)
    }
}

/// The cells of a report, and whether they are exact.
fn cells(ask: &Ask<'_>) -> Result<(Cut, Series<Cell>, bool), Fault> {
    let pool = ask.pool()?;
    let (cut, which) = (Cut::of(ask, pool, &["series", "points"])?, Which::of(ask)?);
    let by = ask.one_of("groupBy", &GROUPS)?.unwrap_or(By::Nothing);
    let mut series = Series::new(cut.buckets());
    cut.each(ask, pool, |point, bucket| {
        for (key, cell) in &bucket.cells {
            if which.as_ref().is_none_or(|which| which.holds(key)) {
                series.add(Group::of(by, key), point, cell);
            }
        }
    })?;
    let flows = by == By::Flow || which.as_ref().is_some_and(|which| which.flow.is_some());
    let objectives = by == By::Objective || which.as_ref().is_some_and(|which| which.objective.is_some());
    let exact = cut.is_exact(flows, objectives) && !series.is_full;
    Ok((cut, series.largest(), exact))
}

/// The largest first.
fn ordered(mut list: Vec<(u64, Value)>) -> Vec<Value> {
    list.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    list.into_iter().map(|(_, value)| value).collect()
}

/// `Query.outcomes`.
pub fn outcomes(ask: &Ask<'_>) -> Result<Out, Fault> {
    let (cut, series, exact) = cells(ask)?;
    let all: u64 = series.groups.values().flat_map(BTreeMap::values).map(|cell| cell.count).sum();
    let one = |(group, points): (&Group, &BTreeMap<Micros, Cell>)| {
        let count: u64 = points.values().map(|cell| cell.count).sum();
        let bytes: u64 = points.values().map(|cell| cell.bytes).sum();
        let point = |(at, cell): (&Micros, &Cell)| json!({ "time": time(*at), "count": cell.count, "bytes": cell.bytes });
        let value = json!({
            "group": group.value(),
            "count": count,
            "bytes": bytes,
            "share": if all == 0 { 0.0 } else { count as f64 / all as f64 },
            "points": points.iter().map(point).collect::<Vec<_>>(),
        });
        (count, value)
    };
    let list = ordered(series.groups.iter().map(one).collect());
    Ok(cut.report(json!({ "series": list, "exact": exact })).into())
}

fn figures(waits: &Waits) -> Value {
    let quantile = |q: f64| waits.quantile(q).map_or(0.0, ms);
    json!({
        "count": waits.count,
        "meanMs": waits.mean().map_or(0.0, ms),
        "minMs": ms(Micros(waits.min)),
        "p50Ms": quantile(0.5),
        "p90Ms": quantile(0.9),
        "p95Ms": quantile(0.95),
        "p99Ms": quantile(0.99),
        "maxMs": ms(Micros(waits.max)),
    })
}

/// `Query.waits`.
pub fn waits(ask: &Ask<'_>) -> Result<Out, Fault> {
    let (cut, series, exact) = cells(ask)?;
    let one = |(group, points): (&Group, &BTreeMap<Micros, Cell>)| {
        let mut whole = Waits::default();
        points.values().for_each(|cell| whole.merge(&cell.waits));
        let point =
            |(at, cell): (&Micros, &Cell)| json!({ "time": time(*at), "figures": figures(&cell.waits) });
        let points: Vec<Value> = points.iter().map(point).collect();
        (whole.count, json!({ "group": group.value(), "whole": figures(&whole), "points": points }))
    };
    let list = ordered(series.groups.iter().map(one).collect());
    Ok(cut.report(json!({ "series": list, "exact": exact })).into())
}

/// `Query.queue`.
pub fn queue(ask: &Ask<'_>) -> Result<Out, Fault> {
    let pool = ask.pool()?;
    let cut = Cut::of(ask, pool, &["series", "points"])?;
    let by = ask.one_of("groupBy", &[By::Band, By::Flow, By::Nothing])?.unwrap_or(By::Nothing);
    let mut series: Series<Standing> = Series::new(cut.buckets());
    // A queue that was not there was empty: means are over the time that was looked at, not over its own.
    let (mut spans, mut span): (BTreeMap<Micros, u64>, u64) = (BTreeMap::new(), 0);
    cut.each(ask, pool, |point, bucket| {
        *spans.entry(point).or_default() += bucket.queue.requests.span;
        span += bucket.queue.requests.span;
        match by {
            By::Band => {
                for (priority, standing) in &bucket.bands {
                    series.add(Group::of_queue(*priority, None), point, standing);
                }
            }
            By::Flow => {
                for ((priority, flow), standing) in &bucket.flows {
                    series.add(Group::of_queue(*priority, Some(flow)), point, standing);
                }
            }
            _ => series.add(Group::default(), point, &bucket.queue),
        }
    })?;
    let exact = cut.is_exact(by == By::Flow, false) && !series.is_full;
    let series = series.largest();
    let one = |(group, points): (&Group, &BTreeMap<Micros, Standing>)| {
        let mut whole = Standing::default();
        points.values().for_each(|standing| whole.merge(standing));
        let point = |(at, standing): (&Micros, &Standing)| {
            let span = spans.get(at).copied().unwrap_or(0);
            json!({
                "time": time(*at),
                "meanRequests": over(standing.requests.area, span),
                "maxRequests": standing.requests.max,
                "lastRequests": standing.requests.last,
                "meanBytes": over(standing.bytes.area, span),
                "maxBytes": standing.bytes.max,
            })
        };
        let value = json!({
            "group": group.value(),
            "meanRequests": over(whole.requests.area, span),
            "maxRequests": whole.requests.max,
            "points": points.iter().map(point).collect::<Vec<_>>(),
        });
        (whole.requests.area, value)
    };
    let list = ordered(series.groups.iter().map(one).collect());
    Ok(cut.report(json!({ "series": list, "exact": exact })).into())
}

fn over(area: u64, span: u64) -> f64 {
    if span == 0 { 0.0 } else { area as f64 / span as f64 }
}

fn mean(level: &Level) -> f64 {
    level.mean().unwrap_or(0.0)
}

/// `Query.saturation`.
pub fn saturation(ask: &Ask<'_>) -> Result<Out, Fault> {
    let pool = ask.pool()?;
    let cut = Cut::of(ask, pool, &["points"])?;
    let mut points: BTreeMap<Micros, Bucket> = BTreeMap::new();
    let mut whole = Bucket::new(cut.from, cut.to.since(cut.from));
    cut.each(ask, pool, |point, bucket| {
        points.entry(point).or_insert_with(|| Bucket::new(point, cut.width)).merge_levels(bucket);
        whole.merge_levels(bucket);
    })?;
    let points: Vec<Value> = points.values().map(saturation_point).collect();
    Ok(cut.report(json!({ "points": points, "whole": saturation_point(&whole) })).into())
}

fn saturation_point(bucket: &Bucket) -> Value {
    let millionths = |value: u64| value as f64 / 1_000_000.0;
    let seen = bucket.raw.span > 0 || bucket.endpoints.max > 0;
    let of = |value: u64| seen.then_some(value);
    let held =
        bucket.held.iter().rev().map(|(band, span)| json!({ "band": band, "heldMs": ms(Micros(*span)) }));
    let regimes = Regime::ALL.iter().zip(bucket.regimes).filter(|(_, span)| *span > 0);
    let regimes =
        regimes.map(|(regime, span)| json!({ "regime": values::regime(*regime), "ms": ms(Micros(span)) }));
    json!({
        "time": time(bucket.start),
        "mean": bucket.raw.mean().map(|mean| mean / 1_000_000.0),
        "min": of(bucket.raw.min).map(millionths),
        "max": of(bucket.raw.max).map(millionths),
        "last": of(bucket.raw.last).map(millionths),
        "effectiveMax": (bucket.effective != Level::default()).then(|| millionths(bucket.effective.max)),
        "endpoints": of(bucket.endpoints.last),
        "minEndpoints": of(bucket.endpoints.min),
        "freshEndpoints": of(bucket.fresh.last),
        "inFlight": mean(&bucket.in_flight),
        "maxInFlight": bucket.in_flight.max,
        "held": held.collect::<Vec<_>>(),
        "regimes": regimes.collect::<Vec<_>>(),
        "reclamations": bucket.reclamations,
        "revocations": bucket.revocations,
        "refusedOutside": bucket.refused_outside,
    })
}
