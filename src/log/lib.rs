//! The decision log: group commit over sled, sealed segments, snapshots, recovery.
//!
//! A pool's log is a chain of batches (`frame.rs`, `chain.rs`). The newest are in the hot window (`hot/`), a series of
//! sled databases; older ones are sealed into segments. All of it lies in one data directory, which one process holds:
//!
//! | path | what |
//! |---|---|
//! | `lock` | held by the system's lock; the pid in it is for people |
//! | `format` | JSON: the format that is written, the log's id, when it was created |
//! | `mark` | how far each pool's log was durable, kept apart from the databases |
//! | `hot/000001/` … | the hot window, a sled database each; the last one is written |
//! | `segments/<pool>/` | sealed batches |
//! | `snapshots/<pool>/` | states to recover from |
//!
//! Not here: what the steps mean (the kernel) and how their bytes changed over time (`weir-migrations`).

pub mod chain;
pub mod check;
pub mod codec;
pub mod describe;
pub mod dir;
pub mod error;
pub mod export;
mod fault;
pub mod frame;
mod header;
pub mod hot;
mod keeper;
pub mod mark;
pub mod measure;
pub mod memory;
pub mod output;
pub mod reader;
pub mod retention;
pub mod seal;
pub mod segment;
pub mod sled_open;
pub mod snapshot;
pub mod store;
pub mod upkeep;
#[cfg(test)]
mod world;
pub mod writer;

pub use chain::{Chain, Hash, Head};
pub use codec::Codec;
pub use error::LogError;
pub use fault::{FrameError, FrameFault};
pub use frame::{Draft, Frame};
pub use header::{FRAME_MAX, FrameHeader, POOL_NAME_MAX, pool_name_fault};
pub use segment::{Damage, SegmentError};
