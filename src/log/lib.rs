//! The decision log: group commit over sled, sealed segments, snapshots, recovery.

pub mod chain;
pub mod check;
pub mod codec;
pub mod error;
pub mod export;
mod fault;
pub mod frame;
mod header;
pub mod reader;
pub mod seal;
pub mod segment;
pub mod snapshot;

pub use chain::{Chain, Hash, Head};
pub use codec::Codec;
pub use error::LogError;
pub use fault::{FrameError, FrameFault};
pub use frame::{Draft, Frame};
pub use header::{FRAME_MAX, FrameHeader, POOL_NAME_MAX, pool_name_fault};
pub use segment::{Damage, SegmentError};
