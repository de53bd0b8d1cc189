//! One reader over segments, exports and the hot window: ranges, overlaps, gaps, trimmed starts.

use super::*;
use crate::segment::tests::samples::requests;
use crate::segment::{SegmentFile, SegmentRef};
use std::path::Path;

/// 200 batches of 20 steps, sealed as segments of 50 batches each but the last 50.
fn stored(data: &Path) -> (Vec<Frame>, Vec<SegmentRef>) {
    let frames = requests(21, 2_000, 1_000, 20);
    let mut segments = Vec::new();
    for part in frames[..150].chunks(50) {
        let mut file = SegmentFile::start(data, [1; 16], Micros(1), &part[0]).unwrap();
        for frame in &part[1..] {
            file.push(frame).unwrap();
        }
        segments.push(file.finish().unwrap().0);
    }
    (frames, segments)
}

fn hot(frames: &[Frame]) -> Option<HotFrames> {
    let frames = frames.to_vec();
    Some(Box::new(frames.into_iter().map(Ok)))
}

fn sequences(reader: LogReader) -> Result<Vec<u64>, SegmentError> {
    reader.steps().map(|step| step.map(|s| s.seq)).collect()
}

#[test]
fn ranges_by_sequence_and_time_over_segments_and_the_hot_window() {
    let dir = tempfile::tempdir().unwrap();
    let (frames, _) = stored(dir.path());
    let steps: Vec<Step> = frames.iter().flat_map(|f| f.steps().unwrap()).collect();
    let at = |seq: u64| steps[seq as usize - 1].at;
    let library = Library::of_dir(dir.path()).unwrap();
    let shelf = library.shelf("chat");
    for (from, to, want) in [
        (Bound::Open, Bound::Open, 1..=4_000),
        (Bound::Seq(1), Bound::Seq(1), 1..=1),
        (Bound::Seq(999), Bound::Seq(1_002), 999..=1_002),
        (Bound::Seq(2_995), Bound::Seq(3_010), 2_995..=3_010),
        (Bound::Seq(3_500), Bound::Open, 3_500..=4_000),
        (Bound::Time(at(1_500)), Bound::Time(at(1_600)), 1_500..=1_600),
        (Bound::Time(at(3_900)), Bound::Open, 3_900..=4_000),
        (Bound::Time(Micros(0)), Bound::Seq(5), 1..=5),
    ] {
        // The hot window still holds what was sealed last: it is not given twice.
        let reader = LogReader::new("chat", shelf, hot(&frames[120..]), from, to);
        assert_eq!(sequences(reader).unwrap(), want.collect::<Vec<_>>(), "{from:?} to {to:?}");
    }
    let beyond = LogReader::new("chat", shelf, hot(&frames[150..]), Bound::Seq(9_000), Bound::Open);
    assert_eq!(sequences(beyond).unwrap(), [0; 0]);
}

#[test]
fn c106_a_reader_of_trimmed_time_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let (frames, segments) = stored(dir.path());
    std::fs::remove_file(&segments[0].path).unwrap();
    let library = Library::of_dir(dir.path()).unwrap();
    for from in [Bound::Seq(1), Bound::Seq(1_000), Bound::Time(frames[3].header.at_first)] {
        let reader = LogReader::new("chat", library.shelf("chat"), None, from, Bound::Open);
        match sequences(reader) {
            Err(SegmentError::Trimmed { pool, before_seq, before_time }) => {
                assert_eq!((pool.as_str(), before_seq), ("chat", 1_001));
                assert_eq!(before_time, frames[50].header.at_first);
            }
            other => panic!("{from:?}: {other:?}"),
        }
    }
    let open = LogReader::new("chat", library.shelf("chat"), None, Bound::Open, Bound::Open);
    assert_eq!(sequences(open).unwrap(), (1_001..=3_000).collect::<Vec<_>>());
}

#[test]
fn a_missing_segment_is_found_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let (_, segments) = stored(dir.path());
    std::fs::remove_file(&segments[1].path).unwrap();
    let library = Library::of_dir(dir.path()).unwrap();
    let reader = LogReader::new("chat", library.shelf("chat"), None, Bound::Open, Bound::Open);
    let error = sequences(reader).unwrap_err();
    let damage = error.damage().unwrap();
    assert_eq!(damage.batch, Some(1_001));
    assert!(error.to_string().contains("it starts at sequence 2001, the next one is 1001"), "{error}");
}

#[test]
fn a_segment_of_another_log_is_found_by_the_chain() {
    let dir = tempfile::tempdir().unwrap();
    let (_, segments) = stored(dir.path());
    let other = requests(22, 2_000, 1_000, 20);
    std::fs::remove_file(&segments[1].path).unwrap();
    let mut file = SegmentFile::start(dir.path(), [1; 16], Micros(1), &other[50]).unwrap();
    for frame in &other[51..100] {
        file.push(frame).unwrap();
    }
    file.finish().unwrap();
    let library = Library::of_dir(dir.path()).unwrap();
    let reader = LogReader::new("chat", library.shelf("chat"), None, Bound::Open, Bound::Open);
    let error = sequences(reader).unwrap_err();
    assert_eq!(error.damage().unwrap().batch, Some(1_001), "{error}");
}

#[test]
fn files_are_read_in_the_order_of_their_sequences() {
    let dir = tempfile::tempdir().unwrap();
    let (_, segments) = stored(dir.path());
    let paths: Vec<_> = segments.iter().rev().map(|s| s.path.clone()).collect();
    let library = Library::of_files(&paths).unwrap();
    let reader = LogReader::new("chat", library.shelf("chat"), None, Bound::Open, Bound::Open);
    assert_eq!(sequences(reader).unwrap(), (1..=3_000).collect::<Vec<_>>());
}

#[test]
fn damage_at_the_end_of_a_file_still_names_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let (_, segments) = stored(dir.path());
    let path = &segments[0].path;
    let whole = std::fs::read(path).unwrap();
    for back in [1, 10, 30, 60, 200] {
        let mut bad = whole.clone();
        let at = bad.len() - back;
        bad[at] ^= 1;
        std::fs::write(path, &bad).unwrap();
        let read = Library::of_files(std::slice::from_ref(path)).and_then(|library| {
            sequences(LogReader::new("chat", library.shelf("chat"), None, Bound::Open, Bound::Open))
        });
        let error = read.unwrap_err();
        assert!(error.damage().unwrap().batch.is_some(), "{error}");
    }
}
