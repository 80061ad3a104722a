//! Codes that authenticate the store's own files: one who can write the directory can correct a
//! checksum, but cannot make a code without the key (`docs/formats/event-authentication.md`).
//!
//! A code is a keyed BLAKE3 of what a file says. Its key is derived from the secret and the name of
//! the store's signing key, and nothing else is done with it. What is hashed begins with the kind of
//! the file and the id of the store's log, so that a code is valid only for one kind of file of one
//! store.
//!
//! ```text
//! body        starts with magic and version
//! code        32 bytes
//! crc32c u32  of everything before: distinguishes damage from what another changed
//! ```
//!
//! Invariant: what has no valid code is never used as if it had one.

#![deny(clippy::indexing_slicing)]

use std::fmt;

use forebay_base::checksum::crc32c;

use crate::checkpoint::SigningKey;

/// Size of a code in bytes.
pub(crate) const CODE_SIZE: usize = 32;
/// What a sealed file has besides its body.
pub(crate) const SEAL_SIZE: usize = CODE_SIZE + 4;

/// What the key is derived for; never changes.
const CONTEXT: &str = "forebay 2026-11-24 event store, codes of its files";

/// The code of something that does not have a valid one.
pub(crate) const UNAUTHENTIC: &str =
    "its authentication code is not that of this store: it was replaced or changed";

/// A code.
pub(crate) type Code = [u8; CODE_SIZE];

/// What a code is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Manifest,
    Arrivals,
    Requests,
    /// An entry of the log with the note of a request.
    Note,
    /// An entry of the log with events alone.
    Batch,
}

impl Kind {
    /// What is hashed first; all have the same size.
    fn label(self) -> &'static [u8; 8] {
        match self {
            Self::Manifest => b"manifest",
            Self::Arrivals => b"arrivals",
            Self::Requests => b"requests",
            Self::Note => b"log note",
            Self::Batch => b"log data",
        }
    }
}

/// Makes and checks the codes of one store.
#[derive(Clone)]
pub(crate) struct FileKey([u8; 32]);

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileKey")
    }
}

impl FileKey {
    pub(crate) fn of(key: &SigningKey) -> Self {
        Self(key.derive(CONTEXT))
    }

    /// The code of some bytes.
    pub(crate) fn code(&self, kind: Kind, log_id: &[u8; 16], bytes: &[u8]) -> Code {
        *self.hash(kind, log_id, bytes).as_bytes()
    }

    /// Whether a code is that of the bytes.
    pub(crate) fn confirms(
        &self,
        kind: Kind,
        log_id: &[u8; 16],
        bytes: &[u8],
        code: &Code,
    ) -> bool {
        // This comparison takes the same time wherever they differ.
        self.hash(kind, log_id, bytes) == blake3::Hash::from_bytes(*code)
    }

    fn hash(&self, kind: Kind, log_id: &[u8; 16], bytes: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(kind.label()).update(log_id).update(bytes).finalize()
    }
}

/// The key of a store's codes, and the id of its log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sealer<'a> {
    pub(crate) key: &'a FileKey,
    pub(crate) log_id: &'a [u8; 16],
}

impl Sealer<'_> {
    /// Adds code and checksum to the body of a file.
    pub(crate) fn seal(&self, kind: Kind, mut body: Vec<u8>) -> Vec<u8> {
        let code = self.key.code(kind, self.log_id, &body);
        body.extend_from_slice(&code);
        checked(body)
    }

    /// Returns the body of a file without its checksum, if its code is valid.
    pub(crate) fn unseal<'a>(&self, kind: Kind, bytes: &'a [u8]) -> Result<&'a [u8], &'static str> {
        let (body, code) = bytes.split_last_chunk::<CODE_SIZE>().ok_or(SHORT)?;
        let confirmed = self.key.confirms(kind, self.log_id, body, code);
        if confirmed { Ok(body) } else { Err(UNAUTHENTIC) }
    }
}

/// What is wrong with a file that ends too early.
pub(crate) const SHORT: &str = "it is too short";

/// Adds the checksum to a file.
pub(crate) fn checked(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns a file without its checksum, if that is right.
pub(crate) fn unchecked(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let (bytes, stored) = bytes.split_last_chunk::<4>().ok_or(SHORT)?;
    if crc32c(bytes) == u32::from_le_bytes(*stored) {
        Ok(bytes)
    } else {
        Err("its checksum does not match")
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a failed index is a failed test")]
mod tests {
    use super::*;

    fn key(name: &str, seed: u8) -> FileKey {
        FileKey::of(&SigningKey::from_seed(name, [seed; 32]).unwrap())
    }

    #[test]
    fn a_code_is_valid_only_for_its_kind_store_and_bytes() {
        let (one, id) = (key("one", 1), [7; 16]);
        let code = one.code(Kind::Arrivals, &id, b"body");
        assert!(one.confirms(Kind::Arrivals, &id, b"body", &code));
        assert!(!one.confirms(Kind::Requests, &id, b"body", &code));
        assert!(!one.confirms(Kind::Arrivals, &[8; 16], b"body", &code));
        assert!(!one.confirms(Kind::Arrivals, &id, b"bodx", &code));
        for other in [key("two", 1), key("one", 2)] {
            assert!(!other.confirms(Kind::Arrivals, &id, b"body", &code));
        }
        assert_eq!(format!("{one:?}"), "FileKey");
    }

    #[test]
    fn a_sealed_file_is_read_and_none_with_another_code() {
        let (key, id) = (key("one", 1), [7; 16]);
        let sealer = Sealer { key: &key, log_id: &id };
        let sealed = sealer.seal(Kind::Manifest, b"body".to_vec());
        assert_eq!(sealed.len(), 4 + SEAL_SIZE);
        let inner = unchecked(&sealed).unwrap();
        assert_eq!(sealer.unseal(Kind::Manifest, inner), Ok(&b"body"[..]));
        assert_eq!(sealer.unseal(Kind::Requests, inner), Err(UNAUTHENTIC));
        for at in 0..inner.len() {
            let mut forged = inner.to_vec();
            forged[at] ^= 1;
            // With the checksum corrected.
            let forged = checked(forged);
            let forged = unchecked(&forged).unwrap();
            assert_eq!(sealer.unseal(Kind::Manifest, forged), Err(UNAUTHENTIC));
        }
        assert_eq!(sealer.unseal(Kind::Manifest, b"short"), Err(SHORT));
    }
}
