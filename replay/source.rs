//! What is replayed: a stopped data directory, segment files and exports, or standard input.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use weir_log::reader::Logs;
use weir_log::{LogError, SegmentError};

/// Where the log is.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// The data directory of a stopped server. Of a running one only what is sealed is read.
    #[arg(long, value_name = "DIR", conflicts_with = "files")]
    pub data: Option<PathBuf>,

    /// Segment files, exports, or data directories (of these, what is sealed); `-` is an export on standard input.
    #[arg(value_name = "FILE", required_unless_present = "data")]
    pub files: Vec<PathBuf>,

    /// Of the data directory read only what is sealed; the database of the hot window is not opened.
    #[arg(long)]
    pub sealed: bool,
}

/// An opened source, and what has to live as long as it.
pub struct Opened {
    /// The log.
    pub logs: Logs,
    /// What the reader should know about it.
    pub notes: Vec<String>,
    _spooled: Option<Spooled>,
}

/// Standard input as a file that goes away with the value: a log is read more than once.
struct Spooled(PathBuf);

impl Drop for Spooled {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Source {
    /// Opens it.
    ///
    /// # Errors
    /// A directory or file that cannot be read, damage in what is opened, a hot window that does not open.
    pub fn open(&self) -> Result<Opened, SegmentError> {
        if let Some(data) = &self.data {
            return self.open_dir(data);
        }
        let mut files = self.files.clone();
        let mut spooled = None;
        for file in &mut files {
            if file.as_os_str() == "-" {
                let taken = spool()?;
                file.clone_from(&taken.0);
                spooled = Some(taken);
            }
        }
        let logs = Logs::of_files(&files)?;
        Ok(Opened { logs, notes: Vec::new(), _spooled: spooled })
    }

    fn open_dir(&self, data: &Path) -> Result<Opened, SegmentError> {
        let mut notes = Vec::new();
        if !self.sealed {
            match Logs::open(data) {
                Err(SegmentError::Log(error @ LogError::Locked { .. })) => {
                    notes.push(format!("{error}; reading only what is sealed"));
                }
                opened => return Ok(Opened { logs: opened?, notes, _spooled: None }),
            }
        }
        Ok(Opened { logs: Logs::of_dir(data, None)?, notes, _spooled: None })
    }
}

fn spool() -> Result<Spooled, SegmentError> {
    let path = std::env::temp_dir().join(format!("weir-replay-{}.stdin", std::process::id()));
    let failed = |error| SegmentError::io(path.display(), "write", error);
    let mut file =
        std::fs::OpenOptions::new().write(true).read(true).create_new(true).open(&path).map_err(failed)?;
    let spooled = Spooled(path.clone());
    std::io::copy(&mut std::io::stdin().lock(), &mut file).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut first = [0; 1];
    if file.read(&mut first).map_err(failed)? == 0 {
        let empty = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        return Err(SegmentError::io("standard input", "read a log from", empty));
    }
    Ok(spooled)
}
