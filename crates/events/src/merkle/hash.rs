//! A hash of the tree, and its text: 64 hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a hash.
pub const HASH_SIZE: usize = 32;

/// A SHA-256 hash: of a leaf, of a node, or of a whole tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct Hash(pub [u8; HASH_SIZE]);

/// A text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash must have 64 hexadecimal digits")]
pub struct HashTextError;

impl Hash {
    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; HASH_SIZE] {
        &self.0
    }
}

impl From<[u8; HASH_SIZE]> for Hash {
    fn from(bytes: [u8; HASH_SIZE]) -> Self {
        Self(bytes)
    }
}

impl AsRef<[u8]> for Hash {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = HashTextError;

    fn from_str(text: &str) -> Result<Self, HashTextError> {
        let mut bytes = [0; HASH_SIZE];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| HashTextError)?;
        Ok(Self(bytes))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_are_the_same_hash() {
        let hash = Hash(std::array::from_fn(|i| u8::try_from(i * 7).unwrap()));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().to_uppercase().parse(), Ok(hash));
        let json = serde_json::to_string(&hash).unwrap();
        assert_eq!(json, format!("\"{hash}\""));
        assert_eq!(serde_json::from_str::<Hash>(&json).unwrap(), hash);
    }

    #[test]
    fn other_texts_are_refused() {
        let good = Hash::default().to_string();
        let short = &good[1..];
        for text in ["", short, &format!("{good}0"), &format!("{short}g"), &format!("{short}é")] {
            assert_eq!(text.parse::<Hash>(), Err(HashTextError), "{text}");
        }
    }
}
