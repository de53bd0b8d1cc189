//! Tokens and their digests.
//!
//! A token is `weir_` and 256 random bits. Its file holds the SHA-256 alone: a slow, salted hash is for what people
//! choose; nobody tries 2^256 tokens, however fast each try is, and every request pays for the hash.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;
use subtle::ConstantTimeEq;

/// What every token of ours begins with, so that it is told from other bearer tokens, and found where it leaked.
pub const PREFIX: &str = "weir_";

/// The token of these random bytes.
pub fn token(random: &[u8; 32]) -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random))
}

/// The SHA-256 of a token. Compared in constant time.
#[derive(Clone, Copy, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of a token as it was presented.
    pub fn of(token: &[u8]) -> Self {
        Digest(Sha256::digest(token).into())
    }

    /// The part by which it is found. How long a look-up by it takes tells about the digest of what was presented, which
    /// whoever presented it knows; a token with a chosen digest cannot be made.
    pub fn short(&self) -> [u8; 8] {
        let mut short = [0; 8];
        short.copy_from_slice(&self.0[..8]);
        short
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ALLOWED: &str = "64 hexadecimal digits, as `weir token new` prints them";
        let bytes = text.as_bytes();
        if bytes.len() != 64 {
            return Err(ALLOWED);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(ALLOWED);
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(bytes.chunks_exact(2)) {
            *byte = (16 * digit(pair[0])? + digit(pair[1])?) as u8;
        }
        Ok(Digest(digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_as_they_are_written() {
        let token = token(&[7; 32]);
        assert_eq!((token.len(), &token[..5]), (48, PREFIX));
        let digest = Digest::of(token.as_bytes());
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(digest.to_string().to_uppercase().parse(), Ok(digest));
        assert_ne!(Digest::of(b"weir_"), digest);
        // Of the empty text, from FIPS 180-4.
        assert!(Digest::of(b"").to_string().starts_with("e3b0c44298fc1c149afbf4c8996fb924"));
        assert_eq!(format!("{digest:?}"), "Digest(..)");
        for bad in ["", "e3b0", &"g".repeat(64), &"é".repeat(32)] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
