//! One stream from its first event to its last: what comes next, whenever the connection has room for it.

use super::super::answer;
use super::super::lease::Lease;
use super::super::outcome::{self, From};
use super::super::state::{Gateway, PoolFace};
use super::event::Speaker;
use super::hold::{Hold, Streams};
use crate::engine::{
    Admitted, Decision, LeaseNotice, Pending, PoolHandle, Queued, RegimeNote, Revocation, Revoked,
};
use bytes::Bytes;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use weir_kernel::{Face, Regime, RequestId};

/// A stream.
pub struct Session {
    gateway: Arc<Gateway>,
    handle: PoolHandle,
    streams: Arc<Streams>,
    speaker: Speaker,
    /// Its request came with an idempotency key.
    shared: bool,
    id: RequestId,
    phase: Phase,
    regimes: watch::Receiver<RegimeNote>,
    /// The regime that was told last, and the step up to which that holds.
    told: (Regime, u64),
}

enum Phase {
    Queued { pending: Pending, ended: oneshot::Receiver<LeaseNotice> },
    Running(Running),
    Over,
}

struct Running {
    hold: Option<Hold>,
    /// In observe mode nobody hears what becomes of the shadow.
    ended: Option<oneshot::Receiver<LeaseNotice>>,
    /// Until it has been told, or is known not to come.
    revoked: Option<Revoked>,
}

/// What happens to a request that runs.
enum News {
    Ended(Result<LeaseNotice, oneshot::error::RecvError>),
    Revoked(Option<Revocation>),
    Beat,
}

impl Running {
    async fn news(&mut self, heartbeat: Duration) -> News {
        let ended = async {
            match &mut self.ended {
                Some(ended) => ended.await,
                None => std::future::pending().await,
            }
        };
        let revoked = async {
            match &mut self.revoked {
                Some(revoked) => revoked.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            notice = ended => News::Ended(notice),
            revocation = revoked => News::Revoked(revocation),
            () = tokio::time::sleep(heartbeat) => News::Beat,
        }
    }
}

/// What ends a wait in the queue.
enum Step {
    Decided(Decision),
    Regime(RegimeNote),
    Beat,
}

impl Session {
    /// Nothing is told yet.
    pub fn new(
        gateway: Arc<Gateway>,
        pool: &PoolFace,
        speaker: Speaker,
        shared: bool,
        regimes: watch::Receiver<RegimeNote>,
    ) -> Self {
        Session {
            gateway,
            handle: pool.handle.clone(),
            streams: Arc::clone(&pool.streams),
            speaker,
            shared,
            id: RequestId::default(),
            phase: Phase::Over,
            regimes,
            told: (Regime::Unknown, 0),
        }
    }

    /// Our own name of its request.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The caller's own.
    pub fn caller_id(&self) -> &str {
        &self.speaker.caller_id
    }

    /// It waits.
    pub fn queued(
        &mut self,
        queued: &Queued,
        pending: Pending,
        ended: oneshot::Receiver<LeaseNotice>,
    ) -> Bytes {
        self.id = queued.id;
        self.told = (queued.regime, queued.seq);
        self.phase = Phase::Queued { pending, ended };
        self.speaker.queued(queued)
    }

    /// It runs. From here on its lease ends with the stream, if it is a stream's lease: a key may have found that of
    /// a held call, which is its holder's.
    pub fn admitted(&mut self, admitted: &Admitted, ended: oneshot::Receiver<LeaseNotice>) -> Bytes {
        self.id = admitted.id;
        let hold = (admitted.face == Face::Stream).then(|| {
            let lease = Lease::new(self.handle.clone(), admitted.id);
            match self.shared {
                true => Hold::shared(lease, &self.streams, admitted.id),
                false => Hold::alone(lease),
            }
        });
        let ended = (!admitted.shadow).then_some(ended);
        let revoked = hold.as_ref().filter(|_| !admitted.shadow).map(|_| self.handle.revocation(admitted.id));
        self.phase = Phase::Running(Running { hold, ended, revoked });
        self.speaker.admitted(admitted)
    }

    /// The next event, and the session after it; none at the end.
    pub async fn next(mut self) -> Option<(Bytes, Session)> {
        let event = match &self.phase {
            Phase::Queued { .. } => self.while_queued().await,
            Phase::Running(_) => self.while_running().await,
            Phase::Over => return None,
        };
        Some((event, self))
    }

    async fn while_queued(&mut self) -> Bytes {
        let mut beat = pin!(tokio::time::sleep(self.gateway.options.heartbeat));
        loop {
            let Phase::Queued { pending, .. } = &mut self.phase else { return Bytes::new() };
            let step = tokio::select! {
                biased;
                decision = &mut *pending => Step::Decided(decision),
                // Its sender lives as long as the handle does.
                Ok(()) = self.regimes.changed() => Step::Regime(*self.regimes.borrow_and_update()),
                () = &mut beat => Step::Beat,
            };
            match step {
                Step::Decided(decision) => return self.decided(decision),
                Step::Beat => return self.speaker.form.heartbeat(),
                Step::Regime(note) if note.regime == self.told.0 || note.seq <= self.told.1 => {}
                Step::Regime(note) => {
                    if let Some(event) = self.regime(note).await {
                        return event;
                    }
                }
            }
        }
    }

    /// The regime has changed, and with it the budget that runs; the decision goes before.
    async fn regime(&mut self, note: RegimeNote) -> Option<Bytes> {
        let Phase::Queued { pending, .. } = &mut self.phase else { return None };
        let (id, handle, streams) = (self.id, &self.handle, &self.streams);
        let look = async {
            let _place = streams.looks.acquire().await;
            handle.query(move |state| Queued::of(state, id)).await
        };
        let seen = tokio::select! {
            biased;
            decision = &mut *pending => return Some(self.decided(decision)),
            seen = look => seen,
        };
        // Decided meanwhile, or the pool is gone: the decision tells of it.
        let queued = seen.ok().flatten()?;
        let from = self.told.0;
        self.told = (queued.regime, note.seq.max(self.told.1));
        (queued.regime != from).then(|| self.speaker.regime(from, queued.regime, note.seq, Some(&queued)))
    }

    fn decided(&mut self, decision: Decision) -> Bytes {
        let Phase::Queued { ended, .. } = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Bytes::new();
        };
        match decision {
            Decision::Admitted(admitted) => {
                let before = self.regime_before(admitted.seq);
                joined(before, self.admitted(&admitted, ended))
            }
            Decision::Refused(refused) => {
                let before = self.regime_before(refused.seq);
                joined(before, self.speaker.refused(&refused))
            }
            Decision::Unavailable(why) => self.speaker.fault(&answer::unavailable(why)),
        }
    }

    /// A change of regime that came with the decision, or so shortly before it that it was not told yet.
    fn regime_before(&mut self, seq: u64) -> Option<Bytes> {
        let note = *self.regimes.borrow();
        let (from, told) = self.told;
        let new = note.regime != from && note.seq > told && note.seq <= seq;
        new.then(|| self.speaker.regime(from, note.regime, note.seq, None))
    }

    async fn while_running(&mut self) -> Bytes {
        let heartbeat = self.gateway.options.heartbeat;
        loop {
            let Phase::Running(running) = &mut self.phase else { return Bytes::new() };
            match running.news(heartbeat).await {
                News::Beat => return self.speaker.form.heartbeat(),
                News::Revoked(revocation) => {
                    running.revoked = None;
                    // None: the lease has ended otherwise, which is told as its end.
                    if let Some(revocation) = revocation {
                        if let Some(hold) = &mut running.hold {
                            hold.taken_back();
                        }
                        return self.speaker.revoked(self.id, &revocation);
                    }
                }
                News::Ended(notice) => return self.over(notice.ok()).await,
            }
        }
    }

    async fn over(&mut self, notice: Option<LeaseNotice>) -> Bytes {
        if let Phase::Running(Running { hold: Some(hold), .. }) =
            std::mem::replace(&mut self.phase, Phase::Over)
        {
            hold.over();
        }
        match notice {
            Some(notice) => self.speaker.ended(self.id, &notice),
            None => self.ended_unseen().await,
        }
    }

    /// Nobody told of the end: the pool's thread has ended, or the lease had before this stream began.
    async fn ended_unseen(&self) -> Bytes {
        let status = self.handle.status();
        if status.stopping || status.failed {
            return self.speaker.lost(self.id);
        }
        let found = outcome::find(&self.gateway, self.handle.name(), self.id, From::Arrival, true).await;
        match found.ok().flatten().and_then(|record| record.end) {
            Some(notice) => self.speaker.ended(self.id, &notice),
            None => self.speaker.over(self.id),
        }
    }
}

fn joined(first: Option<Bytes>, second: Bytes) -> Bytes {
    match first {
        Some(first) => [first, second].concat().into(),
        None => second,
    }
}
