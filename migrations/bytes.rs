//! The one place that knows bincode: its configuration, its limits, and that a payload must be consumed whole.

use crate::Fault;
use bincode::config::{Configuration, LittleEndian, NoLimit, Varint, standard};
use bincode::enc::write::Writer;
use bincode::error::EncodeError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest payload, in bytes before compression. A batch is cut long before this.
pub const PAYLOAD_MAX: usize = 8 << 20;

const fn config() -> Configuration<LittleEndian, Varint, NoLimit> {
    standard()
}

// The limit counts bytes as they are in memory (a `u128` of one byte on disk counts 16), hence the factor. It bounds
// what a corrupt length can allocate; it comes as a type, hence the three sizes.
const SMALL: usize = 64 << 10;
const MEDIUM: usize = 1 << 20;
const FACTOR: usize = 16;

/// Reads a value that fills the bytes exactly.
///
/// # Errors
/// In words: what bincode found, bytes left over, or more than [`PAYLOAD_MAX`].
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    let config = config();
    let read = if bytes.len() <= SMALL {
        bincode::serde::decode_from_slice(bytes, config.with_limit::<{ SMALL * FACTOR }>())
    } else if bytes.len() <= MEDIUM {
        bincode::serde::decode_from_slice(bytes, config.with_limit::<{ MEDIUM * FACTOR }>())
    } else if bytes.len() <= PAYLOAD_MAX {
        bincode::serde::decode_from_slice(bytes, config.with_limit::<{ PAYLOAD_MAX * FACTOR }>())
    } else {
        return Err(format!("{} bytes, more than the {PAYLOAD_MAX} allowed", bytes.len()));
    };
    let (value, used): (T, usize) = read.map_err(|error| error.to_string())?;
    if used != bytes.len() {
        return Err(format!("{} bytes left over after {used}", bytes.len() - used));
    }
    Ok(value)
}

struct Append<'a>(&'a mut Vec<u8>);

impl Writer for Append<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Appends a value to the buffer.
///
/// # Errors
/// In words, if the type cannot be written.
pub fn to_bytes<T: Serialize + ?Sized>(value: &T, to: &mut Vec<u8>) -> Result<(), Fault> {
    bincode::serde::encode_into_writer(value, Append(to), config()).map_err(|error| error.to_string())
}
