//! What the log says of services: what each request needed, in the model's own units.
//!
//! The model of the pool is run over what was logged, and each request is taken out of it when the log says that it
//! ended: what it had got by then is its own recorded service, for whatever load it then meets.

use crate::decode::Batch;
use crate::model::{Pool, PoolModel, Work, prompt_of};
use crate::numbers::Table;
use weir_kernel::{
    EndpointChange, Event, Input, LeaseEnd, Micros, RequestId, State, Step, Termination, Usage,
};

/// What the log says of a service.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What it needed.
    pub work: Work,
    /// How long it took.
    pub ran: Micros,
    /// What it used.
    pub usage: Option<Usage>,
    /// It came to its own end, so that this is all that it needs.
    pub whole: bool,
}

/// The services that ended in a batch.
pub type Services = Vec<(RequestId, Known)>;

/// Reads the log for services: it needs each step once, in order, wherever that is at hand.
pub struct Look {
    pool: Pool,
    prompts: Table<RequestId, u32>,
    since: Table<RequestId, Micros>,
}

/// The model's pool without work, with the servers that are there in this state.
pub fn idle(model: &PoolModel, state: &State) -> Pool {
    let mut pool = Pool::new(model.speeds);
    state.endpoints().for_each(|endpoint| pool.join(endpoint.slot));
    pool
}

impl Look {
    /// For the steps that come after this state.
    pub fn new(model: &PoolModel, state: &State) -> Look {
        Look { pool: idle(model, state), prompts: Table::default(), since: Table::default() }
    }

    /// The services that end in these steps.
    pub fn services(&mut self, steps: &[Step]) -> Services {
        let mut found = Vec::new();
        steps.iter().for_each(|step| self.look(step, &mut found));
        found
    }

    /// Reads steps that are at hand already.
    pub fn over<E>(
        mut self,
        batches: impl Iterator<Item = Result<Vec<Step>, E>>,
    ) -> impl Iterator<Item = Result<Batch<Services>, E>> {
        batches.map(move |batch| {
            batch.map(|steps| {
                let services = self.services(&steps);
                Batch::new(steps, services)
            })
        })
    }

    fn look(&mut self, step: &Step, found: &mut Services) {
        self.pool.advance(step.at, &mut |_| {});
        servers(&mut self.pool, step);
        if let Input::Arrived(arrival) = &step.input {
            self.prompts.insert(RequestId(step.seq), prompt_of(arrival));
        }
        for event in &step.events {
            match event {
                Event::Rejected(_) | Event::Repeated { .. } => {
                    self.prompts.remove(&RequestId(step.seq));
                }
                Event::Evicted(e) => {
                    self.prompts.remove(&e.request);
                }
                Event::Dispatched(e) => {
                    let prompt = self.prompts.remove(&e.request).unwrap_or(1);
                    self.since.insert(e.request, step.at);
                    self.pool.submit(step.at, e.request.0, e.endpoint, Work::open(prompt));
                }
                Event::LeaseEnded(e) => {
                    let ran = self.since.remove(&e.request).map_or(e.ran, |since| step.at.since(since));
                    let Some(work) = self.pool.remove(step.at, e.request.0) else { continue };
                    let (usage, termination) = match &step.input {
                        Input::Ended(ended) if ended.request == e.request => (ended.usage, ended.termination),
                        _ => (None, Termination::Natural),
                    };
                    let by_itself = matches!(&step.input, Input::Ended(ended) if ended.request == e.request);
                    let natural =
                        !matches!(termination, Termination::ClientDisconnect | Termination::Evicted);
                    let whole = by_itself && natural && e.end == LeaseEnd::Completed;
                    found.push((e.request, Known { work, ran, usage, whole }));
                }
                _ => {}
            }
        }
    }
}

/// Servers that joined and left in this step.
pub fn servers(pool: &mut Pool, step: &Step) {
    let Input::Observed(observation) = &step.input else { return };
    for change in &observation.changes {
        match change {
            EndpointChange::Joined { slot, .. } => pool.join(*slot),
            EndpointChange::Left { slot } => pool.leave(*slot),
            EndpointChange::Sampled { .. } | EndpointChange::Stale { .. } => {}
        }
    }
}
