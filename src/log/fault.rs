//! What can be wrong with a batch, and where.

use std::fmt;
use std::sync::Arc;
use weir_migrations::MigrationError;

/// What is wrong with the bytes of a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// The bytes end too soon.
    #[error("cut: {found} bytes of {needed}")]
    Cut {
        /// Bytes there.
        found: u64,
        /// Bytes that should be there.
        needed: u64,
    },
    /// The bytes go on after the batch.
    #[error("{found} bytes after its end")]
    Trailing {
        /// How many.
        found: u64,
    },
    /// It does not begin like a batch.
    #[error("does not begin with WEIR but with {found:02x?}")]
    Magic {
        /// What is there.
        found: [u8; 4],
    },
    /// A newer envelope.
    #[error("envelope version {found}, this version of Weir reads 1: use a newer one")]
    Envelope {
        /// The version found.
        found: u8,
    },
    /// An unknown packing.
    #[error("codec {found} is not known (0 = plain, 1 = zstd)")]
    Codec {
        /// The number found.
        found: u8,
    },
    /// A field of the header is out of range.
    #[error("header field {field} is {found}, allowed is {allowed}")]
    Header {
        /// Which one.
        field: &'static str,
        /// Its value.
        found: u64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A length beyond what any batch has.
    #[error("{found} bytes, more than the {allowed} allowed")]
    TooLong {
        /// The length.
        found: u64,
        /// The limit.
        allowed: u64,
    },
    /// The checksum differs.
    #[error("checksum is {computed:08x}, stored is {stored:08x}")]
    Checksum {
        /// In the bytes.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// The payload does not unpack.
    #[error("payload: {fault}")]
    Payload {
        /// Why.
        fault: String,
    },
    /// The payload does not decode, or its format is not known.
    #[error(transparent)]
    Format(#[from] MigrationError),
    /// The steps are not those that the header announces.
    #[error("step {index} has {field} {found}, expected {expected}")]
    Steps {
        /// Position in the batch.
        index: u64,
        /// Sequence or time.
        field: &'static str,
        /// What is there.
        found: u64,
        /// What should be.
        expected: u64,
    },
    /// It does not follow the batch before it.
    #[error("does not follow the batch before it: {0}")]
    Chain(#[from] crate::chain::Break),
    /// A name that no pool can have.
    #[error("pool name {name:?}: {fault}")]
    PoolName {
        /// The name.
        name: String,
        /// What is wrong with it.
        fault: &'static str,
    },
}

/// A damaged (or impossible) batch: which pool and sequence, as far as that can be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// The pool, if it could be read.
    pub pool: Option<Arc<str>>,
    /// Sequence of the batch's first step, if it could be read.
    pub seq: Option<u64>,
    /// What is wrong.
    pub fault: FrameFault,
}

impl std::error::Error for FrameError {}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.pool, self.seq) {
            (Some(pool), Some(seq)) => write!(f, "batch at sequence {seq} of pool {pool}: {}", self.fault),
            (None, Some(seq)) => write!(f, "batch at sequence {seq}: {}", self.fault),
            (Some(pool), None) => write!(f, "batch of pool {pool}: {}", self.fault),
            (None, None) => write!(f, "batch: {}", self.fault),
        }
    }
}

impl From<FrameFault> for FrameError {
    fn from(fault: FrameFault) -> Self {
        FrameError { pool: None, seq: None, fault }
    }
}

impl FrameError {
    /// Names the place, where the fault itself did not know it.
    #[must_use]
    pub fn at(mut self, pool: &Arc<str>, seq: u64) -> Self {
        self.pool.get_or_insert_with(|| pool.clone());
        self.seq.get_or_insert(seq);
        self
    }
}
