//! The chain of a pool's batches: each follows the one before it in sequence, time and hash.

use crate::fault::{FrameError, FrameFault};
use crate::frame::Frame;
use crate::header::FrameHeader;
use weir_kernel::Micros;

/// SHA-256 of a batch.
pub type Hash = [u8; 32];

/// How a batch fails to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// Steps are missing, or there twice.
    #[error("it starts at sequence {found}, the next one is {expected}")]
    Sequence {
        /// Where it starts.
        found: u64,
        /// Where it should.
        expected: u64,
    },
    /// Time runs backwards.
    #[error("it starts at time {found} us, the step before is at {before} us")]
    Time {
        /// When it starts.
        found: u64,
        /// When the step before was.
        before: u64,
    },
    /// Another batch came before it: something was altered, or swapped.
    #[error("it names the hash {} of the batch before it, which has {}", short(found), short(expected))]
    Hash {
        /// What it names.
        found: Hash,
        /// What the batch before has.
        expected: Hash,
    },
}

fn short(hash: &Hash) -> String {
    let mut text: String = hash[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    text.push('…');
    text
}

/// Where a pool's log ends: its last step and the hash of its last batch. An empty log ends at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Sequence of the last step; 0 = none.
    pub seq: u64,
    /// Hash of the last batch; zeros = none.
    pub hash: Hash,
    /// Time of the last step.
    pub at: Micros,
}

impl Head {
    /// The head with this batch as the last one.
    pub fn of(frame: &Frame) -> Head {
        Head { seq: frame.header.last_seq(), hash: frame.hash, at: frame.header.at_last }
    }

    /// Does a batch follow this head?
    ///
    /// # Errors
    /// How it does not.
    pub fn admits(&self, header: &FrameHeader) -> Result<(), Break> {
        let expected = self.seq + 1;
        if header.first_seq != expected {
            return Err(Break::Sequence { found: header.first_seq, expected });
        }
        if header.at_first < self.at {
            return Err(Break::Time { found: header.at_first.0, before: self.at.0 });
        }
        if header.prev_hash != self.hash {
            return Err(Break::Hash { found: header.prev_hash, expected: self.hash });
        }
        Ok(())
    }
}

/// Walks the batches of one pool and holds them to the chain.
#[derive(Clone, Debug)]
pub struct Chain {
    head: Option<Head>,
}

impl Chain {
    /// Starts after a known head ([`Head::default`] for a log from its beginning).
    pub fn after(head: Head) -> Chain {
        Chain { head: Some(head) }
    }

    /// Starts anywhere: the first batch is taken as it is (what came before it is not here).
    pub fn anywhere() -> Chain {
        Chain { head: None }
    }

    /// Where the walk is.
    pub fn head(&self) -> Option<Head> {
        self.head
    }

    /// Takes the next batch.
    ///
    /// # Errors
    /// The batch by pool and sequence, and how it does not follow. The walk stays where it was.
    pub fn follow(&mut self, frame: &Frame) -> Result<(), FrameError> {
        if let Some(head) = &self.head {
            head.admits(&frame.header).map_err(|broken| FrameError {
                pool: Some(frame.header.pool.clone()),
                seq: Some(frame.header.first_seq),
                fault: FrameFault::Chain(broken),
            })?;
        }
        self.head = Some(Head::of(frame));
        Ok(())
    }
}
