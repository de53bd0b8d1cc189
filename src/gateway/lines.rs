//! A line for each request that ended, for who wants them (`WEIR_LOG=info,weir::requests=debug`): how, why, after how long, and
//! the ids of its trace and span, so that one leads to the other. They are there whether spans are exported or not.
//!
//! Made from durable steps, so that a line never says more than the log does. Where nobody wants them they cost nothing. Not
//! here: the one line a second that sums up what was dropped (`follow.rs`).

use std::collections::HashMap;
use weir_kernel::{Event, Input, RequestId, Step};
use weir_telemetry::{Context, Sampler, hex};

/// Where these lines are filtered by.
const TARGET: &str = "weir::requests";

/// Follows the steps of one pool.
#[derive(Debug)]
pub struct Lines {
    pool: String,
    sampler: Sampler,
    /// Requests that have not ended.
    open: HashMap<RequestId, Ids>,
}

#[derive(Clone, Debug, Default)]
struct Ids {
    trace: Option<String>,
    span: Option<String>,
}

impl Lines {
    /// For a pool, if anybody wants them.
    pub fn of(pool: &str, sampler: Sampler) -> Option<Lines> {
        let wanted = tracing::enabled!(target: TARGET, tracing::Level::DEBUG);
        wanted.then(|| Lines { pool: pool.to_owned(), sampler, open: HashMap::new() })
    }

    /// Steps were missed: what was open has no ids any more.
    pub fn gap(&mut self) {
        self.open.clear();
    }

    /// Takes in durable steps.
    pub fn apply(&mut self, steps: &[Step]) {
        for step in steps {
            if let Input::Arrived(arrival) = &step.input {
                let request = RequestId(step.seq);
                let context =
                    Context::of(&self.pool, request, arrival.received_at, arrival.trace, &self.sampler);
                let (trace, span) = (Some(hex(&context.trace_id)), Some(hex(&context.admission)));
                self.open.insert(request, Ids { trace, span });
            }
            for event in &step.events {
                self.event(step, event);
            }
        }
    }

    fn event(&mut self, step: &Step, event: &Event) {
        let pool = &*self.pool;
        let id = |request: RequestId| format!("{pool}-{request}");
        match event {
            Event::Rejected(rejected) => {
                let request = RequestId(step.seq);
                let Ids { trace: trace_id, span: span_id } = self.open.remove(&request).unwrap_or_default();
                let (outcome, reason) = (rejected.outcome.word(), rejected.reason.word());
                tracing::debug!(target: TARGET, pool, id = id(request), outcome, reason, trace_id, span_id, "refused");
            }
            Event::Evicted(evicted) => {
                let ids = self.open.remove(&evicted.request).unwrap_or_default();
                let Ids { trace: trace_id, span: span_id } = ids;
                let (outcome, reason) = (evicted.outcome.word(), evicted.reason.word());
                let (id, waited_ms) = (id(evicted.request), evicted.waited.as_millis());
                tracing::debug!(target: TARGET, pool, id, outcome, reason, waited_ms, trace_id, span_id, "refused");
            }
            Event::LeaseEnded(ended) => {
                let Ids { trace: trace_id, span: span_id } =
                    self.open.remove(&ended.request).unwrap_or_default();
                let (id, end, ran_ms) = (id(ended.request), ended.end.word(), ended.ran.as_millis());
                tracing::debug!(target: TARGET, pool, id, end, ran_ms, trace_id, span_id, "ended");
            }
            Event::RejectedMany(rejected) => {
                let (outcome, reason) = (rejected.outcome.word(), rejected.reason.word());
                let count = match &step.input {
                    Input::ArrivedMany(many) => many.count,
                    _ => 0,
                };
                tracing::debug!(target: TARGET, pool, count, outcome, reason, "refused together");
            }
            Event::Repeated { .. } => {
                // It is one with an earlier request.
                self.open.remove(&RequestId(step.seq));
            }
            _ => {}
        }
    }
}
