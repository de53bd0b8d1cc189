//! One source of batches: a section from its front (verified whole), a section from a block on, or the hot window.

use crate::error::LogError;
use crate::frame::Frame;
use crate::reader::Piece;
use crate::segment::{BatchStream, BlockFrames, SectionFile, SegmentError};
use crate::store::Frames;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom, Take};
use std::path::Path;
use std::sync::Arc;
use weir_kernel::Micros;

/// Batches of the hot window of one pool, in order.
pub type HotFrames = Box<dyn Iterator<Item = Result<Frame, LogError>> + Send>;

/// Bytes that are read from the hot window at once.
const HOT_BYTES: usize = 1 << 20;

/// The batches of a pool in the hot window, from the one that holds `from` on, up to its end as it is now.
///
/// If that one is no longer there, the first answer is [`LogError::Trimmed`]: it was sealed meanwhile, or trimmed.
pub(super) fn hot_frames(frames: Arc<dyn Frames>, pool: &str, from: u64) -> HotFrames {
    let pool = pool.to_owned();
    let mut next = from;
    let mut batch = Vec::new().into_iter();
    let mut ended = false;
    Box::new(std::iter::from_fn(move || {
        loop {
            if let Some(frame) = batch.next() {
                return Some(Ok(frame));
            }
            if ended {
                return None;
            }
            match frames.read(&pool, next, HOT_BYTES) {
                Ok(read) => {
                    let last: Option<&Frame> = read.last();
                    ended = last.is_none();
                    next = last.map_or(next, |last| last.header.last_seq() + 1);
                    batch = read.into_iter();
                }
                Err(error) => {
                    ended = true;
                    return Some(Err(error));
                }
            }
        }
    }))
}

/// A source, opened.
pub(super) enum Source {
    Front { stream: Box<SectionFrames>, name: String },
    Inside { file: Box<SectionFile>, section: usize, next: u32, block: Option<BlockFrames> },
    Hot(HotFrames),
    Stream(Box<dyn FrameSource>),
}

/// Any other verified source, such as standard input.
pub trait FrameSource: Send {
    /// The next batch.
    ///
    /// # Errors
    /// Damage, a failed read.
    fn next_frame(&mut self) -> Result<Option<Frame>, SegmentError>;
    /// What errors call it.
    fn name(&self) -> String;
}

/// Where reading a section starts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    Front,
    Seq(u64),
    Time(Micros),
}

impl Source {
    pub(super) fn open(piece: &Piece, start: Start) -> Result<Source, SegmentError> {
        if matches!(start, Start::Front) {
            let stream = Box::new(open_front(piece)?);
            return Ok(Source::Front { stream, name: piece.path.display().to_string() });
        }
        let mut file = SectionFile::open(&piece.path)?;
        let number = piece.section;
        let Some(section) = file.sections.get(number) else {
            return Err(no_section(piece));
        };
        let next = match start {
            Start::Front => 0,
            Start::Seq(seq) => section.block_of_seq(seq),
            Start::Time(at) => section.block_of_time(at),
        };
        if next > 0 {
            let block = file.block(number, next)?.map(BlockFrames::new);
            return Ok(Source::Inside { file: Box::new(file), section: number, next: next + 1, block });
        }
        let stream = Box::new(front(&piece.path, section.start, section.length)?);
        Ok(Source::Front { stream, name: piece.path.display().to_string() })
    }

    /// What errors call it.
    pub(super) fn name(&self) -> String {
        match self {
            Source::Front { name, .. } => name.clone(),
            Source::Inside { file, .. } => file.path().display().to_string(),
            Source::Hot(_) => "the hot window".to_owned(),
            Source::Stream(stream) => stream.name(),
        }
    }

    pub(super) fn next_frame(&mut self) -> Result<Option<Frame>, SegmentError> {
        match self {
            Source::Front { stream, .. } => stream.frame(),
            Source::Hot(frames) => frames.next().transpose().map_err(SegmentError::from),
            Source::Stream(stream) => stream.next_frame(),
            Source::Inside { file, section, next, block } => loop {
                let Some(current) = block else { return Ok(None) };
                if let Some(frame) = current.next(&file.path().display().to_string())? {
                    return Ok(Some(frame));
                }
                *block = file.block(*section, *next)?.map(BlockFrames::new);
                *next += 1;
            },
        }
    }
}

/// The batches of one section of a file, from its front.
pub(crate) type SectionFrames = BatchStream<Take<BufReader<File>>>;

/// Opens a section from its front, so that the check over all of it is done.
pub(crate) fn open_front(piece: &Piece) -> Result<SectionFrames, SegmentError> {
    // The first section is opened without a look at the footer: reading it from the front says more exactly what is wrong.
    if piece.section == 0 {
        return front(&piece.path, 0, u64::MAX);
    }
    let file = SectionFile::open(&piece.path)?;
    match file.sections.get(piece.section) {
        Some(section) => front(&piece.path, section.start, section.length),
        None => Err(no_section(piece)),
    }
}

fn front(path: &Path, from: u64, length: u64) -> Result<SectionFrames, SegmentError> {
    let mut input = File::open(path).map_err(SegmentError::path(path, "open"))?;
    input.seek(SeekFrom::Start(from)).map_err(SegmentError::path(path, "read"))?;
    let input = std::io::Read::take(BufReader::with_capacity(256 << 10, input), length);
    let mut stream = BatchStream::within(input, path.display().to_string(), from);
    stream.section()?;
    Ok(stream)
}

fn no_section(piece: &Piece) -> SegmentError {
    let reason = format!("has no section {}", piece.section);
    SegmentError::Mismatch { file: piece.path.display().to_string(), reason }
}
