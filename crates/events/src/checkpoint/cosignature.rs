//! Cosignatures of witnesses: Ed25519 with a timestamp (C2SP tlog-cosignature, `cosignature/v1`).
//!
//! ```text
//! signature line  — name base64(key id (4) || time, seconds since 1970 (8, big-endian) || Ed25519 (64))
//! signed message  cosignature/v1\ntime <seconds>\n<text of the note>
//! ```
//!
//! The forms of the keys are those of `key`, with 0x04 instead of 0x01.
//!
//! Invariant: a key of a witness never signs or verifies a note, and a note's key never cosigns.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use forebay_base::fs::FileSystem;

use super::key::{COSIGNATURE_TYPE, KeyError, KeyFileError, create_key, load_key_of};
use super::{NoteError, NoteSignature, SignedNote, SigningKey, VerifierKey};

/// Size of the timestamp before a signature.
const TIME_SIZE: usize = 8;

/// Verifies the cosignatures of a witness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CosignerKey(VerifierKey);

/// Cosigns on behalf of a witness.
#[derive(Debug)]
pub struct CosigningKey {
    key: SigningKey,
    cosigner: CosignerKey,
}

impl CosignerKey {
    /// Name of the witness.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether a signature names this key.
    #[must_use]
    pub fn is_named_by(&self, signature: &NoteSignature) -> bool {
        signature.name == self.0.name() && signature.key_id == self.0.key_id()
    }

    /// Verifies that the witness cosigned the note, and returns when: seconds since 1970, of the
    /// newest cosignature.
    ///
    /// # Errors
    /// [`NoteError::NotSigned`] without a cosignature by the key; [`NoteError::Signature`] if one with
    /// its name and id is not valid.
    pub fn verify(&self, note: &SignedNote) -> Result<u64, NoteError> {
        let mut newest = None;
        for signature in note.signatures().iter().filter(|it| self.is_named_by(it)) {
            let wrong = || NoteError::Signature { key: self.0.label() };
            let (time, rest) =
                signature.signature.split_first_chunk::<TIME_SIZE>().ok_or_else(wrong)?;
            let time_s = u64::from_be_bytes(*time);
            let is_time = i64::try_from(time_s).is_ok();
            if !is_time || !self.0.verifies(message(time_s, note.text()).as_bytes(), rest) {
                return Err(wrong());
            }
            newest = newest.max(Some(time_s));
        }
        newest.ok_or_else(|| NoteError::NotSigned { key: self.0.label() })
    }
}

impl fmt::Display for CosignerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for CosignerKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        VerifierKey::parse(text, COSIGNATURE_TYPE).map(Self)
    }
}

impl CosigningKey {
    fn of(key: SigningKey) -> Self {
        let cosigner = CosignerKey(key.verifier().clone());
        Self { key, cosigner }
    }

    /// The key of the witness `name` with this seed.
    ///
    /// # Errors
    /// [`KeyError::Name`].
    pub fn from_seed(name: &str, seed: [u8; 32]) -> Result<Self, KeyError> {
        SigningKey::from_seed_of(name, COSIGNATURE_TYPE, seed).map(Self::of)
    }

    /// Creates a new key.
    ///
    /// # Errors
    /// [`KeyError::Name`], [`KeyError::Random`].
    pub fn generate(name: &str) -> Result<Self, KeyError> {
        SigningKey::generate_of(name, COSIGNATURE_TYPE).map(Self::of)
    }

    /// Reads the key of a witness; `None` if there is no file.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn load(fs: &dyn FileSystem, path: &Path) -> Result<Option<Self>, KeyFileError> {
        Ok(load_key_of(fs, path, COSIGNATURE_TYPE)?.map(Self::of))
    }

    /// Stores a new key, as [`create_key`] does.
    ///
    /// # Errors
    /// [`KeyFileError::Io`].
    pub fn create(&self, fs: &dyn FileSystem, path: &Path) -> Result<(), KeyFileError> {
        create_key(fs, path, &self.key)
    }

    /// Returns the key that verifies its cosignatures.
    #[must_use]
    pub fn cosigner(&self) -> &CosignerKey {
        &self.cosigner
    }

    /// Cosigns the text of a note at a time, in seconds since 1970.
    #[must_use]
    pub fn cosign(&self, text: &str, time_s: u64) -> NoteSignature {
        let signature = self.key.sign(message(time_s, text).as_bytes());
        NoteSignature {
            name: self.cosigner.name().to_owned(),
            key_id: self.key.verifier().key_id(),
            signature: [time_s.to_be_bytes().as_slice(), &signature].concat(),
        }
    }
}

fn message(time_s: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {time_s}\n{text}")
}

#[cfg(test)]
mod tests;
