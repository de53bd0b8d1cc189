//! How a face hears that the lease it holds is taken back, and what it owes in return.
//!
//! - [`PoolHandle::revocation`] resolves with a [`Revocation`] once a durable step has ordered the lease to end, and with
//!   `None` once the lease has ended without. A lease that is never revoked costs one entry in a map. The face then ends
//!   the stream and, *when the stream has ended*, the lease ([`PoolHandle::end`], whatever the termination): that is the
//!   confirmation, and the lease counts as `Revoked`.
//! - A face that finds it cannot tell the holder says so: [`PoolHandle::undeliverable`].
//! - Held leases and tickets can be revoked only while their holder waits: [`PoolHandle::watching`] from the beginning of
//!   a long poll to its end (or [`PoolHandle::watch`] by hand; polls of one request are counted). Whoever asks for the
//!   revocation of a lease that has one outstanding already (a poll that came later, also after a restart) hears of it
//!   at once.
//! - [`PoolHandle::revoke`] is an operator's order.
//!
//! In observe mode nobody is told: the log alone says what would have been revoked. Not here: what a caller sees of it.

use super::decision::Unavailable;
use super::handle::{Answer, PoolHandle};
use super::inbox::Message;
use super::release::Release;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use weir_kernel::{
    Event, Face, LeaseView, Reason, RequestId, RevocationEnd, RevocationIssued, RevocationOrder, State, Step,
};

/// The order to end a lease, durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The step that ordered it; for one that was outstanding when it was asked for, that of the asking.
    pub seq: u64,
    /// Its number in the pool's log.
    pub number: u64,
    /// Who ordered it.
    pub order: RevocationOrder,
}

impl Revocation {
    /// What the caller hears: 429 `evicted`.
    pub const fn reason(&self) -> Reason {
        Reason::Evicted
    }
}

/// What became of an operator's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoking {
    /// The holder is being told.
    Issued {
        /// The step's sequence.
        seq: u64,
        /// The revocation's number.
        number: u64,
    },
    /// The holder of this lease cannot be told just now (or ever); the log says so.
    Undeliverable {
        /// The step's sequence.
        seq: u64,
        /// The revocation's number.
        number: u64,
    },
    /// A revocation is outstanding already.
    AlreadyRevoked,
    /// The request is still queued.
    NotRunning,
    /// No request of that number is queued or runs.
    Unknown,
    /// Nothing could be recorded.
    Unavailable(Unavailable),
}

/// Resolves when the lease is revoked; `None` once it has ended otherwise (or the pool has).
#[derive(Debug)]
pub struct Revoked(Option<oneshot::Receiver<Revocation>>);

impl Future for Revoked {
    type Output = Option<Revocation>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(from) = &mut self.0 else { return Poll::Ready(None) };
        let heard = Pin::new(from).poll(context).map(Result::ok);
        if heard.is_ready() {
            self.0 = None;
        }
        heard
    }
}

/// A holder that waits; no longer once this is dropped.
#[derive(Debug)]
pub struct Watching {
    handle: PoolHandle,
    request: RequestId,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.handle.watch(self.request, false);
    }
}

impl PoolHandle {
    /// Waits for the revocation of a lease. Ask once it has been admitted; dropping the answer costs nothing. Asking
    /// wakes nobody: that there is no such lease is told with whatever the pool does next.
    pub fn revocation(&self, request: RequestId) -> Revoked {
        let (to, from) = oneshot::channel();
        let put = self.0.inbox.put_quietly(Message::Revocation(request, to));
        Revoked(put.is_ok().then_some(from))
    }

    /// An operator orders a lease to end early. Who and why go into the log (at most 256 bytes each; longer ones are cut).
    pub fn revoke(&self, request: RequestId, by: &str, why: &str) -> Answer<Revoking> {
        let (by, why) = (label(by), label(why));
        self.ask_for(|to| Message::Revoke { request, by, why, to }, |answer| answer, Revoking::Unavailable)
    }

    /// The holder of a revoked lease could not be told.
    pub fn undeliverable(&self, request: RequestId) {
        // A pool that is gone has nothing to take back.
        let _ = self.0.inbox.put(Message::Undeliverable(request));
    }

    /// The holder of a held lease or of a ticket begins a long poll, or ends one.
    pub fn watch(&self, request: RequestId, watching: bool) {
        let _ = self.0.inbox.put(Message::Watch(request, watching));
    }

    /// The same from now until what is returned is dropped.
    #[must_use = "dropping it ends the watch"]
    pub fn watching(&self, request: RequestId) -> Watching {
        self.watch(request, true);
        Watching { handle: self.clone(), request }
    }
}

fn label(text: &str) -> String {
    const MOST: usize = 256;
    text[..text.floor_char_boundary(MOST)].to_owned()
}

/// Who waits for the revocation of what, and who polls. Owned by the pool's thread.
#[derive(Default)]
pub(super) struct Listeners {
    waiting: HashMap<RequestId, Vec<oneshot::Sender<Revocation>>>,
    polls: HashMap<RequestId, u32>,
}

impl Listeners {
    /// Somebody waits for the revocation of this lease. One that is outstanding already is told of at once.
    pub fn wait(
        &mut self,
        state: &State,
        request: RequestId,
        to: oneshot::Sender<Revocation>,
    ) -> Option<Release> {
        // A lease that is not there will not be revoked: dropping the sender says so.
        let lease = state.lease(request)?;
        if let Some(revocation) = outstanding(state, &lease) {
            return Some(Release::Revoked(to, revocation));
        }
        let waiting = self.waiting.entry(request).or_default();
        waiting.retain(|other| !other.is_closed());
        waiting.push(to);
        None
    }

    /// A poll of this request begins or ends. True if that must be known to the kernel.
    pub fn poll(&mut self, state: &State, request: RequestId, watching: bool) -> bool {
        let running = state.lease(request).map(|lease| lease.face);
        let face = running.or_else(|| state.queued_request(request).map(|queued| queued.face));
        if !matches!(face, Some(Face::Held | Face::Ticket)) {
            self.polls.remove(&request);
            return false;
        }
        if watching {
            let polls = self.polls.entry(request).or_default();
            *polls += 1;
            return *polls == 1;
        }
        match self.polls.get_mut(&request) {
            Some(polls) if *polls > 1 => {
                *polls -= 1;
                false
            }
            Some(_) => self.polls.remove(&request).is_some(),
            None => false,
        }
    }

    /// A lease is ordered to end: whoever waits is told, unless the order was found undeliverable at once.
    pub fn issued(&mut self, state: &State, step: &Step, issued: &RevocationIssued, to: &mut Vec<Release>) {
        let failed = |event: &Event| match event {
            Event::RevocationEnded(e) => e.number == issued.number && e.end == RevocationEnd::Undeliverable,
            _ => false,
        };
        if state.policy().observe || step.events.iter().any(failed) {
            return;
        }
        let revocation = Revocation { seq: step.seq, number: issued.number, order: issued.order };
        for waiting in self.waiting.remove(&issued.request).unwrap_or_default() {
            to.push(Release::Revoked(waiting, revocation));
        }
    }

    /// The request is gone.
    pub fn over(&mut self, request: RequestId) {
        self.waiting.remove(&request);
        self.polls.remove(&request);
    }

    /// Nobody will be told any more.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }
}

/// The revocation of a lease that its holder has to hear of and has not answered yet.
pub(super) fn outstanding(state: &State, lease: &LeaseView) -> Option<Revocation> {
    let open = lease.revocation.filter(|revocation| revocation.end.is_none() && !state.policy().observe)?;
    Some(Revocation { seq: state.seq(), number: open.number, order: open.order })
}

/// What a step says became of the order that it was given.
pub(super) fn revoking(step: &Step) -> Revoking {
    use weir_kernel::Ignored;
    let mut answer = Revoking::Unknown;
    for event in &step.events {
        match event {
            Event::RevocationIssued(e) => answer = Revoking::Issued { seq: step.seq, number: e.number },
            Event::RevocationEnded(e) if e.end == RevocationEnd::Undeliverable => {
                answer = Revoking::Undeliverable { seq: step.seq, number: e.number };
            }
            Event::Ignored { what: Ignored::AlreadyRevoked } => answer = Revoking::AlreadyRevoked,
            Event::Ignored { what: Ignored::NotRunning } => answer = Revoking::NotRunning,
            _ => {}
        }
    }
    answer
}
