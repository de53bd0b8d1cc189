//! One request as a row: what it was, how it left the queue, how its lease ended. Written once, when that is settled.
//!
//! Not here: where rows are kept (`chunk.rs`) and what makes them (`fold.rs`).

use crate::error::Spot;
use serde::{Deserialize, Serialize};
use weir_kernel::{
    BudgetSource, Cause, Face, Hold, LeaseEnd, LeaseEndCause, Limit, Micros, Outcome, Ratio, Reason, Regime,
    SpentBudget, Termination, Trace, Usage,
};

/// A request. `S` is how a name is held: itself, or its place in a chunk's list of names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row<S = String> {
    /// Its number: the sequence of its arrival.
    pub id: u64,
    /// The time of that step.
    pub arrived_at: Micros,
    /// When the face first saw it.
    pub received_at: Micros,
    /// The caller's own id.
    pub caller_id: String,
    /// The objective that it named.
    pub objective: Option<S>,
    /// Its flow: the fairness id, or the default flow.
    pub flow: S,
    /// Its band.
    pub priority: i32,
    /// The model asked for.
    pub model: Option<S>,
    /// Size for the queue's byte limits.
    pub bytes: u64,
    /// Prompt size, where known.
    pub prompt_tokens: Option<u32>,
    /// The caller's own budget, as sent.
    pub ttl: Option<Micros>,
    /// The time to first token that the caller aimed at.
    pub slo_ttft: Option<Micros>,
    /// The caller's deadline.
    pub deadline: Option<Micros>,
    /// How it came in.
    pub face: Face,
    /// The caller's trace.
    pub trace: Option<Trace>,
    /// The regime when it came.
    pub regime: Regime,
    /// What held queued work when it came.
    pub hold: Option<Hold>,
    /// Requests that waited in higher bands when it came.
    pub ahead_higher: u64,
    /// Requests that waited in its own band when it came.
    pub ahead_band: u64,
    /// Calls with the same idempotency key that shared its fate.
    pub repeats: u32,
    /// It arrived before what was folded, so that some of this is not known.
    pub partial: bool,
    /// Its budgets, if it was queued.
    pub queue: Option<Queue>,
    /// How it left the queue, if it has.
    pub end: Option<End<S>>,
    /// Its lease, if it was admitted.
    pub lease: Option<Lease>,
}

/// What was said when it was queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its budget in `HasEndpoints`; zero = none.
    pub saturation_budget: Micros,
    /// Its budget in `NoEndpoints` and `NoFreshMetrics`; zero = none.
    pub no_endpoint_budget: Micros,
    /// Where the first of them came from.
    pub budget_source: BudgetSource,
    /// The caller's budget as it counts.
    pub header_class: Option<Micros>,
    /// Requests in the band with this one.
    pub depth: u64,
}

/// How it left the queue (or was never in it).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End<S = String> {
    /// The step that decided.
    pub spot: Spot,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason, unless admitted.
    pub reason: Option<Reason>,
    /// The regime that decided.
    pub regime: Regime,
    /// How long it was queued.
    pub waited: Micros,
    /// The budget that ended it.
    pub budget: Option<SpentBudget>,
    /// The cause, where neither a budget nor a limit did.
    pub cause: Option<Cause>,
    /// What it was held by at the end.
    pub held_by: Option<Hold>,
    /// The limit that refused it.
    pub limit: Option<Limit>,
    /// What would have had to differ can be told: that limit stood alone against it; or its budget ended in a band that
    /// takes strictly the oldest first.
    pub certain: bool,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u8>,
    /// The raw gauge at a refusal or dispatch.
    pub raw: Option<Ratio>,
    /// The effective gauge at a dispatch.
    pub effective: Option<Ratio>,
    /// Its band's ceiling at a dispatch.
    pub ceiling: Option<Ratio>,
    /// The observation that the gauge rested on.
    pub observed: Option<u64>,
    /// The endpoint, where Weir chose it.
    pub endpoint: Option<S>,
}

/// Its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// When the first byte of the response was seen.
    pub first_byte: Option<Spot>,
    /// Its revocations, by number.
    pub revocations: Vec<u64>,
    /// How it ended, if it has.
    pub end: Option<Finish>,
}

/// The end of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    /// The step.
    pub spot: Spot,
    /// How.
    pub end: LeaseEnd,
    /// How long it ran.
    pub ran: Micros,
    /// Why, where it did not simply complete.
    pub cause: Option<LeaseEndCause>,
    /// How its stream ended, as the transport saw it.
    pub termination: Option<Termination>,
    /// Tokens, where known.
    pub usage: Option<Usage>,
}

impl<S> Row<S> {
    /// Everything about it is settled.
    pub fn is_over(&self) -> bool {
        match (&self.end, &self.lease) {
            (Some(_), None) => true,
            (Some(_), Some(lease)) => lease.end.is_some(),
            (None, _) => false,
        }
    }

    /// How long it was queued; none while it is.
    pub fn waited(&self) -> Option<Micros> {
        self.end.as_ref().map(|end| end.waited)
    }

    /// Was it ordered back while it ran?
    pub fn is_revoked(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| !lease.revocations.is_empty())
    }

    /// The same with other names.
    pub fn rename<T>(self, mut name: impl FnMut(S) -> T) -> Row<T> {
        let objective = self.objective.map(&mut name);
        let flow = name(self.flow);
        let model = self.model.map(&mut name);
        let end = self.end.map(|end| End {
            spot: end.spot,
            outcome: end.outcome,
            reason: end.reason,
            regime: end.regime,
            waited: end.waited,
            budget: end.budget,
            cause: end.cause,
            held_by: end.held_by,
            limit: end.limit,
            certain: end.certain,
            retry_after: end.retry_after,
            raw: end.raw,
            effective: end.effective,
            ceiling: end.ceiling,
            observed: end.observed,
            endpoint: end.endpoint.map(&mut name),
        });
        Row {
            id: self.id,
            arrived_at: self.arrived_at,
            received_at: self.received_at,
            caller_id: self.caller_id,
            objective,
            flow,
            priority: self.priority,
            model,
            bytes: self.bytes,
            prompt_tokens: self.prompt_tokens,
            ttl: self.ttl,
            slo_ttft: self.slo_ttft,
            deadline: self.deadline,
            face: self.face,
            trace: self.trace,
            regime: self.regime,
            hold: self.hold,
            ahead_higher: self.ahead_higher,
            ahead_band: self.ahead_band,
            repeats: self.repeats,
            partial: self.partial,
            queue: self.queue,
            end,
            lease: self.lease,
        }
    }

    /// Times and sequences as distances to `base` and to its own arrival, which are small numbers; `back` undoes it.
    pub fn shift(&mut self, base: Spot, back: bool) {
        if back {
            self.id = self.id.wrapping_add(base.seq);
            self.arrived_at = Micros(self.arrived_at.0.wrapping_add(base.at.0));
        }
        let own = Spot { seq: self.id, at: self.arrived_at };
        let time = |at: &mut Micros| {
            at.0 = if back {
                own.at.0.wrapping_add(unzigzag(at.0))
            } else {
                zigzag(at.0.wrapping_sub(own.at.0))
            };
        };
        let number = |seq: &mut u64| {
            *seq =
                if back { own.seq.wrapping_add(unzigzag(*seq)) } else { zigzag(seq.wrapping_sub(own.seq)) };
        };
        let spot = |spot: &mut Spot| {
            number(&mut spot.seq);
            time(&mut spot.at);
        };
        time(&mut self.received_at);
        self.deadline.iter_mut().for_each(time);
        if let Some(end) = &mut self.end {
            spot(&mut end.spot);
            end.observed.iter_mut().for_each(number);
            end.budget.iter_mut().for_each(|budget| time(&mut budget.charged_from));
        }
        if let Some(lease) = &mut self.lease {
            lease.first_byte.iter_mut().for_each(spot);
            lease.end.iter_mut().for_each(|end| spot(&mut end.spot));
        }
        if !back {
            self.id = self.id.wrapping_sub(base.seq);
            self.arrived_at = Micros(self.arrived_at.0.wrapping_sub(base.at.0));
        }
    }
}

/// A distance in either direction as a small number.
const fn zigzag(distance: u64) -> u64 {
    let signed = distance.cast_signed();
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

const fn unzigzag(small: u64) -> u64 {
    (small >> 1) ^ (small & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_come_back_whatever_they_are() {
        for distance in [0, 1, u64::MAX, 1 << 63, 77, 1_u64.wrapping_neg()] {
            assert_eq!(unzigzag(zigzag(distance)), distance);
        }
        assert_eq!((zigzag(1), zigzag(u64::MAX)), (2, 1));
    }
}
