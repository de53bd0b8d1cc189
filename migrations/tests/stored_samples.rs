//! Goal: every format ever written still reads as what was written. The bytes in `samples/` only ever grow in number.
//!
//! Before a release a format may still change; then `WEIR_BLESS=1 cargo test -p weir-migrations` writes its sample
//! anew. After a release this test must stay as it is, and a changed type is a new format.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod samples;

use std::path::PathBuf;
use weir_migrations::{
    CURRENT, FORMATS, MigrationError, PAYLOAD_MAX, decode, decode_events, encode, encode_events, writable,
};

fn stored(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("samples").join(name)
}

fn hold_to(name: &str, bytes: &[u8]) {
    let path = stored(name);
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    let there = std::fs::read(&path).unwrap();
    let differs = there.iter().zip(bytes).position(|(a, b)| a != b);
    assert!(
        there == bytes,
        "{} is {} bytes, now {} are written, first difference at {differs:?}: what is on disk has changed",
        path.display(),
        there.len(),
        bytes.len()
    );
}

#[test]
fn the_sample_has_every_kind() {
    let steps = samples::steps();
    for kind in 0..samples::INPUT_KINDS {
        assert!(steps.iter().any(|step| samples::input_kind(&step.input) == kind), "input kind {kind}");
    }
    let kinds: Vec<usize> = steps.iter().flat_map(|step| &step.events).map(samples::event_kind).collect();
    assert!(kinds.iter().copied().eq(0..samples::EVENT_KINDS), "{kinds:?}");
}

#[test]
fn c110_format_1_is_written_and_read_as_it_was() {
    let (steps, events) = (samples::steps(), samples::restated());
    let (mut bytes, mut snapshot) = (Vec::new(), Vec::new());
    encode(1, &steps, &mut bytes).unwrap();
    encode_events(1, &events, &mut snapshot).unwrap();
    hold_to("format_1_steps.bin", &bytes);
    hold_to("format_1_events.bin", &snapshot);
    hold_to("format_1_steps.json", serde_json::to_string_pretty(&steps).unwrap().as_bytes());

    let read = decode(1, &std::fs::read(stored("format_1_steps.bin")).unwrap()).unwrap();
    assert_eq!(read, steps);
    assert_eq!(decode_events(1, &std::fs::read(stored("format_1_events.bin")).unwrap()).unwrap(), events);
    // The number of an event on disk is its place: kinds are appended, never inserted.
    for event in read.iter().flat_map(|step| &step.events) {
        let mut one = Vec::new();
        encode_events(1, std::slice::from_ref(event), &mut one).unwrap();
        assert_eq!(usize::from(one[1]), samples::event_kind(event), "{event:?}");
    }
}

#[test]
fn every_format_has_its_sample() {
    for format in FORMATS {
        let bytes = std::fs::read(stored(&format!("format_{}_steps.bin", format.number))).unwrap();
        assert_eq!((format.decode)(&bytes).unwrap(), samples::steps(), "format {}", format.number);
    }
    assert!(writable(CURRENT));
    assert_eq!(FORMATS.last().map(|format| format.number), Some(CURRENT));
}

#[test]
fn an_unknown_format_is_refused_by_name() {
    let newer = decode(9, &[0]).unwrap_err();
    assert_eq!(newer, MigrationError::Newer { format: 9, oldest: 1, newest: 1 });
    assert!(newer.to_string().contains("format 9 was written by a newer version of Weir"), "{newer}");
    assert_eq!(
        decode_events(0, &[0]).unwrap_err(),
        MigrationError::Unknown { format: 0, oldest: 1, newest: 1 }
    );
    assert!(encode(9, &samples::steps(), &mut Vec::new()).is_err());
    assert!(!writable(9));
}

#[test]
fn cut_lengthened_and_absurd_payloads_are_errors_and_allocate_little() {
    let mut bytes = Vec::new();
    encode(1, &samples::steps(), &mut bytes).unwrap();
    for len in 0..bytes.len() {
        assert!(decode(1, &bytes[..len]).is_err(), "cut to {len}");
    }
    bytes.push(0);
    assert!(decode(1, &bytes).unwrap_err().to_string().contains("1 bytes left over"));
    // A count of 2^63 steps; a step whose first text claims 2^63 bytes.
    let huge = [253, 0, 0, 0, 0, 0, 0, 0, 128];
    assert!(decode(1, &huge).is_err());
    let text = [&[1, 1, 1, 1][..], &huge].concat();
    assert!(decode(1, &text).unwrap_err().to_string().contains("format 1"));
    assert!(decode(1, &vec![0; PAYLOAD_MAX + 1]).unwrap_err().to_string().contains("allowed"));
    // Every byte flipped: an error or another value, never a panic.
    let mut state = 1_u64;
    for at in 0..bytes.len() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut bad = bytes.clone();
        bad[at] ^= (state >> 33) as u8 | 1;
        let _ = decode(1, &bad);
    }
}
