//! Who asks for tickets, and what became of those that nobody was asking for when they were decided.
//!
//! The latest are remembered here so that their holders are answered without a search of the log; of older ones, and
//! of those from before a restart, only the log knows.

use super::decision::Decision;
use super::release::Release;
use std::collections::{HashMap, VecDeque};
use tokio::sync::oneshot;
use weir_kernel::{Face, RequestId};

/// Tickets of a pool whose decisions are remembered.
const REMEMBERED_MAX: usize = 65_536;

#[derive(Default)]
pub(super) struct Tickets {
    /// Who waits to hear what is decided about a request that is queued.
    asking: HashMap<RequestId, Vec<oneshot::Sender<Decision>>>,
    /// Labels of tickets that are queued.
    labels: HashMap<RequestId, String>,
    decided: HashMap<RequestId, Remembered>,
    /// Those, oldest first.
    order: VecDeque<RequestId>,
}

struct Remembered {
    label: Option<String>,
    decision: Option<Decision>,
    /// Somebody has been told of it.
    heard: bool,
}

impl Tickets {
    /// A ticket came in, with its caller's own label.
    pub fn arrived(&mut self, request: RequestId, label: String) {
        self.labels.insert(request, label);
    }

    /// It turned out to be another's, or was refused at once.
    pub fn dropped(&mut self, request: RequestId) {
        self.labels.remove(&request);
    }

    /// Somebody waits to hear what is decided.
    pub fn ask(&mut self, request: RequestId, to: oneshot::Sender<Decision>) {
        let asking = self.asking.entry(request).or_default();
        asking.retain(|other| !other.is_closed());
        asking.push(to);
    }

    /// A queued request has been decided.
    pub fn decided(&mut self, request: RequestId, face: Face, decision: &Decision, to: &mut Vec<Release>) {
        let mut heard = false;
        if !self.asking.is_empty() {
            for asking in self.asking.remove(&request).unwrap_or_default() {
                heard |= !asking.is_closed();
                to.push(Release::Asked(asking, decision.clone()));
            }
        }
        if face == Face::Ticket {
            let label = self.labels.remove(&request);
            self.remember(request, Remembered { label, decision: Some(decision.clone()), heard });
        }
    }

    fn remember(&mut self, request: RequestId, what: Remembered) {
        if self.decided.insert(request, what).is_none() {
            self.order.push_back(request);
        }
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.decided.remove(&oldest);
        }
    }

    /// What its caller calls it.
    pub fn label(&self, request: RequestId) -> Option<&String> {
        let decided = || self.decided.get(&request).and_then(|what| what.label.as_ref());
        self.labels.get(&request).or_else(decided)
    }

    /// What was decided about it.
    pub fn decision(&self, request: RequestId) -> Option<&Decision> {
        self.decided.get(&request)?.decision.as_ref()
    }

    /// A ticket's holder is told now that it runs. Had nobody been told before?
    pub fn hear(&mut self, request: RequestId) -> bool {
        match self.decided.get_mut(&request) {
            Some(what) => !std::mem::replace(&mut what.heard, true),
            None => {
                self.remember(request, Remembered { label: None, decision: None, heard: true });
                true
            }
        }
    }

    /// Nobody will be told anything any more.
    pub fn abort(&mut self) {
        self.asking.clear();
    }
}
