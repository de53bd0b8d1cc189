//! One entry of the log: what came in, when, and everything that was decided because of it.

use crate::{Event, Input, Micros};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Version of what the kernel *decides*. Raised whenever the digest of the golden logs moves.
pub const KERNEL_BEHAVIOUR: u32 = 2;

/// How many requests one step may end or admit; if more is due, the next deadline is now.
pub const DECISIONS_PER_STEP: usize = 64;

/// One step of one pool's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Position in the pool's log, from 1, without gaps.
    pub seq: u64,
    /// The step's time: never behind the step before it.
    pub at: Micros,
    /// What came in.
    pub input: Input,
    /// What was decided, in order.
    pub events: Vec<Event>,
}
