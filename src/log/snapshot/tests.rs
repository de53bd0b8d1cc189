//! Snapshots read back as they were, damage is found, and the last two are kept.

use super::*;
use weir_kernel::{RestatedCore, Role};

pub(crate) fn snapshot(seq: u64) -> Snapshot {
    let mut events = vec![Event::RestatedCore(Box::new(RestatedCore { seq, ..RestatedCore::default() }))];
    for slot in 0..3_000 {
        events.push(Event::RestatedEndpoint(Box::new(weir_kernel::RestatedEndpoint {
            slot: weir_kernel::Slot(slot),
            name: format!("10.0.0.{slot}:8000"),
            role: Role::Decode,
            sample: Some((1, 2, 3)),
            requested_at: Micros(77),
            stale_since: None,
            numbers: vec![1, 2, 3],
        })));
    }
    let head = Head { seq, hash: [4; 32], at: Micros(99) };
    Snapshot { pool: "chat".to_owned(), log_id: [1; 16], head, digest: [8; 32], events }
}

#[test]
fn a_snapshot_reads_back_and_two_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    for seq in [10, 20, 30] {
        let saved = save(dir.path(), &snapshot(seq), Micros(5), weir_migrations::CURRENT).unwrap();
        assert_eq!(Snapshot::read(&saved).unwrap(), snapshot(seq));
    }
    let kept: Vec<u64> = list(dir.path(), "chat").unwrap().iter().map(|s| s.seq).collect();
    assert_eq!(kept, [20, 30]);
}

#[test]
fn every_flipped_byte_of_a_snapshot_is_found() {
    let small = Snapshot { events: snapshot(7).events[..3].to_vec(), ..snapshot(7) };
    let bytes = small.write(Vec::new(), "test".to_owned(), Micros(5), weir_migrations::CURRENT).unwrap();
    let read = |bytes: &[u8]| {
        let mut stream = BatchStream::new(bytes, "test");
        let header = stream.section()?.unwrap();
        Snapshot::read_section(&mut stream, header)
    };
    assert_eq!(read(&bytes).unwrap(), small);
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x08;
        assert!(matches!(read(&bad), Err(SegmentError::Damaged(_))), "byte {at}");
    }
}
