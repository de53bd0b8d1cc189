//! Zeros that are written ahead of where sled will write, so that a data sync has data alone to write.
//!
//! The sync of a file that grew also writes its new size and extents to the journal of the file system. Measured on
//! ext4, medians of 3,000 appends of 49 kB each with its sync: 290 to 430 µs where the file grew, 180 to 220 where its
//! blocks were there; of 3 kB, 215 to 270 and 130 to 210 µs. Zeros are also what sled itself writes where
//! nothing is, and its recovery reads them as that.
//!
//! They are laid before anybody writes to the database, never beside a writer: whoever lays them cannot lay them over
//! something. They are laid only where twice as much stays free, and taken up again where they could not be laid whole. A database that is opened again has its zeros cut off first, as sled would else write them once more.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// sled gives its file out in segments of so many bytes (its default).
const SEGMENT: u64 = 512 << 10;
/// The head of a segment, which is never all zeros (its checksum would not be that).
const HEAD: usize = 20;
/// Written and synced at once: what commits to another database have to wait for at worst.
const PIECE: usize = 128 << 10;
/// So many times what is laid has to stay free.
const LEFT_FREE: u64 = 2;

/// Fills the file up to so many bytes, and makes that durable, with a pause after each 128 KiB: commits to another
/// database go on meanwhile. Nobody else may write to the file. False, and the file is as it was, where the disk is to
/// keep the room for what is really written.
///
/// # Errors
/// What the system says; the file is as it was, where that could be done.
pub(super) fn lay(path: &Path, upto: u64, pause: Duration) -> io::Result<bool> {
    let file = OpenOptions::new().write(true).open(path)?;
    let begin = file.metadata()?.len();
    let laid = lay_from(&file, begin, upto, pause);
    if !matches!(laid, Ok(true)) {
        file.set_len(begin)?;
    }
    laid
}

fn lay_from(file: &File, begin: u64, upto: u64, pause: Duration) -> io::Result<bool> {
    let zeros = vec![0; PIECE];
    let mut at = begin;
    while at < upto {
        if free(file)? < (upto - at).saturating_add(LEFT_FREE * upto) {
            return Ok(false);
        }
        let piece = (upto - at).min(PIECE as u64);
        file.write_all_at(&zeros[..piece as usize], at)?;
        file.sync_data()?;
        at += piece;
        if at < upto {
            std::thread::sleep(pause);
        }
    }
    Ok(true)
}

/// Bytes that are free, to whoever is not root, on the disk of a file.
fn free(file: &File) -> io::Result<u64> {
    let disk = rustix::fs::fstatvfs(file)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Bytes in whole segments of a file on which no ground was laid yet: all of it counts as used, also what sled freed.
pub(super) fn found(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len().next_multiple_of(SEGMENT))
}

/// Bytes up to the end of the last segment that sled has begun, of which so many are known already.
pub(super) fn used(file: &File, known: u64) -> u64 {
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    let (mut at, mut head) = (known, [0; HEAD]);
    while at < len && file.read_at(&mut head, at).is_ok_and(|read| head[..read].iter().any(|byte| *byte != 0))
    {
        at += SEGMENT;
    }
    at
}

/// Cuts off the segments at the end of which nothing was ever written. A file that is not there has none.
///
/// # Errors
/// What the system says.
pub(super) fn take_up(path: &Path) -> io::Result<()> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let len = file.metadata()?.len();
    let mut end = len;
    let mut segment = vec![0; SEGMENT as usize];
    while end > 0 {
        let begin = (end - 1) / SEGMENT * SEGMENT;
        let content = &mut segment[..(end - begin) as usize];
        file.read_exact_at(content, begin)?;
        if content.iter().any(|byte| *byte != 0) {
            break;
        }
        end = begin;
    }
    if end < len { file.set_len(end) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> sled::Db {
        let config = sled::Config::new().path(path).flush_every_ms(None);
        crate::sled_open::open_let_go(&config, || Ok::<_, sled::Error>(())).unwrap()
    }

    /// sled writes its segments where they are looked for, into zeros as behind its end; and what is cut off is never
    /// any of it.
    #[test]
    fn sled_writes_on_laid_ground_and_reads_it_with_and_without_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("db");
        let written = |n: u32| n.wrapping_mul(2_654_435_761).to_le_bytes().repeat(1_000);
        let mut count = 0_u32;
        for round in 0..6 {
            let db = open(dir.path());
            for n in 0..count {
                assert_eq!(db.get(n.to_be_bytes()).unwrap().unwrap(), written(n), "round {round}");
            }
            let handle = File::open(&file).unwrap();
            let mut known = found(&handle);
            assert!(lay(&file, 64 << 20, Duration::ZERO).unwrap());
            for _ in 0..100 * (round + 1) {
                db.insert(count.to_be_bytes(), written(count)).unwrap();
                count += 1;
                db.flush().unwrap();
                let now = used(&handle, known);
                assert!(now >= known && now - known <= 4 * SEGMENT, "{known} {now}");
                known = now;
            }
            assert!(known >= u64::from(count) * 4_000, "{known}");
            assert_eq!(handle.metadata().unwrap().len(), 64 << 20, "the file did not grow");
            drop(db);
            if round % 2 == 1 {
                take_up(&file).unwrap();
                assert_eq!(file.metadata().unwrap().len(), known);
            }
        }
    }

    #[test]
    fn what_a_disk_has_no_room_for_is_not_laid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        std::fs::write(&path, b"begun").unwrap();
        let file = File::open(&path).unwrap();
        // Not whole, and with too little left: neither begins, and nothing is changed.
        for upto in [free(&file).unwrap() + 1, free(&file).unwrap() / 2] {
            assert!(!lay(&path, upto, Duration::ZERO).unwrap());
            assert_eq!(std::fs::read(&path).unwrap(), b"begun");
        }
        assert!(lay(&path, 1 << 20, Duration::ZERO).unwrap());
        assert_eq!(path.metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn only_whole_segments_of_zeros_are_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        take_up(&path).unwrap();
        for (content, end) in [
            (vec![], 0),
            (vec![0; 7], 0),
            (vec![0; 3 * SEGMENT as usize], 0),
            (vec![1; SEGMENT as usize + 3], SEGMENT + 3),
            ([vec![1; 3], vec![0; SEGMENT as usize]].concat(), SEGMENT),
            (
                [vec![0; 2 * SEGMENT as usize - 1], vec![1], vec![0; 9 * SEGMENT as usize + 5]].concat(),
                2 * SEGMENT,
            ),
        ] {
            std::fs::write(&path, &content).unwrap();
            take_up(&path).unwrap();
            assert_eq!(path.metadata().unwrap().len(), end, "of {}", content.len());
            assert!(std::fs::read(&path).unwrap() == content[..end as usize]);
        }
    }
}
