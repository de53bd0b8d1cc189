//! Where a log is read from.

use super::error::Failed;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use weir_log::reader::Logs;
use weir_log::{LogError, SegmentError};

/// A data directory, or files.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// The data directory of a stopped server. Of a running one only what is sealed is read.
    #[arg(long, value_name = "DIR", conflicts_with = "files")]
    pub data: Option<PathBuf>,

    /// Segment files, exports, or data directories (of these, what is sealed); `-` is standard input.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Of the data directory read only what is sealed; the database of the hot window is not opened.
    #[arg(long)]
    pub sealed: bool,
}

/// An opened log.
pub struct Opened {
    /// It.
    pub logs: Logs,
    /// Standard input, kept as a file while it is read.
    _spooled: Option<NamedTempFile>,
}

impl Source {
    /// Opens it; says on standard error what of it cannot be read.
    pub fn open(&self) -> Result<Opened, Failed> {
        match (&self.data, self.files.is_empty()) {
            (Some(data), _) => Ok(Opened { logs: open_dir(data, self.sealed)?, _spooled: None }),
            (None, false) => self.open_files(),
            (None, true) => {
                Err(Failed::Other("which log? Give --data DIR or files (see weir log --help)".to_owned()))
            }
        }
    }

    fn open_files(&self) -> Result<Opened, Failed> {
        let mut files = self.files.clone();
        let mut spooled = None;
        for file in &mut files {
            if file.as_os_str() == "-" {
                let mut taken = NamedTempFile::new()?;
                std::io::copy(&mut std::io::stdin().lock(), &mut taken)?;
                file.clone_from(&taken.path().to_owned());
                spooled = Some(taken);
            }
        }
        Ok(Opened { logs: Logs::of_files(&files)?, _spooled: spooled })
    }
}

fn open_dir(data: &Path, sealed: bool) -> Result<Logs, Failed> {
    if sealed {
        return Ok(Logs::of_dir(data, None)?);
    }
    match Logs::open(data) {
        Err(SegmentError::Log(error @ LogError::Locked { .. })) => {
            eprintln!("note: {error}");
            eprintln!("note: reading only what is sealed; the newest steps are at --server http://HOST:PORT");
            Ok(Logs::of_dir(data, None)?)
        }
        opened => Ok(opened?),
    }
}

/// The pools to look at.
pub fn pools(logs: &Logs, only: Option<&str>) -> Result<Vec<String>, Failed> {
    let pools = logs.pools();
    match only {
        None => Ok(pools),
        Some(only) if pools.iter().any(|pool| pool == only) => Ok(vec![only.to_owned()]),
        Some(only) => Err(Failed::Other(format!("no pool {only:?} in this log; there is {pools:?}"))),
    }
}
