//! Writes and streams sections: items go in, packed blocks come out, and back, with bounded memory.
//!
//! Not here: what an item means (see `batches.rs` and `snapshot.rs`), names of files, directories.

use super::error::{Damage, Fault, SegmentError};
use super::format::{
    BLOCK_HEAD_LEN, BLOCK_RAW_MAX, BlockHead, CONTAINER_VERSION, Footer, Header, IndexEntry, PREFIX_LEN,
    Prefix, TRAILER_LEN, Tag, check_crc, read_trailer,
};
use sha2::{Digest, Sha256};
use std::io::{self, ErrorKind, Read, Write};
use weir_kernel::Micros;
use zstd::stream::raw::{CParameter, Encoder};
use zstd::stream::zio::Writer;
use zstd::zstd_safe::CCtx;

/// A block is closed once it holds this many unpacked bytes: large, because packing gains by it.
pub const BLOCK_TARGET: usize = 768 << 10;
/// The zstd level of blocks: half the time of level 6 for 3 % more bytes (`weir bench volume`: 156 and 55.4 bytes a request
/// in place of 151 and 54.1).
const LEVEL: i32 = 3;
/// So much is packed at once: some tenths of a millisecond.
const PIECE: usize = 64 << 10;

/// The sequences and times that an item spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First sequence.
    pub first_seq: u64,
    /// Last sequence.
    pub last_seq: u64,
    /// Time of the first.
    pub at_first: Micros,
    /// Time of the last.
    pub at_last: Micros,
}

/// Writes one section.
pub struct SectionWriter<W: Write> {
    out: W,
    name: String,
    written: u64,
    content: Sha256,
    raw: Vec<u8>,
    filling: Option<Span>,
    whole: Option<Span>,
    in_block: u32,
    batches: u64,
    raw_bytes: u64,
    index: Vec<IndexEntry>,
    /// One for all blocks: its tables are several megabytes.
    packer: CCtx<'static>,
}

impl<W: Write> SectionWriter<W> {
    /// Writes the header. `name` is what errors call the file.
    ///
    /// # Errors
    /// A failed write, or a header that cannot be stored.
    pub fn new(out: W, name: String, header: &Header) -> Result<Self, SegmentError> {
        let bytes = header.encode().map_err(|fault| SegmentError::Mismatch {
            file: name.clone(),
            reason: format!("cannot be written: {fault}"),
        })?;
        let packer = packer().map_err(|error| SegmentError::io(&name, "prepare to pack", error))?;
        let mut writer = SectionWriter {
            packer,
            out,
            name,
            written: 0,
            content: Sha256::new(),
            raw: Vec::with_capacity(BLOCK_TARGET + (64 << 10)),
            filling: None,
            whole: None,
            in_block: 0,
            batches: 0,
            raw_bytes: 0,
            index: Vec::new(),
        };
        writer.put(&bytes)?;
        Ok(writer)
    }

    /// Will the next item be the first of a block?
    pub fn at_block_start(&self) -> bool {
        self.in_block == 0
    }

    /// Bytes written so far, the block being filled counted unpacked.
    pub fn written(&self) -> u64 {
        self.written + self.raw.len() as u64
    }

    /// The sequences and times of all items so far.
    pub fn span(&self) -> Option<Span> {
        self.whole
    }

    /// Adds an item.
    ///
    /// # Errors
    /// A failed write; an item larger than a block may be.
    pub fn push(&mut self, item: &[u8], span: Span) -> Result<(), SegmentError> {
        let allowed = BLOCK_RAW_MAX as usize - BLOCK_TARGET - 4;
        if item.len() > allowed {
            return Err(SegmentError::TooLarge { file: self.name.clone(), found: item.len(), allowed });
        }
        self.raw.extend_from_slice(&(item.len() as u32).to_le_bytes());
        self.raw.extend_from_slice(item);
        self.in_block += 1;
        for kept in [&mut self.filling, &mut self.whole] {
            let first = kept.unwrap_or(span);
            *kept = Some(Span { first_seq: first.first_seq, at_first: first.at_first, ..span });
        }
        if self.raw.len() >= BLOCK_TARGET { self.close_block() } else { Ok(()) }
    }

    /// Writes what is left and the footer, flushes, and gives the output back. `chain` goes into the footer.
    ///
    /// # Errors
    /// A failed write.
    pub fn finish(mut self, chain: [u8; 32]) -> Result<(W, Footer), SegmentError> {
        self.close_block()?;
        let nothing = Span { first_seq: 0, last_seq: 0, at_first: Micros::ZERO, at_last: Micros::ZERO };
        let span = self.whole.unwrap_or(nothing);
        let footer = Footer {
            last_seq: span.last_seq,
            at_first: span.at_first,
            at_last: span.at_last,
            batches: self.batches,
            raw_bytes: self.raw_bytes,
            chain,
            content: self.content.clone().finalize().into(),
            index: std::mem::take(&mut self.index),
        };
        let bytes = footer.encode(self.written);
        self.put(&bytes)?;
        self.out.flush().map_err(|e| SegmentError::io(&self.name, "write", e))?;
        Ok((self.out, footer))
    }

    fn close_block(&mut self) -> Result<(), SegmentError> {
        let Some(span) = self.filling.take() else { return Ok(()) };
        let packed = pack(&mut self.packer, &self.raw)
            .map_err(|e| SegmentError::io(&self.name, "pack a block of", e))?;
        let head = BlockHead {
            batches: self.in_block,
            first_seq: span.first_seq,
            last_seq: span.last_seq,
            at_first: span.at_first,
            at_last: span.at_last,
            raw_len: self.raw.len() as u32,
            packed_len: packed.len() as u32,
            crc: crc32fast::hash(&packed),
        };
        self.index.push(IndexEntry {
            offset: self.written,
            first_seq: span.first_seq,
            at_first: span.at_first,
        });
        self.batches += u64::from(self.in_block);
        self.raw_bytes += self.raw.len() as u64;
        self.in_block = 0;
        self.raw.clear();
        self.put(&head.encode())?;
        self.put(&packed)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), SegmentError> {
        self.out.write_all(bytes).map_err(|e| SegmentError::io(&self.name, "write", e))?;
        self.content.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }
}

fn packer() -> io::Result<CCtx<'static>> {
    let mut packer = CCtx::try_create().ok_or(ErrorKind::OutOfMemory)?;
    Encoder::with_context(&mut packer).set_parameter(CParameter::CompressionLevel(LEVEL))?;
    Ok(packer)
}

/// Packs a block, a piece at a time: whoever has to may make way in between.
fn pack(packer: &mut CCtx<'static>, raw: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder::with_context(packer);
    encoder.set_pledged_src_size(Some(raw.len() as u64))?;
    let mut writer = Writer::new(Vec::with_capacity(raw.len() / 4), encoder);
    for piece in raw.chunks(PIECE) {
        writer.write_all(piece)?;
        weir_background::pass_on();
    }
    writer.finish()?;
    Ok(writer.into_inner().0)
}

/// One block, unpacked, its checksum verified.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its number within the section, from 0.
    pub number: u32,
    /// Offset of its header in the file.
    pub offset: u64,
    /// Its header.
    pub head: BlockHead,
    /// Its unpacked bytes: items, each behind its length.
    pub raw: Vec<u8>,
}

impl Block {
    /// The next item at `at` and the place after it; none at the end.
    ///
    /// # Errors
    /// A length that does not fit the block.
    pub fn item(&self, at: usize) -> Result<Option<(std::ops::Range<usize>, usize)>, Fault> {
        if at == self.raw.len() {
            return Ok(None);
        }
        let cut = Fault::Cut("a batch inside the block");
        let start = at.checked_add(4).filter(|&s| s <= self.raw.len()).ok_or_else(|| cut.clone())?;
        let mut length = [0; 4];
        length.copy_from_slice(&self.raw[at..start]);
        let end = start + u32::from_le_bytes(length) as usize;
        if end > self.raw.len() { Err(cut) } else { Ok(Some((start..end, end))) }
    }
}

/// Streams the sections of a file, of several files in one, or of standard input.
pub struct SectionStream<R: Read> {
    input: R,
    name: String,
    /// Offset of the next byte in the file.
    offset: u64,
    /// Offset where the current section starts.
    start: u64,
    content: Sha256,
    header: Option<Header>,
    last: Option<BlockHead>,
    seen: Footer,
}

impl<R: Read> SectionStream<R> {
    /// `name` is what errors call the input.
    pub fn new(input: R, name: impl Into<String>) -> Self {
        Self::within(input, name, 0)
    }

    /// The same where the input is the rest of a file, from this offset on.
    pub fn within(input: R, name: impl Into<String>, offset: u64) -> Self {
        SectionStream {
            input,
            name: name.into(),
            offset,
            start: offset,
            content: Sha256::new(),
            header: None,
            last: None,
            seen: empty_footer(),
        }
    }

    /// What errors call the input.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next section's header; none at the end of the input. Call it only between sections.
    ///
    /// # Errors
    /// A failed read, damage, a newer container.
    pub fn header(&mut self) -> Result<Option<Header>, SegmentError> {
        self.start = self.offset;
        self.content = Sha256::new();
        self.last = None;
        self.seen = empty_footer();
        let mut first = [0; PREFIX_LEN];
        let got = self.fill(&mut first)?;
        if got == 0 {
            return Ok(None);
        }
        if got < PREFIX_LEN {
            return Err(self.damaged(self.start, Fault::Cut("the first bytes of a section")));
        }
        let prefix = Prefix::read(&first).map_err(|fault| self.damaged(self.start, fault))?;
        if prefix.version > CONTAINER_VERSION {
            return Err(SegmentError::Newer {
                file: self.name.clone(),
                what: "container version",
                found: u32::from(prefix.version),
                known: u32::from(CONTAINER_VERSION),
            });
        }
        let body = self.exactly(prefix.header_len, "the header")?;
        let header = Header::decode(prefix.kind, &body).map_err(|fault| self.damaged(self.start, fault))?;
        self.header = Some(header.clone());
        Ok(Some(header))
    }

    /// The next block; none once the footer was read and fits what was seen.
    ///
    /// # Errors
    /// A failed read, damage.
    pub fn block(&mut self) -> Result<Option<Block>, SegmentError> {
        let offset = self.offset;
        // The footer's own bytes are not part of what it vouches for.
        let before = self.content.clone();
        let tag = self.exactly(1, "a section (no footer)")?[0];
        match Tag::read(tag).map_err(|fault| self.damaged(offset, fault))? {
            Tag::Block => self.read_block(offset).map(Some),
            Tag::Footer => self.read_footer(offset, before.finalize().into()).map(|()| None),
        }
    }

    /// The footer, once [`Self::block`] has given none.
    pub fn footer(&self) -> &Footer {
        &self.seen
    }

    /// Damage at an offset, with the block and batch that would have come.
    pub fn damaged(&self, offset: u64, fault: Fault) -> SegmentError {
        let block = self.header.as_ref().map(|_| self.seen.index.len() as u32);
        let batch = match (&self.last, &self.header) {
            (Some(last), _) => Some(last.last_seq.saturating_add(1)),
            (None, header) => header.as_ref().map(|h| h.first_seq),
        };
        SegmentError::Damaged(Box::new(Damage {
            file: self.name.clone(),
            offset: Some(offset),
            block,
            batch,
            fault,
        }))
    }

    fn read_block(&mut self, offset: u64) -> Result<Block, SegmentError> {
        let rest = self.exactly(BLOCK_HEAD_LEN - 1, "a block header")?;
        let head = decode_head(&rest).map_err(|fault| self.damaged(offset, fault))?;
        if let Some(last) = self.last {
            let expected = last.last_seq.saturating_add(1);
            if head.first_seq != expected {
                let fault = Fault::Sequence { expected, found: head.first_seq };
                return Err(self.damaged(offset, fault));
            }
        }
        let packed = self.exactly(head.packed_len as usize, "a block")?;
        let raw = unpack(&head, &packed).map_err(|fault| self.damaged(offset, fault))?;
        let block = Block { number: self.seen.index.len() as u32, offset, head, raw };
        if self.last.is_none() {
            self.seen.at_first = head.at_first;
        }
        self.seen.last_seq = head.last_seq;
        self.seen.at_last = head.at_last;
        self.seen.batches += u64::from(head.batches);
        self.seen.raw_bytes += u64::from(head.raw_len);
        self.seen.index.push(IndexEntry {
            offset: offset - self.start,
            first_seq: head.first_seq,
            at_first: head.at_first,
        });
        self.last = Some(head);
        Ok(block)
    }

    fn read_footer(&mut self, offset: u64, content: [u8; 32]) -> Result<(), SegmentError> {
        let length = self.exactly(4, "the footer")?;
        let mut bytes = vec![b'F'];
        bytes.extend_from_slice(&length);
        let mut start = [0; 5];
        start.copy_from_slice(&bytes);
        let body = Footer::body_len(&start).map_err(|fault| self.damaged(offset, fault))?;
        bytes.extend_from_slice(&self.exactly(body + 4, "the footer")?);
        let footer = Footer::decode(&bytes).map_err(|fault| self.damaged(offset, fault))?;
        let at = self.offset;
        let mut trailer = [0; TRAILER_LEN];
        trailer.copy_from_slice(&self.exactly(TRAILER_LEN, "the trailer")?);
        let trailer = read_trailer(&trailer).map_err(|fault| self.damaged(at, fault))?;

        let seen = Footer { chain: footer.chain, content, ..self.seen.clone() };
        if footer != seen || trailer.section != self.offset - self.start || trailer.footer != bytes.len() {
            return Err(self.damaged(offset, Fault::Whole));
        }
        self.seen = footer;
        Ok(())
    }

    /// Reads exactly so many bytes and adds them to the check over the section.
    fn exactly(&mut self, len: usize, what: &'static str) -> Result<Vec<u8>, SegmentError> {
        let at = self.offset;
        let mut bytes = Vec::new();
        let wanted = u64::try_from(len).unwrap_or(u64::MAX);
        // `take` grows the buffer as bytes come: a damaged length never takes memory for bytes that are not there.
        (&mut self.input)
            .take(wanted)
            .read_to_end(&mut bytes)
            .map_err(|e| SegmentError::io(&self.name, "read", e))?;
        self.offset += bytes.len() as u64;
        self.content.update(&bytes);
        if bytes.len() < len { Err(self.damaged(at, Fault::Cut(what))) } else { Ok(bytes) }
    }

    /// Reads until the buffer is full or the input ends.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, SegmentError> {
        let mut got = 0;
        while got < buffer.len() {
            match self.input.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(SegmentError::io(&self.name, "read", e)),
            }
        }
        self.offset += got as u64;
        self.content.update(&buffer[..got]);
        Ok(got)
    }
}

/// Reads a block header without its mark.
pub(crate) fn decode_head(rest: &[u8]) -> Result<BlockHead, Fault> {
    let mut bytes = [0; BLOCK_HEAD_LEN];
    bytes[0] = b'B';
    if rest.len() != BLOCK_HEAD_LEN - 1 {
        return Err(Fault::Cut("a block header"));
    }
    bytes[1..].copy_from_slice(rest);
    BlockHead::decode(&bytes)
}

/// Checks and unpacks a block.
pub(crate) fn unpack(head: &BlockHead, packed: &[u8]) -> Result<Vec<u8>, Fault> {
    check_crc("the block", packed, head.crc)?;
    let raw =
        zstd::bulk::decompress(packed, head.raw_len as usize).map_err(|e| Fault::Unpack(e.to_string()))?;
    if raw.len() != head.raw_len as usize {
        return Err(Fault::Field {
            field: "unpacked length of the block",
            found: raw.len() as u64,
            allowed: head.raw_len.to_string(),
        });
    }
    Ok(raw)
}

fn empty_footer() -> Footer {
    Footer {
        last_seq: 0,
        at_first: Micros::ZERO,
        at_last: Micros::ZERO,
        batches: 0,
        raw_bytes: 0,
        chain: [0; 32],
        content: [0; 32],
        index: Vec::new(),
    }
}
