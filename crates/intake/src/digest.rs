//! SHA-256 digests: the address of a blob.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of a blob's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Hashes `bytes` (with SHA instructions where the processor has them).
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Hashes several parts, each preceded by its length, so that no two lists of parts collide.
    #[must_use]
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Reads 64 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut out = [0u8; 32];
        for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
            let text = std::str::from_utf8(pair).ok()?;
            if !pair.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            *byte = u8::from_str_radix(text, 16).ok()?;
        }
        Some(Self(out))
    }

    /// The digest as 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        // Digits only, so always valid.
        String::from_utf8(self.hex().to_vec()).unwrap_or_default()
    }

    /// The same digits as bytes.
    #[must_use]
    pub(crate) fn hex(self) -> [u8; 64] {
        let mut digits = [0; 64];
        push_hex(&self.0, &mut digits);
        digits
    }
}

/// Writes two lower-case hexadecimal digits for each byte, until `digits` is full.
pub(crate) fn push_hex(bytes: &[u8], digits: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.to_hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_reads_back_and_refuses_anything_else() {
        let digest = Digest::of(b"forebay");
        assert_eq!(Digest::from_hex(&digest.to_hex()), Some(digest));
        assert_eq!(Digest::from_hex("zz"), None);
        assert_eq!(Digest::from_hex(&"+f".repeat(32)), None);
    }

    #[test]
    fn lists_of_parts_with_equal_concatenations_differ() {
        assert_ne!(Digest::of_parts(&[b"ab", b"c"]), Digest::of_parts(&[b"a", b"bc"]));
    }
}
