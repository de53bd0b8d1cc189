//! The lease of an admitted request, tied to whoever holds its stream: however that holder ends, the lease does.

use crate::engine::PoolHandle;
use weir_kernel::{Ended, RequestId, Termination, Usage};

/// Ends its lease when it is dropped, with whatever is known of the end by then.
#[derive(Debug)]
pub struct Lease {
    handle: PoolHandle,
    ended: Ended,
    /// It is ours to end.
    ours: bool,
}

impl Lease {
    /// Of a request that was admitted just now. Until something else is known, its caller is thought to have left.
    pub fn new(handle: PoolHandle, request: RequestId) -> Self {
        let ended = Ended { request, termination: Termination::ClientDisconnect, usage: None };
        Lease { handle, ended, ours: true }
    }

    /// Leaves it: it has ended already, or somebody else holds it as well.
    pub fn leave(mut self) {
        self.ours = false;
    }

    /// It is taken back: its end will be the confirmation of that.
    pub fn taken_back(&mut self) {
        self.ended.termination = Termination::Evicted;
    }

    /// The first byte of its response was seen.
    pub fn first_byte(&self) {
        self.handle.first_byte(self.ended.request);
    }

    /// Ends it.
    pub fn end(mut self, termination: Termination, usage: Option<Usage>) {
        self.ended.termination = termination;
        self.ended.usage = usage;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.ours {
            self.handle.end_unheard(self.ended.clone());
        }
    }
}
