//! Every format the decision log was ever written in, frozen, and the way from each to the current one.
//!
//! A format is what the payload of a batch looks like: which types, in which order, in which codec. The kernel's own
//! types are the current format. When one of them must change its shape on disk:
//!
//! 1. copy the types as they stand into a module of their own (`format_1.rs` then holds `StepV1`, `InputV1`, …), with
//!    `TryFrom` into the next format's types: one conversion per step up, applied once, on decode;
//! 2. raise [`CURRENT`], add the new row to [`FORMATS`], and store a sample of it in `samples/`;
//! 3. keep the old row's `encode` for one release, so that a binary can still write the old format until
//!    `weir log finalize-upgrade` has been run.
//!
//! `tests/second_format.rs` does exactly this with a format 0 that never existed outside the tests.
//!
//! Not here: the envelope around the payload, its checksum and its chain (the package `weir-log`).

mod bytes;
mod format_1;

use weir_kernel::{Event, Step};

pub use bytes::{PAYLOAD_MAX, from_bytes, to_bytes};

/// The format that this version writes once an upgrade is finalized, and the newest that it reads.
pub const CURRENT: u16 = 1;

/// What went wrong inside a payload, in words.
pub type Fault = String;

/// Appends values to a buffer in one format.
pub type Encode<T> = fn(&[T], &mut Vec<u8>) -> Result<(), Fault>;

/// One format: how to read it as today's types and, where this version still can, how to write it.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Its number, as it stands in every batch.
    pub number: u16,
    /// The first version of Weir that wrote it.
    pub since: &'static str,
    /// Reads steps and converts them to the kernel's types.
    pub decode: fn(&[u8]) -> Result<Vec<Step>, Fault>,
    /// Reads the events of a snapshot and converts them to the kernel's types.
    pub decode_events: fn(&[u8]) -> Result<Vec<Event>, Fault>,
    /// Appends steps to the buffer; `None` where this version can no longer write the format.
    pub encode: Option<Encode<Step>>,
    /// Appends the events of a snapshot to the buffer.
    pub encode_events: Option<Encode<Event>>,
}

/// Every format ever written, oldest first.
pub const FORMATS: &[Format] = &[format_1::FORMAT];

/// Why a payload could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigrationError {
    /// A later version of Weir wrote it.
    #[error(
        "format {format} was written by a newer version of Weir; this one ({}) reads formats {oldest} to {newest}: \
         use the newer version",
        env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// The format found.
        format: u16,
        /// The oldest format this version reads.
        oldest: u16,
        /// The newest format this version reads.
        newest: u16,
    },
    /// No version of Weir ever wrote it.
    #[error("format {format} was never written by any version of Weir (known: {oldest} to {newest})")]
    Unknown {
        /// The format found.
        format: u16,
        /// The oldest format this version reads.
        oldest: u16,
        /// The newest format this version reads.
        newest: u16,
    },
    /// The format is known, but the bytes do not follow it.
    #[error("not a valid payload of format {format}: {fault}")]
    Malformed {
        /// The format.
        format: u16,
        /// What is wrong.
        fault: Fault,
    },
    /// The format can be read but no longer (or not with these steps) be written.
    #[error("cannot write format {format}: {fault}")]
    NotWritable {
        /// The format.
        format: u16,
        /// Why.
        fault: Fault,
    },
}

/// Reads the steps of a payload, whatever format it was written in, as today's types.
///
/// # Errors
/// [`MigrationError`]: an unknown format by its number; a payload that is cut, too long, altered or followed by
/// anything. A corrupt length never makes it allocate more than a small multiple of the payload.
pub fn decode(format: u16, payload: &[u8]) -> Result<Vec<Step>, MigrationError> {
    decode_with(FORMATS, format, payload)
}

/// [`decode`] over a given table of formats.
///
/// # Errors
/// As [`decode`].
pub fn decode_with(table: &[Format], format: u16, payload: &[u8]) -> Result<Vec<Step>, MigrationError> {
    let row = find(table, format)?;
    (row.decode)(payload).map_err(|fault| MigrationError::Malformed { format, fault })
}

/// Reads the events of a snapshot, whatever format it was written in.
///
/// # Errors
/// As [`decode`].
pub fn decode_events(format: u16, payload: &[u8]) -> Result<Vec<Event>, MigrationError> {
    let row = find(FORMATS, format)?;
    (row.decode_events)(payload).map_err(|fault| MigrationError::Malformed { format, fault })
}

/// Appends steps in the given format to the buffer.
///
/// # Errors
/// [`MigrationError::NotWritable`] if this version cannot write that format (or these steps in it); an unknown
/// format by its number.
pub fn encode(format: u16, steps: &[Step], to: &mut Vec<u8>) -> Result<(), MigrationError> {
    let row = find(FORMATS, format)?;
    let encode = row.encode.ok_or_else(|| too_old(format))?;
    encode(steps, to).map_err(|fault| MigrationError::NotWritable { format, fault })
}

/// Appends the events of a snapshot in the given format to the buffer.
///
/// # Errors
/// As [`encode`].
pub fn encode_events(format: u16, events: &[Event], to: &mut Vec<u8>) -> Result<(), MigrationError> {
    let row = find(FORMATS, format)?;
    let encode = row.encode_events.ok_or_else(|| too_old(format))?;
    encode(events, to).map_err(|fault| MigrationError::NotWritable { format, fault })
}

/// Can this version write that format?
pub fn writable(format: u16) -> bool {
    find(FORMATS, format).is_ok_and(|row| row.encode.is_some())
}

/// Looks up a format.
///
/// # Errors
/// [`MigrationError::Newer`] or [`MigrationError::Unknown`], by number.
pub fn find(table: &[Format], format: u16) -> Result<&Format, MigrationError> {
    if let Some(row) = table.iter().find(|row| row.number == format) {
        return Ok(row);
    }
    let oldest = table.first().map_or(CURRENT, |row| row.number);
    let newest = table.last().map_or(CURRENT, |row| row.number);
    if format > newest {
        Err(MigrationError::Newer { format, oldest, newest })
    } else {
        Err(MigrationError::Unknown { format, oldest, newest })
    }
}

fn too_old(format: u16) -> MigrationError {
    let fault = format!(
        "this version only reads it; it writes format {CURRENT} (run `weir log finalize-upgrade` with the version before)"
    );
    MigrationError::NotWritable { format, fault }
}
