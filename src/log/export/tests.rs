//! An export and its import give back the log; parts, damage and foreign files are told apart.

use super::*;
use crate::chain::Head;
use crate::frame::Frame;
use crate::seal::Sealer;
use crate::segment::tests::samples::requests;
use crate::snapshot;
use std::path::{Path, PathBuf};
use weir_kernel::{Event, RestatedCore};

const ID: [u8; 16] = [1; 16];

fn sealed(data: &Path, seed: u64) -> Vec<Frame> {
    let frames = requests(seed, 3_000, 1_000, 10);
    let sealer = Sealer::new(data, ID).segment_bytes(80_000);
    sealer.seal("chat", Micros(1), frames.iter().cloned().map(Ok)).unwrap();
    frames
}

fn write(logs: &Logs, wanted: &Wanted, path: &Path) -> Vec<Exported> {
    let file = std::fs::File::create(path).unwrap();
    export(logs, wanted, ID, Micros(2), file, "export").unwrap()
}

fn read(logs: &Logs) -> Vec<Frame> {
    logs.reader("chat", Bound::Open, Bound::Open).map(Result::unwrap).collect()
}

fn save_snapshot(data: &Path, frame: &Frame) {
    let head = Head::of(frame);
    let core = RestatedCore { seq: head.seq, ..RestatedCore::default() };
    let events = vec![Event::RestatedCore(Box::new(core))];
    let snapshot = Snapshot { pool: "chat".to_owned(), log_id: ID, head, digest: [0; 32], events };
    snapshot::save(data, &snapshot, Micros(3), weir_migrations::CURRENT).unwrap();
}

#[test]
fn an_export_imports_as_the_same_log() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new, file) = (dir.path().join("old"), dir.path().join("new"), dir.path().join("all.wlog"));
    let frames = sealed(&old, 4);
    let done = write(&Logs::of_dir(&old, None).unwrap(), &Wanted::default(), &file);
    assert_eq!((done[0].first_seq, done[0].last_seq), (1, 6_000));
    assert_eq!(read(&Logs::of_files(std::slice::from_ref(&file)).unwrap()), frames);

    let imported = import(std::slice::from_ref(&file), &new, Micros(5)).unwrap();
    assert_eq!((imported.log_id, imported.pools[0].head), (ID, Head::of(&frames[599])));
    assert_eq!(read(&Logs::of_dir(&new, None).unwrap()), frames);
    let again = import(&[file], &new, Micros(5)).unwrap_err().to_string();
    assert!(again.contains("is not empty"), "{again}");
}

#[test]
fn sealed_segments_and_an_export_of_the_rest_make_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new, file) = (dir.path().join("old"), dir.path().join("new"), dir.path().join("rest.wlog"));
    let frames = sealed(&old, 4);
    let rest = Wanted { from: Bound::Seq(4_005), ..Wanted::default() };
    let done = write(&Logs::of_dir(&old, None).unwrap(), &rest, &file);
    assert_eq!(done[0].first_seq, 4_001, "the batch is exported whole");
    let segments = crate::segment::list(&old, "chat").unwrap();
    let gone: Vec<PathBuf> =
        segments.iter().filter(|s| s.first_seq > 4_500).map(|s| s.path.clone()).collect();
    assert!(!gone.is_empty());
    gone.iter().for_each(|path| std::fs::remove_file(path).unwrap());

    import(&[old, file.clone()], &new, Micros(5)).unwrap();
    assert_eq!(read(&Logs::of_dir(&new, None).unwrap()), frames);
    let alone = import(&[file], &dir.path().join("third"), Micros(5)).unwrap_err().to_string();
    assert!(alone.contains("without a snapshot"), "{alone}");
}

#[test]
fn a_trimmed_log_takes_its_snapshots_along() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new, file) = (dir.path().join("old"), dir.path().join("new"), dir.path().join("t.wlog"));
    let frames = sealed(&old, 4);
    save_snapshot(&old, &frames[300]);
    let first = crate::segment::list(&old, "chat").unwrap().remove(0);
    std::fs::remove_file(first.path).unwrap();
    let done = write(&Logs::of_dir(&old, None).unwrap(), &Wanted::default(), &file);
    assert_eq!((done[0].first_seq, done[0].snapshots), (first.last_seq + 1, 1));
    let imported = import(&[file], &new, Micros(5)).unwrap();
    assert_eq!(imported.pools[0].snapshots, 1);
    assert_eq!(snapshot::list(&new, "chat").unwrap()[0].seq, 3_010);
}

#[test]
fn files_of_two_logs_and_damaged_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    sealed(&one, 4);
    let frames = requests(9, 10, 100, 2);
    let sealer = Sealer::new(&two, [2; 16]);
    sealer.seal("other", Micros(1), frames.iter().cloned().map(Ok)).unwrap_err();
    sealer.seal("chat", Micros(1), frames.iter().cloned().map(Ok)).unwrap();
    let error = import(&[one.clone(), two], &dir.path().join("new"), Micros(1)).unwrap_err().to_string();
    assert!(error.contains("another log"), "{error}");

    let victim = crate::segment::list(&one, "chat").unwrap().remove(1);
    let mut bytes = std::fs::read(&victim.path).unwrap();
    bytes[9_000] ^= 1;
    std::fs::write(&victim.path, bytes).unwrap();
    let error = import(&[one], &dir.path().join("third"), Micros(1)).unwrap_err();
    assert_eq!(error.damage().unwrap().batch, Some(victim.first_seq), "{error}");
}
