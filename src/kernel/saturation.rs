//! How full the pool is: detectors, stages, and the charge for what a scraped gauge cannot have seen yet
//! (seed-system.md 10.3; contract.md, *In-flight credit*).
//!
//! A gauge is a sum of one term per endpoint over one common denominator, so it can be kept up to date by taking
//! one term out and putting another in. Not here: how leases are attributed to endpoints, and when a sample is stale.

use crate::{ConcurrencyMode, Detector, Fine, OutputEstimate, Ratio, Role};
use alloc::vec::Vec;

/// What an engine said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Requests waiting in the engine.
    pub waiting: u32,
    /// Requests running in the engine.
    pub running: u32,
    /// KV cache share in ten-thousandths.
    pub kv: u32,
}

/// All that a detector asks of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointLoad {
    /// Which stages it serves.
    pub role: Role,
    /// Its last sample, if it ever gave one.
    pub sample: Option<Sample>,
    /// Is that sample recent enough?
    pub fresh: bool,
    /// Leases that the sample cannot show; a fraction where the pool's are spread evenly.
    pub unseen: Fine,
    /// Leases that ended since the sample was asked for; may be a fraction as well.
    pub ended: Fine,
    /// Requests that would start at once instead of waiting.
    pub slack: u64,
    /// Our own leases on it.
    pub requests: u64,
    /// Their tokens.
    pub tokens: u64,
}

/// The pool's gauge, by stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageSaturation {
    /// Of the prefill endpoints, if there are any.
    pub prefill: Option<Ratio>,
    /// Of the decode endpoints, if there are any.
    pub decode: Option<Ratio>,
    /// The larger of both; over all endpoints if neither stage has any; 1 for an empty pool.
    pub effective: Ratio,
}

/// Figures beyond these count as these, so that no sum of terms saturates: a term that did could not be taken out of
/// a gauge again, and limits beyond them would make a full pool read as an empty one.
const MOST_REQUESTS: u64 = 1 << 32;
const MOST_TOKENS: u64 = 1 << 40;
const MOST_UNSEEN: Fine = Fine::from_int(1 << 24);
const MOST_KV: u32 = 1 << 20;
const MOST_THRESHOLD: i64 = 1 << 40;

/// One endpoint's share of a gauge: its score times the detector's common denominator, in steps of 1e-12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term(i128);

/// A gauge under construction. Changing one endpoint costs O(1): [`Gauge::remove`] its old term, [`Gauge::add`] its
/// new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    denominator: i128,
    all: Sum,
    prefill: Sum,
    decode: Sum,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    terms: i128,
    count: i128,
}

impl Sum {
    fn change(&mut self, terms: i128, count: i128) {
        // Within the bounds below no sum comes near the end of the range.
        self.terms = self.terms.wrapping_add(terms);
        self.count += count;
    }

    fn mean(&self, denominator: i128) -> Option<Fine> {
        if self.count <= 0 {
            return None;
        }
        let divisor = denominator.saturating_mul(self.count);
        // Most sums fit in 64 bits, where a division is several times faster.
        match (u64::try_from(self.terms), u64::try_from(divisor)) {
            (Ok(terms), Ok(divisor)) => terms.checked_div(divisor).map(|mean| Fine(i128::from(mean))),
            _ => self.terms.checked_div(divisor).map(Fine),
        }
    }
}

impl Gauge {
    /// A gauge of no endpoints.
    pub fn new(detector: &Detector) -> Gauge {
        Gauge {
            denominator: denominator(detector),
            all: Sum::default(),
            prefill: Sum::default(),
            decode: Sum::default(),
        }
    }

    /// Counts an endpoint in.
    pub fn add(&mut self, role: Role, term: Term) {
        self.change(role, term.0, 1);
    }

    /// Counts an endpoint out: the role and the term it was added with.
    pub fn remove(&mut self, role: Role, term: Term) {
        self.change(role, -term.0, -1);
    }

    fn change(&mut self, role: Role, terms: i128, count: i128) {
        self.all.change(terms, count);
        if role.prefills() {
            self.prefill.change(terms, count);
        }
        if role.decodes() {
            self.decode.change(terms, count);
        }
    }

    /// The gauge as it stands, before rounding: prefill, decode, effective.
    pub fn fine(&self) -> (Option<Fine>, Option<Fine>, Fine) {
        let prefill = self.prefill.mean(self.denominator);
        let decode = self.decode.mean(self.denominator);
        let effective = prefill.max(decode).or_else(|| self.all.mean(self.denominator)).unwrap_or(Fine::ONE);
        (prefill, decode, effective)
    }

    /// The gauge as it stands.
    pub fn read(&self) -> StageSaturation {
        let (prefill, decode, effective) = self.fine();
        StageSaturation {
            prefill: prefill.map(Fine::to_ratio),
            decode: decode.map(Fine::to_ratio),
            effective: effective.to_ratio(),
        }
    }
}

/// The pool's saturation. `credit` charges for dispatches that the samples cannot show.
pub fn saturation(detector: &Detector, loads: &[EndpointLoad], credit: bool) -> StageSaturation {
    let mut gauge = Gauge::new(detector);
    for load in loads {
        gauge.add(load.role, term(detector, load, credit));
    }
    gauge.read()
}

/// One endpoint's score, 1 = the set point, not capped.
pub fn endpoint_score(detector: &Detector, load: &EndpointLoad, credit: bool) -> Fine {
    score(detector, term(detector, load, credit))
}

/// The same from its term.
pub(crate) fn score(detector: &Detector, term: Term) -> Fine {
    Fine(term.0.checked_div(denominator(detector)).unwrap_or(Fine::SCALE))
}

/// What all scores of a detector are multiples of: one over this.
fn denominator(detector: &Detector) -> i128 {
    match detector {
        Detector::Utilization { queue_depth, kv, .. } => {
            i128::from((*queue_depth).max(1)) * i128::from(kv.0.clamp(1, MOST_THRESHOLD))
        }
        Detector::Concurrency { mode, max_requests, max_tokens, .. } => {
            let (requests, tokens) = limits(*max_requests, *max_tokens);
            match mode {
                ConcurrencyMode::Requests => requests,
                ConcurrencyMode::Tokens => tokens,
                ConcurrencyMode::Hybrid => requests * tokens,
            }
        }
        Detector::Pushed => 1,
    }
}

fn limits(max_requests: u64, max_tokens: u64) -> (i128, i128) {
    (i128::from(max_requests.clamp(1, MOST_REQUESTS)), i128::from(max_tokens.clamp(1, MOST_TOKENS)))
}

/// One endpoint's share of the gauge. Without a fresh sample a detector that reads metrics scores exactly 1; so
/// does [`Detector::Pushed`], whose figure is not computed from endpoints.
pub fn term(detector: &Detector, load: &EndpointLoad, credit: bool) -> Term {
    let full = || Term(Fine::SCALE.saturating_mul(denominator(detector)));
    match detector {
        Detector::Utilization { queue_depth, kv, .. } => match load.sample.filter(|_| load.fresh) {
            Some(sample) => {
                utilization(sample, load, (*queue_depth).max(1), kv.0.clamp(1, MOST_THRESHOLD), credit)
            }
            None => full(),
        },
        Detector::Concurrency { mode, max_requests, max_tokens, .. } => {
            let (of_requests, of_tokens) = limits(*max_requests, *max_tokens);
            let requests = i128::from(load.requests.min(MOST_REQUESTS));
            let tokens = i128::from(load.tokens.min(MOST_TOKENS));
            Term(Fine::SCALE.wrapping_mul(match mode {
                ConcurrencyMode::Requests => requests,
                ConcurrencyMode::Tokens => tokens,
                ConcurrencyMode::Hybrid => (requests * of_tokens).max(tokens * of_requests),
            }))
        }
        Detector::Pushed => full(),
    }
}

/// `max( (w + max(0, u - g - s)) / queue_depth , (kv + u kv / max(r, 1)) / kv_threshold )`, times both thresholds.
fn utilization(
    sample: Sample,
    load: &EndpointLoad,
    queue_depth: u32,
    kv_threshold: i64,
    credit: bool,
) -> Term {
    let mut waiting = Fine::from_int(u64::from(sample.waiting));
    let share = sample.kv.min(MOST_KV);
    // KV shares are kept in ten-thousandths: one of them is 1e8 steps.
    let mut kv = i128::from(share) * 100_000_000;
    if credit {
        let unseen = load.unseen.clamp(Fine::ZERO, MOST_UNSEEN);
        let arriving = unseen - load.ended - Fine::from_int(load.slack);
        waiting = waiting + arriving.clamp(Fine::ZERO, MOST_UNSEEN);
        kv += kv_of_unseen(share, sample.running, unseen);
    }
    let by_queue = waiting.0.wrapping_mul(i128::from(kv_threshold));
    let by_kv = kv.wrapping_mul(i128::from(Ratio::ONE.0 * i64::from(queue_depth)));
    Term(by_queue.max(by_kv))
}

/// `u kv / max(r, 1)` in steps of 1e-12, rounded down: the unseen are taken to be as large as those that run.
fn kv_of_unseen(kv: u32, running: u32, unseen: Fine) -> i128 {
    let (kv, running) = (u64::from(kv), u64::from(running.max(1)));
    match u64::try_from(unseen.0).ok().and_then(|unseen| unseen.checked_mul(kv)) {
        Some(product) => i128::from(product / (running * 10_000)),
        None => unseen.0.saturating_mul(i128::from(kv)) / i128::from(running * 10_000),
    }
}

/// The endpoints that may take one more request, as indexes into `loads`.
///
/// Utilization: fresh, and strictly below both thresholds widened by the headroom; all if none is. Concurrency:
/// strictly below the limit widened by the headroom and rounded down; possibly none. Pushed: all.
pub fn filter(detector: &Detector, loads: &[EndpointLoad]) -> Vec<usize> {
    let kept: Vec<usize> = loads
        .iter()
        .enumerate()
        .filter(|(_, load)| has_room(detector, load))
        .map(|(index, _)| index)
        .collect();
    if kept.is_empty() && matches!(detector, Detector::Utilization { .. }) {
        return (0..loads.len()).collect();
    }
    kept
}

/// Does [`filter`] keep this endpoint on its own account?
pub fn has_room(detector: &Detector, load: &EndpointLoad) -> bool {
    let one = i128::from(Ratio::ONE.0);
    match detector {
        Detector::Utilization { queue_depth, kv, headroom, .. } => {
            let Some(sample) = load.sample.filter(|_| load.fresh) else { return false };
            let widened = one + i128::from(headroom.0);
            let queue_fits = i128::from(sample.waiting) * one < i128::from(*queue_depth) * widened;
            // Ten-thousandths against millionths.
            let kv_fits = i128::from(sample.kv) * 100 * one < i128::from(kv.0).saturating_mul(widened);
            queue_fits && kv_fits
        }
        Detector::Concurrency { mode, max_requests, max_tokens, headroom, .. } => {
            let widened = one + i128::from(headroom.0);
            let below = |held: u64, max: u64| {
                i128::from(held) < i128::from(max).saturating_mul(widened).div_euclid(one)
            };
            match mode {
                ConcurrencyMode::Requests => below(load.requests, *max_requests),
                ConcurrencyMode::Tokens => below(load.tokens, *max_tokens),
                ConcurrencyMode::Hybrid => {
                    below(load.requests, *max_requests) && below(load.tokens, *max_tokens)
                }
            }
        }
        Detector::Pushed => true,
    }
}

/// Tokens that a request is charged with: its input, plus the estimated output where that is switched on.
pub fn estimate_tokens(input: u64, estimate: Option<OutputEstimate>) -> u64 {
    let Some(OutputEstimate { ratio, cap }) = estimate else { return input };
    let scaled = u128::from(input) * u128::from(ratio.0.max(0).unsigned_abs());
    let output = u64::try_from((scaled + 500_000) / 1_000_000).unwrap_or(u64::MAX);
    input.saturating_add(if cap == 0 { output } else { output.min(cap) })
}

#[cfg(test)]
#[path = "saturation_tests.rs"]
mod tests;
