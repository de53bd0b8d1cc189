//! What operators did by hand: a pause in force, and what a purge has still to remove.

use std::collections::{BTreeMap, BTreeSet};
use weir_kernel::*;

#[derive(Clone, Debug, Default)]
pub struct ByHand {
    /// The names of the flows.
    flows: BTreeMap<FlowId, (String, i32)>,
    paused: bool,
    /// Queued requests that are to go.
    pub purging: BTreeSet<RequestId>,
}

impl ByHand {
    /// May nothing be dispatched?
    pub fn holds(&self) -> bool {
        self.paused || !self.purging.is_empty()
    }

    /// Takes an event about flows, pauses and purges; `queued` is what waits, and in which flow.
    pub fn event(
        &mut self,
        step: &Step,
        event: &Event,
        queued: impl Iterator<Item = (RequestId, FlowId)>,
    ) -> Result<(), String> {
        match event {
            Event::FlowOpened { flow, priority } => {
                let Input::Arrived(arrival) = &step.input else { return Err("whose flow?".into()) };
                let name = if arrival.fairness_id.is_empty() { DEFAULT_FLOW } else { &arrival.fairness_id };
                self.flows.insert(*flow, (name.into(), *priority));
            }
            Event::Paused => self.paused = true,
            Event::Resumed => self.paused = false,
            Event::PurgeBegun { requests } => return self.purge(step, *requests, queued),
            _ => {}
        }
        Ok(())
    }

    /// The one request, or all that the flow has queued.
    fn purge(
        &mut self,
        step: &Step,
        requests: u64,
        queued: impl Iterator<Item = (RequestId, FlowId)>,
    ) -> Result<(), String> {
        let Input::Admin(order) = &step.input else { return Err("whose purge?".into()) };
        let marked: Vec<RequestId> = match &order.action {
            AdminAction::Purge { request } => {
                queued.filter(|(id, _)| id == request).map(|(id, _)| id).collect()
            }
            AdminAction::PurgeFlow { fairness_id, priority } => {
                let mine = |flow: &FlowId| {
                    self.flows.get(flow).is_some_and(|(name, p)| name == fairness_id && p == priority)
                };
                queued.filter(|(_, flow)| mine(flow)).map(|(id, _)| id).collect()
            }
            other => return Err(format!("{other:?} removes nothing")),
        };
        if marked.is_empty() || marked.len() as u64 != requests {
            return Err(format!("a purge of {requests} where {} are queued", marked.len()));
        }
        self.purging.extend(marked);
        Ok(())
    }
}
