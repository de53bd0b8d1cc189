//! Checks a whole log: every byte of what is sealed, the hot window, the chain across them, the snapshots.
//!
//! Damage does not end the check: each damaged place is named together with the next sequence that is good again.
//! Nothing is changed. Not here: whether the decisions follow from the inputs (that is `weir-replay verify`).

use crate::chain::{Chain, Head};
use crate::error::LogError;
use crate::frame::Frame;
use crate::reader::{Logs, Piece};
use crate::segment::{BlockFrames, Damage, Fault, SectionFile, SegmentError};
use crate::snapshot::Snapshot;
use weir_kernel::Micros;

/// A damaged place.
#[derive(Debug)]
pub struct Finding {
    /// What is wrong, and where.
    pub error: SegmentError,
    /// The first sequence after it that is good.
    pub next_good: Option<u64>,
}

/// What a check of one pool found.
#[derive(Debug, Default)]
pub struct Checked {
    /// The pool.
    pub pool: String,
    /// First sequence and its time.
    pub first: Option<(u64, Micros)>,
    /// The first sequence that is here; that of the next step, if none is.
    pub from: u64,
    /// Where it ends.
    pub head: Option<Head>,
    /// Good batches.
    pub batches: u64,
    /// Good steps.
    pub steps: u64,
    /// Bytes of good batches, unpacked.
    pub bytes: u64,
    /// Good snapshots.
    pub snapshots: usize,
    /// The state before the first step is known: it is the empty one, or a good snapshot reaches as far.
    pub begins: bool,
    /// What is not good, in order.
    pub findings: Vec<Finding>,
}

impl Checked {
    /// Is everything good?
    pub fn is_good(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Checks a pool; `progress` hears the number of steps after each batch.
///
/// # Errors
/// Only where the hot window cannot be opened at all; damage is in the answer.
pub fn check(logs: &Logs, pool: &str, mut progress: impl FnMut(u64)) -> Result<Checked, SegmentError> {
    let mut walk = Walk {
        done: Checked { pool: pool.to_owned(), ..Checked::default() },
        chain: Chain::anywhere(),
        pending: Vec::new(),
        progress: &mut progress,
    };
    for piece in logs.library().shelf(pool).map_or(&[][..], |shelf| &shelf.pieces) {
        walk.piece(piece);
    }
    let after = walk.chain.head().map_or(0, |head| head.seq);
    let begins_at = walk.hot(logs, pool, after + 1);
    let mut done = walk.finish();
    done.from = done.first.map_or(begins_at, |(first, _)| first);
    done.begins = done.from == 1;
    for at in logs.snapshots(pool) {
        match Snapshot::read(at) {
            Ok(snapshot) => {
                done.snapshots += 1;
                done.begins |= snapshot.head.seq + 1 >= done.from;
            }
            Err(error) => done.findings.push(Finding { error, next_good: None }),
        }
    }
    Ok(done)
}

struct Walk<'a> {
    done: Checked,
    chain: Chain,
    /// Damage after which nothing good has come yet.
    pending: Vec<SegmentError>,
    progress: &'a mut dyn FnMut(u64),
}

impl Walk<'_> {
    /// The hot window from `from` on. Gives where it begins: later, if nothing is left of what was before.
    fn hot(&mut self, logs: &Logs, pool: &str, from: u64) -> u64 {
        for frame in logs.hot_frames(pool, from).into_iter().flatten() {
            match frame {
                Ok(frame) => self.frame(&frame, "the hot window"),
                // What is retained need not begin with the log (and may be nothing at all): that is no damage.
                Err(LogError::Trimmed { oldest, .. }) if from == 1 && oldest > 1 => {
                    return self.hot(logs, pool, oldest);
                }
                Err(error) => {
                    self.bad(error.into());
                    break;
                }
            }
        }
        from
    }

    fn piece(&mut self, piece: &Piece) {
        let name = piece.path.display().to_string();
        let damaged_at = match self.front(piece, &name) {
            Ok(()) => return,
            Err(error) => {
                let block = error.damage().and_then(|damage| damage.block);
                self.bad(error);
                block
            }
        };
        // Go on behind the damage, if the file still says where its blocks are.
        let (Ok(mut file), Some(damaged)) = (SectionFile::open(&piece.path), damaged_at) else {
            self.chain = Chain::anywhere();
            return;
        };
        let mut number = damaged + 1;
        loop {
            self.chain = Chain::anywhere();
            match file.block(piece.section, number) {
                Ok(None) => return,
                Ok(Some(block)) => {
                    if let Err(error) = self.block(BlockFrames::new(block), &name) {
                        self.bad(error);
                    }
                }
                Err(error) => self.bad(error),
            }
            number += 1;
        }
    }

    /// The whole section from its front, with the check over all of it.
    fn front(&mut self, piece: &Piece, name: &str) -> Result<(), SegmentError> {
        let mut source = crate::reader::open_front(piece)?;
        while let Some(frame) = source.frame()? {
            self.frame(&frame, name);
        }
        // Anything that follows must be a section, too.
        source.section().map(|_| ())
    }

    fn block(&mut self, mut block: BlockFrames, name: &str) -> Result<(), SegmentError> {
        while let Some(frame) = block.next(name)? {
            self.frame(&frame, name);
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame, file: &str) {
        if self.chain.head().is_some_and(|head| frame.header.last_seq() <= head.seq) {
            return;
        }
        let named = |fault| {
            SegmentError::Damaged(Box::new(Damage {
                file: file.to_owned(),
                offset: None,
                block: None,
                batch: Some(frame.header.first_seq),
                fault,
            }))
        };
        if let Err(error) = self.chain.follow(frame) {
            self.bad(named(Fault::Batch(error.fault)));
            self.chain = Chain::after(Head::of(frame));
        }
        if let Err(error) = frame.steps() {
            self.bad(named(Fault::Batch(error.fault)));
            return;
        }
        for error in self.pending.drain(..) {
            let next_good = Some(frame.header.first_seq);
            self.done.findings.push(Finding { error, next_good });
        }
        self.done.first.get_or_insert((frame.header.first_seq, frame.header.at_first));
        self.done.head = Some(Head::of(frame));
        self.done.batches += 1;
        self.done.steps += u64::from(frame.header.count);
        self.done.bytes += frame.bytes.len() as u64;
        (self.progress)(self.done.steps);
    }

    fn bad(&mut self, error: SegmentError) {
        self.pending.push(error);
    }

    fn finish(mut self) -> Checked {
        for error in self.pending.drain(..) {
            self.done.findings.push(Finding { error, next_good: None });
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::Sealer;
    use crate::segment::tests::samples::requests;

    #[test]
    fn c102_damage_in_the_middle_is_reported_with_the_next_good_place_and_nothing_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let frames = requests(6, 30_000, 1_000, 20);
        let sealer = Sealer::new(dir.path(), [1; 16]).segment_bytes(2_000_000);
        let segments = sealer.seal("chat", Micros(1), frames.iter().cloned().map(Ok)).unwrap();
        assert!(segments.len() > 1);
        let logs = Logs::of_dir(dir.path(), None).unwrap();
        let good = check(&logs, "chat", |_| ()).unwrap();
        assert!(good.is_good() && good.steps == 60_000, "{good:?}");

        let file = SectionFile::open(&segments[0].path).unwrap();
        let index = file.sections[0].footer.index.clone();
        let mut bytes = std::fs::read(&segments[0].path).unwrap();
        bytes[index[1].offset as usize + 900] ^= 2;
        std::fs::write(&segments[0].path, &bytes).unwrap();
        let bad = check(&logs, "chat", |_| ()).unwrap();
        assert_eq!(bad.findings.len(), 1, "{:?}", bad.findings);
        assert_eq!(bad.findings[0].error.damage().unwrap().batch, Some(index[1].first_seq));
        let next = index.get(2).map_or(segments[1].first_seq, |entry| entry.first_seq);
        assert_eq!(bad.findings[0].next_good, Some(next));
        assert_eq!(bad.steps, 60_000 - (next - index[1].first_seq));
        assert_eq!(bad.head.unwrap().seq, 60_000);
        assert_eq!(std::fs::read(&segments[0].path).unwrap(), bytes);
    }
}
