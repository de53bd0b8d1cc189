//! Who holds the lease of a stream: the stream itself, or all streams that came with the same idempotency key together.

use super::super::lease::Lease;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use weir_kernel::RequestId;

/// Looks at the state that a pool's streams may ask for at once: after a change of regime thousands want one.
const LOOKS_MAX: usize = 64;

/// What the streams of a pool share.
#[derive(Debug)]
pub struct Streams {
    /// Places for looks at the state.
    pub looks: Semaphore,
    /// Streams of each lease that several may hold.
    holders: Mutex<HashMap<RequestId, usize>>,
}

impl Default for Streams {
    fn default() -> Self {
        Streams { looks: Semaphore::new(LOOKS_MAX), holders: Mutex::new(HashMap::new()) }
    }
}

impl Streams {
    fn holders(&self) -> MutexGuard<'_, HashMap<RequestId, usize>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream's share of its lease: dropped as the last one, it ends it.
#[derive(Debug)]
pub struct Hold {
    lease: Option<Lease>,
    among: Option<(Arc<Streams>, RequestId)>,
}

impl Hold {
    /// Of a lease that no other stream can hold.
    pub fn alone(lease: Lease) -> Self {
        Hold { lease: Some(lease), among: None }
    }

    /// Of a lease that came with an idempotency key.
    pub fn shared(lease: Lease, streams: &Arc<Streams>, request: RequestId) -> Self {
        *streams.holders().entry(request).or_default() += 1;
        Hold { lease: Some(lease), among: Some((Arc::clone(streams), request)) }
    }

    /// The lease is taken back.
    pub fn taken_back(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.taken_back();
        }
    }

    /// The lease has ended.
    pub fn over(mut self) {
        if let Some(lease) = self.lease.take() {
            lease.leave();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some((streams, request)) = &self.among else { return };
        let mut holders = streams.holders();
        let others = holders.get(request).copied().unwrap_or(1) - 1;
        if others == 0 {
            holders.remove(request);
            return;
        }
        holders.insert(*request, others);
        drop(holders);
        if let Some(lease) = self.lease.take() {
            lease.leave();
        }
    }
}
