//! One stored file on disk: which sections it holds, and any block of them, without reading the rest.
//!
//! Not here: reading a file from front to back with the check over the whole (see `section.rs`).

use super::error::{Damage, Fault, SegmentError};
use super::format::{
    BLOCK_HEAD_LEN, CONTAINER_VERSION, Footer, Header, PREFIX_LEN, Prefix, TRAILER_LEN, read_trailer,
};
use super::section::{Block, decode_head, unpack};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use weir_kernel::Micros;

/// A section of a file.
#[derive(Clone, Debug)]
pub struct Section {
    /// Offset of its first byte in the file.
    pub start: u64,
    /// Its bytes.
    pub length: u64,
    /// Its header.
    pub header: Header,
    /// Its footer.
    pub footer: Footer,
}

impl Section {
    /// The number of the block that holds a sequence, or would; 0 for one before the first.
    pub fn block_of_seq(&self, seq: u64) -> u32 {
        let after = self.footer.index.partition_point(|entry| entry.first_seq <= seq);
        after.saturating_sub(1) as u32
    }

    /// The number of the first block that may hold a step at this time or later.
    pub fn block_of_time(&self, at: Micros) -> u32 {
        // Steps of equal times may span blocks, hence the block before the first that starts at or after it.
        let after = self.footer.index.partition_point(|entry| entry.at_first < at);
        after.saturating_sub(1) as u32
    }
}

/// An open file of sections.
#[derive(Debug)]
pub struct SectionFile {
    path: PathBuf,
    file: File,
    /// The sections, in file order.
    pub sections: Vec<Section>,
}

impl SectionFile {
    /// Opens a file and reads its headers and footers, from the end backwards.
    ///
    /// # Errors
    /// A failed read, damage in these parts, a newer container.
    pub fn open(path: &Path) -> Result<Self, SegmentError> {
        let mut file = File::open(path).map_err(SegmentError::path(path, "open"))?;
        let mut end = file.seek(SeekFrom::End(0)).map_err(SegmentError::path(path, "read"))?;
        let mut sections = Vec::new();
        while end > 0 {
            let section = read_section(path, &mut file, end)?;
            end = section.start;
            sections.push(section);
        }
        sections.reverse();
        if sections.is_empty() {
            return Err(at(path, 0, Fault::Cut("the first bytes")));
        }
        Ok(SectionFile { path: path.to_owned(), file, sections })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads one block of a section; none beyond its last.
    ///
    /// # Errors
    /// A failed read, damage.
    pub fn block(&mut self, section: usize, number: u32) -> Result<Option<Block>, SegmentError> {
        let Some(section) = self.sections.get(section) else { return Ok(None) };
        let Some(entry) = section.footer.index.get(number as usize) else { return Ok(None) };
        let (offset, batch) = (section.start + entry.offset, entry.first_seq);
        let damaged = |fault| {
            SegmentError::Damaged(Box::new(Damage {
                file: self.path.display().to_string(),
                offset: Some(offset),
                block: Some(number),
                batch: Some(batch),
                fault,
            }))
        };
        let head = read_at(&self.path, &mut self.file, offset, BLOCK_HEAD_LEN)?;
        if head[0] != b'B' {
            return Err(damaged(Fault::Cut("a block (its mark is missing)")));
        }
        let head = decode_head(&head[1..]).map_err(damaged)?;
        if head.first_seq != batch {
            return Err(damaged(Fault::Sequence { expected: batch, found: head.first_seq }));
        }
        let from = offset + BLOCK_HEAD_LEN as u64;
        let packed = read_at(&self.path, &mut self.file, from, head.packed_len as usize)?;
        let raw = unpack(&head, &packed).map_err(damaged)?;
        Ok(Some(Block { number, offset, head, raw }))
    }
}

/// Reads the section that ends at an offset.
fn read_section(path: &Path, file: &mut File, end: u64) -> Result<Section, SegmentError> {
    let cut = |what| at(path, end, Fault::Cut(what));
    let trailer_at = end.checked_sub(TRAILER_LEN as u64).ok_or_else(|| cut("a section"))?;
    let mut trailer = [0; TRAILER_LEN];
    trailer.copy_from_slice(&read_at(path, file, trailer_at, TRAILER_LEN)?);
    let trailer = read_trailer(&trailer).map_err(|fault| at(path, trailer_at, fault))?;
    let start =
        end.checked_sub(trailer.section).ok_or_else(|| cut("a section (it is longer than the file)"))?;

    let mut first = [0; PREFIX_LEN];
    first.copy_from_slice(&read_at(path, file, start, PREFIX_LEN)?);
    let prefix = Prefix::read(&first).map_err(|fault| at(path, start, fault))?;
    if prefix.version > CONTAINER_VERSION {
        return Err(SegmentError::Newer {
            file: path.display().to_string(),
            what: "container version",
            found: u32::from(prefix.version),
            known: u32::from(CONTAINER_VERSION),
        });
    }
    let body = read_at(path, file, start + PREFIX_LEN as u64, prefix.header_len)?;
    let header = Header::decode(prefix.kind, &body).map_err(|fault| at(path, start, fault))?;

    let footer_at = trailer_at.checked_sub(trailer.footer as u64).ok_or_else(|| cut("the footer"))?;
    let bytes = read_at(path, file, footer_at, trailer.footer)?;
    let footer = Footer::decode(&bytes).map_err(|fault| at(path, footer_at, fault))?;
    Ok(Section { start, length: trailer.section, header, footer })
}

fn at(path: &Path, offset: u64, fault: Fault) -> SegmentError {
    let (file, offset) = (path.display().to_string(), Some(offset));
    SegmentError::Damaged(Box::new(Damage { file, offset, block: None, batch: None, fault }))
}

fn read_at(path: &Path, file: &mut File, offset: u64, len: usize) -> Result<Vec<u8>, SegmentError> {
    let failed = |e| SegmentError::io(path.display(), "read", e);
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.by_ref().take(len as u64).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() < len { Err(at(path, offset, Fault::Cut("the file"))) } else { Ok(bytes) }
}
