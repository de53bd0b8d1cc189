//! The header of a batch: what it says about itself, and where each field lies.
//!
//! Layout, all numbers little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | `WEIR` |
//! | 4 | 1 | version of this envelope (1) |
//! | 5 | 1 | codec of the payload |
//! | 6 | 2 | format of the payload (`weir-migrations`) |
//! | 8 | 2 | length of the whole header, the name included |
//! | 10 | 2 | length of the pool's name |
//! | 12 | 4 | steps in the batch |
//! | 16 | 4 | bytes of the payload as stored |
//! | 20 | 4 | bytes of the payload unpacked |
//! | 24 | 8 | sequence of the first step |
//! | 32 | 8 | time of the first step |
//! | 40 | 8 | time of the last step |
//! | 48 | 8 | wall clock at writing |
//! | 56 | 32 | hash of the pool's batch before this one (zeros for the first) |
//! | 88 | 4 | CRC-32 of everything but these four bytes |
//! | 92 | n | the pool's name |
//! | 92 + n | m | payload |
//!
//! The hash of a batch is SHA-256 over these bytes. As they hold the hash before, the batches of a pool form a chain.

use crate::chain::Hash;
use crate::codec::Codec;
use crate::fault::{FrameError, FrameFault};
use std::sync::Arc;
use weir_kernel::Micros;
use weir_migrations::PAYLOAD_MAX;

const MAGIC: [u8; 4] = *b"WEIR";
const ENVELOPE: u8 = 1;
pub(crate) const FIXED: usize = 92;
pub(crate) const CRC_AT: usize = 88;

/// The longest name of a pool, in bytes.
pub const POOL_NAME_MAX: usize = 128;

/// The longest batch, in bytes, header included.
pub const FRAME_MAX: usize = FIXED + POOL_NAME_MAX + PAYLOAD_MAX;

/// What a batch says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Format of the payload.
    pub format: u16,
    /// Packing of the payload.
    pub codec: Codec,
    /// The pool.
    pub pool: Arc<str>,
    /// Sequence of the first step.
    pub first_seq: u64,
    /// Steps, at least 1.
    pub count: u32,
    /// Time of the first step.
    pub at_first: Micros,
    /// Time of the last step.
    pub at_last: Micros,
    /// The wall clock's own reading when the batch was written.
    pub wall: Micros,
    /// Hash of the batch before.
    pub prev_hash: Hash,
    /// Bytes of the payload as stored.
    pub payload_len: u32,
    /// Bytes of the payload unpacked.
    pub raw_len: u32,
}

/// What is wrong with the name of a pool, if anything: 1 to 128 bytes, no `/`, no control characters, not dots alone.
pub fn pool_name_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > POOL_NAME_MAX {
        Some("it is longer than 128 bytes")
    } else if name.contains('/') || name.chars().any(char::is_control) {
        Some("it holds a slash or a control character")
    } else if name.chars().all(|c| c == '.') {
        Some("it is made of dots alone")
    } else {
        None
    }
}

impl FrameHeader {
    /// Sequence of the last step.
    pub fn last_seq(&self) -> u64 {
        self.first_seq + u64::from(self.count) - 1
    }

    /// Bytes of the header, the name included.
    pub fn len(&self) -> usize {
        FIXED + self.pool.len()
    }

    /// Never: a header has 92 bytes and a name.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Bytes of the whole batch.
    pub fn frame_len(&self) -> usize {
        self.len() + self.payload_len as usize
    }

    /// Reads the header at the front of the bytes (a batch may be longer than them); the checksum is not looked at.
    ///
    /// # Errors
    /// Every field out of range, by name.
    pub fn parse(bytes: &[u8]) -> Result<FrameHeader, FrameError> {
        read_header(bytes).map_err(FrameError::from)
    }

    /// Writes the header (with a checksum of zero) to the front of the buffer, which must be long enough.
    pub(crate) fn write(&self, to: &mut [u8]) {
        to[0..4].copy_from_slice(&MAGIC);
        to[4] = ENVELOPE;
        to[5] = self.codec.number();
        to[6..8].copy_from_slice(&self.format.to_le_bytes());
        to[8..10].copy_from_slice(&(self.len() as u16).to_le_bytes());
        to[10..12].copy_from_slice(&(self.pool.len() as u16).to_le_bytes());
        to[12..16].copy_from_slice(&self.count.to_le_bytes());
        to[16..20].copy_from_slice(&self.payload_len.to_le_bytes());
        to[20..24].copy_from_slice(&self.raw_len.to_le_bytes());
        to[24..32].copy_from_slice(&self.first_seq.to_le_bytes());
        to[32..40].copy_from_slice(&self.at_first.0.to_le_bytes());
        to[40..48].copy_from_slice(&self.at_last.0.to_le_bytes());
        to[48..56].copy_from_slice(&self.wall.0.to_le_bytes());
        to[56..88].copy_from_slice(&self.prev_hash);
        to[CRC_AT..FIXED].fill(0);
        to[FIXED..self.len()].copy_from_slice(self.pool.as_bytes());
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn read_header(bytes: &[u8]) -> Result<FrameHeader, FrameFault> {
    if bytes.len() < FIXED {
        return Err(FrameFault::Cut { found: bytes.len() as u64, needed: FIXED as u64 });
    }
    if bytes[..4] != MAGIC {
        return Err(FrameFault::Magic { found: [bytes[0], bytes[1], bytes[2], bytes[3]] });
    }
    if bytes[4] != ENVELOPE {
        return Err(FrameFault::Envelope { found: bytes[4] });
    }
    let codec = Codec::from_number(bytes[5])?;
    let (header_len, pool_len) = (usize::from(u16_at(bytes, 8)), usize::from(u16_at(bytes, 10)));
    if pool_len == 0 || pool_len > POOL_NAME_MAX {
        return Err(FrameFault::Header {
            field: "pool name length",
            found: pool_len as u64,
            allowed: "1 to 128",
        });
    }
    if header_len != FIXED + pool_len {
        let found = header_len as u64;
        return Err(FrameFault::Header { field: "header length", found, allowed: "92 + the name's" });
    }
    if bytes.len() < header_len {
        return Err(FrameFault::Cut { found: bytes.len() as u64, needed: header_len as u64 });
    }
    let name = &bytes[FIXED..header_len];
    let pool = std::str::from_utf8(name).map_err(|_| FrameFault::PoolName {
        name: String::from_utf8_lossy(name).into_owned(),
        fault: "it is not UTF-8",
    })?;
    if let Some(fault) = pool_name_fault(pool) {
        return Err(FrameFault::PoolName { name: pool.to_owned(), fault });
    }
    let count = u32_at(bytes, 12);
    if count == 0 {
        return Err(FrameFault::Header { field: "count", found: 0, allowed: "at least 1" });
    }
    let (payload_len, raw_len) = (u32_at(bytes, 16), u32_at(bytes, 20));
    for found in [payload_len, raw_len] {
        if found as usize > PAYLOAD_MAX {
            return Err(FrameFault::TooLong { found: u64::from(found), allowed: PAYLOAD_MAX as u64 });
        }
    }
    let first_seq = u64_at(bytes, 24);
    if first_seq == 0 || first_seq.checked_add(u64::from(count)).is_none() {
        return Err(FrameFault::Header { field: "first sequence", found: first_seq, allowed: "from 1" });
    }
    let mut prev_hash = [0; 32];
    prev_hash.copy_from_slice(&bytes[56..88]);
    Ok(FrameHeader {
        format: u16_at(bytes, 6),
        codec,
        pool: Arc::from(pool),
        first_seq,
        count,
        at_first: Micros(u64_at(bytes, 32)),
        at_last: Micros(u64_at(bytes, 40)),
        wall: Micros(u64_at(bytes, 48)),
        prev_hash,
        payload_len,
        raw_len,
    })
}
