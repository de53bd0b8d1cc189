//! One source of batches: a section from its front (verified whole), a section from a block on, or the hot window.

use crate::error::LogError;
use crate::frame::Frame;
use crate::reader::Piece;
use crate::segment::{BatchStream, BlockFrames, SectionFile, SegmentError};
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom, Take};
use weir_kernel::Micros;

/// Batches of the hot window of one pool, in order.
pub type HotFrames = Box<dyn Iterator<Item = Result<Frame, LogError>> + Send>;

/// The hot window of a log, opened: what is not sealed yet.
pub trait HotWindow {
    /// The pools that have batches there.
    ///
    /// # Errors
    /// A database that cannot be read.
    fn pools(&self) -> Result<Vec<String>, LogError>;

    /// The batches of a pool from the one that holds this sequence on.
    ///
    /// # Errors
    /// A database that cannot be read.
    fn frames(&self, pool: &str, from_seq: u64) -> Result<HotFrames, LogError>;
}

/// A source, opened.
pub(super) enum Source {
    Front { stream: Box<BatchStream<Take<BufReader<File>>>>, name: String },
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
        let mut file = SectionFile::open(&piece.path)?;
        let number = piece.section;
        let Some(section) = file.sections.get(number) else {
            let reason = format!("has no section {number}");
            return Err(SegmentError::Mismatch { file: piece.path.display().to_string(), reason });
        };
        let next = match start {
            Start::Front => 0,
            Start::Seq(seq) => section.block_of_seq(seq),
            Start::Time(at) => section.block_of_time(at),
        };
        let name = piece.path.display().to_string();
        if next > 0 {
            let block = file.block(number, next)?.map(BlockFrames::new);
            return Ok(Source::Inside { file: Box::new(file), section: number, next: next + 1, block });
        }
        let (from, length) = (section.start, section.length);
        let mut input = File::open(&piece.path).map_err(SegmentError::path(&piece.path, "open"))?;
        input.seek(SeekFrom::Start(from)).map_err(SegmentError::path(&piece.path, "read"))?;
        let input = std::io::Read::take(BufReader::with_capacity(256 << 10, input), length);
        let mut stream = Box::new(BatchStream::within(input, name.clone(), from));
        stream.section()?;
        Ok(Source::Front { stream, name })
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
