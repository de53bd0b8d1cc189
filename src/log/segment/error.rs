//! What can be wrong with a stored file, named: file, place, block, batch and reason.

use crate::error::LogError;
use crate::fault::FrameFault;
use std::fmt;
use std::io;
use std::path::PathBuf;
use weir_kernel::Micros;

/// Why a segment, an export or a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The operating system said no.
    #[error("{file}: cannot {doing}: {source}")]
    Io {
        /// The file or directory.
        file: String,
        /// What was tried.
        doing: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// Bytes are not what was written.
    #[error("{0}")]
    Damaged(Box<Damage>),
    /// The hot window says no.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Written by a newer Weir.
    #[error("{file}: {what} {found}, this build reads up to {known}: use the release that wrote it")]
    Newer {
        /// The file.
        file: String,
        /// Of what the number is the version.
        what: &'static str,
        /// The number in the file.
        found: u32,
        /// The newest number that this build knows.
        known: u32,
    },
    /// Two files do not belong together.
    #[error("{file}: {reason}")]
    Mismatch {
        /// The second of them.
        file: String,
        /// What does not fit.
        reason: String,
    },
    /// What was asked for is no longer kept.
    #[error("trimmed: the log of pool {pool} starts at sequence {before_seq} (time {}); what was before is no longer kept", before_time.0)]
    Trimmed {
        /// The pool.
        pool: String,
        /// The first sequence that is kept.
        before_seq: u64,
        /// Its time.
        before_time: Micros,
    },
    /// An item is too large to be stored.
    #[error("{file}: a batch of {found} bytes, at most {allowed} are allowed")]
    TooLarge {
        /// The file.
        file: String,
        /// Its size.
        found: usize,
        /// The limit.
        allowed: usize,
    },
}

impl SegmentError {
    /// Wraps what the system answered.
    pub fn io(file: impl fmt::Display, doing: &'static str, source: io::Error) -> Self {
        SegmentError::Io { file: file.to_string(), doing, source }
    }

    /// The same for a path.
    pub(crate) fn path(file: &std::path::Path, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        let file = PathBuf::from(file);
        move |source| SegmentError::io(file.display(), doing, source)
    }

    /// The damage, if this is damage.
    pub fn damage(&self) -> Option<&Damage> {
        match self {
            SegmentError::Damaged(damage) => Some(damage),
            _ => None,
        }
    }
}

/// Where bytes are not what was written, as exactly as can be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file, or `stdin`.
    pub file: String,
    /// Offset in the file of the part that is damaged, where there is one.
    pub offset: Option<u64>,
    /// The block within its section, from 0.
    pub block: Option<u32>,
    /// The first sequence of the damaged batch (or of the first that may be damaged).
    pub batch: Option<u64>,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: damaged", self.file)?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        if let Some(block) = self.block {
            write!(f, ", block {block}")?;
        }
        if let Some(batch) = self.batch {
            write!(f, ", batch that starts at sequence {batch}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// What is wrong with the bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not one of our files.
    #[error("this is no Weir segment, export or snapshot (wrong first bytes)")]
    NotOurs,
    /// The file ends in the middle of something.
    #[error("the file ends inside {0}")]
    Cut(&'static str),
    /// A checksum does not fit.
    #[error("checksum of {what}: {found:08x} computed, {wanted:08x} stored")]
    Checksum {
        /// Of what.
        what: &'static str,
        /// Computed now.
        found: u32,
        /// In the file.
        wanted: u32,
    },
    /// A field holds what it cannot hold.
    #[error("{field} is {found}, allowed is {allowed}")]
    Field {
        /// Which.
        field: &'static str,
        /// What it holds.
        found: u64,
        /// What it may hold.
        allowed: String,
    },
    /// zstd cannot unpack the block.
    #[error("the block cannot be unpacked: {0}")]
    Unpack(String),
    /// A batch does not stand on its own, or does not follow the one before it.
    #[error("the batch is not valid: {0}")]
    Batch(#[from] FrameFault),
    /// A batch of another pool.
    #[error("the batch belongs to pool {found}, the file to pool {expected}")]
    Pool {
        /// The file's.
        expected: String,
        /// The batch's.
        found: String,
    },
    /// The bytes decode, but are not what the value is encoded as.
    #[error("the batch is not valid: {0}")]
    Encoding(String),
    /// The events of a snapshot are not a state.
    #[error("the snapshot is not valid: {0}")]
    Snapshot(String),
    /// A sequence is missing or repeated.
    #[error("sequence {expected} should come next, found {found}")]
    Sequence {
        /// What should come.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// The hash chain does not hold.
    #[error("the chain is broken: {found} computed of what precedes it, {wanted} stored")]
    Chain {
        /// Hash of what is there.
        found: String,
        /// Hash that should be.
        wanted: String,
    },
    /// The check over the whole section does not fit.
    #[error("the check over the whole section does not fit")]
    Whole,
    /// Bytes where none should be.
    #[error("unexpected bytes after the end")]
    Trailing,
}

/// Short form of a hash, for messages.
pub fn short_hex(hash: &[u8]) -> String {
    use fmt::Write;
    hash.iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
