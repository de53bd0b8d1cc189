//! sled's own snapshot files, which it writes at each opening only to start faster the next time.
//!
//! sled 0.34.7 takes every name that begins with `snap.` for one, `….generating` too. A full disk, a kill or a loss of
//! power between the creation and the renaming of such a file would make the database unreadable for ever.

use crate::error::LogError;
use std::path::{Path, PathBuf};

const PREFIX: &str = "snap.";
const UNFINISHED: &str = ".generating";

/// Removes snapshots that were never finished. Nothing rests on them.
pub(super) fn remove_unfinished(database: &Path) -> Result<(), LogError> {
    for path in named(database, |name| name.starts_with(PREFIX) && name.ends_with(UNFINISHED))? {
        std::fs::remove_file(&path).map_err(|error| LogError::io("remove", &path, &error))?;
    }
    Ok(())
}

/// Gives the snapshots names that sled does not look for. True if there was one.
pub(super) fn set_aside(database: &Path) -> Result<bool, LogError> {
    let found = named(database, |name| name.starts_with(PREFIX))?;
    for path in &found {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let aside = path.with_file_name(format!("damaged-{name}"));
        std::fs::rename(path, &aside).map_err(|error| LogError::io("rename", path, &error))?;
        tracing::warn!(path = %aside.display(), "a snapshot of sled may be damaged: the database is read without it");
    }
    Ok(!found.is_empty())
}

fn named(database: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, LogError> {
    let entries = match std::fs::read_dir(database) {
        Ok(entries) => entries,
        // A database that is not there yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LogError::io("list", database, &error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| LogError::io("list", database, &error))?;
        if wanted(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
