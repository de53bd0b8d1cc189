//! The data directory of a log: its lock, its description, and where everything lies.

use crate::error::LogError;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_migrations::{CURRENT, FORMATS, MigrationError};

/// What the file `format` holds, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Description {
    /// The format that is written. It changes only by `weir log finalize-upgrade`.
    pub format: u16,
    /// Made at random when the log was created; never changes.
    pub log_id: String,
    /// When the log was created, in microseconds since the Unix epoch.
    pub created: u64,
}

impl Description {
    /// The log's id as bytes; zeros if it is not 32 hexadecimal digits.
    pub fn log_id_bytes(&self) -> [u8; 16] {
        u128::from_str_radix(&self.log_id, 16).unwrap_or_default().to_be_bytes()
    }
}

/// A data directory that this process holds. The lock goes with the value, or with the process.
#[derive(Debug)]
pub struct LogDir {
    path: PathBuf,
    description: Description,
    _lock: File,
}

impl LogDir {
    /// Opens a data directory, or creates one where there is none (or an empty one).
    ///
    /// # Errors
    /// [`LogError::Locked`] if another process has it; a format that this version cannot write, by name; a
    /// directory that holds data but no description; what the system says.
    pub fn open(path: &Path) -> Result<LogDir, LogError> {
        create_dir(path)?;
        let lock = lock(path)?;
        let description = match read_description(path)? {
            Some(description) => description,
            None => create(path)?,
        };
        let row = weir_migrations::find(FORMATS, description.format)?;
        if row.encode.is_none() {
            let fault = "this version only reads it: run `weir log finalize-upgrade`".to_owned();
            return Err(MigrationError::NotWritable { format: description.format, fault }.into());
        }
        Ok(LogDir { path: path.to_owned(), description, _lock: lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the log is.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Raises the format that is written to this version's own; earlier versions can no longer read what follows.
    ///
    /// # Errors
    /// As [`LogDir::open`].
    pub fn finalize_upgrade(path: &Path) -> Result<(Description, Description), LogError> {
        let _lock = lock(path)?;
        let Some(before) = read_description(path)? else {
            return Err(LogError::Format { path: path.join("format"), error: "there is none".to_owned() });
        };
        weir_migrations::find(FORMATS, before.format)?;
        let after = Description { format: CURRENT, ..before.clone() };
        if after != before {
            write_description(path, &after)?;
        }
        Ok((before, after))
    }
}

/// Reads what a log is without holding it; `None` if there is no log there.
///
/// # Errors
/// A description that cannot be read.
pub fn read_description(path: &Path) -> Result<Option<Description>, LogError> {
    let file = path.join("format");
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogError::io("read", &file, &error)),
    };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| LogError::Format { path: file, error: error.to_string() })
}

/// Where the databases of the hot window lie.
pub fn hot_dir(path: &Path) -> PathBuf {
    path.join("hot")
}

/// Where the high-water mark lies.
pub fn mark_path(path: &Path) -> PathBuf {
    path.join("mark")
}

/// Creates a directory (and those above it) and makes its entry durable.
///
/// # Errors
/// What the system says.
pub fn create_dir(path: &Path) -> Result<(), LogError> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(|error| LogError::io("create", path, &error))?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => Ok(()),
    }
}

/// Makes the entries of a directory durable.
///
/// # Errors
/// What the system says.
pub fn sync_dir(path: &Path) -> Result<(), LogError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(|error| LogError::io("sync", path, &error))
}

/// Replaces a small file whole: written beside it, synced, renamed over it, the directory synced.
///
/// # Errors
/// What the system says.
pub fn replace_file(path: &Path, content: &[u8]) -> Result<(), LogError> {
    let beside = path.with_extension("new");
    File::create(&beside)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .map_err(|error| LogError::io("write", &beside, &error))?;
    fs::rename(&beside, path).map_err(|error| LogError::io("replace", path, &error))?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// How long a holder may take to let go: one that is just ending, or a child that a holder is just starting (between
/// fork and exec it has whatever its parent has).
const LET_GO: Duration = Duration::from_millis(500);
const LOCK_RETRY: Duration = Duration::from_millis(2);

fn lock(dir: &Path) -> Result<File, LogError> {
    let path = dir.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| LogError::io("open", &path, &error))?;
    let until = Instant::now() + LET_GO;
    let locked = loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LOCK_RETRY),
            locked => break locked,
        }
    };
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let holder = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(LogError::Locked { dir: dir.to_owned(), holder });
        }
        Err(TryLockError::Error(error)) => return Err(LogError::io("lock", &path, &error)),
    }
    // For people only: the lock is the system's.
    let content = format!("{}\n", std::process::id());
    file.set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| file.write_all(content.as_bytes()))
        .map_err(|error| LogError::io("write", &path, &error))?;
    Ok(file)
}

/// The description comes last: a directory without one never held a batch.
fn create(path: &Path) -> Result<Description, LogError> {
    for name in ["hot", "segments", "snapshots"] {
        let inside = fs::read_dir(path.join(name)).map(|mut entries| entries.next().is_some());
        if inside.unwrap_or(false) {
            let error = format!("it is missing, but {name}/ is not empty");
            return Err(LogError::Format { path: path.join("format"), error });
        }
    }
    create_dir(&hot_dir(path))?;
    crate::mark::create(&mark_path(path), &crate::mark::Mark::default())?;
    let description = Description { format: CURRENT, log_id: random_id(), created: now() };
    write_description(path, &description)?;
    Ok(description)
}

/// Writes the description of a log that is put together from elsewhere (an import).
///
/// # Errors
/// What the system says.
pub fn write_description(path: &Path, description: &Description) -> Result<(), LogError> {
    let text = serde_json::to_string_pretty(description)
        .map_err(|error| LogError::Format { path: path.join("format"), error: error.to_string() })?;
    replace_file(&path.join("format"), format!("{text}\n").as_bytes())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// 128 bits in hexadecimal from the process's hash seeds and the clock: unique, not secret.
pub fn random_id() -> String {
    let half = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(now());
        hasher.write_u32(std::process::id());
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c108_a_second_opener_is_told_who_has_it_and_a_stale_lock_file_is_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("lock"), "4242\n").unwrap();
        let held = LogDir::open(dir.path()).expect("a lock file without a lock");
        let error = LogDir::open(dir.path()).unwrap_err();
        assert_eq!(error, LogError::Locked { dir: dir.path().to_owned(), holder: Some(std::process::id()) });
        assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
        let description = held.description().clone();
        drop(held);
        assert_eq!(LogDir::open(dir.path()).unwrap().description(), &description);
    }

    #[test]
    fn a_holder_that_is_just_ending_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            let first = LogDir::open(dir.path()).unwrap();
            let ending = std::thread::spawn(move || drop(first));
            drop(LogDir::open(dir.path()).unwrap());
            ending.join().unwrap();
        }
    }

    #[test]
    fn c110_a_newer_log_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        drop(LogDir::open(dir.path()).unwrap());
        let mut description = read_description(dir.path()).unwrap().unwrap();
        description.format = 9;
        write_description(dir.path(), &description).unwrap();
        for error in
            [LogDir::open(dir.path()).unwrap_err(), LogDir::finalize_upgrade(dir.path()).unwrap_err()]
        {
            assert!(error.to_string().contains("format 9 was written by a newer version"), "{error}");
        }
        description.format = CURRENT;
        write_description(dir.path(), &description).unwrap();
        let (before, after) = LogDir::finalize_upgrade(dir.path()).unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn a_directory_with_data_but_no_description_is_not_taken_for_a_new_log() {
        let dir = tempfile::tempdir().unwrap();
        drop(LogDir::open(dir.path()).unwrap());
        fs::create_dir(hot_dir(dir.path()).join("000001")).unwrap();
        fs::remove_file(dir.path().join("format")).unwrap();
        let error = LogDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("hot/ is not empty"), "{error}");
    }
}
