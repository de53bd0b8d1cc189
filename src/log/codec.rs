//! How the payload of a batch is packed: plain, or zstd. The types inside are the business of `weir-migrations`.

use crate::fault::FrameFault;
use weir_migrations::PAYLOAD_MAX;

/// How a payload is packed. Numbers are on disk: append, never renumber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// As it is.
    #[default]
    Plain,
    /// One zstd frame.
    Zstd,
}

impl Codec {
    /// The number on disk.
    pub const fn number(self) -> u8 {
        match self {
            Codec::Plain => 0,
            Codec::Zstd => 1,
        }
    }

    /// From the number on disk.
    ///
    /// # Errors
    /// A number that this version does not know.
    pub const fn from_number(number: u8) -> Result<Codec, FrameFault> {
        match number {
            0 => Ok(Codec::Plain),
            1 => Ok(Codec::Zstd),
            found => Err(FrameFault::Codec { found }),
        }
    }

    /// Packs a payload with the given zstd level (1 to 19; ignored by [`Codec::Plain`]).
    ///
    /// # Errors
    /// What zstd says; it has no reason to on a buffer in memory.
    pub fn pack(self, raw: &[u8], level: i32) -> Result<Vec<u8>, FrameFault> {
        match self {
            Codec::Plain => Ok(raw.to_vec()),
            Codec::Zstd => zstd::bulk::compress(raw, level)
                .map_err(|error| FrameFault::Payload { fault: format!("zstd: {error}") }),
        }
    }

    /// Unpacks a payload that must be exactly `raw_len` bytes; never allocates more than that (at most 8 MiB).
    ///
    /// # Errors
    /// A length beyond the limit or not as announced, and what zstd says.
    pub fn unpack(self, packed: &[u8], raw_len: usize) -> Result<Vec<u8>, FrameFault> {
        if raw_len > PAYLOAD_MAX {
            return Err(FrameFault::TooLong { found: raw_len as u64, allowed: PAYLOAD_MAX as u64 });
        }
        let raw = match self {
            Codec::Plain => packed.to_vec(),
            Codec::Zstd => zstd::bulk::decompress(packed, raw_len)
                .map_err(|error| FrameFault::Payload { fault: format!("zstd: {error}") })?,
        };
        if raw.len() != raw_len {
            let fault = format!("unpacks to {} bytes, {raw_len} announced", raw.len());
            return Err(FrameFault::Payload { fault });
        }
        Ok(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks_and_bounds_what_it_allocates() {
        let raw = b"the same words again and the same words again and the same words".to_vec();
        for codec in [Codec::Plain, Codec::Zstd] {
            let packed = codec.pack(&raw, 1).unwrap();
            assert_eq!(codec.unpack(&packed, raw.len()).unwrap(), raw);
            assert!(codec.unpack(&packed, raw.len() - 1).is_err(), "{codec:?} shorter than it is");
            assert!(codec.unpack(&packed, raw.len() + 1).is_err(), "{codec:?} longer than it is");
            assert!(matches!(codec.unpack(&packed, usize::MAX), Err(FrameFault::TooLong { .. })));
            assert_eq!(Codec::from_number(codec.number()).unwrap(), codec);
        }
        assert!(Codec::Zstd.unpack(&raw, 10).is_err());
        assert_eq!(Codec::from_number(9), Err(FrameFault::Codec { found: 9 }));
    }
}
