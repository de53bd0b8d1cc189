//! Spans of what each pool decides: its durable steps are followed, and what they make goes to the exporter, which never
//! holds anybody up.
//!
//! What is lost on the way (the receiver is gone, or the steps come faster than they can be followed) is counted, and can be
//! had from the log: `weir-replay traces`.
//!
//! Not here: what a span says and how it travels (`weir-telemetry`).

use super::history::History;
use super::state::{Gateway, PoolFace};
use crate::engine::PoolHandle;
use std::sync::Arc;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_kernel::{Arrival, Event, Micros, RequestId, State, Step, Trace};
use weir_telemetry::export::Exporter;
use weir_telemetry::{Context, Spans};

/// After a start steps are read again from the oldest request on that is still open, but no more of them than these.
const READ_AGAIN_MAX: u64 = 1_000_000;

/// What the ids of a request's spans follow from, beside its number.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    received_at: Micros,
    trace: Option<Trace>,
}

impl Caller {
    /// Of an arrival.
    pub fn of(arrival: &Arrival) -> Self {
        Caller { received_at: arrival.received_at, trace: arrival.trace }
    }
}

/// What a model server is told of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Onward {
    /// Its `traceparent`: the request's lease.
    pub traceparent: String,
    /// The trace begins here, so that a `tracestate` belongs to no trace.
    pub is_root: bool,
}

impl Onward {
    /// The ids of trace and span in it.
    pub fn ids(&self) -> (Option<&str>, Option<&str>) {
        let mut parts = self.traceparent.split('-').skip(1);
        (parts.next(), parts.next())
    }
}

impl Gateway {
    /// What the model server is told of this request's trace; none while no traces are made, so that what the caller said
    /// goes on as it is.
    pub fn onward(&self, pool: &PoolFace, request: RequestId, caller: Caller) -> Option<Onward> {
        let sampler = self.traces.get()?.sampler();
        let Caller { received_at, trace } = caller;
        let context = Context::of(pool.handle.name(), request, received_at, trace, &sampler);
        Some(Onward { traceparent: context.traceparent(), is_root: trace.is_none() })
    }
}

/// Begins to follow every pool, if traces are made. They end, through with what there was, once `closed` is true.
pub fn follow(gateway: &Gateway, closed: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    let Some(exporter) = gateway.traces.get() else { return Vec::new() };
    let start = |pool: &PoolFace| {
        let (exporter, history) = (Arc::clone(exporter), gateway.history.clone());
        tokio::spawn(one(pool.handle.clone(), exporter, history, closed.clone()))
    };
    gateway.pools().map(start).collect()
}

async fn one(pool: PoolHandle, exporter: Arc<Exporter>, history: History, mut closed: watch::Receiver<bool>) {
    // Subscribed before the state is looked at: what comes in between is skipped by its sequence.
    let mut steps = pool.subscribe();
    let Ok(state) = pool.query(State::restate).await else { return };
    let mut spans = Spans::new(pool.name(), exporter.sampler());
    spans.restate(&state);
    let seq = sequence(&state);
    let mut follower = Follower { pool, exporter, spans, seq, said: false };
    if let Some(oldest) = oldest(&state) {
        follower = follower.read_again(oldest, history).await;
    }
    loop {
        tokio::select! {
            batch = steps.recv() => match batch {
                Ok(batch) => follower.take(&batch),
                Err(RecvError::Lagged(_)) => follower.lagged(),
                Err(RecvError::Closed) => return,
            },
            _ = closed.wait_for(|closed| *closed) => break,
        }
    }
    loop {
        match steps.try_recv() {
            Ok(batch) => follower.take(&batch),
            Err(TryRecvError::Lagged(_)) => follower.lagged(),
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
    }
}

fn sequence(state: &[Event]) -> u64 {
    let core = state.iter().find_map(|event| match event {
        Event::RestatedCore(core) => Some(core.seq),
        _ => None,
    });
    core.unwrap_or(0)
}

/// The oldest request that has not ended.
fn oldest(state: &[Event]) -> Option<u64> {
    let open = state.iter().filter_map(|event| match event {
        Event::RestatedQueued(queued) => Some(queued.request.0),
        Event::RestatedLease(lease) => Some(lease.request.0),
        _ => None,
    });
    open.min()
}

struct Follower {
    pool: PoolHandle,
    exporter: Arc<Exporter>,
    spans: Spans,
    /// The last step that is in the spans.
    seq: u64,
    said: bool,
}

impl Follower {
    fn take(&mut self, batch: &[Step]) {
        // While nothing can be taken, what begins is not even noted.
        self.spans.set_quiet(self.exporter.is_full());
        let (mut made, begun) = (Vec::new(), self.seq);
        for step in batch.iter().filter(|step| step.seq > begun) {
            self.spans.apply(step, &mut made);
            self.seq = step.seq;
        }
        self.exporter.take(made);
        self.exporter.counters().add_lagged(self.spans.take_skipped());
    }

    /// Steps were missed. They are in the log; reading them would only make it worse.
    fn lagged(&mut self) {
        let lost = self.spans.gap();
        self.exporter.counters().add_lagged(lost);
        if !std::mem::replace(&mut self.said, true) {
            tracing::warn!(
                pool = self.pool.name(),
                requests = lost,
                "traces fell behind the log: these requests have none (`weir-replay traces` makes them); said once"
            );
        }
    }

    /// What began before a restart is in the log.
    async fn read_again(self, oldest: u64, history: History) -> Self {
        let from = oldest.max(self.seq.saturating_sub(READ_AGAIN_MAX));
        let (name, seq) = (self.pool.name().to_owned(), self.seq);
        let (pool, exporter, mut spans) = (self.pool, self.exporter, self.spans);
        let read = tokio::task::spawn_blocking(move || {
            let read = history.steps(&name, Some(from)).and_then(|steps| {
                // What ended before was exported before.
                let mut made = Vec::new();
                for step in steps {
                    let step = step?;
                    if step.seq > seq {
                        break;
                    }
                    spans.apply(&step, &mut made);
                    made.clear();
                }
                Ok(())
            });
            if let Err(error) = read {
                tracing::warn!(pool = name, %error, "what began before the start has no traces");
            }
            spans
        });
        let sampler = exporter.sampler();
        let spans = read.await.unwrap_or_else(|_| Spans::new(pool.name(), sampler));
        Follower { pool, exporter, spans, seq, said: self.said }
    }
}
