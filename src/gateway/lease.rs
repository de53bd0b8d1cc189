//! The lease of an admitted request, tied to whoever holds its stream: however that holder ends, the lease does.

use crate::engine::PoolHandle;
use weir_kernel::{Ended, RequestId, Termination, Usage};

/// Ends its lease when it is dropped, with whatever is known of the end by then.
#[derive(Debug)]
pub struct Lease {
    handle: PoolHandle,
    ended: Ended,
}

impl Lease {
    /// Of a request that was admitted just now. Until something else is known, its caller is thought to have left.
    pub fn new(handle: PoolHandle, request: RequestId) -> Self {
        Lease { handle, ended: Ended { request, termination: Termination::ClientDisconnect, usage: None } }
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
        self.handle.end_unheard(self.ended.clone());
    }
}
