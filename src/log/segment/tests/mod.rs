//! Sealed batches read back as they were; every flipped byte is found and named; sizes stay within their bounds.

mod format;
mod golden;
pub(crate) mod samples;

use super::*;
use crate::frame::Frame;
use samples::{frames, observed, requests};
use weir_kernel::Micros;

fn written(frames: &[Frame]) -> Vec<u8> {
    let mut writer =
        BatchWriter::start(Vec::new(), "test".to_owned(), [3; 16], Micros(9), &frames[0]).unwrap();
    for frame in &frames[1..] {
        writer.push(frame).unwrap();
    }
    writer.finish().unwrap().0
}

fn read(bytes: &[u8]) -> Result<Vec<Frame>, SegmentError> {
    let mut stream = BatchStream::new(bytes, "test");
    let mut all = Vec::new();
    while stream.section()?.is_some() {
        while let Some(frame) = stream.frame()? {
            all.push(frame);
        }
    }
    Ok(all)
}

#[test]
fn batches_read_back_byte_for_byte() {
    for batch in [1, 7, 200] {
        let frames = requests(11, 4_000, 1_000, batch);
        assert_eq!(read(&written(&frames)).unwrap(), frames, "{batch} steps a batch");
    }
}

#[test]
fn every_flipped_byte_is_found() {
    let frames = requests(5, 20, 100, 3);
    let bytes = written(&frames);
    let last = frames.last().unwrap().header.last_seq();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80] {
            let mut bad = bytes.clone();
            bad[at] ^= flip;
            match read(&bad) {
                Err(SegmentError::Damaged(damage)) => {
                    assert_eq!(damage.file, "test", "byte {at}");
                    // Bytes of the header aside, the sequence that is hit (or ends the file) is named.
                    assert!(damage.batch.is_none_or(|seq| (1..=last + 1).contains(&seq)), "byte {at}");
                    assert!(damage.batch.is_some() || at < 120, "byte {at}: {damage}");
                }
                other => panic!("byte {at}: {other:?}"),
            }
        }
    }
}

#[test]
fn every_cut_is_found() {
    let bytes = written(&requests(5, 20, 100, 3));
    for len in 1..bytes.len() {
        assert!(matches!(read(&bytes[..len]), Err(SegmentError::Damaged(_))), "cut to {len}");
    }
}

#[test]
fn a_flipped_byte_in_a_later_block_names_its_block_and_batch() {
    let frames = requests(8, 20_000, 1_000, 20);
    let mut bytes = written(&frames);
    let mut stream = BatchStream::new(&bytes[..], "x");
    stream.section().unwrap();
    while stream.frame().unwrap().is_some() {}
    let index = stream.footer().index.clone();
    assert!(index.len() > 2, "the sample spans blocks: {}", index.len());
    bytes[index[1].offset as usize + 500] ^= 4;
    let error = read(&bytes).unwrap_err();
    let damage = error.damage().unwrap();
    assert_eq!((damage.block, damage.batch), (Some(1), Some(index[1].first_seq)));
    assert_eq!(damage.offset, Some(index[1].offset));
    assert!(error.to_string().contains("block 1, batch that starts at sequence"), "{error}");
}

#[test]
fn a_batch_that_does_not_follow_is_not_written() {
    let frames = requests(8, 50, 1_000, 10);
    let mut writer =
        BatchWriter::start(Vec::new(), "test".to_owned(), [3; 16], Micros(9), &frames[0]).unwrap();
    let error = writer.push(&frames[2]).unwrap_err().to_string();
    assert!(error.contains("starts at sequence 21, the next one is 11"), "{error}");
}

#[test]
fn a_file_finds_its_blocks_by_sequence_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let frames = requests(8, 20_000, 1_000, 20);
    let mut file = SegmentFile::start(dir.path(), [3; 16], Micros(9), &frames[0]).unwrap();
    for frame in &frames[1..] {
        file.push(frame).unwrap();
    }
    let (segment, footer) = file.finish().unwrap();
    assert_eq!((segment.first_seq, segment.last_seq), (1, 40_000));
    assert_eq!(list(dir.path(), "chat").unwrap(), vec![segment.clone()]);
    assert_eq!(pools_under(dir.path(), SEGMENTS).unwrap(), ["chat"]);

    let mut open = SectionFile::open(&segment.path).unwrap();
    let section = open.sections[0].clone();
    assert_eq!(section.footer, footer);
    for seq in [1, 2, 9_999, 20_000, 40_000] {
        let number = section.block_of_seq(seq);
        let block = open.block(0, number).unwrap().unwrap();
        assert!((block.head.first_seq..=block.head.last_seq).contains(&seq), "{seq}");
        let frames = BlockFrames::new(block).next("x").unwrap().unwrap();
        let early = section.block_of_time(frames.header.at_first);
        assert!(early <= number, "{seq}");
    }
    assert!(open.block(0, section.footer.index.len() as u32).unwrap().is_none());
}

#[test]
fn sealed_bytes_stay_within_their_bounds() {
    let per_request = |rate, batch| {
        let frames = requests(3, 20_000, rate, batch);
        let hot: usize = frames.iter().map(|f| f.bytes.len()).sum();
        (hot as u64 / 20_000, written(&frames).len() as u64 / 20_000)
    };
    let (slow_hot, slow) = per_request(10, 1);
    let (fast_hot, fast) = per_request(1_000, 40);
    let steps: Vec<_> = (1..=2_000)
        .map(|seq| {
            let mut random = samples::Random(seq * 77);
            observed(&mut random, seq, Micros(1_764_460_800_000_000 + seq * 50_000), 100)
        })
        .collect();
    let frames = frames(&steps, 1);
    let hot: usize = frames.iter().map(|f| f.bytes.len()).sum();
    let day = written(&frames).len() as u64 * 86_400 * 20 / 2_000;
    println!(
        "bytes per request: {slow_hot} hot, {slow} sealed at 10/s; {fast_hot} hot, {fast} sealed at 1,000/s"
    );
    println!("100 busy endpoints: {} hot per round, {day} sealed a day", hot / 2_000);
    assert!(slow <= 200 && fast <= 200, "{slow} and {fast} bytes per request");
    assert!(day <= 1_000_000_000, "{day} bytes a day for 100 busy endpoints");
}
