//! One arrival's wait for its decision: a future that is answered exactly once, and whose drop is a cancellation.

use super::about::{Queued, Told};
use super::decision::{Decision, LeaseNotice, Unavailable};
use super::inbox::{Inbox, Message};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::oneshot;
use weir_kernel::RequestId;

/// Where the answer goes; shared by the waiting caller and the pool's thread.
pub(super) struct Slot {
    wait: Mutex<Wait>,
    /// 0 until the arrival has been stepped.
    id: AtomicU64,
    /// Its caller may come back for the answer: it carries an idempotency key, and its lease needs no open stream.
    pub keyed: bool,
}

enum Wait {
    Waiting(Option<Waker>),
    Decided(Decision),
    Taken,
    Abandoned,
}

impl Slot {
    pub fn id(&self) -> Option<RequestId> {
        match self.id.load(Ordering::Acquire) {
            0 => None,
            id => Some(RequestId(id)),
        }
    }

    pub fn name(&self, id: RequestId) {
        self.id.store(id.0, Ordering::Release);
    }

    pub fn is_abandoned(&self) -> bool {
        matches!(*self.lock(), Wait::Abandoned)
    }

    /// Answers. Only the first answer counts; an abandoned slot takes none.
    fn answer(&self, decision: Decision) {
        let mut wait = self.lock();
        if let Wait::Waiting(waker) = &mut *wait {
            let waker = waker.take();
            *wait = Wait::Decided(decision);
            drop(wait);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Wait> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The duty to answer a slot: whoever drops it unanswered (a fault of ours unwinding) answers with that fault.
pub(super) struct Promise {
    slot: Arc<Slot>,
    /// Only of a caller that stays on.
    told: Option<Box<Told>>,
}

impl Promise {
    /// A duty to nobody: its caller has been answered in another way, or in another run.
    pub fn to_nobody() -> Self {
        let slot = Slot { wait: Mutex::new(Wait::Taken), id: AtomicU64::new(0), keyed: true };
        Promise { slot: Arc::new(slot), told: None }
    }

    /// Keeps it.
    pub fn answer(self, decision: Decision) {
        self.slot.answer(decision);
    }

    /// The slot that waits.
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Where to tell once that the request waits, if that is wanted.
    pub fn queued(&mut self) -> Option<oneshot::Sender<Box<Queued>>> {
        self.told.as_mut()?.queued.take()
    }

    /// Where to tell once that the lease has ended, if that is wanted.
    pub fn ended(&mut self) -> Option<oneshot::Sender<LeaseNotice>> {
        self.told.as_mut()?.ended.take()
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.slot.answer(Decision::Unavailable(Unavailable::Failed));
    }
}

/// The wait of one arrival. Resolves once the decision is durable.
///
/// Dropped before that, the request is cancelled (its caller is gone), whether or not the kernel has seen it; dropped
/// with an admission that nobody took, its lease is ended the same way, unless an idempotency key lets the caller
/// come back for it.
#[must_use = "dropping it cancels the request"]
pub struct Pending {
    slot: Arc<Slot>,
    inbox: Arc<Inbox>,
}

impl Pending {
    /// A wait, and the duty to answer it.
    pub(super) fn new(keyed: bool, inbox: Arc<Inbox>, told: Option<Box<Told>>) -> (Self, Promise) {
        let slot = Arc::new(Slot { wait: Mutex::new(Wait::Waiting(None)), id: AtomicU64::new(0), keyed });
        (Pending { slot: Arc::clone(&slot), inbox }, Promise { slot, told })
    }

    /// Waits no longer, and leaves the request as it is: its caller will ask for it by its name.
    pub fn leave(self) {
        *self.slot.lock() = Wait::Taken;
    }

    /// Our own name of the request, once its arrival has been looked at (which may be before that is durable).
    pub fn id(&self) -> Option<RequestId> {
        self.slot.id()
    }
}

impl Future for Pending {
    type Output = Decision;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Decision> {
        let mut wait = self.slot.lock();
        match std::mem::replace(&mut *wait, Wait::Taken) {
            Wait::Decided(decision) => Poll::Ready(decision),
            Wait::Waiting(earlier) => {
                let waker = match earlier {
                    Some(waker) if waker.will_wake(context.waker()) => waker,
                    _ => context.waker().clone(),
                };
                *wait = Wait::Waiting(Some(waker));
                Poll::Pending
            }
            Wait::Taken | Wait::Abandoned => Poll::Ready(Decision::Unavailable(Unavailable::Failed)),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut wait = self.slot.lock();
        let leave = match &*wait {
            Wait::Waiting(_) => true,
            Wait::Decided(Decision::Admitted(_)) => !self.slot.keyed,
            Wait::Decided(_) | Wait::Taken | Wait::Abandoned => false,
        };
        if leave {
            *wait = Wait::Abandoned;
            drop(wait);
            // A pool that is gone has nothing to cancel.
            let _ = self.inbox.put(Message::Abandon(Arc::clone(&self.slot)));
        }
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pending({:?})", self.id())
    }
}
