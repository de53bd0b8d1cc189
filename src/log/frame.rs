//! One durable batch of one pool, as bytes that verify themselves (layout: `header.rs`).

use crate::chain::Hash;
use crate::codec::Codec;
use crate::fault::{FrameError, FrameFault};
use crate::header::{CRC_AT, FIXED, FrameHeader, pool_name_fault, u32_at};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use weir_kernel::{Micros, Step};
use weir_migrations::PAYLOAD_MAX;

/// A batch, whole.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it says about itself.
    pub header: FrameHeader,
    /// All of it, the header included.
    pub bytes: Vec<u8>,
    /// SHA-256 of `bytes`.
    pub hash: Hash,
}

/// A batch that is encoded but has no place in the chain yet: the costly half, done before the writer's turn.
#[derive(Clone, Debug)]
pub struct Draft {
    header: FrameHeader,
    bytes: Vec<u8>,
}

impl Draft {
    /// Encodes steps in the given format and packing (zstd at level 1).
    ///
    /// # Errors
    /// No steps, steps whose sequences or times do not follow each other, a name no pool can have, a batch over
    /// [`PAYLOAD_MAX`], a format that this version cannot write.
    pub fn encode(format: u16, codec: Codec, pool: &Arc<str>, steps: &[Step]) -> Result<Draft, FrameError> {
        let fail = |fault| FrameError { pool: Some(pool.clone()), seq: steps.first().map(|s| s.seq), fault };
        if let Some(fault) = pool_name_fault(pool) {
            return Err(fail(FrameFault::PoolName { name: pool.to_string(), fault }));
        }
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return Err(fail(FrameFault::Header { field: "count", found: 0, allowed: "at least 1" }));
        };
        check_steps(steps, first.seq, first.at, last.at).map_err(fail)?;
        let header_len = FIXED + pool.len();
        let mut bytes = Vec::with_capacity(header_len + 128 * steps.len());
        bytes.resize(header_len, 0);
        weir_migrations::encode(format, steps, &mut bytes).map_err(|error| fail(error.into()))?;
        let raw_len = bytes.len() - header_len;
        if raw_len > PAYLOAD_MAX {
            return Err(fail(FrameFault::TooLong { found: raw_len as u64, allowed: PAYLOAD_MAX as u64 }));
        }
        if codec != Codec::Plain {
            let packed = codec.pack(&bytes[header_len..], 1).map_err(fail)?;
            bytes.truncate(header_len);
            bytes.extend_from_slice(&packed);
        }
        let header = FrameHeader {
            format,
            codec,
            pool: pool.clone(),
            first_seq: first.seq,
            count: steps.len() as u32,
            at_first: first.at,
            at_last: last.at,
            wall: Micros::ZERO,
            prev_hash: [0; 32],
            payload_len: (bytes.len() - header_len) as u32,
            raw_len: raw_len as u32,
        };
        Ok(Draft { header, bytes })
    }

    /// From a header (whose `prev_hash` and `wall` count for nothing yet) and the payload as stored.
    ///
    /// # Errors
    /// A payload of another length than the header's.
    pub fn from_parts(header: FrameHeader, payload: &[u8]) -> Result<Draft, FrameError> {
        if payload.len() != header.payload_len as usize {
            let fault =
                FrameFault::Cut { found: payload.len() as u64, needed: u64::from(header.payload_len) };
            return Err(FrameError { pool: Some(header.pool), seq: Some(header.first_seq), fault });
        }
        let mut bytes = vec![0; header.len()];
        bytes.extend_from_slice(payload);
        Ok(Draft { header, bytes })
    }

    /// What it will say about itself.
    pub fn header(&self) -> &FrameHeader {
        &self.header
    }

    /// Bytes of the batch.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never: it has a header.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Puts it into the chain.
    pub fn seal(self, prev_hash: Hash, wall: Micros) -> Frame {
        let Draft { mut header, mut bytes } = self;
        header.prev_hash = prev_hash;
        header.wall = wall;
        header.write(&mut bytes);
        let crc = checksum(&bytes);
        bytes[CRC_AT..FIXED].copy_from_slice(&crc.to_le_bytes());
        let hash = Sha256::digest(&bytes).into();
        Frame { header, bytes, hash }
    }
}

impl Frame {
    /// Encodes steps in the current format, plain.
    ///
    /// # Errors
    /// As [`Draft::encode`].
    pub fn encode(
        pool: &Arc<str>,
        prev_hash: Hash,
        wall: Micros,
        steps: &[Step],
    ) -> Result<Frame, FrameError> {
        let draft = Draft::encode(weir_migrations::CURRENT, Codec::Plain, pool, steps)?;
        Ok(draft.seal(prev_hash, wall))
    }

    /// Reads a batch that fills the bytes exactly; checks lengths and checksum, and computes its hash.
    ///
    /// # Errors
    /// [`FrameError`]. That it follows the batch before it is for [`crate::chain::Chain`] to say.
    pub fn parse(bytes: &[u8]) -> Result<Frame, FrameError> {
        Frame::from_vec(bytes.to_vec())
    }

    /// [`Frame::parse`] without a copy.
    ///
    /// # Errors
    /// As [`Frame::parse`].
    pub fn from_vec(bytes: Vec<u8>) -> Result<Frame, FrameError> {
        let header = FrameHeader::parse(&bytes)?;
        let fail = |fault| FrameError { pool: Some(header.pool.clone()), seq: Some(header.first_seq), fault };
        let needed = header.frame_len();
        if bytes.len() < needed {
            return Err(fail(FrameFault::Cut { found: bytes.len() as u64, needed: needed as u64 }));
        }
        if bytes.len() > needed {
            return Err(fail(FrameFault::Trailing { found: (bytes.len() - needed) as u64 }));
        }
        let (stored, computed) = (u32_at(&bytes, CRC_AT), checksum(&bytes));
        if stored != computed {
            return Err(fail(FrameFault::Checksum { stored, computed }));
        }
        let hash = Sha256::digest(&bytes).into();
        Ok(Frame { header, bytes, hash })
    }

    /// The payload as stored.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.header.len()..]
    }

    /// The steps, whatever format they were written in, as today's types.
    ///
    /// # Errors
    /// [`FrameError`]: a payload that does not unpack or decode, an unknown format, or steps other than announced.
    pub fn steps(&self) -> Result<Vec<Step>, FrameError> {
        self.read_steps().map_err(|fault| FrameError {
            pool: Some(self.header.pool.clone()),
            seq: Some(self.header.first_seq),
            fault,
        })
    }

    fn read_steps(&self) -> Result<Vec<Step>, FrameFault> {
        let header = &self.header;
        let steps = if header.codec == Codec::Plain {
            weir_migrations::decode(header.format, self.payload())?
        } else {
            let raw = header.codec.unpack(self.payload(), header.raw_len as usize)?;
            weir_migrations::decode(header.format, &raw)?
        };
        if steps.len() != header.count as usize {
            let (found, expected) = (steps.len() as u64, u64::from(header.count));
            return Err(FrameFault::Steps { index: 0, field: "count", found, expected });
        }
        check_steps(&steps, header.first_seq, header.at_first, header.at_last)?;
        Ok(steps)
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("header", &self.header).field("bytes", &self.bytes.len()).finish()
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes[..CRC_AT]);
    crc.update(&bytes[FIXED..]);
    crc.finalize()
}

fn check_steps(steps: &[Step], first: u64, at_first: Micros, at_last: Micros) -> Result<(), FrameFault> {
    let fault = |index: usize, field, found, expected| {
        Err(FrameFault::Steps { index: index as u64, field, found, expected })
    };
    let mut at = at_first;
    for (index, step) in steps.iter().enumerate() {
        let expected = first.saturating_add(index as u64);
        if step.seq != expected {
            return fault(index, "sequence", step.seq, expected);
        }
        if step.at < at || (index == 0 && step.at != at) {
            return fault(index, "time", step.at.0, at.0);
        }
        at = step.at;
    }
    if at != at_last {
        return fault(steps.len().saturating_sub(1), "time", at.0, at_last.0);
    }
    Ok(())
}
