//! Checksums that a client sends with a piece of an upload.
//!
//! They are compared in ordinary time: a client proves nothing with them, and they guard against
//! accidents on the way.

use std::fmt;

use md5::{Digest as _, Md5};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// A kind of checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumKind {
    /// SHA-1, 20 bytes.
    Sha1,
    /// SHA-256, 32 bytes.
    Sha256,
    /// MD5, 16 bytes.
    Md5,
    /// CRC-32 (ISO 3309, as in gzip), 4 bytes, big-endian.
    Crc32,
}

impl ChecksumKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Sha1, Self::Sha256, Self::Md5, Self::Crc32];

    /// Its name in the tus protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Md5 => "md5",
            Self::Crc32 => "crc32",
        }
    }

    /// Number of bytes of such a checksum.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Md5 => 16,
            Self::Crc32 => 4,
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A checksum that bytes are expected to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    /// Its kind.
    pub kind: ChecksumKind,
    /// Its bytes. A value of the wrong size matches nothing.
    pub value: Vec<u8>,
}

/// Computes a checksum.
pub(super) enum Hasher {
    Ring(Context),
    Md5(Md5),
    Crc32(crc32fast::Hasher),
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

impl Hasher {
    pub(super) fn new(kind: ChecksumKind) -> Self {
        match kind {
            ChecksumKind::Sha1 => Self::Ring(Context::new(&SHA1_FOR_LEGACY_USE_ONLY)),
            ChecksumKind::Sha256 => Self::Ring(Context::new(&SHA256)),
            ChecksumKind::Md5 => Self::Md5(Md5::new()),
            ChecksumKind::Crc32 => Self::Crc32(crc32fast::Hasher::new()),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Ring(context) => context.update(bytes),
            Self::Md5(hasher) => hasher.update(bytes),
            Self::Crc32(hasher) => hasher.update(bytes),
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        match self {
            Self::Ring(context) => context.finish().as_ref().to_vec(),
            Self::Md5(hasher) => hasher.finalize().to_vec(),
            Self::Crc32(hasher) => hasher.finalize().to_be_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standards() {
        // FIPS 180-4, RFC 1321 and the check value of CRC-32.
        for (kind, input, expected) in [
            (ChecksumKind::Sha1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                ChecksumKind::Sha256,
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (ChecksumKind::Md5, "abc", "900150983cd24fb0d6963f7d28e17f72"),
            (ChecksumKind::Crc32, "123456789", "cbf43926"),
        ] {
            let mut hasher = Hasher::new(kind);
            input.as_bytes().iter().for_each(|byte| hasher.update(&[*byte]));
            let found = hasher.finish();
            assert_eq!(hex::encode(&found), expected, "{}", kind.name());
            assert_eq!(found.len(), kind.size());
            assert_eq!(ChecksumKind::of_name(kind.name()), Some(kind));
        }
        assert_eq!(ChecksumKind::of_name("SHA1"), None);
    }
}
