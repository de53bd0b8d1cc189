//! Files written by each version must stay readable: these were stored once and are never written again.
//!
//! A new container version or batch format adds a file; `WEIR_WRITE_SAMPLES=1 cargo test -p weir-log golden` writes those
//! that are not there yet.

use super::samples::requests;
use crate::frame::Frame;
use crate::segment::{BatchStream, Kind, SectionFile, short_hex};
use crate::snapshot::Snapshot;
use std::path::{Path, PathBuf};

fn stored(name: &str, make: impl FnOnce() -> Vec<u8>) -> (PathBuf, Vec<u8>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("segment/tests/data").join(name);
    if !path.exists() && std::env::var_os("WEIR_WRITE_SAMPLES").is_some() {
        std::fs::write(&path, make()).unwrap();
    }
    let bytes = std::fs::read(&path).unwrap();
    (path, bytes)
}

#[test]
fn c110_golden_segment_of_container_1_and_format_1() {
    let frames = requests(5, 40, 100, 7);
    let (path, bytes) = stored("container-1-format-1.wseg", || super::written(&frames));
    let mut stream = BatchStream::new(&bytes[..], "golden");
    let header = stream.section().unwrap().unwrap();
    assert_eq!((header.kind, header.pool.as_str(), header.first_seq), (Kind::Segment, "chat", 1));
    let mut read: Vec<Frame> = Vec::new();
    while let Some(frame) = stream.frame().unwrap() {
        read.push(frame);
    }
    assert!(stream.section().unwrap().is_none());
    assert_eq!(read, frames);
    let file = SectionFile::open(&path).unwrap();
    assert_eq!(file.sections[0].footer.last_seq, 80);
    assert_eq!(short_hex(&file.sections[0].footer.chain), CHAIN);
}

/// The chain hash at the end of the stored segment.
const CHAIN: &str = "e455d5488feb7cd7";

#[test]
fn c110_golden_snapshot_of_container_1_and_format_1() {
    let wanted = crate::snapshot::tests::snapshot(7);
    let (_, bytes) = stored("container-1-format-1.wsnap", || {
        wanted.write(Vec::new(), "golden".to_owned(), weir_kernel::Micros(5), 1).unwrap()
    });
    let mut stream = BatchStream::new(&bytes[..], "golden");
    let header = stream.section().unwrap().unwrap();
    assert_eq!(Snapshot::read_section(&mut stream, header).unwrap(), wanted);
}
