//! What is there to read: the sealed sections of a data directory, or of segment files and exports, by pool.

use crate::segment::{self, BatchStream, Kind, SectionFile, SegmentError};
use crate::snapshot::{self, SnapshotRef};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// A section of batches in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// First sequence.
    pub first_seq: u64,
    /// Last sequence.
    pub last_seq: u64,
    /// The file.
    pub path: PathBuf,
    /// Position of the section in the file.
    pub section: usize,
}

/// What is kept of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shelf {
    /// Sections of batches, by sequence.
    pub pieces: Vec<Piece>,
    /// Snapshots, by sequence.
    pub snapshots: Vec<SnapshotRef>,
}

/// Sealed sections and snapshots, by pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Library {
    /// By the pool's name.
    pub pools: BTreeMap<String, Shelf>,
}

impl Library {
    /// Everything sealed in a data directory. Only names are read.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn of_dir(data: &Path) -> Result<Library, SegmentError> {
        if !data.is_dir() {
            let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(SegmentError::io(data.display(), "open the data directory", gone));
        }
        let mut library = Library::default();
        for pool in segment::pools_under(data, segment::SEGMENTS)? {
            for found in segment::list(data, &pool)? {
                let piece = Piece {
                    first_seq: found.first_seq,
                    last_seq: found.last_seq,
                    path: found.path,
                    section: 0,
                };
                library.pools.entry(pool.clone()).or_default().pieces.push(piece);
            }
        }
        for pool in segment::pools_under(data, snapshot::SNAPSHOTS)? {
            let found = snapshot::list(data, &pool)?;
            library.pools.entry(pool).or_default().snapshots.extend(found);
        }
        Ok(library)
    }

    /// Everything in the given segment files, snapshot files and exports, and sealed in the given data directories.
    ///
    /// # Errors
    /// A file that cannot be read, damage in its headers or footers.
    pub fn of_files(paths: &[PathBuf]) -> Result<Library, SegmentError> {
        let mut library = Library::default();
        for path in paths {
            if path.is_dir() {
                library.add(Library::of_dir(path)?);
                continue;
            }
            let file = SectionFile::open(path).map_err(|error| explain(path, error))?;
            for (number, section) in file.sections.iter().enumerate() {
                let shelf = library.pools.entry(section.header.pool.clone()).or_default();
                match section.header.kind {
                    Kind::Segment => shelf.pieces.push(Piece {
                        first_seq: section.header.first_seq,
                        last_seq: section.footer.last_seq,
                        path: path.clone(),
                        section: number,
                    }),
                    Kind::Snapshot => shelf.snapshots.push(SnapshotRef {
                        seq: section.header.first_seq,
                        path: path.clone(),
                        section: number,
                        bytes: section.length,
                    }),
                }
            }
        }
        for shelf in library.pools.values_mut() {
            shelf.pieces.sort();
            shelf.snapshots.sort();
        }
        Ok(library)
    }

    fn add(&mut self, other: Library) {
        for (pool, shelf) in other.pools {
            let mine = self.pools.entry(pool).or_default();
            mine.pieces.extend(shelf.pieces);
            mine.snapshots.extend(shelf.snapshots);
        }
    }

    /// The shelf of a pool.
    pub fn shelf(&self, pool: &str) -> Option<&Shelf> {
        self.pools.get(pool)
    }
}

/// Where the end of a file is damaged, reading it from the front says more exactly what is hit.
fn explain(path: &Path, error: SegmentError) -> SegmentError {
    if error.damage().is_none() {
        return error;
    }
    let Ok(file) = File::open(path) else { return error };
    let mut stream = BatchStream::new(BufReader::new(file), path.display().to_string());
    loop {
        match stream.section() {
            Ok(Some(_)) => {}
            Ok(None) => return error,
            Err(found) => return found,
        }
    }
}
