//! The container of segments, exports and snapshots: header, blocks, footer, trailer. Bytes only, no IO.
//!
//! All numbers are little-endian. A *section* is one header, its blocks, one footer and one trailer; a segment or
//! snapshot file is one section, an export is any number of them one after the other. Not here: what a batch is.
//!
//! ```text
//! prefix   magic 8 | version u16 | kind u8 | header length u16 | crc32 of the prefix u32      never changes
//! header   pool length u16 | pool | log id 16 | first seq u64 | previous hash 32 | written at u64 | crc32 u32
//! block    'B' | batches u32 | first seq, last seq, first time, last time u64 | raw, packed length u32
//!          | crc32 of the packed bytes u32 | crc32 of this block header u32 | packed bytes
//! footer   'F' | body length u32 | body | crc32 u32 (over tag, length and body)
//! trailer  section length u64 | footer length u32 | crc32 u32 | end magic 8
//! ```

use super::error::Fault;
use weir_kernel::Micros;

/// First bytes of each section.
pub const MAGIC: [u8; 8] = *b"WEIRLOG\x1a";
/// Last bytes of each section.
pub const END_MAGIC: [u8; 8] = *b"\x1aGOLRIEW";
/// The version of the container that this build writes, and the newest that it reads.
pub const CONTAINER_VERSION: u16 = 1;
/// Length of the prefix.
pub const PREFIX_LEN: usize = 17;
/// Length of a block header.
pub const BLOCK_HEAD_LEN: usize = 53;
/// Length of the trailer.
pub const TRAILER_LEN: usize = 24;
/// Most bytes that a block may hold, unpacked. One larger is refused before memory is taken for it.
pub const BLOCK_RAW_MAX: u32 = 64 << 20;
/// Most bytes of a header or footer.
const PART_MAX: usize = 64 << 20;
/// Longest pool name, in bytes.
const POOL_MAX: usize = 1_024;

const TAG_BLOCK: u8 = b'B';
const TAG_FOOTER: u8 = b'F';

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Batches of a pool's log.
    Segment,
    /// The state of a pool as a list of events.
    Snapshot,
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Kind::Segment => 1,
            Kind::Snapshot => 2,
        }
    }
}

/// What comes first in a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the section holds.
    pub kind: Kind,
    /// The pool it belongs to.
    pub pool: String,
    /// The log it belongs to.
    pub log_id: [u8; 16],
    /// First sequence inside (of a snapshot: the sequence that it is the state after).
    pub first_seq: u64,
    /// Hash of the batch before the first one (of a snapshot: of the batch that ends at its sequence).
    pub prev_hash: [u8; 32],
    /// Wall clock when it was written.
    pub written: Micros,
}

/// What precedes the packed bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// Batches inside.
    pub batches: u32,
    /// First sequence inside.
    pub first_seq: u64,
    /// Last sequence inside.
    pub last_seq: u64,
    /// Time of the first step.
    pub at_first: Micros,
    /// Time of the last step.
    pub at_last: Micros,
    /// Bytes unpacked.
    pub raw_len: u32,
    /// Bytes packed.
    pub packed_len: u32,
    /// CRC-32 of the packed bytes.
    pub crc: u32,
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Offset of the block header from the start of the section.
    pub offset: u64,
    /// First sequence of the block.
    pub first_seq: u64,
    /// Time of its first step.
    pub at_first: Micros,
}

/// What comes last in a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Last sequence inside.
    pub last_seq: u64,
    /// Time of the first step.
    pub at_first: Micros,
    /// Time of the last step.
    pub at_last: Micros,
    /// Batches inside.
    pub batches: u64,
    /// Bytes of all blocks, unpacked.
    pub raw_bytes: u64,
    /// Hash of the last batch (of a snapshot: digest of the state).
    pub chain: [u8; 32],
    /// SHA-256 of all bytes of the section before the footer.
    pub content: [u8; 32],
    /// One entry per block.
    pub index: Vec<IndexEntry>,
}

/// Does a section go on or end?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A block comes.
    Block,
    /// The footer comes.
    Footer,
}

impl Tag {
    /// From the byte in the file.
    pub fn read(byte: u8) -> Result<Tag, Fault> {
        match byte {
            TAG_BLOCK => Ok(Tag::Block),
            TAG_FOOTER => Ok(Tag::Footer),
            other => Err(Fault::Field {
                field: "the mark of a block or of the footer",
                found: u64::from(other),
                allowed: format!("{TAG_BLOCK} or {TAG_FOOTER}"),
            }),
        }
    }
}

/// Fails if a stored CRC-32 is not that of the bytes.
pub fn check_crc(what: &'static str, bytes: &[u8], wanted: u32) -> Result<(), Fault> {
    match crc32fast::hash(bytes) {
        found if found == wanted => Ok(()),
        found => Err(Fault::Checksum { what, found, wanted }),
    }
}

/// Reads numbers off the front of a slice.
pub struct Cursor<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Cursor<'a> {
    /// Starts at the front.
    pub fn new(rest: &'a [u8], what: &'static str) -> Self {
        Cursor { rest, what }
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Fault::Cut(self.what))?;
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.take(N)?.try_into().map_err(|_| Fault::Cut(self.what))
    }

    /// The next number of 2 bytes.
    pub fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next number of 4 bytes.
    pub fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next number of 8 bytes.
    pub fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    /// Fails if something is left.
    pub fn end(&self) -> Result<(), Fault> {
        if self.rest.is_empty() { Ok(()) } else { Err(Fault::Trailing) }
    }
}

/// What the prefix says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Version of the container.
    pub version: u16,
    /// The kind's number.
    pub kind: u8,
    /// Bytes of the header that follows.
    pub header_len: usize,
}

impl Prefix {
    /// Reads the prefix; the version is not judged here.
    pub fn read(bytes: &[u8; PREFIX_LEN]) -> Result<Prefix, Fault> {
        let mut from = Cursor::new(bytes, "the first bytes");
        if from.array::<8>()? != MAGIC {
            return Err(Fault::NotOurs);
        }
        let (version, kind, header_len) = (from.u16()?, from.array::<1>()?[0], from.u16()?);
        check_crc("the first bytes", &bytes[..PREFIX_LEN - 4], from.u32()?)?;
        Ok(Prefix { version, kind, header_len: usize::from(header_len) })
    }
}

impl Header {
    /// Prefix and header as they are stored.
    ///
    /// # Errors
    /// A pool name that is empty or too long.
    pub fn encode(&self) -> Result<Vec<u8>, Fault> {
        let pool = self.pool.as_bytes();
        let length = u16::try_from(pool.len()).ok().filter(|_| (1..=POOL_MAX).contains(&pool.len()));
        let Some(length) = length else {
            return Err(Fault::Field {
                field: "length of the pool name",
                found: pool.len() as u64,
                allowed: format!("1 to {POOL_MAX}"),
            });
        };
        let mut body = Vec::with_capacity(pool.len() + 80);
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(pool);
        body.extend_from_slice(&self.log_id);
        body.extend_from_slice(&self.first_seq.to_le_bytes());
        body.extend_from_slice(&self.prev_hash);
        body.extend_from_slice(&self.written.0.to_le_bytes());
        body.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());

        let mut out = Vec::with_capacity(PREFIX_LEN + body.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&CONTAINER_VERSION.to_le_bytes());
        out.push(self.kind.number());
        out.extend_from_slice(&(body.len() as u16).to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out.extend_from_slice(&body);
        Ok(out)
    }

    /// Reads what follows a prefix of a known version.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Header, Fault> {
        let kind = match kind {
            1 => Kind::Segment,
            2 => Kind::Snapshot,
            other => {
                return Err(Fault::Field {
                    field: "kind of section",
                    found: u64::from(other),
                    allowed: "1 (segment) or 2 (snapshot)".to_owned(),
                });
            }
        };
        let (content, crc) = split_crc(body, "the header")?;
        check_crc("the header", content, crc)?;
        let mut from = Cursor::new(content, "the header");
        let length = usize::from(from.u16()?);
        let pool = String::from_utf8(from.take(length)?.to_vec()).map_err(|_| Fault::NotOurs)?;
        let header = Header {
            kind,
            pool,
            log_id: from.array()?,
            first_seq: from.u64()?,
            prev_hash: from.array()?,
            written: Micros(from.u64()?),
        };
        from.end()?;
        Ok(header)
    }
}

impl BlockHead {
    /// The block header as it is stored, its mark first.
    pub fn encode(&self) -> [u8; BLOCK_HEAD_LEN] {
        let mut out = Vec::with_capacity(BLOCK_HEAD_LEN);
        out.push(TAG_BLOCK);
        out.extend_from_slice(&self.batches.to_le_bytes());
        for number in [self.first_seq, self.last_seq, self.at_first.0, self.at_last.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.raw_len, self.packed_len, self.crc] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        let mut fixed = [0; BLOCK_HEAD_LEN];
        fixed.copy_from_slice(&out);
        fixed
    }

    /// Reads a block header whose mark was seen.
    pub fn decode(bytes: &[u8; BLOCK_HEAD_LEN]) -> Result<BlockHead, Fault> {
        let (content, crc) = split_crc(bytes, "a block header")?;
        check_crc("the block header", content, crc)?;
        let mut from = Cursor::new(&content[1..], "a block header");
        let head = BlockHead {
            batches: from.u32()?,
            first_seq: from.u64()?,
            last_seq: from.u64()?,
            at_first: Micros(from.u64()?),
            at_last: Micros(from.u64()?),
            raw_len: from.u32()?,
            packed_len: from.u32()?,
            crc: from.u32()?,
        };
        for (field, found) in
            [("unpacked length of a block", head.raw_len), ("packed length of a block", head.packed_len)]
        {
            if found > BLOCK_RAW_MAX {
                return Err(Fault::Field {
                    field,
                    found: u64::from(found),
                    allowed: format!("at most {BLOCK_RAW_MAX}"),
                });
            }
        }
        Ok(head)
    }
}

impl Footer {
    /// Footer and trailer as they are stored; `start` is the footer's offset in its section.
    pub fn encode(&self, start: u64) -> Vec<u8> {
        let mut body = Vec::with_capacity(120 + self.index.len() * 24);
        for number in [self.last_seq, self.at_first.0, self.at_last.0, self.batches, self.raw_bytes] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        body.extend_from_slice(&self.chain);
        body.extend_from_slice(&self.content);
        body.extend_from_slice(&(self.index.len() as u32).to_le_bytes());
        for entry in &self.index {
            for number in [entry.offset, entry.first_seq, entry.at_first.0] {
                body.extend_from_slice(&number.to_le_bytes());
            }
        }
        let mut out = Vec::with_capacity(body.len() + 9 + TRAILER_LEN);
        out.push(TAG_FOOTER);
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(&body);
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());

        let mut trailer = (start + (out.len() + TRAILER_LEN) as u64).to_le_bytes().to_vec();
        trailer.extend_from_slice(&(out.len() as u32).to_le_bytes());
        trailer.extend_from_slice(&crc32fast::hash(&trailer).to_le_bytes());
        trailer.extend_from_slice(&END_MAGIC);
        out.extend_from_slice(&trailer);
        out
    }

    /// How long the body is, from the first five bytes.
    pub fn body_len(start: &[u8; 5]) -> Result<usize, Fault> {
        let length = Cursor::new(&start[1..], "the footer").u32()? as usize;
        if length > PART_MAX {
            return Err(Fault::Field {
                field: "length of the footer",
                found: length as u64,
                allowed: format!("at most {PART_MAX}"),
            });
        }
        Ok(length)
    }

    /// Reads mark, length, body and CRC.
    pub fn decode(bytes: &[u8]) -> Result<Footer, Fault> {
        let (content, crc) = split_crc(bytes, "the footer")?;
        check_crc("the footer", content, crc)?;
        let mut from = Cursor::new(content.get(5..).ok_or(Fault::Cut("the footer"))?, "the footer");
        let mut footer = Footer {
            last_seq: from.u64()?,
            at_first: Micros(from.u64()?),
            at_last: Micros(from.u64()?),
            batches: from.u64()?,
            raw_bytes: from.u64()?,
            chain: from.array()?,
            content: from.array()?,
            index: Vec::new(),
        };
        for _ in 0..from.u32()? {
            let (offset, first_seq) = (from.u64()?, from.u64()?);
            footer.index.push(IndexEntry { offset, first_seq, at_first: Micros(from.u64()?) });
        }
        from.end()?;
        Ok(footer)
    }
}

/// What a trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Bytes of the section, the trailer included.
    pub section: u64,
    /// Bytes of the footer.
    pub footer: usize,
}

/// Reads a trailer.
pub fn read_trailer(bytes: &[u8; TRAILER_LEN]) -> Result<Trailer, Fault> {
    let mut from = Cursor::new(bytes, "the trailer");
    let lengths = from.array::<12>()?;
    let crc = from.u32()?;
    if from.array::<8>()? != END_MAGIC {
        return Err(Fault::Cut("a section (its last bytes are not the end mark)"));
    }
    check_crc("the trailer", &lengths, crc)?;
    let mut from = Cursor::new(&lengths, "the trailer");
    let (section, footer) = (from.u64()?, from.u32()? as usize);
    if footer > PART_MAX {
        let allowed = format!("at most {PART_MAX}");
        return Err(Fault::Field { field: "length of the footer", found: footer as u64, allowed });
    }
    Ok(Trailer { section, footer })
}

/// Splits off the CRC-32 at the end.
fn split_crc<'a>(bytes: &'a [u8], what: &'static str) -> Result<(&'a [u8], u32), Fault> {
    let at = bytes.len().checked_sub(4).ok_or(Fault::Cut(what))?;
    let (content, crc) = bytes.split_at(at);
    Ok((content, Cursor::new(crc, what).u32()?))
}
