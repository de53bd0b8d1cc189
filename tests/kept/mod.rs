//! Logs that tests make are kept, as exports, where `WEIR_KEEP_LOGS` names a directory: `.ci/run` has each of them verified.
//!
//! Without it, nothing is done. The log of a test that fails is not kept: that test is what is to be looked at.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use weir_kernel::Micros;
use weir_log::export::{Wanted, export};
use weir_log::memory::MemoryDisk;
use weir_log::reader::Logs;
use weir_log::{LogError, SegmentError};

/// Larger logs are not kept, which is said.
const BYTES_MAX: u64 = 64 << 20;

/// A temporary directory whose logs are kept when it goes. What holds them must be gone by then: declare it first, or as
/// the last field.
pub struct Kept(TempDir);

/// As `tempfile::tempdir`.
pub fn tempdir() -> std::io::Result<Kept> {
    tempfile::tempdir().map(Kept)
}

impl Kept {
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl AsRef<Path> for Kept {
    fn as_ref(&self) -> &Path {
        self.path()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(to) = target() else { return };
        for data in data_dirs(self.path()) {
            let opened = Logs::open(&data);
            match opened {
                Err(SegmentError::Log(LogError::Locked { .. })) => {
                    eprintln!("NOT KEPT: {}: its service still holds it", data.display());
                }
                Err(error) => panic!("{}: its log cannot be kept: {error}", data.display()),
                Ok(logs) => keep(&logs, size(&data), &to),
            }
        }
    }
}

/// The same for a log in memory.
pub struct KeptMemory(pub MemoryDisk);

impl Drop for KeptMemory {
    fn drop(&mut self) {
        if let Some(to) = target() {
            keep(&Logs::of_hot(Arc::new(self.0.clone())), 0, &to);
        }
    }
}

fn target() -> Option<PathBuf> {
    let to = std::env::var_os("WEIR_KEEP_LOGS").filter(|to| !to.is_empty() && !std::thread::panicking());
    to.map(PathBuf::from)
}

/// Directories at or under this one that hold a log.
fn data_dirs(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = open.pop() {
        if dir.join("format").is_file() && dir.join("hot").is_dir() {
            found.push(dir);
        } else {
            let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            open.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink()));
        }
    }
    found
}

fn size(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

fn keep(logs: &Logs, bytes: u64, to: &Path) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    if logs.pools().is_empty() {
        return;
    }
    let test = std::thread::current().name().unwrap_or("main").replace("::", ".");
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{}-{test}-{number}.wlog", env!("CARGO_CRATE_NAME"), std::process::id());
    if bytes > BYTES_MAX {
        eprintln!("NOT KEPT: the log of {test}, {bytes} bytes; at most {BYTES_MAX} are");
        return;
    }
    // Written under another name first: what is there under its own name is whole.
    let (path, open) = (to.join(&name), to.join(format!("{name}.part")));
    let mut file = std::io::BufWriter::new(std::fs::File::create(&open).unwrap());
    export(logs, &Wanted::default(), [0; 16], Micros(1), &mut file, &name).unwrap();
    file.into_inner().unwrap();
    std::fs::rename(open, path).unwrap();
}
