//! Sealed batches in files of their own: packed, self-checking, chained, readable without the database.
//!
//! The same sections make up segments (`.wseg`), snapshots (`.wsnap`) and exports; `format.rs` has the layout.

mod batches;
mod error;
mod file;
mod format;
mod section;
mod store;

pub(crate) use batches::BlockFrames;
pub use batches::{BatchStream, BatchWriter};
pub use error::{Damage, Fault, SegmentError, short_hex};
pub use file::{Section, SectionFile};
pub use format::{CONTAINER_VERSION, Footer, Header, Kind};
pub use section::{Block, SectionStream, SectionWriter, Span};
pub use store::{
    EXTENSION, SEGMENTS, SegmentFile, SegmentRef, list, make_dir, pools_under, publish, read_dir,
    remove_temporary, segment_dir, sync_dir,
};

#[cfg(test)]
pub(crate) mod tests;
