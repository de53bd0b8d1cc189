//! Where commands write: standard output, and files under a name that somebody gave.
//!
//! Not here: the files of a data directory, whose names are ours (`dir.rs`, `segment/store.rs`).

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes to standard output, at once. A closed pipe is no error: whoever read it has enough of it.
///
/// # Errors
/// Any other failure to write, such as a full disk, with the words "standard output".
pub fn say(text: impl Display) -> io::Result<()> {
    unless_closed(io::stdout().lock(), text)
}

fn unless_closed(mut out: impl Write, text: impl Display) -> io::Result<()> {
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(|error| io::Error::new(error.kind(), format!("standard output: {error}"))),
    }
}

/// `println!` that answers with the failure instead of a panic; see [`output::say`](say).
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::say(::core::format_args!("{}\n", ::core::format_args!($($text)*)))
    };
}

/// Whether a file may be renamed over what has this name: nothing yet, or a regular file. A device, a named pipe or a
/// link is not to be replaced; it is written to.
///
/// # Errors
/// What the system answers.
pub fn is_replaceable(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// The name beside a file under which it is written before it gets its own: `FILE.tmp`.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// Writes a small file: beside, then moved into place, so that whoever waits for it never reads half of it. What is
/// not [replaceable](is_replaceable) is written to; a named pipe then waits for its reader.
///
/// # Errors
/// What the system answers.
pub fn write_file(path: &Path, text: &str) -> io::Result<()> {
    if !is_replaceable(path)? {
        return fs::write(path, text);
    }
    let beside = beside(path);
    fs::write(&beside, text)?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::{is_replaceable, unless_closed, write_file};
    use std::fs;
    use std::io::{self, ErrorKind, Write};
    use std::os::unix::fs::symlink;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
        unless_closed(Failing(ErrorKind::BrokenPipe), "text").unwrap();
        let error = unless_closed(Failing(ErrorKind::StorageFull), "text").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("standard output: "), "{error}");
    }

    #[test]
    fn only_nothing_and_regular_files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, loose) =
            (dir.path().join("file"), dir.path().join("link"), dir.path().join("loose"));
        symlink("file", &link).unwrap();
        symlink("later", &loose).unwrap();
        write_file(&file, "one").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
        write_file(&link, "two").unwrap();
        write_file(&loose, "three").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two", "through the link");
        assert_eq!(fs::read_to_string(dir.path().join("later")).unwrap(), "three");
        for (path, want) in [(&file, true), (&dir.path().join("none"), true), (&link, false), (&loose, false)]
        {
            assert_eq!(is_replaceable(path).unwrap(), want, "{}", path.display());
        }
        assert!(!is_replaceable("/dev/null".as_ref()).unwrap());
        assert!(!is_replaceable(dir.path()).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "nothing is left beside");
    }
}
