//! Orders of operators: pause, resume, purge, drain. Each is a logged input with who and why, and is answered once that
//! is durable.

use super::decision::Unavailable;
use super::handle::{Answer, PoolHandle};
use super::inbox::Message;
use super::pool::Pool;
use super::release::Release;
use tokio::sync::oneshot;
use weir_kernel::{Admin, AdminAction, Event, Ignored, Input, Micros, Step};

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obeyed {
    /// It is in force since this step.
    Done {
        /// The step's sequence.
        seq: u64,
        /// Queued requests that are removed: at most 64 in that step, the rest in those right after it.
        removed: u64,
    },
    /// It was so already.
    Same {
        /// The step that says so, or for a drain the last one.
        seq: u64,
    },
    /// No queued request and no lease has that number.
    Unknown,
    /// The request runs, so that it is not in the queue any more.
    Running,
    /// Nothing could be recorded.
    Unavailable(Unavailable),
}

impl PoolHandle {
    /// An operator's order. Handed in at once; only the answer is waited for.
    ///
    /// A drain begins the end of this pool: it takes no new requests, and its thread ends once nothing is left.
    pub fn order(&self, mut order: Admin) -> Answer<Obeyed> {
        if let (Some(pseudonyms), AdminAction::PurgeFlow { fairness_id, .. }) =
            (&self.0.pseudonyms, &mut order.action)
        {
            *fairness_id = pseudonyms.flow(fairness_id);
        }
        self.ask_for(|to| Message::Order(order, to), |obeyed| obeyed, Obeyed::Unavailable)
    }
}

impl Pool {
    pub(super) fn ordered(&mut self, order: Admin, to: oneshot::Sender<Obeyed>) {
        let mut obeyed = Obeyed::Same { seq: self.state.seq() };
        let drain = match order.action {
            AdminAction::Drain { until } => Some(until),
            _ => None,
        };
        if drain.is_none() || self.begin_drain(drain) {
            let done = self.decide(Input::Admin(order)).is_some();
            obeyed = match self.building.last() {
                Some(step) if done => read(step),
                _ => Obeyed::Unavailable(self.why_not()),
            };
        }
        // Nobody may be listening any more.
        let tell = move || to.send(obeyed).unwrap_or_default();
        self.answers.push(Release::Reply(Box::new(tell)));
    }

    /// From here on the end is near. False if it was so already.
    pub(super) fn begin_drain(&mut self, until: Option<Micros>) -> bool {
        if self.drain_until.is_some() {
            return false;
        }
        self.drain_until = until;
        self.publish(|status| status.stopping = true);
        true
    }
}

fn read(step: &Step) -> Obeyed {
    let seq = step.seq;
    for event in &step.events {
        match event {
            Event::PurgeBegun { requests } => return Obeyed::Done { seq, removed: *requests },
            Event::Ignored { what: Ignored::UnknownRequest } => return Obeyed::Unknown,
            Event::Ignored { what: Ignored::NotQueued } => return Obeyed::Running,
            // A flow that has nothing queued is as it was asked to be.
            Event::Ignored { .. } => return Obeyed::Same { seq },
            _ => {}
        }
    }
    Obeyed::Done { seq, removed: 0 }
}
