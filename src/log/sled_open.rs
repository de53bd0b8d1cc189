//! Opening a sled database that may have been closed a moment ago in this process.
//!
//! sled's background threads hold its file, and so the file's lock, for a while after the last handle is dropped; an
//! open within that while fails, although nobody uses the database.

use std::time::{Duration, Instant};

/// How long sled's threads may take to let go of a database that was closed before.
const LET_GO: Duration = Duration::from_secs(10);

/// How often it is tried again.
const RETRY: Duration = Duration::from_millis(2);

/// Opens the database, waiting up to 10 s for its file's lock. `before` runs before each try.
///
/// For a directory that this process holds by a lock of its own: another process that has the database is waited for
/// just the same.
///
/// # Errors
/// What sled says, or `before`. sled may panic on a damaged database: that is the caller's to catch.
pub fn open_let_go<E: From<sled::Error>>(
    config: &sled::Config,
    mut before: impl FnMut() -> Result<(), E>,
) -> Result<sled::Db, E> {
    let until = Instant::now() + LET_GO;
    loop {
        before()?;
        match config.open() {
            Err(error) if is_held(&error) && Instant::now() < until => std::thread::sleep(RETRY),
            opened => return Ok(opened?),
        }
    }
}

fn is_held(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(error) if error.to_string().contains("could not acquire lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_let_go_a_moment_later_opens() {
        let dir = tempfile::tempdir().unwrap();
        let config = sled::Config::new().path(dir.path()).flush_every_ms(None);
        let held = config.open().unwrap();
        held.insert("key", "value").unwrap();
        let refused = config.open().expect_err("one opener at a time");
        assert!(is_held(&refused), "{refused}");
        let mut tries = 0;
        let mut held = Some(held);
        let db = open_let_go(&config, || {
            tries += 1;
            // The first try meets it held, whatever sled's threads do.
            if tries == 3 {
                held = None;
            }
            Ok::<_, sled::Error>(())
        });
        assert_eq!(db.unwrap().get("key").unwrap().unwrap(), "value");
        assert!(tries >= 3, "{tries}");
    }
}
