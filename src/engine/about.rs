//! What one request's caller is told while it waits, and what can be asked of a request later.

use super::decision::{Admitted, Decision, LeaseNotice};
use super::revocation::Revocation;
use tokio::sync::oneshot;
use weir_kernel::{Face, Micros, Regime, RequestId, Standing, State};

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Our own name of it.
    pub id: RequestId,
    /// The step after which it was so.
    pub seq: u64,
    /// The time of that step, by the clock of the log.
    pub at: Micros,
    /// When it was queued.
    pub since: Micros,
    /// Its band.
    pub priority: i32,
    /// Its flow's name.
    pub flow: String,
    /// The regime in force.
    pub regime: Regime,
    /// Its place, and the budget that runs.
    pub standing: Standing,
    /// The caller's own deadline.
    pub deadline: Option<Micros>,
    /// How it came in.
    pub face: Face,
    /// How long a ticket's holder may be silent.
    pub ticket_timeout: Micros,
}

impl Queued {
    /// How a request waits; `None` if it does not.
    pub fn of(state: &State, id: RequestId) -> Option<Queued> {
        let queued = state.queued_request(id)?;
        Some(Queued {
            id,
            seq: state.seq(),
            at: state.now(),
            since: queued.enqueued_at,
            priority: queued.priority,
            flow: queued.flow.to_owned(),
            regime: state.regime(),
            standing: state.standing(id)?,
            deadline: queued.deadline,
            face: queued.face,
            ticket_timeout: state.policy().ticket_timeout,
        })
    }
}

/// A request that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The time at which it was so, by the clock of the log.
    pub at: Micros,
    /// When it was admitted.
    pub since: Micros,
    /// When its lease lapses unless it is renewed.
    pub lapses_at: Option<Micros>,
    /// Its band.
    pub priority: i32,
    /// How it came in.
    pub face: Face,
    /// The endpoint's name, where the kernel chose one that is still in the pool.
    pub endpoint: Option<String>,
    /// A ticket's admission, unless the service has restarted since.
    pub admitted: Option<Admitted>,
    /// It is being taken back.
    pub revoked: Option<Revocation>,
    /// A ticket whose holder has not been told yet that it is admitted.
    pub unheard: bool,
}

/// What a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It waits.
    Queued(Box<Queued>),
    /// It runs.
    Running(Box<Running>),
    /// A ticket that neither waits nor runs any more: what was decided.
    Decided(Box<Decision>),
    /// It neither waits nor runs; the log knows whether it ever did.
    Gone,
}

/// An answer about one request.
#[derive(Debug)]
pub struct About {
    /// What it is.
    pub seen: Seen,
    /// A ticket's label of its caller's own, unless the service has restarted since.
    pub caller_id: Option<String>,
    /// What comes next, where that was asked for. Each is told by one of the two; both end without a word where
    /// nothing will come.
    pub news: Option<News>,
}

/// What comes next of a request.
#[derive(Debug)]
pub struct News {
    /// Of one that waits.
    pub decided: oneshot::Receiver<Decision>,
    /// Of one that runs.
    pub ended: oneshot::Receiver<LeaseNotice>,
}

/// Where news go.
pub(super) struct NewsTo {
    pub decided: oneshot::Sender<Decision>,
    pub ended: oneshot::Sender<LeaseNotice>,
}

/// Where a caller that stays on hears more than its decision.
pub(super) struct Told {
    /// That it waits.
    pub queued: Option<oneshot::Sender<Box<Queued>>>,
    /// That its lease has ended.
    pub ended: Option<oneshot::Sender<LeaseNotice>>,
}

impl News {
    pub(super) fn channel() -> (NewsTo, News) {
        let (decided_to, decided) = oneshot::channel();
        let (ended_to, ended) = oneshot::channel();
        (NewsTo { decided: decided_to, ended: ended_to }, News { decided, ended })
    }
}
