//! `weir-replay verify` on the log that a test made.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// What it is built from.
const SOURCES: [&str; 4] = ["src/kernel", "src/log", "migrations", "replay"];

/// The verdict must be that every decision follows from its input.
pub fn verify(data: &Path) {
    let Some(binary) = binary() else { return };
    let output = Command::new(&binary).arg("verify").arg("--data").arg(data).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", told.trim_end());
}

/// `weir-replay`. Where it is not there, or older than its sources, that is said loudly: `cargo test --workspace` builds it.
pub fn binary() -> Option<PathBuf> {
    let binary = Path::new(env!("CARGO_BIN_EXE_weir")).with_file_name("weir-replay");
    let found = modified(&binary).filter(|built| *built >= newest()).map(|_| binary.clone());
    if found.is_none() {
        eprintln!("SKIPPED: weir-replay: {} is not built from these sources", binary.display());
    }
    found
}

fn modified(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).ok()?.modified().ok()
}

fn newest() -> SystemTime {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> = SOURCES.iter().map(|folder| root.join(folder)).collect();
    let mut newest = SystemTime::UNIX_EPOCH;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() && entry.file_name().is_some_and(|name| name != "tests" && name != "target") {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                newest = newest.max(modified(&entry).unwrap_or(newest));
            }
        }
    }
    newest
}
