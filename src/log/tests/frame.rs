//! Goal: a batch verifies itself. Every cut, every flipped bit and every swap is found and named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use weir_kernel::{Arrival, Event, Input, Micros, RequestId, Step};
use weir_log::{Chain, Codec, Draft, Frame, FrameFault, FrameHeader, Head};

fn steps(from: u64, count: u64) -> Vec<Step> {
    let arrival = |seq| Arrival { caller_id: format!("r-{seq}"), bytes: 100 + seq, ..Arrival::default() };
    (from..from + count)
        .map(|seq| Step {
            seq,
            at: Micros(1_000 * seq),
            input: if seq % 2 == 1 { Input::Arrived(arrival(seq)) } else { Input::TimePassed },
            events: vec![Event::RenewalNoted { request: RequestId(seq) }; (seq % 3) as usize],
        })
        .collect()
}

fn pool() -> Arc<str> {
    Arc::from("default")
}

#[test]
fn a_batch_reads_back_in_either_packing() {
    let want = steps(41, 20);
    for codec in [Codec::Plain, Codec::Zstd] {
        let draft = Draft::encode(weir_migrations::CURRENT, codec, &pool(), &want).unwrap();
        let frame = draft.seal([7; 32], Micros(5));
        let read = Frame::parse(&frame.bytes).unwrap();
        assert_eq!(read, frame);
        assert_eq!(read.steps().unwrap(), want);
        assert_eq!((read.header.first_seq, read.header.last_seq(), read.header.count), (41, 60, 20));
        assert_eq!((read.header.prev_hash, read.header.wall), ([7; 32], Micros(5)));
        let again = Draft::from_parts(read.header.clone(), read.payload()).unwrap();
        assert_eq!(again.seal([7; 32], Micros(5)), frame, "a batch can be built again from its parts");
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let frame = Frame::encode(&pool(), [0; 32], Micros(5), &steps(1, 8)).unwrap();
    for bit in 0..frame.bytes.len() * 8 {
        let mut bytes = frame.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let error = Frame::parse(&bytes).expect_err("a flipped bit went unnoticed");
        assert!(!error.to_string().is_empty());
    }
    let mut bytes = frame.bytes.clone();
    *bytes.last_mut().unwrap() ^= 1;
    let error = Frame::parse(&bytes).unwrap_err();
    assert!(matches!(error.fault, FrameFault::Checksum { .. }));
    assert!(error.to_string().starts_with("batch at sequence 1 of pool default: checksum"), "{error}");
}

#[test]
fn c100_a_cut_or_lengthened_batch_says_so() {
    let frame = Frame::encode(&pool(), [0; 32], Micros(5), &steps(1, 8)).unwrap();
    for len in 0..frame.bytes.len() {
        let error = Frame::parse(&frame.bytes[..len]).expect_err("a cut went unnoticed");
        assert!(matches!(error.fault, FrameFault::Cut { .. }), "{len}: {error}");
    }
    let mut bytes = frame.bytes.clone();
    bytes.extend_from_slice(&[0; 3]);
    assert_eq!(Frame::parse(&bytes).unwrap_err().fault, FrameFault::Trailing { found: 3 });
    let header = FrameHeader::parse(&bytes).unwrap();
    assert_eq!(header.frame_len(), frame.bytes.len(), "a header says where its batch ends");
}

#[test]
fn c110_a_newer_format_is_refused_by_name() {
    let frame = Frame::encode(&pool(), [0; 32], Micros(5), &steps(1, 8)).unwrap();
    let mut header = frame.header.clone();
    header.format = 7;
    let newer = Draft::from_parts(header, frame.payload()).unwrap().seal([0; 32], Micros(5));
    let newer = Frame::parse(&newer.bytes).unwrap();
    let error = newer.steps().unwrap_err().to_string();
    assert!(error.contains("sequence 1 of pool default"), "{error}");
    assert!(error.contains("format 7 was written by a newer version of Weir"), "{error}");
}

#[test]
fn impossible_batches_are_not_encoded() {
    let mut gap = steps(1, 3);
    gap[2].seq = 9;
    let mut back = steps(1, 3);
    back[2].at = Micros(1);
    for (steps, what) in [(vec![], "count"), (gap, "sequence 9, expected 3"), (back, "time")] {
        let error = Frame::encode(&pool(), [0; 32], Micros(5), &steps).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    for name in ["", "a/b", "a\nb", "..", &"x".repeat(129)] {
        let error = Frame::encode(&Arc::from(name), [0; 32], Micros(5), &steps(1, 1)).unwrap_err();
        assert!(matches!(error.fault, FrameFault::PoolName { .. }), "{error}");
    }
}

#[test]
fn the_chain_finds_gaps_swaps_and_altered_batches() {
    let a = Frame::encode(&pool(), [0; 32], Micros(5), &steps(1, 8)).unwrap();
    let b = Frame::encode(&pool(), a.hash, Micros(6), &steps(9, 4)).unwrap();
    let c = Frame::encode(&pool(), b.hash, Micros(7), &steps(13, 1)).unwrap();
    let mut chain = Chain::after(Head::default());
    for frame in [&a, &b, &c] {
        chain.follow(frame).unwrap();
    }
    assert_eq!(chain.head(), Some(Head { seq: 13, hash: c.hash, at: Micros(13_000) }));

    let mut chain = Chain::after(Head::of(&a));
    let error = chain.follow(&c).unwrap_err().to_string();
    assert!(error.contains("starts at sequence 13, the next one is 9"), "{error}");
    assert_eq!(chain.head(), Some(Head::of(&a)), "a refused batch leaves the walk where it was");

    let altered = Frame::encode(&pool(), [1; 32], Micros(6), &steps(9, 4)).unwrap();
    let error = chain.follow(&altered).unwrap_err().to_string();
    assert!(error.contains("names the hash 010101010101"), "{error}");
}
