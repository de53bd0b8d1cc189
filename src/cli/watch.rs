//! Have files changed? By what the file system says of them, looked at now and then.
//!
//! Links are followed, so that a mounted secret whose link is exchanged has changed as well.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::SystemTime;

/// What tells two versions of a file apart.
type Stamp = (SystemTime, u64, u64);

/// Files that are read when they have changed and rest: many an editor empties a file before it writes it.
#[derive(Clone, Debug, Default)]
pub struct Watched(Vec<File>);

#[derive(Clone, Debug)]
struct File {
    path: PathBuf,
    /// As it was when it was told last.
    told: Option<Stamp>,
    /// As the last look found it.
    last: Option<Stamp>,
}

impl Watched {
    /// These, as they are now.
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> Self {
        let seen = files.into_iter().map(|path| {
            let now = stamp(&path);
            File { path, told: now, last: now }
        });
        Watched(seen.collect())
    }

    /// Looks. Is one of them there, another than before, and the same as at the last look? Each change is told once.
    pub fn changed(&mut self) -> bool {
        let mut changed = false;
        for file in &mut self.0 {
            let now = stamp(&file.path);
            // One that is missing is perhaps being exchanged.
            if now.is_some() && now != file.told && now == file.last {
                file.told = now;
                changed = true;
            }
            file.last = now;
        }
        changed
    }

    /// They are about to be read as they are now: that change is told.
    pub fn read(&mut self) {
        for file in &mut self.0 {
            file.last = stamp(&file.path);
            file.told = file.last.or(file.told);
        }
    }

    /// From here on these; those that were watched already keep what is known of them.
    pub fn follow(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        let mut now = Watched::new(files);
        for file in &mut now.0 {
            if let Some(before) = self.0.iter().find(|before| before.path == file.path) {
                file.clone_from(before);
            }
        }
        *self = now;
    }
}

fn stamp(file: &PathBuf) -> Option<Stamp> {
    let meta = std::fs::metadata(file).ok()?;
    Some((meta.modified().ok()?, meta.len(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_is_emptied_and_then_written_is_told_when_it_rests() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, "1").unwrap();
        let mut watched = Watched::new([a.clone()]);
        fs::write(&a, "").unwrap();
        assert!(!watched.changed(), "perhaps being written");
        fs::write(&a, "22").unwrap();
        assert!(!watched.changed());
        fs::write(&a, "22, and more").unwrap();
        assert!(!watched.changed());
        assert!(watched.changed() && !watched.changed());
        fs::write(&a, "3").unwrap();
        watched.read();
        assert!(!watched.changed() && !watched.changed(), "read meanwhile");
        fs::write(&a, "44").unwrap();
        fs::write(&b, "1").unwrap();
        watched.follow([b.clone(), a.clone()]);
        assert!(!watched.changed());
        assert!(watched.changed(), "what was not told yet is not forgotten");
    }

    #[test]
    fn a_change_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let (a, link, other) = (dir.path().join("a"), dir.path().join("link"), dir.path().join("other"));
        fs::write(&a, "1").unwrap();
        std::os::unix::fs::symlink(&a, &link).unwrap();
        let mut watched = Watched::new([link.clone(), dir.path().join("missing")]);
        assert!(!watched.changed());
        fs::write(&a, "22").unwrap();
        assert!(!watched.changed());
        assert!(watched.changed() && !watched.changed());
        fs::write(&other, "33").unwrap();
        fs::remove_file(&link).unwrap();
        assert!(!watched.changed(), "gone for a moment");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert!(!watched.changed());
        assert!(watched.changed() && !watched.changed());
        fs::write(dir.path().join("missing"), "").unwrap();
        assert!(!watched.changed());
        assert!(watched.changed());
    }
}
