//! Snapshots: the state of a pool after a sequence, as a list of ordinary versioned events in a synced file of its own.
//!
//! `snapshots/<pool>/<seq>.wsnap` has the same header, blocks and footer as a segment. Each item is a list of events
//! behind the number of its format; the footer holds the digest of the state. The state itself has no format on disk:
//! the fold of the events from an empty state is the state.

mod derive;
mod store;

pub use derive::{Recovered, advance, recover, usable};
pub use store::{KEPT, SNAPSHOTS, SnapshotRef, list, prune, save};

use crate::chain::{Hash, Head};
use crate::segment::{BatchStream, Block, Fault, Kind, SectionWriter, SegmentError, Span};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use weir_kernel::{Event, Micros};

/// Events in one item: small enough that reading never takes much memory at once.
const ITEM_EVENTS: usize = 1_024;

/// The state of a pool after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The pool.
    pub pool: String,
    /// The log.
    pub log_id: [u8; 16],
    /// The batch that ends with the step.
    pub head: Head,
    /// Digest of the state.
    pub digest: Hash,
    /// `Restated…` events.
    pub events: Vec<Event>,
}

impl Snapshot {
    /// Writes it as one section, in the given format.
    ///
    /// # Errors
    /// A failed write; a format that this version cannot write.
    pub fn write<W: Write>(
        &self,
        out: W,
        name: String,
        written: Micros,
        format: u16,
    ) -> Result<W, SegmentError> {
        let header = crate::segment::Header {
            kind: Kind::Snapshot,
            pool: self.pool.clone(),
            log_id: self.log_id,
            first_seq: self.head.seq,
            prev_hash: self.head.hash,
            written,
        };
        let mut section = SectionWriter::new(out, name, &header)?;
        let mut item = Vec::new();
        let mut done = 0;
        for events in self.events.chunks(ITEM_EVENTS) {
            item.clear();
            item.extend_from_slice(&format.to_le_bytes());
            weir_migrations::encode_events(format, events, &mut item)
                .map_err(crate::error::LogError::from)?;
            // Blocks of a snapshot count its events, where those of a segment count sequences.
            let (first_seq, last_seq) = (done + 1, done + events.len() as u64);
            let span = Span { first_seq, last_seq, at_first: self.head.at, at_last: self.head.at };
            section.push(&item, span)?;
            done = last_seq;
        }
        Ok(section.finish(self.digest)?.0)
    }

    /// Reads a snapshot from a file.
    ///
    /// # Errors
    /// A failed read, damage, a newer format. Whether the events are a state is for its reader to say.
    pub fn read(at: &SnapshotRef) -> Result<Snapshot, SegmentError> {
        let file = File::open(&at.path).map_err(SegmentError::path(&at.path, "open"))?;
        let mut stream = BatchStream::new(BufReader::new(file), at.path.display().to_string());
        for _ in 0..=at.section {
            match stream.section()? {
                Some(header) if header.kind == Kind::Snapshot && header.first_seq == at.seq => {
                    return Snapshot::read_section(&mut stream, header);
                }
                Some(_) => {}
                None => break,
            }
        }
        let reason = format!("holds no snapshot of sequence {}", at.seq);
        Err(SegmentError::Mismatch { file: at.path.display().to_string(), reason })
    }

    /// Reads the section whose header the stream has just given.
    ///
    /// # Errors
    /// As [`Snapshot::read`].
    pub fn read_section<R: Read>(
        stream: &mut BatchStream<R>,
        header: crate::segment::Header,
    ) -> Result<Snapshot, SegmentError> {
        let mut events = Vec::new();
        while let Some(block) = stream.raw_block()? {
            read_block(&block, &mut events).map_err(|fault| stream.sections_damaged(block.offset, fault))?;
        }
        let footer = stream.footer();
        let head = Head { seq: header.first_seq, hash: header.prev_hash, at: footer.at_last };
        if footer.last_seq != events.len() as u64 {
            let fault = Fault::Snapshot(format!("{} events of {}", events.len(), footer.last_seq));
            return Err(stream.sections_damaged(0, fault));
        }
        Ok(Snapshot { pool: header.pool, log_id: header.log_id, head, digest: footer.chain, events })
    }
}

fn read_block(block: &Block, events: &mut Vec<Event>) -> Result<(), Fault> {
    let mut at = 0;
    while let Some((range, next)) = block.item(at)? {
        let item = &block.raw[range];
        let Some((format, payload)) = item.split_first_chunk::<2>() else {
            return Err(Fault::Cut("an item of a snapshot"));
        };
        let decoded = weir_migrations::decode_events(u16::from_le_bytes(*format), payload);
        events.extend(decoded.map_err(|error| Fault::Snapshot(error.to_string()))?);
        at = next;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
