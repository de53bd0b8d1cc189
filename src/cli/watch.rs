//! Have files changed? By what the file system says of them, looked at now and then.
//!
//! Links are followed, so that a mounted secret whose link is exchanged has changed as well.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::SystemTime;

/// What tells two versions of a file apart.
type Stamp = (SystemTime, u64, u64);

/// Files, as they were when last looked at.
#[derive(Debug, Default)]
pub struct Watched(Vec<(PathBuf, Option<Stamp>)>);

impl Watched {
    /// These, as they are now.
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> Self {
        let seen = files.into_iter().map(|file| {
            let stamp = stamp(&file);
            (file, stamp)
        });
        Watched(seen.collect())
    }

    /// Is one of them there and another than before? Each change is told once.
    pub fn changed(&mut self) -> bool {
        let mut changed = false;
        for (file, seen) in &mut self.0 {
            let now = stamp(file);
            // One that is missing is perhaps being exchanged.
            if now.is_some() && now != *seen {
                *seen = now;
                changed = true;
            }
        }
        changed
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
    fn a_change_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let (a, link, other) = (dir.path().join("a"), dir.path().join("link"), dir.path().join("other"));
        fs::write(&a, "1").unwrap();
        std::os::unix::fs::symlink(&a, &link).unwrap();
        let mut watched = Watched::new([link.clone(), dir.path().join("missing")]);
        assert!(!watched.changed());
        fs::write(&a, "22").unwrap();
        assert!(watched.changed() && !watched.changed());
        fs::write(&other, "33").unwrap();
        fs::remove_file(&link).unwrap();
        assert!(!watched.changed(), "gone for a moment");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert!(watched.changed() && !watched.changed());
        fs::write(dir.path().join("missing"), "").unwrap();
        assert!(watched.changed());
    }
}
