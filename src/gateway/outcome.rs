//! What the log says of a request that neither waits nor runs any more.
//!
//! Its arrival is found at once, its number being the sequence of that step; what became of it is looked for from there
//! on. Searches are few at a time and bounded, so that nobody can make the service read its whole log over and over.

use super::history::History;
use super::problem::Fault;
use super::state::Gateway;
use crate::engine::{Admitted, LeaseNotice, Refused};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use weir_kernel::{
    Arrival, DEFAULT_FLOW, Event, Face, Input, LeaseEnd, Micros, Outcome, Reason, Regime, RequestId, Step,
};
use weir_log::SegmentError;

/// Searches at once.
pub const SEARCHES_MAX: usize = 2;
/// How long one may take.
const SEARCH_TIME: Duration = Duration::from_secs(3);
/// How long one may wait for its turn.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// A request, as the log has it.
#[derive(Debug)]
pub struct Record {
    /// Its caller's own label.
    pub caller_id: String,
    /// How it left the queue, as far as that was found.
    pub verdict: Option<Verdict>,
    /// How its lease ended.
    pub end: Option<LeaseNotice>,
    request: RequestId,
    flow: String,
    face: Face,
    priority: i32,
}

/// How a request left the queue.
#[derive(Debug)]
pub enum Verdict {
    /// Admitted. The endpoint is not among what is known: only its place is in the log.
    Admitted(Admitted),
    /// Refused, or ended while it waited.
    Refused(Refused),
}

/// Where its decision is looked for.
#[derive(Clone, Copy, Debug)]
pub enum From {
    /// From its arrival on.
    Arrival,
    /// From this step on.
    Seq(u64),
    /// From this time on.
    Time(Micros),
}

/// What is known of a request; with `end`, also of the end of its lease. None if no such request ever was, or if
/// nothing of it was found within the bounds of a search.
///
/// # Errors
/// The log does not keep that time any more, or cannot be read; too many ask at once.
pub async fn find(
    gateway: &Gateway,
    pool: &str,
    request: RequestId,
    from: From,
    end: bool,
) -> Result<Option<Record>, Fault> {
    let full = |_| Fault::GatewayFull { what: "searches of the log", limit: SEARCHES_MAX };
    let turn = tokio::time::timeout(TURN_WAIT, gateway.searches.acquire()).await.map_err(full)?;
    let (history, name) = (gateway.history.clone(), pool.to_owned());
    let found = spawn_blocking(move || search(&history, &name, request, from, end)).await;
    drop(turn);
    match found {
        Ok(Ok(record)) => Ok(record),
        Ok(Err(error @ SegmentError::Trimmed { .. })) => Err(Fault::Gone(error.to_string())),
        Ok(Err(error)) => Err(Fault::Internal(error.to_string())),
        Err(_) => Err(Fault::Internal("the reader of the log failed".to_owned())),
    }
}

/// The caller's own label of a request, which its arrival says; empty if that is not kept any more.
///
/// # Errors
/// The log cannot be read.
pub async fn label(gateway: &Gateway, pool: &str, request: RequestId) -> Result<String, Fault> {
    let (history, name) = (gateway.history.clone(), pool.to_owned());
    let first = spawn_blocking(move || history.steps_near(&name, request.0)?.next().transpose()).await;
    match first {
        Ok(Ok(Some(Step { input: Input::Arrived(arrival), .. }))) => Ok(arrival.caller_id),
        Ok(Ok(_) | Err(SegmentError::Trimmed { .. })) => Ok(String::new()),
        Ok(Err(error)) => Err(Fault::Internal(error.to_string())),
        Err(_) => Err(Fault::Internal("the reader of the log failed".to_owned())),
    }
}

fn search(
    history: &History,
    pool: &str,
    request: RequestId,
    from: From,
    end: bool,
) -> Result<Option<Record>, SegmentError> {
    let until = Instant::now() + SEARCH_TIME;
    let mut steps = history.steps_near(pool, request.0)?;
    let Some(first) = steps.next().transpose()? else { return Ok(None) };
    let Input::Arrived(arrival) = &first.input else { return Ok(None) };
    let mut record = Record::of(request, arrival);
    record.take(&first);
    if !record.is_whole(end) {
        match from {
            From::Arrival => {}
            From::Seq(seq) => steps = history.steps_near(pool, seq)?,
            From::Time(at) => steps = history.steps_at(pool, at)?,
        }
    }
    while !record.is_whole(end) && Instant::now() < until {
        match steps.next().transpose()? {
            Some(step) => record.take(&step),
            None => break,
        }
    }
    Ok(record.verdict.is_some().then_some(record))
}

impl Record {
    fn of(request: RequestId, arrival: &Arrival) -> Record {
        let flow = if arrival.fairness_id.is_empty() { DEFAULT_FLOW } else { &arrival.fairness_id };
        Record {
            caller_id: arrival.caller_id.clone(),
            verdict: None,
            end: None,
            request,
            flow: flow.to_owned(),
            face: arrival.face,
            priority: 0,
        }
    }

    /// Is all found that is looked for?
    fn is_whole(&self, end: bool) -> bool {
        match &self.verdict {
            None => false,
            Some(Verdict::Refused(_)) => true,
            Some(Verdict::Admitted(_)) => !end || self.end.is_some(),
        }
    }

    fn take(&mut self, step: &Step) {
        let arriving = step.seq == self.request.0;
        for event in &step.events {
            match event {
                Event::Enqueued(e) if arriving => self.priority = e.priority,
                Event::Rejected(e) if arriving => {
                    let mut refused = self.refused(step.seq, e.outcome, e.reason, e.regime);
                    (refused.priority, refused.retry_after) = (e.priority, e.retry_after);
                    (refused.limit, refused.cause) = (e.limit, e.cause);
                    self.verdict = Some(Verdict::Refused(refused));
                }
                Event::Evicted(e) if e.request == self.request => {
                    let mut refused = self.refused(step.seq, e.outcome, e.reason, e.regime);
                    (refused.waited, refused.cause) = (e.waited, e.cause);
                    self.verdict = Some(Verdict::Refused(refused));
                }
                Event::Dispatched(e) if e.request == self.request => {
                    let admitted = Admitted {
                        id: self.request,
                        seq: step.seq,
                        waited: e.waited,
                        priority: self.priority,
                        flow: self.flow.clone(),
                        endpoint: None,
                        // Nothing is dispatched in any other.
                        regime: Regime::HasEndpoints,
                        face: self.face,
                        shadow: false,
                        repeated: false,
                    };
                    self.verdict = Some(Verdict::Admitted(admitted));
                }
                Event::LeaseEnded(e) if e.request == self.request => {
                    self.end = Some(LeaseNotice { seq: step.seq, end: e.end, cause: e.cause, ran: e.ran });
                }
                _ => {}
            }
        }
    }

    fn refused(&self, seq: u64, outcome: Outcome, reason: Reason, regime: Regime) -> Refused {
        Refused {
            id: self.request,
            seq,
            outcome,
            reason,
            regime,
            waited: Micros::ZERO,
            priority: self.priority,
            retry_after: None,
            limit: None,
            cause: None,
            repeated: false,
        }
    }

    /// How it ended, in a word, and in which step; of a lease that has not ended, nothing.
    pub fn ending(&self) -> Option<(&'static str, u64)> {
        match (&self.verdict, &self.end) {
            (_, Some(notice)) => Some((notice.end.word(), notice.seq)),
            (Some(Verdict::Refused(refused)), None) => Some((refused.outcome.word(), refused.seq)),
            (..) => None,
        }
    }

    /// Did its holder end its lease, also upon a revocation?
    pub fn is_completed(&self) -> bool {
        self.end.is_some_and(|notice| matches!(notice.end, LeaseEnd::Completed | LeaseEnd::Revoked))
    }
}
