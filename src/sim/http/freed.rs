//! What a simulated server reports of requests that were given up: when it noticed, and what was free again then.

use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// So many reports are kept, the youngest.
pub const FREED_MAX: usize = 4_096;

/// A request that its caller gave up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Freed {
    /// Its `x-request-id`; empty where it had none.
    pub request_id: String,
    /// When its slot and its KV were free, in microseconds since the Unix epoch.
    pub at: u64,
    /// Did it run, or wait within the engine?
    pub ran: bool,
    /// KV blocks that are free again.
    pub kv_blocks: u32,
}

/// The time of such a report.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
