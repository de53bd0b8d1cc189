//! Caller ids and fairness ids as keyed hashes, where the settings want that (`weir.log.pseudonymise`): the log then holds
//! nobody's names, and with the key gone nothing in it can be led back to anybody.
//!
//! HMAC-SHA-256 (RFC 2104) of a word for the kind and the id, cut to 96 bits: alike ids stay alike, so that fairness and
//! the questions after an incident work as before. The key lies in a file of its own, never in the log.

use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};
use weir_kernel::DEFAULT_FLOW;

/// Bytes of a key, at least.
const KEY_MIN: usize = 32;
/// Block size of SHA-256.
const BLOCK: usize = 64;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
#[error("weir.log.pseudonymise: {}: {what}; allowed: a file with at least 32 bytes that nobody can guess", file.display())]
pub struct PseudonymError {
    file: PathBuf,
    what: String,
}

/// A key, ready for use.
#[derive(Clone)]
pub struct Pseudonyms {
    inner: Sha256,
    outer: Sha256,
}

impl fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pseudonyms")
    }
}

impl Pseudonyms {
    /// Reads the key. Space at its end does not count, so that an editor's line end changes nothing.
    ///
    /// # Errors
    /// The file cannot be read, or holds too little.
    pub fn load(file: &Path) -> Result<Self, PseudonymError> {
        let failed = |what: String| PseudonymError { file: file.to_owned(), what };
        let bytes = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
        let key = bytes.trim_ascii_end();
        if key.len() < KEY_MIN {
            return Err(failed(format!("{} bytes", key.len())));
        }
        Ok(Pseudonyms::of(key))
    }

    fn of(key: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        if key.len() > BLOCK {
            block[..32].copy_from_slice(&Sha256::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let padded = |pad: u8| Sha256::new_with_prefix(block.map(|byte| byte ^ pad));
        Pseudonyms { inner: padded(0x36), outer: padded(0x5c) }
    }

    fn mac(&self, kind: &str, id: &str) -> [u8; 32] {
        let mut inner = self.inner.clone();
        inner.update(kind.as_bytes());
        inner.update([0]);
        inner.update(id.as_bytes());
        let mut outer = self.outer.clone();
        outer.update(inner.finalize());
        outer.finalize().into()
    }

    fn pseudonym(&self, kind: &str, id: &str) -> String {
        let mut text = "p-".to_owned();
        for byte in &self.mac(kind, id)[..12] {
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }

    /// Of a caller's own id; none stays none.
    pub fn caller(&self, id: &str) -> String {
        if id.is_empty() { String::new() } else { self.pseudonym("caller", id) }
    }

    /// Of a fairness id; the default flow is nobody's.
    pub fn flow(&self, id: &str) -> String {
        if id.is_empty() || id == DEFAULT_FLOW { id.to_owned() } else { self.pseudonym("flow", id) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_hmac_sha_256() {
        // RFC 4231, test case 2, whose data has no kind before it: the same construction over the bytes as they are.
        let keys = Pseudonyms::of(b"Jefe");
        let mut inner = keys.inner.clone();
        inner.update(b"what do ya want for nothing?");
        let mut outer = keys.outer.clone();
        outer.update(inner.finalize());
        let mac: [u8; 32] = outer.finalize().into();
        assert_eq!(mac[..8], [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]);
        // Test case 6: a key longer than a block.
        let keys = Pseudonyms::of(&[0xaa; 131]);
        let mut inner = keys.inner.clone();
        inner.update(b"Test Using Larger Than Block-Size Key - Hash Key First");
        let mut outer = keys.outer.clone();
        outer.update(inner.finalize());
        let mac: [u8; 32] = outer.finalize().into();
        assert_eq!(mac[..8], [0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f]);
    }

    #[test]
    fn alike_stays_alike_and_kinds_and_keys_differ() {
        let (one, other) = (Pseudonyms::of(&[1; 32]), Pseudonyms::of(&[2; 32]));
        assert_eq!(one.flow("tenant-a"), one.flow("tenant-a"));
        assert_ne!(one.flow("tenant-a"), one.flow("tenant-b"));
        assert_ne!(one.flow("tenant-a"), one.caller("tenant-a"));
        assert_ne!(one.flow("tenant-a"), other.flow("tenant-a"));
        assert_eq!(one.flow("tenant-a").len(), 26);
        assert_eq!((one.flow(""), one.caller("")), (String::new(), String::new()));
        assert_eq!(one.flow(DEFAULT_FLOW), DEFAULT_FLOW);
    }

    #[test]
    fn a_key_that_is_too_short_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let refused = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Pseudonyms::load(&file).unwrap_err().to_string()
        };
        assert!(refused(&"x".repeat(31)).contains("31 bytes"));
        assert!(refused(&format!("{}\n\n", "x".repeat(31))).contains("allowed"));
        assert!(Pseudonyms::load(&dir.path().join("none")).is_err());
        std::fs::write(&file, "x".repeat(32)).unwrap();
        assert_eq!(
            Pseudonyms::load(&file).unwrap().flow("a"),
            Pseudonyms::of("x".repeat(32).as_bytes()).flow("a")
        );
    }
}
