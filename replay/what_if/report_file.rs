//! The file of `--report`: opened before the work begins, so that what cannot be written is refused at once.
//!
//! What is in it already stays until the page is written; a new file without a page is taken away again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An opened file for a page.
pub struct ReportFile {
    file: File,
    path: PathBuf,
    /// It was made for this page, which is not in it.
    empty: bool,
}

impl ReportFile {
    /// Opens it.
    ///
    /// # Errors
    /// A path that cannot be written to.
    pub fn open(path: &Path) -> io::Result<ReportFile> {
        let new = OpenOptions::new().write(true).create_new(true).open(path);
        let (file, empty) = match new {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (OpenOptions::new().write(true).open(path)?, false)
            }
            new => (new?, true),
        };
        Ok(ReportFile { file, path: path.to_owned(), empty })
    }

    /// Writes the page in place of what was there.
    ///
    /// # Errors
    /// As the file says.
    pub fn write(mut self, page: &str) -> io::Result<()> {
        // A device or a pipe has no length to set.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(page.as_bytes())?;
        self.empty = false;
        Ok(())
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if self.empty {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
