//! What each message becomes: which input, and who hears of it.

use super::about::{NewsTo, Seen};
use super::decision::{Change, Decision, Fate, Unavailable};
use super::inbox::{Message, SeenTo};
use super::pending::{Promise, Slot};
use super::pool::Pool;
use super::release::{Release, fate};
use super::revocation::{Revoking, revoking};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tokio::sync::oneshot;
use weir_kernel::{
    Arrival, Cancelled, Cause, Ended, Event, Face, Ignored, Input, ObjectivesChange, Policy, PolicyChange,
    RequestId,
};

impl Pool {
    pub(super) fn arrival(&mut self, arrival: Arrival, promise: Promise) {
        if let Some((arrival, promise)) = self.set_aside((arrival, promise)) {
            self.arrival_alone(arrival, promise);
        }
    }

    pub(super) fn arrival_alone(&mut self, arrival: Arrival, promise: Promise) {
        let slot = Arc::clone(promise.slot());
        let face = arrival.face;
        let observe = self.state.policy().observe;
        let since = arrival.received_at;
        if self.step(Input::Arrived(arrival)).is_none() {
            self.shared.inbox.refused(since);
            return promise.answer(Decision::Unavailable(self.why_not()));
        }
        if let Some(step) = self.building.last() {
            self.waiters.arrived(step, face, promise);
            if observe {
                self.waiters.settle_shadow(&self.state, step, &mut self.answers);
            }
        }
        self.settle();
        self.note_refusal();
        if slot.is_abandoned() {
            self.abandon(&slot);
        }
    }

    pub(super) fn message(&mut self, message: Message) {
        match message {
            Message::Abandon(slot) => self.abandon(&slot),
            Message::Cancel(cancelled, to) => self.answered(Input::Cancelled(cancelled), to),
            Message::End(ended, to) => {
                let input = self.end(ended);
                self.answered(input, to);
            }
            Message::FirstByte(request) => {
                self.decide(Input::FirstByte { request });
            }
            Message::Renew(request, to) => self.answered(Input::Renewed { request }, to),
            Message::Observe(observation) => {
                self.decide(Input::Observed(observation));
            }
            Message::Policy(policy, to) => self.policy(*policy, to),
            Message::Objectives(change, to) => self.objectives(change, to),
            Message::WatchLease(request, to) => {
                if self.state.lease(request).is_some() {
                    self.waiters.watch_lease(request, to);
                }
            }
            Message::Revocation(request, to) => {
                self.answers.extend(self.waiters.listeners.wait(&self.state, request, to));
            }
            Message::Revoke { request, by, why, to } => {
                let done = self.decide(Input::Revoke { request, by, why }).is_some();
                let answer = match self.building.last() {
                    Some(step) if done => revoking(step),
                    _ => Revoking::Unavailable(self.why_not()),
                };
                self.answers.push(Release::Revoking(to, answer));
            }
            Message::Undeliverable(request) => {
                self.decide(Input::Undeliverable { request });
            }
            Message::Watch(request, watching) => {
                if self.waiters.listeners.poll(&self.state, request, watching) {
                    self.decide(Input::Watched { request, watching });
                }
            }
            Message::Order(order, to) => self.ordered(order, to),
            Message::About(request, to, news) => self.about(request, to, news),
            Message::Stop { drain_until } => {
                if self.begin_drain(Some(drain_until)) {
                    self.decide(Input::Stopping { drain_until });
                }
            }
        }
    }

    fn answered(&mut self, input: Input, to: Option<oneshot::Sender<Fate>>) {
        let done = self.decide(input).is_some();
        let Some(to) = to else { return };
        let fate = match self.building.last() {
            Some(step) if done => fate(step),
            _ => Fate::Unavailable(self.why_not()),
        };
        self.answers.push(Release::Fate(to, fate));
    }

    /// Observe mode: what ended in the real pool while the shadow still queues it is recorded as that.
    fn end(&self, ended: Ended) -> Input {
        if self.state.policy().observe && self.state.queued_request(ended.request).is_some() {
            return Input::Cancelled(Cancelled { request: ended.request, cause: Cause::EndedInPool });
        }
        Input::Ended(ended)
    }

    fn about(&mut self, request: RequestId, to: SeenTo, news: Option<Box<NewsTo>>) {
        if self.state.queued_request(request).is_some_and(|queued| queued.face == Face::Ticket) {
            // Its holder lives. Looked at afterwards: this very step may decide it.
            self.decide(Input::Renewed { request });
        }
        let seen = self.waiters.seen(&self.state, request);
        match (&seen.0, news) {
            (Seen::Queued(_), Some(news)) => self.waiters.ask(request, news.decided),
            (Seen::Running(_), Some(news)) => self.waiters.watch_lease(request, news.ended),
            (..) => {}
        }
        self.answers.push(Release::Seen(to, Box::new(seen)));
    }

    /// The caller is gone. Seen before its arrival was looked at, the arrival itself sees to it.
    fn abandon(&mut self, slot: &Arc<Slot>) {
        let Some(request) = slot.id() else {
            return;
        };
        if !self.waiters.left(request, slot) {
            return;
        }
        // A keyed caller may come back for an admission that it has not heard of; its lease times out otherwise.
        let running = !slot.keyed && self.state.lease(request).is_some();
        if running || self.state.queued_request(request).is_some() {
            self.decide(Input::Cancelled(Cancelled { request, cause: Cause::ClientDisconnect }));
        }
    }

    fn policy(&mut self, policy: Policy, to: oneshot::Sender<Result<Change, Unavailable>>) {
        if *self.state.policy() == policy {
            self.answers.push(Release::Change(to, Change::Same));
            return;
        }
        match self.decide(policy_changed(policy)) {
            Some(seq) => self.answers.push(Release::Change(to, Change::Adopted { seq })),
            None => {
                // Nobody may be listening any more.
                let _ = to.send(Err(self.why_not()));
            }
        }
    }

    fn objectives(&mut self, change: ObjectivesChange, to: oneshot::Sender<Result<Change, Unavailable>>) {
        let Some(seq) = self.decide(Input::ObjectivesChanged(change)) else {
            // Nobody may be listening any more.
            let _ = to.send(Err(self.why_not()));
            return;
        };
        let same = self.building.last().is_some_and(|step| {
            step.events.iter().any(|event| matches!(event, Event::Ignored { what: Ignored::NoChange }))
        });
        let change = if same { Change::Same } else { Change::Adopted { seq } };
        self.answers.push(Release::Change(to, change));
    }
}

/// The input that puts these settings in force, with the digest of their canonical form.
pub(super) fn policy_changed(policy: Policy) -> Input {
    let digest = Sha256::digest(policy.to_canonical_json().as_bytes()).into();
    Input::PolicyChanged(PolicyChange { policy: Box::new(policy), digest })
}
