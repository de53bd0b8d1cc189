//! Batches in sections: each keeps its place in the chain, but the hash of the one before it is not stored twice.
//!
//! Within a block, a batch names the hash of the batch right before it; these 32 bytes would be most of what a small
//! batch takes after packing, and they can be computed. They are stored as zeros and put back on reading; the first
//! batch of each block keeps its own, so that reading can start at any block.

use super::error::{Damage, Fault, SegmentError};
use super::format::{Footer, Header, Kind};
use super::section::{Block, SectionStream, SectionWriter, Span};
use crate::chain::{Chain, Hash, Head};
use crate::fault::FrameFault;
use crate::frame::Frame;
use std::io::{Read, Write};
use std::ops::Range;
use weir_kernel::Micros;

/// Where a batch of envelope version 1 keeps the hash of the one before it (see `frame.rs`).
const PREV_HASH: Range<usize> = 56..88;
/// Where it keeps the version of its envelope.
const ENVELOPE: usize = 4;

/// Writes consecutive batches of one pool as one section.
pub struct BatchWriter<W: Write> {
    section: SectionWriter<W>,
    name: String,
    pool: String,
    chain: Chain,
    scratch: Vec<u8>,
}

impl<W: Write> BatchWriter<W> {
    /// Starts with the first batch. `name` is what errors call the file.
    ///
    /// # Errors
    /// A failed write.
    pub fn start(
        out: W,
        name: String,
        log_id: [u8; 16],
        written: Micros,
        first: &Frame,
    ) -> Result<Self, SegmentError> {
        let header = Header {
            kind: Kind::Segment,
            pool: first.header.pool.to_string(),
            log_id,
            first_seq: first.header.first_seq,
            prev_hash: first.header.prev_hash,
            written,
        };
        let section = SectionWriter::new(out, name.clone(), &header)?;
        let (pool, chain) = (header.pool, Chain::anywhere());
        let mut writer = BatchWriter { section, name, pool, chain, scratch: Vec::new() };
        writer.push(first)?;
        Ok(writer)
    }

    /// Adds the next batch.
    ///
    /// # Errors
    /// A batch of another pool or one that does not follow; a failed write.
    pub fn push(&mut self, frame: &Frame) -> Result<(), SegmentError> {
        if *frame.header.pool != *self.pool {
            let reason = format!("pool {} is written, a batch of pool {} came", self.pool, frame.header.pool);
            return Err(SegmentError::Mismatch { file: self.name.clone(), reason });
        }
        self.chain.follow(frame).map_err(crate::error::LogError::from)?;
        let span = Span {
            first_seq: frame.header.first_seq,
            last_seq: frame.header.last_seq(),
            at_first: frame.header.at_first,
            at_last: frame.header.at_last,
        };
        self.scratch.clear();
        self.scratch.extend_from_slice(&frame.bytes);
        if !self.section.at_block_start() && self.scratch.get(ENVELOPE) == Some(&1) {
            self.scratch[PREV_HASH].fill(0);
        }
        self.section.push(&self.scratch, span)
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.section.written()
    }

    /// The sequences and times so far.
    pub fn span(&self) -> Option<Span> {
        self.section.span()
    }

    /// Writes the footer and gives the output back, not synced.
    ///
    /// # Errors
    /// A failed write.
    pub fn finish(self) -> Result<(W, Footer), SegmentError> {
        let head = self.chain.head().unwrap_or_default();
        self.section.finish(head.hash)
    }
}

/// The batches of one block, in order.
pub(crate) struct BlockFrames {
    block: Block,
    at: usize,
    prev: Option<Hash>,
    next_seq: u64,
}

impl BlockFrames {
    pub(crate) fn new(block: Block) -> Self {
        let next_seq = block.head.first_seq;
        BlockFrames { block, at: 0, prev: None, next_seq }
    }

    /// The next batch, its own checksum verified; none at the end of the block.
    pub(crate) fn next(&mut self, file: &str) -> Result<Option<Frame>, SegmentError> {
        match self.read() {
            Ok(frame) => Ok(frame),
            Err(fault) => Err(self.damaged(file, fault)),
        }
    }

    /// Damage at the batch that comes next.
    pub(crate) fn damaged(&self, file: &str, fault: Fault) -> SegmentError {
        SegmentError::Damaged(Box::new(Damage {
            file: file.to_owned(),
            offset: Some(self.block.offset),
            block: Some(self.block.number),
            batch: Some(self.next_seq),
            fault,
        }))
    }

    fn read(&mut self) -> Result<Option<Frame>, Fault> {
        let Some((range, next)) = self.block.item(self.at)? else {
            let (expected, found) = (self.block.head.last_seq + 1, self.next_seq);
            return if expected == found { Ok(None) } else { Err(Fault::Sequence { expected, found }) };
        };
        let bytes = &mut self.block.raw[range];
        if let Some(prev) = self.prev
            && bytes.get(ENVELOPE) == Some(&1)
            && let Some(place) = bytes.get_mut(PREV_HASH)
            && place.iter().all(|&byte| byte == 0)
        {
            place.copy_from_slice(&prev);
        }
        let frame = Frame::parse(bytes).map_err(|error| Fault::Batch(error.fault))?;
        if frame.header.first_seq != self.next_seq {
            return Err(Fault::Sequence { expected: self.next_seq, found: frame.header.first_seq });
        }
        self.at = next;
        self.next_seq = frame.header.last_seq() + 1;
        self.prev = Some(frame.hash);
        Ok(Some(frame))
    }
}

/// Streams the batches of the sections of a file or of standard input, everything verified.
pub struct BatchStream<R: Read> {
    sections: SectionStream<R>,
    header: Option<Header>,
    block: Option<BlockFrames>,
    chain: Chain,
}

impl<R: Read> BatchStream<R> {
    /// `name` is what errors call the input.
    pub fn new(input: R, name: impl Into<String>) -> Self {
        Self::within(input, name, 0)
    }

    /// The same where the input is the rest of a file, from this offset on.
    pub fn within(input: R, name: impl Into<String>, offset: u64) -> Self {
        BatchStream {
            sections: SectionStream::within(input, name, offset),
            header: None,
            block: None,
            chain: Chain::anywhere(),
        }
    }

    /// The next section; none at the end. What is left of the current one is read (and verified) first.
    ///
    /// # Errors
    /// As [`Self::frame`].
    pub fn section(&mut self) -> Result<Option<Header>, SegmentError> {
        while self.header.as_ref().is_some_and(|h| h.kind == Kind::Segment) && self.frame()?.is_some() {}
        while self.header.is_some() && self.raw_block()?.is_some() {}
        self.chain = Chain::anywhere();
        self.header = self.sections.header()?;
        Ok(self.header.clone())
    }

    /// The next batch of the current section; none at its end.
    ///
    /// # Errors
    /// Damage, named; a failed read.
    pub fn frame(&mut self) -> Result<Option<Frame>, SegmentError> {
        loop {
            if let Some(block) = &mut self.block {
                if let Some(frame) = block.next(self.sections.name())? {
                    return self.follow(frame).map(Some);
                }
                self.block = None;
            }
            if self.header.is_none() {
                return Ok(None);
            }
            match self.sections.block()? {
                Some(block) => self.block = Some(BlockFrames::new(block)),
                None => {
                    self.header = None;
                    self.check_end()?;
                    return Ok(None);
                }
            }
        }
    }

    /// The next block of a section that is no segment; none at its end.
    pub(crate) fn raw_block(&mut self) -> Result<Option<Block>, SegmentError> {
        let block = if self.header.is_some() { self.sections.block()? } else { None };
        if block.is_none() {
            self.header = None;
        }
        Ok(block)
    }

    /// The footer of the section that has just ended.
    pub fn footer(&self) -> &Footer {
        self.sections.footer()
    }

    /// What errors call the input.
    pub fn name(&self) -> &str {
        self.sections.name()
    }

    /// Damage at an offset of the input.
    pub(crate) fn sections_damaged(&self, offset: u64, fault: Fault) -> SegmentError {
        self.sections.damaged(offset, fault)
    }

    fn follow(&mut self, frame: Frame) -> Result<Frame, SegmentError> {
        let fault = match (&self.header, self.chain.head()) {
            (Some(header), None) => first_fault(header, &frame),
            _ => self.chain.clone().follow(&frame).err().map(|error| Fault::Batch(error.fault)),
        };
        if let Some(fault) = fault {
            let error = match &self.block {
                Some(block) => block.damaged(self.sections.name(), fault),
                None => self.sections.damaged(0, fault),
            };
            return Err(name_batch(error, frame.header.first_seq));
        }
        self.chain = Chain::after(Head::of(&frame));
        Ok(frame)
    }

    fn check_end(&self) -> Result<(), SegmentError> {
        let chain = self.chain.head().unwrap_or_default().hash;
        let stored = self.sections.footer().chain;
        if chain == stored {
            return Ok(());
        }
        let hex = super::error::short_hex;
        Err(self.sections.damaged(0, Fault::Chain { found: hex(&chain), wanted: hex(&stored) }))
    }
}

/// What is wrong with the first batch of a section, if anything.
fn first_fault(header: &Header, frame: &Frame) -> Option<Fault> {
    if *frame.header.pool != *header.pool {
        let (expected, found) = (header.pool.clone(), frame.header.pool.to_string());
        return Some(Fault::Pool { expected, found });
    }
    let before = Head { seq: header.first_seq.saturating_sub(1), hash: header.prev_hash, at: Micros::ZERO };
    before.admits(&frame.header).err().map(|broken| Fault::Batch(FrameFault::Chain(broken)))
}

fn name_batch(error: SegmentError, seq: u64) -> SegmentError {
    match error {
        SegmentError::Damaged(mut damage) => {
            damage.batch = Some(seq);
            SegmentError::Damaged(damage)
        }
        other => other,
    }
}
